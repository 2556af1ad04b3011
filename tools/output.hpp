// A rank's output, line by line.
#pragma once

#include <string>
#include <string_view>

namespace crosswarp::tool {

/// Passes bytes on to a descriptor, with a prefix before each line; a line is never torn apart by
/// another rank's.
class line_writer {
 public:
  line_writer(int fd, std::string prefix) : fd_(fd), prefix_(std::move(prefix)) {}
  void write(std::string_view bytes);
  /// What has no end yet.
  void finish();

  /// While the reader of our output is slow, writing waits; it stops waiting when `fd` is readable,
  /// so that signals are served, and goes on later.
  static void interrupt_by(int fd);
  /// From now on what cannot be written at once is lost: the job is being ended.
  static void give_up_when_blocked();

 private:
  void put(std::string_view line);
  void send(std::string_view bytes);
  int fd_;
  std::string prefix_;
  std::string partial_;
};

}  // namespace crosswarp::tool
