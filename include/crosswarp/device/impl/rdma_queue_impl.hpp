// Bodies of rdma.hpp: how threads share a work queue; nothing of a provider.
#pragma once

#include "crosswarp/device/impl/atomic_max.hpp"
#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma::impl {

template <group G>
inline constexpr bool is_sole = std::is_same_v<G, sole_producer>;

// Locks of an endpoint are held for a few instructions, and never while something is waited for.
[[nodiscard]] CW_FN inline bool try_lock(std::uint64_t& lock) noexcept {
  const device_atomic<std::uint64_t> word(lock);
  return word.load(order::relaxed) == 0 && word.exchange(1, order::acquire) == 0;  // unlock()
}
CW_FN inline void unlock(std::uint64_t& lock) noexcept {
  device_atomic<std::uint64_t>(lock).store(0, order::release);  // pairs with try_lock()
}
/// The same for what a work queue's threads tell the adapter: `ready` is what it says.
[[nodiscard]] CW_FN inline bool try_lock(const work_queue& q, std::uint64_t& ready) noexcept {
  const device_atomic<std::uint64_t> word(q.state->ready);
  ready = word.load(order::relaxed);
  if ((ready & queue_state::held) != 0) return false;
  return word.compare_exchange(ready, ready | queue_state::held, order::acquire);  // unlock()
}
/// Only when it says `ready`.
[[nodiscard]] CW_FN inline bool try_lock_at(const work_queue& q, std::uint64_t ready) noexcept {
  return device_atomic<std::uint64_t>(q.state->ready)
      .compare_exchange(ready, ready | queue_state::held, order::acquire);  // unlock()
}
CW_FN inline void unlock(const work_queue& q, std::uint64_t ready) noexcept {
  // pairs with try_lock(), try_lock_at()
  device_atomic<std::uint64_t>(q.state->ready).store(ready, order::release);
}
/// For locks: a user's short deadline must not leave an entry that nobody rings for.
[[nodiscard]] CW_FN inline wait_limits patient(const wait_limits& l) noexcept {
  constexpr std::uint64_t least = 10'000'000'000;
  return l.within(l.timeout_ns > least ? l.timeout_ns : least);
}

[[nodiscard]] CW_FN inline std::uint64_t done_of(const work_queue& q) noexcept {
  // pairs with drain_sent(), take_received(), collect_taken(): the adapter has read the places
  // before it
  return device_atomic<std::uint64_t>(q.state->done).load(order::acquire);
}
/// All before `index` is complete. By anybody who has seen so, with or without the lock.
template <store_order O>
CW_FN inline void raise_done(const work_queue& q, std::uint64_t index, O o) noexcept {
  device::impl::raise<scope::device>(q.state->done, index, o);  // pairs with done_of()
}
/// Behind the entry that begins at `index`, which is complete. Only `index` when its place was
/// given out again meanwhile: then somebody else has said so.
[[nodiscard]] CW_FN inline std::uint64_t behind(const work_queue& q, std::uint64_t index) noexcept {
  // Relaxed: the adapter has completed the entry, so it was posted before.
  const std::uint64_t end = device_atomic<std::uint64_t>(q.end_of(index)).load(order::relaxed);
  return end - index <= q.depth / 2 ? end : index;  // none is longer, see reserve()
}
/// A receive that has not been given back is not before it: no more than `depth` are behind it.
[[nodiscard]] CW_FN inline std::uint64_t done_of(const shared_places& q) noexcept {
  return device_atomic<std::uint64_t>(const_cast<std::uint64_t&>(q.state->done))
      .load(order::relaxed);
}
/// Its completion was read.
CW_FN inline void give_back(const shared_places& q, std::uint64_t index) noexcept {
  system_atomic<std::uint64_t>(q.taken[index & (q.depth - 1)])
      .store(1, order::release);  // pairs with collect_taken()
}

/// The first failure stays. By the thread that holds the lock of the completion queue.
CW_FN inline void latch(const work_queue& q, const completion& c) noexcept {
  const device_atomic<std::uint64_t> word(q.state->fault);
  if (word.load(order::relaxed) != 0) return;
  q.state->fault_index = c.index;
  word.store(static_cast<std::uint64_t>(c.why) | static_cast<std::uint64_t>(c.vendor) << 8U,
             order::release);  // pairs with fault_of()
}
[[nodiscard]] CW_FN inline std::uint64_t fault_of(const work_queue& q) noexcept {
  return device_atomic<std::uint64_t>(q.state->fault).load(order::acquire);  // pairs with latch()
}
/// The same for who needs no more than that, or holds the lock: a relaxed look waits for nothing
/// that comes with it.
[[nodiscard]] CW_FN inline bool has_failed(const work_queue& q) noexcept {
  return device_atomic<std::uint64_t>(q.state->fault).load(order::relaxed) != 0;
}

/// An entry or a receive behind one that failed.
[[nodiscard]] CW_FN inline completion flushed_at(std::uint64_t index) noexcept {
  completion c;
  c.index = index;
  c.why = syndrome::flushed;
  c.outcome = status_of(c.why);
  return c;
}

