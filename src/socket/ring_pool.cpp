#include "ring_pool.hpp"

#include <algorithm>
#include <cstring>

namespace crosswarp::socket_impl {

ring_pool::ring_pool(std::byte* base, std::uint64_t bytes, stager* staged)
    : base_(base), bytes_(bytes), staged_(staged) {
  // Largest first: each lies at a multiple of its size, so that two halves find each other again.
  std::uint64_t at = 0;
  for (unsigned log2 = most_log2; log2 >= least_log2; --log2) {
    const std::uint64_t size = std::uint64_t{1} << log2;
    for (; bytes - at >= size; at += size) free_[log2].insert(at);
  }
}

std::optional<std::uint64_t> ring_pool::take(unsigned log2) {
  const std::lock_guard lock(guard_);
  return split(log2);
}

std::optional<std::uint64_t> ring_pool::take_larger(unsigned log2) {
  const std::lock_guard lock(guard_);
  const auto kept = static_cast<std::uint64_t>(std::max<std::int64_t>(0, kept_.load()));
  const std::uint64_t left = bytes_ - std::min(bytes_, bytes_in_use() + std::min(kept, bytes_ / 2));
  if (std::uint64_t{1} << log2 > left) return {};
  return split(log2);
}

/// Of the smallest piece that is large enough.
std::optional<std::uint64_t> ring_pool::split(unsigned log2) {
  unsigned from = log2;
  while (from <= most_log2 && free_[from].empty()) ++from;
  if (from > most_log2) return {};
  const std::uint64_t offset = *free_[from].begin();
  free_[from].erase(free_[from].begin());
  while (from > log2) {
    --from;
    free_[from].insert(offset + (std::uint64_t{1} << from));
  }
  in_use_.fetch_add(std::uint64_t{1} << log2, std::memory_order_relaxed);
  return offset;
}

void ring_pool::give_back(std::uint64_t offset, unsigned log2) {
  // The next one finds nothing of what this one had.
  std::memset(base_ + offset, 0, std::size_t{1} << log2);
  bring(offset, std::uint64_t{1} << log2);
  const std::lock_guard lock(guard_);
  in_use_.fetch_sub(std::uint64_t{1} << log2, std::memory_order_relaxed);
  for (; log2 < most_log2; ++log2) {
    const std::uint64_t other = offset ^ (std::uint64_t{1} << log2);
    const auto found = free_[log2].find(other);
    if (found == free_[log2].end()) break;
    free_[log2].erase(found);
    offset &= ~(std::uint64_t{1} << log2);
  }
  free_[log2].insert(offset);
}

}  // namespace crosswarp::socket_impl
