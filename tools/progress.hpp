// What takes long, on a terminal.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace crosswarp::tool {

/// While it lives a line on stderr says what is done and for how long, from the first second on.
/// Nothing where stderr is no terminal.
class progress {
 public:
  explicit progress(const std::string& what);

 private:
  void tell_until(const std::stop_token& end, const std::string& what);
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread teller_;  // last: it ends before what it waits with
};

}  // namespace crosswarp::tool
