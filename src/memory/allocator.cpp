#include "allocator.hpp"

#include <algorithm>
#include <bit>

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::memory {
namespace {

// Blocks begin and end on lines of their own, so that two of them never share one.
constexpr std::size_t granule = 128;

std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

allocator::allocator(std::size_t first, std::size_t last) {
  first = round_up(first, granule);
  if (first < last) free_[first] = last - first;
}

std::size_t allocator::allocate(std::size_t bytes, std::size_t alignment, std::size_t most) {
  if (!std::has_single_bit(alignment) || alignment > most) {
    throw error(errc::invalid_argument, "symmetric allocation",
                "alignment " + std::to_string(alignment) + ": a power of two up to " +
                    std::to_string(most));
  }
  alignment = std::max(alignment, granule);
  std::size_t largest = 0;
  for (const auto& [offset, length] : free_) largest = std::max(largest, length);
  const std::size_t length =
      bytes > largest ? bytes : round_up(std::max<std::size_t>(bytes, 1), granule);
  for (auto it = free_.begin(); length <= largest && it != free_.end(); ++it) {
    const std::size_t start = round_up(it->first, alignment);
    const std::size_t skipped = start - it->first;
    if (it->second < skipped || it->second - skipped < length) continue;
    const auto [from, have] = *it;
    free_.erase(it);
    if (skipped > 0) free_[from] = skipped;
    if (have > skipped + length) free_[start + length] = have - skipped - length;
    taken_[start] = length;
    used_ += length;
    history_ = (history_ ^ start ^ length) * 0x9e3779b97f4a7c15ULL;
    return start;
  }
  throw error(errc::out_of_memory, "symmetric allocation",
              options::print_bytes(bytes) + " asked for, the largest free piece has " +
                  options::print_bytes(largest) + ", " + options::print_bytes(used_) +
                  " are in use; raise --heap of crosswarp run, or CROSSWARP_HEAP");
}

void allocator::release(std::size_t offset) noexcept {
  const auto it = taken_.find(offset);
  if (it == taken_.end()) return;
  std::size_t length = it->second;
  used_ -= length;
  history_ = (history_ ^ ~offset) * 0x9e3779b97f4a7c15ULL;
  taken_.erase(it);
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_[offset] = length;
}

}  // namespace crosswarp::memory
