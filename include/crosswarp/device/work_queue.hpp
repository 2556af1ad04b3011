// A bounded queue of work with any number of producers and consumers, of any ranks that are mapped.
//
// It lies with those who take from it. Nobody waits in it: a full queue takes less than it is given
// and an empty one gives nothing; what to do then is the caller's affair. Several items are taken
// or given by one update of a counter.
//
// An item's place is told by a position that only grows. Each place has a word of its own that says
// whose turn it is: lap L of the queue finds 2L where it may write, and 2L + 1 where it may read.
// So one place is enough, and memory that is zero is an empty queue.
#pragma once

#include <cstdint>
#include <type_traits>

#include "crosswarp/device/group.hpp"

namespace crosswarp::device {

template <class Item>
requires std::is_trivially_copyable_v<Item>
struct work_slot {
  std::uint64_t turn;
  Item item;
};

/// Where the next item is put and taken, each on its line. Zero at the start.
struct work_queue_ends {
  alignas(line_bytes) std::uint64_t head;
  alignas(line_bytes) std::uint64_t tail;
};

/// A plain view. Calls are made by all threads of `g`, with the same arguments; different groups
/// may call at once.
template <class Item>
class work_queue {
 public:
  work_queue() = default;
  /// `capacity` is a power of two. `reach`: as for signals.
  CW_FN work_queue(work_queue_ends& ends, work_slot<Item>* slots, std::uint64_t capacity,
                   scope reach) noexcept
      : ends_(&ends), slots_(slots), capacity_(capacity), reach_(reach) {}

  /// Puts items[0..count) in, as many as there is room for, and returns how many: the first ones.
  /// `items`: memory that all threads of `g` read; written before a sync() of `g`.
  /// Visibility: what this thread did before is visible to who pops its items.
  template <lane_group G>
  [[nodiscard]] CW_FN int push(const G& g, const Item* items, int count) const noexcept;

  /// Takes at most `most` items out, into memory that all threads of `g` read; they may do so when
  /// it has returned. Returns how many; 0 also while who put the next one in has not finished.
  template <lane_group G>
  [[nodiscard]] CW_FN int pop(const G& g, Item* items, int most) const noexcept;

  /// Whether pop() would find nothing now, and push() no room. They look at the next place itself:
  /// an item that is still being put in is none yet, so who waits for it lets others run. One
  /// thread.
  [[nodiscard]] CW_FN bool looks_empty() const noexcept { return !next_is(ends_->tail, 1); }
  [[nodiscard]] CW_FN bool looks_full() const noexcept { return !next_is(ends_->head, 0); }

 private:
  [[nodiscard]] CW_FN bool next_is(std::uint64_t& end, std::uint64_t phase) const noexcept;
  /// How many items from `position` on, at most `most`, have come to their turn, which is the lap's
  /// `phase`: 0 to be written, 1 to be read.
  template <lane_group G>
  [[nodiscard]] CW_FN int ready(const G& g, std::uint64_t position, int most,
                                std::uint64_t phase) const noexcept;
  /// Takes the next `count` positions at an end that was seen at `seen`; false when it has moved.
  template <lane_group G>
  [[nodiscard]] CW_FN bool take(const G& g, std::uint64_t& end, std::uint64_t seen,
                                int count) const noexcept;
  template <lane_group G>
  [[nodiscard]] CW_FN std::uint64_t look(const G& g, std::uint64_t& end) const noexcept;
  [[nodiscard]] CW_FN work_slot<Item>& at(std::uint64_t position) const noexcept {
    return slots_[position & (capacity_ - 1)];
  }
  [[nodiscard]] CW_FN std::uint64_t turn_of(std::uint64_t position) const noexcept {
    return position / capacity_ * 2;
  }

  work_queue_ends* ends_ = nullptr;
  work_slot<Item>* slots_ = nullptr;
  std::uint64_t capacity_ = 1;
  scope reach_ = scope::system;
};

}  // namespace crosswarp::device

#include "crosswarp/device/impl/work_queue_impl.hpp"
