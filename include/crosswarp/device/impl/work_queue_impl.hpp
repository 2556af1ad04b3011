// Bodies of work_queue.hpp.
#pragma once

#include "crosswarp/device/work_queue.hpp"

namespace crosswarp::device {

template <class Item>
CW_FN inline bool work_queue<Item>::next_is(std::uint64_t& end,
                                            std::uint64_t phase) const noexcept {
  std::uint64_t position = 0;
  std::uint64_t turn = 0;
  // Relaxed: who goes on looks again.
  within(reach_, end, [&](auto w) { position = w.load(order::relaxed); });
  within(reach_, at(position).turn, [&](auto w) { turn = w.load(order::relaxed); });
  return turn == turn_of(position) + phase;
}

template <class Item>
template <lane_group G>
CW_FN inline std::uint64_t work_queue<Item>::look(const G& g, std::uint64_t& end) const noexcept {
  return leader_of(g, [&] {
    std::uint64_t seen = 0;
    // Relaxed: the places' own words order.
    within(reach_, end, [&](auto w) { seen = w.load(order::relaxed); });
    return seen;
  });
}

template <class Item>
template <lane_group G>
CW_FN inline int work_queue<Item>::ready(const G& g, std::uint64_t position, int most,
                                         std::uint64_t phase) const noexcept {
  int found = 0;
  while (found < most) {
    const int lane = found + g.rank();
    bool mine = false;
    if (lane < most) {
      const std::uint64_t p = position + static_cast<std::uint64_t>(lane);
      within(reach_, at(p).turn, [&](auto w) {
        mine = w.load(order::acquire) == turn_of(p) + phase;  // pairs with push() and pop()
      });
    }
    const int leading = leading_bits(g.ballot(mine));
    found += leading;
    if (leading < g.size()) break;
  }
  return found;
}

template <class Item>
template <lane_group G>
CW_FN inline bool work_queue<Item>::take(const G& g, std::uint64_t& end, std::uint64_t seen,
                                         int count) const noexcept {
  return leader_of(g, [&] {
    bool taken = false;
    // Relaxed: the places' own words order, and have been looked at.
    within(reach_, end, [&](auto w) {
      taken = w.compare_exchange(seen, seen + static_cast<std::uint64_t>(count), order::relaxed);
    });
    return taken;
  });
}

template <class Item>
template <lane_group G>
CW_FN inline int work_queue<Item>::push(const G& g, const Item* items, int count) const noexcept {
  const auto room = static_cast<int>(capacity_);
  for (;;) {
    const std::uint64_t head = look(g, ends_->head);
    const int n = ready(g, head, count < room ? count : room, 0);
    if (n == 0) {
      if (look(g, ends_->head) == head) return 0;
    } else if (take(g, ends_->head, head, n)) {
      for (int i = g.rank(); i < n; i += g.size()) {
        const std::uint64_t p = head + static_cast<std::uint64_t>(i);
        at(p).item = items[i];
        within(reach_, at(p).turn, [&](auto w) {
          w.store(turn_of(p) + 1, order::release);  // pairs with ready() of pop()
        });
      }
      return n;
    }
    // Another group has been faster, so there was progress.
  }
}

template <class Item>
template <lane_group G>
CW_FN inline int work_queue<Item>::pop(const G& g, Item* items, int most) const noexcept {
  const auto room = static_cast<int>(capacity_);
  for (;;) {
    const std::uint64_t tail = look(g, ends_->tail);
    const int n = ready(g, tail, most < room ? most : room, 1);
    if (n == 0) {
      if (look(g, ends_->tail) == tail) return 0;
    } else if (take(g, ends_->tail, tail, n)) {
      for (int i = g.rank(); i < n; i += g.size()) {
        const std::uint64_t p = tail + static_cast<std::uint64_t>(i);
        items[i] = at(p).item;
        within(reach_, at(p).turn, [&](auto w) {
          w.store(turn_of(p) + 2, order::release);  // pairs with ready() of push()
        });
      }
      g.sync();
      return n;
    }
  }
}

}  // namespace crosswarp::device
