// Where in a symmetric heap the next block goes. The same calls give the same offsets on every
// rank, so nothing needs to be exchanged.
#pragma once

#include <cstddef>
#include <map>

namespace crosswarp::memory {

/// First fit over an ordered list of free ranges.
class allocator {
 public:
  /// Hands out offsets in [first, last).
  allocator(std::size_t first, std::size_t last);

  /// Throws error(out_of_memory) with what is left, error(invalid_argument) for an alignment that
  /// is no power of two or more than `most`, which heaps themselves are aligned to.
  std::size_t allocate(std::size_t bytes, std::size_t alignment, std::size_t most);
  void release(std::size_t offset) noexcept;

  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  /// Changes with every step, so that ranks can compare that they took the same ones.
  [[nodiscard]] std::size_t history() const noexcept { return history_; }

 private:
  std::map<std::size_t, std::size_t> free_;   // offset -> length
  std::map<std::size_t, std::size_t> taken_;  // offset -> length
  std::size_t used_ = 0;
  std::size_t history_ = 0;
};

}  // namespace crosswarp::memory
