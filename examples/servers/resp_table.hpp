// The keys of the RESP server: shards with a lock each, all in one span of device memory that many
// connections use at once from many blocks. Zeroes are an empty table.
#pragma once

#include "crosswarp/device/poll.hpp"
#include "list.hpp"
#include "zset.hpp"

namespace servers {

struct table_options {
  std::uint32_t shards = 16;  ///< a power of two, at most 64
  std::uint64_t seed = 0;     ///< of the hashes; unknown to clients, or they can make keys collide
  /// How long a step waits for a lock before it leaves the rest to the next step.
  std::uint64_t lock_ns = 1'000'000;
};

/// A part of the keys and the memory that they are in. All but `lock` and `size` is used under the
/// lock.
struct alignas(dev::line_bytes) shard {
  alignas(dev::line_bytes) std::uint32_t lock;
  alignas(dev::line_bytes) std::uint32_t size;  ///< keys.count, for those without the lock
  std::uint32_t draws;                          ///< how often a random number was needed
  dict keys;
  heap memory;
};

class table {
 public:
  table() = default;
  /// `base`: zeroed, aligned to 256 bytes. `bytes`: at least least_bytes().
  CW_FN table(char* base, std::size_t bytes, const table_options& o) noexcept
      : shards_(reinterpret_cast<shard*>(base)),
        arena_(base + o.shards * sizeof(shard), bytes - o.shards * sizeof(shard)),
        options_(o) {}
  [[nodiscard]] CW_FN static constexpr std::size_t least_bytes(const table_options& o) noexcept {
    return o.shards * sizeof(shard) + 2 * chunk_bytes;
  }

  [[nodiscard]] CW_FN const arena& memory() const noexcept { return arena_; }
  [[nodiscard]] CW_FN std::uint32_t shard_count() const noexcept { return options_.shards; }
  [[nodiscard]] CW_FN shard& at(std::uint32_t i) const noexcept { return shards_[i]; }
  [[nodiscard]] CW_FN const table_options& options() const noexcept { return options_; }
  [[nodiscard]] CW_FN std::uint64_t hash(text key) const noexcept {
    return hash_of(key, options_.seed);
  }
  [[nodiscard]] CW_FN std::uint32_t shard_of(std::uint64_t hash) const noexcept {
    return static_cast<std::uint32_t>(hash >> 40U) & (options_.shards - 1);
  }
  [[nodiscard]] CW_FN std::uint64_t all_shards() const noexcept {
    return ~std::uint64_t{0} >> (64 - options_.shards);
  }

  /// Keys in all. What other connections do meanwhile may be counted or not.
  [[nodiscard]] CW_FN std::uint64_t size() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < options_.shards; ++i) {
      sum += dev::device_atomic<std::uint32_t>(shards_[i].size).load(dev::order::relaxed);
    }
    return sum;
  }
  /// Blocks of memory in use. Callers: one, nobody else using the table.
  [[nodiscard]] CW_FN std::uint64_t blocks_in_use() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < options_.shards; ++i) sum += shards_[i].memory.blocks;
    return sum;
  }

  /// Forgets all keys. Callers: one, who holds all locks.
  CW_FN void clear() const noexcept {
    for (std::uint32_t i = 0; i < options_.shards; ++i) {
      shards_[i].keys = {};
      shards_[i].memory = {};
      count(shards_[i]);
    }
    arena_.clear();
  }
  /// Tells the others how many keys a shard has now.
  CW_FN static void count(shard& s) noexcept {
    dev::device_atomic<std::uint32_t>(s.size).store(s.keys.count, dev::order::relaxed);
  }

 private:
  shard* shards_ = nullptr;
  arena arena_;
  table_options options_;
};

/// The locks that a step holds. They are kept from one request to the next, as long as these need
/// no others: requests that came together often are for the same keys.
class shard_locks {
 public:
  CW_FN explicit shard_locks(const table& t) noexcept : table_(&t) {}

  /// Holds the locks of these shards, and perhaps more. Takes them in ascending order, so that two
  /// who want several cannot wait for each other. False: it took too long, and none is held.
  [[nodiscard]] CW_COLD CW_FN bool hold(std::uint64_t shards) noexcept {
    if ((shards & ~held_) == 0) return true;
    release();
    dev::deadline by(dev::wait_limits{.timeout_ns = table_->options().lock_ns});
    while (shards != 0) {
      const unsigned i = lowest_bit(shards);
      if (!take(i, by)) {
        release();
        return false;
      }
      held_ |= std::uint64_t{1} << i;
      shards &= shards - 1;
    }
    return true;
  }
  CW_FN void release() noexcept {
    for (; held_ != 0; held_ &= held_ - 1) {
      lock(lowest_bit(held_)).store(0, dev::order::release);  // pairs with take()
    }
  }

 private:
  [[nodiscard]] CW_FN dev::device_atomic<std::uint32_t> lock(unsigned i) const noexcept {
    return dev::device_atomic<std::uint32_t>(table_->at(i).lock);
  }
  [[nodiscard]] CW_FN bool take(unsigned i, dev::deadline& by) const noexcept {
    const auto word = lock(i);
    const auto taken = [&] {
      if (word.load(dev::order::relaxed) != 0) return false;
      std::uint32_t open = 0;
      return word.compare_exchange(open, 1, dev::order::acquire);  // pairs with release()
    };
    return dev::poll_until(taken, by) == crosswarp::status::ok;
  }

  const table* table_;
  std::uint64_t held_ = 0;
};

}  // namespace servers
