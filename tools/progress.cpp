#include "progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>

namespace crosswarp::tool {

void progress::tell_until(const std::stop_token& end, const std::string& what) {
  std::unique_lock lock(mutex_);
  int seconds = 0;
  while (
      !ended_.wait_for(lock, end, std::chrono::seconds(1), [&] { return end.stop_requested(); })) {
    fmt::print(stderr, "\r{}: {} s\033[K", what, ++seconds);
    std::fflush(stderr);
  }
  if (seconds > 0) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

progress::progress(const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return;
  teller_ = std::jthread([this, what](const std::stop_token& end) { tell_until(end, what); });
}

}  // namespace crosswarp::tool
