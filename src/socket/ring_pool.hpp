// Memory for rings: powers of two of one block that is allocated at once, as a GPU's driver may
// wait for running kernels when it is asked for memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>

#include "stager.hpp"

namespace crosswarp::socket_impl {

/// Any thread may use it.
class ring_pool {
 public:
  static constexpr unsigned least_log2 = 12;
  static constexpr unsigned most_log2 = 40;

  /// `bytes` from `base` on, of which whole multiples of 4 KiB are used. With `staged` they are the
  /// image of others.
  ring_pool(std::byte* base, std::uint64_t bytes, stager* staged = nullptr);

  /// The offset of 2^`log2` bytes, all zero; nothing when there are no such left.
  std::optional<std::uint64_t> take(unsigned log2);
  /// The same for who has a ring and wants a larger one: what keep() keeps is not for it.
  std::optional<std::uint64_t> take_larger(unsigned log2);
  void give_back(std::uint64_t offset, unsigned log2);

  /// Keeps so many more bytes, or fewer, for who has none yet; of all that is asked for at most
  /// half of the memory is kept.
  void keep(std::int64_t more) noexcept { kept_.fetch_add(more, std::memory_order_relaxed); }

  /// Before kernels are told of bytes that were written here, and before bytes that they have told
  /// of are read here.
  void bring(std::uint64_t offset, std::uint64_t bytes) {
    if (staged_ != nullptr) staged_->bring(offset, bytes);
  }
  void fetch(std::uint64_t offset, std::uint64_t bytes) {
    if (staged_ != nullptr) staged_->fetch(offset, bytes);
  }

  [[nodiscard]] std::byte* at(std::uint64_t offset) const noexcept { return base_ + offset; }
  [[nodiscard]] std::uint64_t bytes_in_use() const noexcept {
    return in_use_.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::optional<std::uint64_t> split(unsigned log2);

  std::byte* base_;
  std::uint64_t bytes_;
  stager* staged_;
  std::mutex guard_;
  std::array<std::set<std::uint64_t>, most_log2 + 1> free_;  // by log2 of their size
  std::atomic<std::uint64_t> in_use_{0};
  std::atomic<std::int64_t> kept_{0};
};

}  // namespace crosswarp::socket_impl
