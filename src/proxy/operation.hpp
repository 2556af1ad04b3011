// What a proxy is made of within: commands on their way, their queues, and the turns in which one
// thread at a time works on them.
#pragma once

#include "proxy.hpp"

namespace crosswarp {

/// A command on its way.
struct proxy::operation : proxy_impl::completion {
  proxy* owner = nullptr;
  queue* from = nullptr;
  std::uint64_t ticket = 0;
  std::uint64_t epoch = 0;
  device::proxy_command c;
  std::uint64_t started = 0;  ///< bytes or blocks that the engine was given
  bool data_started = false;  ///< only the signal is left
  int parts = 0;              ///< not yet done; one for the start itself
  status outcome = status::ok;
  std::chrono::steady_clock::time_point read;  ///< when, if operations are timed
  std::uint64_t began = 0;                     ///< the same, if they are traced
  bool active = false;
  bool answered = false;  ///< before its end, because the world broke
  std::uint64_t result = 0;
  std::byte data[16] = {};  ///< of an inline put
};

/// Memory that an engine may touch, for some bytes of a range that it may not.
struct proxy::chunk : proxy_impl::completion {
  static constexpr std::size_t capacity = 256 * 1024;
  static constexpr std::size_t at_once = 16;
  operation* of = nullptr;
  std::uint64_t local = 0;
  std::size_t bytes = 0;
  buffer<std::byte> memory;
  explicit chunk(device_ref d) : memory(d, capacity, memory_kind::pinned) {}
};

/// One flush of the engine, for the quiets that wait for it.
struct proxy::flush : proxy_impl::completion {
  proxy* owner = nullptr;
  std::vector<operation*> quiets;
};

/// Gives the turn back at the end of a scope.
class proxy::turn_end {
 public:
  explicit turn_end(proxy& p) noexcept : owner_(p) {}
  ~turn_end() {
    owner_.work_in_turn([this] { return owner_.work(); });
  }
  turn_end(const turn_end&) = delete;
  turn_end& operator=(const turn_end&) = delete;

 private:
  proxy& owner_;
};

struct proxy::queue {
  /// What came between two quiets.
  struct epoch {
    std::size_t open = 0;  ///< operations that are not done
    operation* quiet = nullptr;
    status failure = status::ok;  ///< of operations that nobody waits for
  };

  std::uint32_t index = 0;
  std::uint64_t head = 0;  ///< commands read
  /// Where the next command will be, and what its words will be tagged with.
  const device::proxy_entry* next = nullptr;
  std::uint32_t next_tag = 1;
  operation* current = nullptr;
  std::uint64_t first_epoch = 0;
  std::deque<epoch> epochs = std::deque<epoch>(1);
  std::vector<device::proxy_entry> fetched;  ///< copies of entries in a GPU's memory
};

// ---- whose turn it is

/// Runs `work` and gives the turn back; again while somebody asked for it meanwhile.
template <class F>
bool proxy::work_in_turn(F&& work) noexcept {
  constexpr int rounds = 4;
  bool moved = false;
  for (int i = 0;; ++i) {
    moved = work() || moved;
    pending_.store(under_way_ > 0 || unread_, std::memory_order_relaxed);
    std::uint32_t mine = taken;
    if (turn_.compare_exchange_strong(mine, 0, std::memory_order_acq_rel)) return moved;
    // Somebody asked. pairs with attend(): its command is seen by the next round
    turn_.fetch_and(~again, std::memory_order_acq_rel);
    if (i == rounds) break;
  }
  // Enough for a thread that has something else to do.
  turn_.store(0, std::memory_order_release);
  rouse();
  return moved;
}

/// What an engine throws breaks this proxy and not the process.
template <class F>
bool proxy::keep_going(F&& f) noexcept {
  try {
    return f();
  } catch (const std::exception& e) {
    give_up(e.what());
  } catch (...) {
    give_up("an unknown exception");
  }
  return false;
}

}  // namespace crosswarp
