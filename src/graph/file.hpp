// Files as graphs need them: mapped to read, and complete or not there when written.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace crosswarp::graph {

/// A whole file in memory, read only. Throws error(system).
class mapped_file {
 public:
  explicit mapped_file(const std::string& path);
  ~mapped_file();
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// A file that appears under its name when all of it is written; what is there and is no file (a
/// device, a pipe) is written as it is. Throws error(system).
class new_file {
 public:
  explicit new_file(std::string path);
  /// Unless publish() was called nothing remains.
  ~new_file();
  new_file(const new_file&) = delete;
  new_file& operator=(const new_file&) = delete;

  void write(std::span<const std::byte> bytes);
  void publish();

 private:
  std::string path_;
  std::string temporary_;  ///< empty: path_ is written itself
  int fd_ = -1;
};

}  // namespace crosswarp::graph
