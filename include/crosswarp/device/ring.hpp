// A ring between one producer and one consumer, on the same or on different ranks.
//
// The ring counts; it does not own the data. A unit is whatever its users make it: a byte of a
// stream, a slot of a queue, a buffer of a link. Positions grow for ever and wrap safely; the
// unit at position p lies at index p % capacity, so the capacity is a power of two. What is
// published must have been reserved, and what is released acquired; nothing checks that.
//
// Write remote, poll local: the data and the producer's position lie with the consumer; the
// consumer's position lies with the producer. Each side looks across only when the copy of the
// other's position that it already has says "full" or "empty".
#pragma once

#include <cstdint>

#include "crosswarp/device/signal.hpp"

namespace crosswarp::device {

/// Lives with the consumer. Zero at the start.
struct ring_inbox {
  struct alignas(line_bytes) {
    std::uint64_t head;    ///< written by the producer: everything before it may be read
    std::uint64_t end;     ///< written by the producer before `closed`: where the stream ends
    std::uint32_t closed;  ///< written by the producer, once: why, not 0; `end` holds
  } from_producer;
  struct alignas(line_bytes) {
    std::uint64_t tail;  ///< the consumer's own position, kept from kernel to kernel
  } own;
};

/// Lives with the producer. Zero at the start.
struct ring_outbox {
  struct alignas(line_bytes) {
    std::uint64_t tail;    ///< written by the consumer: everything before it may be overwritten
    std::uint32_t closed;  ///< written by the consumer, once: why it reads no more, not 0
  } from_consumer;
  struct alignas(line_bytes) {
    std::uint64_t head;  ///< the producer's own position, kept from kernel to kernel
  } own;
};

/// The sending side. One group uses it, all its threads hold equal copies, and each call is made by
/// all of them with the same arguments. Positions are kept in `own`, so that a later kernel, or a
/// later call, opens the ring where this one left it.
class ring_producer {
 public:
  /// `capacity` is a power of two. `inbox` is the consumer's, as mapped here.
  template <group G>
  [[nodiscard]] CW_FN static ring_producer open(const G& g, ring_outbox& own, ring_inbox& inbox,
                                                std::uint64_t capacity) noexcept {
    return {own, inbox, capacity, leader_of(g, [&] { return own.own.head; })};
  }

  /// The next unit to fill lies at index(position()).
  [[nodiscard]] CW_FN std::uint64_t position() const noexcept { return head_; }
  [[nodiscard]] CW_FN std::uint64_t index(std::uint64_t position) const noexcept {
    return position & (capacity_ - 1);
  }

  /// Waits until `n` units from position() on may be filled.
  /// Order: the consumer has finished reading what they held before.
  /// Fails: closed when the consumer reads no more; invalid when n is beyond the capacity; timeout,
  ///        peer_lost, aborted.
  template <group G>
  [[nodiscard]] CW_FN status reserve(const G& g, std::uint64_t n,
                                     const wait_limits& limits) noexcept;

  /// Hands the next `n` units to the consumer, which must have been reserved.
  /// Visibility: what any thread of `g` wrote to them is visible to the consumer's acquire().
  template <group G>
  CW_FN void publish(const G& g, std::uint64_t n) noexcept;

  /// Ends the stream at position(), once. Nothing may be published afterwards. `why`, not 0, is for
  /// the consumer.
  template <group G>
  CW_FN void close(const G& g, std::uint32_t why = 1) noexcept;
  /// Why the consumer closed; 0 as far as the last reserve() saw.
  [[nodiscard]] CW_FN std::uint32_t why_closed() const noexcept { return closed_; }

 private:
  CW_FN ring_producer(ring_outbox& own, ring_inbox& inbox, std::uint64_t capacity,
                      std::uint64_t head) noexcept
      : own_(&own), inbox_(&inbox), capacity_(capacity), head_(head), tail_(head - capacity) {}

  struct look {
    std::uint64_t tail;
    std::uint32_t closed;
    status outcome;
  };
  [[nodiscard]] CW_FN look wait_for(std::uint64_t want, const wait_limits& limits) const noexcept;

  ring_outbox* own_;
  ring_inbox* inbox_;
  std::uint64_t capacity_;
  std::uint64_t head_;
  std::uint64_t tail_;  // at most the consumer's position; a full lap behind when not yet known
  std::uint32_t closed_ = 0;
};

/// The receiving side; as for the producer, one group, and all its threads hold equal copies.
class ring_consumer {
 public:
  /// `outbox` is the producer's, as mapped here.
  template <group G>
  [[nodiscard]] CW_FN static ring_consumer open(const G& g, ring_inbox& own, ring_outbox& outbox,
                                                std::uint64_t capacity) noexcept {
    return {own, outbox, capacity, leader_of(g, [&] { return own.own.tail; })};
  }

  /// The next unit to read lies at index(position()).
  [[nodiscard]] CW_FN std::uint64_t position() const noexcept { return tail_; }
  [[nodiscard]] CW_FN std::uint64_t index(std::uint64_t position) const noexcept {
    return position & (capacity_ - 1);
  }
  /// Units that may be read now, as far as the last acquire() saw.
  [[nodiscard]] CW_FN std::uint64_t available() const noexcept { return head_ - tail_; }

  /// Waits until at least `n` units from position() on may be read; available() may then be more.
  /// Order: everything the producer wrote to them is visible to every thread of `g`.
  /// Fails: closed when the stream ends before n units, of which available() are left;
  ///        invalid when n is beyond the capacity; timeout, peer_lost, aborted.
  template <group G>
  [[nodiscard]] CW_FN status acquire(const G& g, std::uint64_t n,
                                     const wait_limits& limits) noexcept;

  /// Gives the next `n` units back to the producer, which may overwrite them.
  /// Order: what any thread of `g` read from them was read before.
  template <group G>
  CW_FN void release(const G& g, std::uint64_t n) noexcept;

  /// Reads no more: the producer's reserve() fails with `closed`. `why`, not 0, is for it.
  template <group G>
  CW_FN void close(const G& g, std::uint32_t why = 1) noexcept;
  /// Why the producer closed; 0 as far as the last acquire() saw.
  [[nodiscard]] CW_FN std::uint32_t why_closed() const noexcept { return closed_; }

 private:
  CW_FN ring_consumer(ring_inbox& own, ring_outbox& outbox, std::uint64_t capacity,
                      std::uint64_t tail) noexcept
      : own_(&own), outbox_(&outbox), capacity_(capacity), tail_(tail), head_(tail) {}

  struct look {
    std::uint64_t head;
    std::uint32_t closed;
    status outcome;
  };
  [[nodiscard]] CW_FN look wait_for(std::uint64_t n, const wait_limits& limits) const noexcept;

  ring_inbox* own_;
  ring_outbox* outbox_;
  std::uint64_t capacity_;
  std::uint64_t tail_;
  std::uint64_t head_;  // at most the producer's position
  std::uint32_t closed_ = 0;
};

}  // namespace crosswarp::device

#include "crosswarp/device/impl/ring_impl.hpp"
