// Rings in a device's own memory, which Linux cannot write: their image in host memory, at the same
// offsets, is what Linux reads and writes, and bytes are copied from the one to the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "crosswarp/buffer.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp::socket_impl {

/// Any thread may use it. A call returns when the bytes are where they are to be, so that who tells
/// of them then tells the truth.
class stager {
 public:
  /// `image` is as long, and of memory that the device reaches.
  stager(device_ref d, std::byte* image, std::size_t bytes);

  /// The rings, for kernels.
  [[nodiscard]] std::byte* rings() const noexcept { return rings_.data(); }
  /// What was written into the image, for kernels.
  void bring(std::uint64_t offset, std::uint64_t bytes);
  /// What kernels wrote, into the image.
  void fetch(std::uint64_t offset, std::uint64_t bytes);

 private:
  void copy(std::byte* to, const std::byte* from, std::uint64_t bytes);

  std::byte* image_;
  buffer<std::byte> rings_;
  std::mutex guard_;
  std::optional<stream> copies_;  // of a GPU: one that waits for no kernel
};

}  // namespace crosswarp::socket_impl