/// Whether all of them are of a length that the provider's adapters can be told.
template <class P>
[[nodiscard]] CW_FN inline bool are_pieces(const segment_list& list) noexcept {
  for (std::uint32_t i = 0; i < list.count; ++i) {
    if (!P::is_piece(list.all[i].bytes)) return false;
  }
  return true;
}

// ---- places

struct place {
  status outcome;
  std::uint64_t first;
};

/// Takes places next to each other once they are free. Only then: so a wait that ends early leaves
/// nothing behind that others would have to step over. `drain` looks for places that became free.
template <class Drain>
[[nodiscard]] CW_FN inline place reserve(const work_queue& q, std::uint32_t blocks,
                                         const wait_limits& limits, Drain&& drain) noexcept {
  // More could wait for an entry that is not signalled.
  if (blocks == 0 || blocks > q.depth / 2) return {status::invalid, 0};
  const device_atomic<std::uint64_t> reserved(q.state->reserved);
  place got{status::ok, 0};
  const auto take = [&] {
    if (fault_of(q) != 0) {
      got.outcome = status_of(syndrome::flushed);
      return true;
    }
    std::uint64_t next = reserved.load(order::relaxed);
    // What is free stays free: so that of many who want a place, each has only its own operation
    // between two tries.
    const std::uint64_t free_until = done_of(q) + q.depth;
    bool full = true;
    for (; reached(free_until, next + blocks); full = false) {
      got.first = next;
      if (reserved.compare_exchange(next, next + blocks, order::relaxed)) return true;
    }
    if (full) drain();
    return false;
  };
  const status waited = poll_until(take, limits);
  if (waited != status::ok) got.outcome = waited;
  return got;
}

/// The same without waiting; false when there is no room, or the queue has failed, or not `wanted`.
/// `alone`: nobody else takes places.
[[nodiscard]] CW_FN inline bool reserve_at_once(const work_queue& q, std::uint32_t blocks,
                                                bool alone, bool wanted,
                                                std::uint64_t& first) noexcept {
  const device_atomic<std::uint64_t> reserved(q.state->reserved);
  first = reserved.load(order::relaxed);
  // Relaxed, and of what it says no more than that it is something: reserve() looks again.
  const auto fault =
      static_cast<std::uint32_t>(device_atomic<std::uint64_t>(q.state->fault).load(order::relaxed));
  const std::uint64_t done = done_of(q);  // last: with acquire, others would wait for it
  // In 32 bits: no queue is deeper. One block always fits.
  const bool room = static_cast<std::uint32_t>(first - done) + blocks <= q.depth &&
                    (blocks == 1 || blocks <= q.depth / 2);
  if (!room || fault != 0 || !wanted) return false;
  if (!alone) return reserved.compare_exchange(first, first + blocks, order::relaxed);
  reserved.store(first + blocks, order::relaxed);
  return true;
}

/// Behind everything that was posted from `ready` on without a gap. Who fills a gap comes here
/// afterwards, so nothing is left behind. With the lock.
[[nodiscard]] CW_FN inline std::uint64_t collect(const work_queue& q,
                                                 std::uint64_t ready) noexcept {
  constexpr int window = tiles_in_flight();
  const std::uint64_t before = ready;
  for (bool more = true; more;) {
    // Of several places at a time: one after the other, each is a trip to a GPU's memory.
    std::uint64_t ends[window];
    for (int i = 0; i < window; ++i) {
      // pairs with publish(), post_recv()
      ends[i] = device_atomic<std::uint64_t>(q.end_of(ready + static_cast<std::uint64_t>(i)))
                    .load(order::fenced);
    }
    const std::uint64_t first = ready;
    for (int i = 0; i < window; ++i) {
      // Else of an earlier lap, or in the midst of an entry.
      const bool begins = ready == first + static_cast<std::uint64_t>(i);
      if (begins && ends[i] > ready) ready = ends[i];
    }
    more = ready - first >= window;
  }
  if (ready != before) fence<scope::device>();
  return ready;
}

/// Runs `f` with the lock, unless `end` was told meanwhile; it gets `ready` and may move it.
template <class Tell>
[[nodiscard]] CW_FN inline status tell(const work_queue& q, std::uint64_t end,
                                       const wait_limits& limits, Tell&& f) noexcept {
  bool locked = false;
  std::uint64_t ready = 0;
  const device_atomic<std::uint64_t> told(q.state->told);
  const status waited = poll_until(
      [&] {
        if (reached(told.load(order::relaxed), end)) return true;
        locked = try_lock(q, ready);
        return locked;
      },
      patient(limits));
  if (!locked) return waited;
  f(ready);
  unlock(q, ready);
  return status::ok;
}

/// An end that was never told, so that the lock is taken.
[[nodiscard]] CW_FN inline std::uint64_t untold(const work_queue& q) noexcept {
  return device_atomic<std::uint64_t>(q.state->told).load(order::relaxed) + q.depth + 1;
}

}  // namespace crosswarp::device::rdma::impl
