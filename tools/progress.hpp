// What takes long, on a terminal.
#pragma once

#include <string>
#include <thread>

namespace crosswarp::tool {

/// While it lives a line on stderr says what is done and for how long, from the first second on.
/// Nothing where stderr is no terminal.
class progress {
 public:
  explicit progress(const std::string& what);

 private:
  std::jthread teller_;
};

}  // namespace crosswarp::tool
