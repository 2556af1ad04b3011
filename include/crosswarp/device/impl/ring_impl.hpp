// Bodies of ring.hpp.
#pragma once

#include "crosswarp/device/ring.hpp"

namespace crosswarp::device {

// ---- producer

CW_FN inline ring_producer::look ring_producer::wait_for(std::uint64_t want,
                                                         const wait_limits& limits) const noexcept {
  look l{tail_, closed_, status::ok};
  const system_atomic<std::uint64_t> tail(own_->from_consumer.tail);
  const system_atomic<std::uint32_t> closed(own_->from_consumer.closed);
  l.outcome = poll_until(
      [&] {
        l.tail = tail.load(order::acquire);  // pairs with ring_consumer::release()
        if (reached(l.tail, want)) return true;
        l.closed = closed.load(order::relaxed);  // orders nothing: what was sent is lost
        return l.closed != 0;
      },
      limits);
  if (l.outcome == status::ok && l.closed != 0) l.outcome = status::closed;
  return l;
}

template <group G>
CW_FN inline status ring_producer::reserve(const G& g, std::uint64_t n,
                                           const wait_limits& limits) noexcept {
  if (n > capacity_) return status::invalid;
  // The units are free once the consumer has come to within a lap of their end.
  const std::uint64_t want = head_ + n - capacity_;
  if (reached(tail_, want)) return status::ok;
  const look seen = leader_of(g, [&] { return wait_for(want, limits); });
  tail_ = seen.tail;
  closed_ = seen.closed;
  return seen.outcome;
}

template <group G>
CW_FN inline void ring_producer::publish(const G& g, std::uint64_t n) noexcept {
  head_ += n;
  g.sync();  // all threads have filled their part
  if (g.rank() != 0) return;
  own_->own.head = head_;
  // pairs with ring_consumer::wait_for()
  system_atomic<std::uint64_t>(inbox_->from_producer.head).store(head_, order::release);
}

template <group G>
CW_FN inline void ring_producer::close(const G& g, std::uint32_t why) noexcept {
  g.sync();
  if (g.rank() != 0) return;
  system_atomic<std::uint64_t>(inbox_->from_producer.end).store(head_, order::relaxed);
  // pairs with ring_consumer::wait_for(): `end` and all units before it are visible with it
  system_atomic<std::uint32_t>(inbox_->from_producer.closed).store(why, order::release);
}

// ---- consumer

CW_FN inline ring_consumer::look ring_consumer::wait_for(std::uint64_t n,
                                                         const wait_limits& limits) const noexcept {
  const std::uint64_t want = tail_ + n;
  look l{head_, 0, status::ok};
  const system_atomic<std::uint64_t> head(own_->from_producer.head);
  const system_atomic<std::uint64_t> end(own_->from_producer.end);
  const system_atomic<std::uint32_t> closed(own_->from_producer.closed);
  l.outcome = poll_until(
      [&] {
        l.head = head.load(order::acquire);  // pairs with ring_producer::publish()
        if (reached(l.head, want)) return true;
        l.closed = closed.load(order::acquire);  // pairs with ring_producer::close()
        if (l.closed == 0) return false;
        // The stream's end is a position: what was published between the two looks counts too.
        l.head = end.load(order::relaxed);
        return true;
      },
      limits);
  if (l.outcome == status::ok && !reached(l.head, want)) l.outcome = status::closed;
  return l;
}

template <group G>
CW_FN inline status ring_consumer::acquire(const G& g, std::uint64_t n,
                                           const wait_limits& limits) noexcept {
  if (n > capacity_) return status::invalid;
  if (reached(head_, tail_ + n)) return status::ok;
  const look seen = leader_of(g, [&] { return wait_for(n, limits); });
  head_ = seen.head;
  closed_ = seen.closed;
  return seen.outcome;
}

template <group G>
CW_FN inline void ring_consumer::release(const G& g, std::uint64_t n) noexcept {
  tail_ += n;
  g.sync();  // all threads have read their part
  if (g.rank() != 0) return;
  own_->own.tail = tail_;
  // pairs with ring_producer::wait_for()
  system_atomic<std::uint64_t>(outbox_->from_consumer.tail).store(tail_, order::release);
}

template <group G>
CW_FN inline void ring_consumer::close(const G& g, std::uint32_t why) noexcept {
  g.sync();
  if (g.rank() != 0) return;
  // Relaxed: nothing is read from the ring any more, so there is nothing to order.
  system_atomic<std::uint32_t>(outbox_->from_consumer.closed).store(why, order::relaxed);
}

}  // namespace crosswarp::device
