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
  ref rubbish;  ///< entries that are no keys any more, whose values take long to clear
};

/// Releases what belongs to an entry that is in no dict, and the entry, as far as `work` lets it.
/// True: all of it.
CW_COLD CW_FN inline bool clear_entry(const arena& a, heap& h, ref r, int& work) noexcept {
  const auto* const e = a.at<entry>(r);
  bool all = true;
  if (e->what == kind::list) {
    all = a.at<list>(e->it)->clear(a, h, work);
  } else if (e->what == kind::zset) {
    all = a.at<zset>(e->it)->clear(a, h, work);
  } else if (e->what != kind::string) {
    all = a.at<dict>(e->it)->clear(a, h, work);
  }
  if (!all) return false;
  if (e->what != kind::string) a.release(h, e->it);
  a.release(h, r);
  return true;
}

class table {
 public:
  table() = default;
  /// `base`: zeroed, aligned to 256 bytes. `bytes`: at least least_bytes().
  CW_FN table(char* base, std::size_t bytes, const table_options& o) noexcept
      : head_(reinterpret_cast<head*>(base)),
        shards_(reinterpret_cast<shard*>(base + sizeof(head))),
        arena_(base + before_arena(o), bytes - before_arena(o)),
        options_(o) {}
  [[nodiscard]] CW_FN static constexpr std::size_t least_bytes(const table_options& o) noexcept {
    return before_arena(o) + 2 * chunk_bytes;
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
      shards_[i].rubbish = 0;
      count(shards_[i]);
    }
    rubbish().store(0, dev::order::relaxed);
    arena_.clear();
  }
  /// Shards with rubbish, as bits. What others do meanwhile may show or not.
  [[nodiscard]] CW_FN std::uint64_t with_rubbish() const noexcept {
    return rubbish().load(dev::order::relaxed);
  }
  /// An entry that is in no dict goes, now or when somebody sweeps. Callers: who hold the lock.
  CW_FN void dispose(shard& s, ref r, int& work) const noexcept {
    if (clear_entry(arena_, s.memory, r, work)) return;
    arena_.at<entry>(r)->next = s.rubbish;
    s.rubbish = r;
    rubbish().fetch_or(bit_of(s), dev::order::relaxed);  // a hint: the lock orders
  }
  /// Clears some of the rubbish. Callers: who hold the lock.
  CW_FN void sweep(shard& s, int work) const noexcept {
    while (s.rubbish != 0) {
      const ref next = arena_.at<entry>(s.rubbish)->next;
      if (!clear_entry(arena_, s.memory, s.rubbish, work)) return;
      s.rubbish = next;
    }
    rubbish().fetch_and(~bit_of(s), dev::order::relaxed);  // a hint: the lock orders
  }
  /// Tells the others how many keys a shard has now.
  CW_FN static void count(shard& s) noexcept {
    dev::device_atomic<std::uint32_t>(s.size).store(s.keys.count, dev::order::relaxed);
  }

 private:
  struct alignas(256) head {
    std::uint64_t rubbish;  ///< a bit for each shard that has some
  };
  CW_FN static constexpr std::size_t before_arena(const table_options& o) noexcept {
    return sizeof(head) + o.shards * sizeof(shard);
  }
  [[nodiscard]] CW_FN dev::device_atomic<std::uint64_t> rubbish() const noexcept {
    return dev::device_atomic<std::uint64_t>(head_->rubbish);
  }
  [[nodiscard]] CW_FN std::uint64_t bit_of(const shard& s) const noexcept {
    return std::uint64_t{1} << (&s - shards_);
  }

  head* head_ = nullptr;
  shard* shards_ = nullptr;
  arena arena_;
  table_options options_;
};

/// The locks that a step holds. They are kept from one request to the next, as long as these need
/// no others: requests that came together often are for the same keys. Those who only read share
/// them: all may ask for one key at once.
class shard_locks {
 public:
  CW_FN explicit shard_locks(const table& t) noexcept : table_(&t) {}

  /// Holds the locks of these shards, and perhaps more. Takes them in ascending order, so that two
  /// who want several cannot wait for each other. False: it took too long, and none is held.
  [[nodiscard]] CW_COLD CW_FN bool hold(std::uint64_t shards, bool to_write) noexcept {
    if ((shards & ~held_) == 0 && (alone_ || !to_write)) return true;
    release();
    alone_ = to_write;
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
    if (held_ == 0) return;
    dev::fence<dev::scope::device>();  // for all of them
    for (; held_ != 0; held_ &= held_ - 1) {
      const auto word = lock(lowest_bit(held_));
      if (alone_) {
        word.fetch_and(~writer, dev::order::fenced);  // pairs with enter() and close()
      } else {
        word.fetch_add(one_less, dev::order::fenced);  // pairs with close()
      }
    }
  }

 private:
  // A lock counts its readers in the other bits.
  static constexpr std::uint32_t writer = 1U << 31U;   ///< somebody has it alone
  static constexpr std::uint32_t waiting = 1U << 30U;  ///< somebody wants that: no more readers
  static constexpr std::uint32_t one_less = ~0U;

  [[nodiscard]] CW_FN dev::device_atomic<std::uint32_t> lock(unsigned i) const noexcept {
    return dev::device_atomic<std::uint32_t>(table_->at(i).lock);
  }
  [[nodiscard]] CW_FN bool take(unsigned i, dev::deadline& by) const noexcept {
    const auto word = lock(i);
    const auto taken = [&] { return alone_ ? close(word) : enter(word); };
    if (dev::poll_until(taken, by) == crosswarp::status::ok) return true;
    // Others who wait say so again.
    if (alone_) word.fetch_and(~waiting, dev::order::relaxed);
    return false;
  }
  /// To read, with others.
  [[nodiscard]] CW_FN static bool enter(const dev::device_atomic<std::uint32_t>& word) noexcept {
    if (word.load(dev::order::relaxed) >= waiting) return false;
    if (word.fetch_add(1, dev::order::acquire) < waiting) return true;  // pairs with release()
    word.fetch_add(one_less, dev::order::relaxed);                      // it has read nothing
    return false;
  }
  /// To write, alone.
  [[nodiscard]] CW_FN static bool close(const dev::device_atomic<std::uint32_t>& word) noexcept {
    std::uint32_t seen = word.load(dev::order::relaxed);
    if ((seen & ~waiting) == 0) {
      return word.compare_exchange(seen, writer, dev::order::acquire);  // pairs with release()
    }
    if ((seen & waiting) == 0) word.fetch_or(waiting, dev::order::relaxed);
    return false;
  }

  const table* table_;
  std::uint64_t held_ = 0;
  bool alone_ = false;  ///< what is held is held to write
};

}  // namespace servers
