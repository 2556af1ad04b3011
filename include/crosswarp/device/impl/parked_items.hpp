// What one worker keeps until the threshold of priorities has come to it.
#pragma once

#include <cstdint>

#include "crosswarp/device/platform.hpp"

namespace crosswarp::device {

/// Items in bins by priority, `width` priorities in each. There are bins for the next ones; what is
/// beyond these lies together, and is looked through when the others have come to it.
/// All threads of the worker hold equal copies; the first one writes.
template <class Item>
class parked_items {
  static constexpr int bins = 1024;

 public:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  /// Numbers that go with so many items.
  [[nodiscard]] CW_FN static constexpr std::uint64_t ints(std::uint64_t items) noexcept {
    return items + bins + 1;
  }
  CW_FN parked_items(Item* items, int* numbers, std::uint64_t capacity,
                     std::uint64_t width) noexcept
      : items_(items),
        heads_(numbers),
        next_(numbers + bins + 1),
        capacity_(static_cast<int>(capacity)),
        width_(width == 0 ? none : width) {}

  template <class G>
  CW_FN void clear(const G& g) noexcept {
    for (int i = g.rank(); i <= bins; i += g.size()) heads_[i] = 0;
    g.sync();
  }

  [[nodiscard]] CW_FN bool has_room() const noexcept { return count_ < capacity_; }
  /// The first priority of the bin, and the last one.
  [[nodiscard]] CW_FN std::uint64_t first_of(std::uint64_t priority) const noexcept {
    return priority - priority % width_;
  }
  [[nodiscard]] CW_FN std::uint64_t last_of(std::uint64_t priority) const noexcept {
    const std::uint64_t first = first_of(priority);
    return first + (width_ - 1) < first ? none : first + (width_ - 1);
  }

  /// There is room.
  template <class G>
  CW_FN void put(const G& g, const Item& item, std::uint64_t priority) noexcept {
    const int at = free_ != 0 ? free_ : ++used_;
    if (free_ != 0) free_ = next_[free_ - 1];
    g.sync();
    if (g.rank() == 0) items_[at - 1] = item;
    hang(g, at, priority);
    ++count_;
  }

  /// Takes all items with priorities up to `last`, the last one of a bin before which all are
  /// empty: f(item) of each, by all threads. `priority_of(item)`.
  template <class G, class P, class F>
  CW_FN void take(const G& g, std::uint64_t last, const P& priority_of, const F& f) noexcept {
    base_ = last / width_;
    if (far_least_ <= last) spread(g, priority_of);
    int at = heads_[base_ % bins];
    g.sync();
    if (g.rank() == 0) heads_[base_ % bins] = 0;
    g.sync();
    while (at != 0) {
      f(items_[at - 1]);
      const int after = next_[at - 1];
      g.sync();
      give_back(g, at);
      at = after;
    }
  }

  /// The first priority of the first bin beyond the last one taken that holds something, or none.
  [[nodiscard]] CW_FN std::uint64_t least() const noexcept {
    if (count_ == 0) return none;
    for (std::uint64_t b = base_ + 1; b < base_ + bins; ++b) {
      if (heads_[b % bins] != 0) return b * width_;
    }
    return far_least_;
  }

 private:
  template <class G>
  CW_FN void hang(const G& g, int at, std::uint64_t priority) noexcept {
    const std::uint64_t bin = priority / width_;
    const bool far = bin >= base_ + bins;
    if (far && first_of(priority) < far_least_) far_least_ = first_of(priority);
    int& head = heads_[far ? bins : static_cast<int>(bin % bins)];
    if (g.rank() == 0) {
      next_[at - 1] = head;
      head = at;
    }
    g.sync();
  }
  template <class G>
  CW_FN void give_back(const G& g, int at) noexcept {
    if (g.rank() == 0) next_[at - 1] = free_;
    free_ = at;
    --count_;
    g.sync();
  }
  /// What was far goes to its bin, or stays.
  template <class G, class P>
  CW_FN void spread(const G& g, const P& priority_of) noexcept {
    int at = heads_[bins];
    g.sync();
    if (g.rank() == 0) heads_[bins] = 0;
    g.sync();
    far_least_ = none;
    while (at != 0) {
      const int after = next_[at - 1];
      g.sync();
      hang(g, at, priority_of(items_[at - 1]));
      at = after;
    }
  }

  Item* items_;
  int* heads_;  // by bin, then what is far: 1 + the first item, 0: none
  int* next_;   // by item, likewise
  int capacity_;
  std::uint64_t width_;
  int count_ = 0;
  int used_ = 0;            // items that were ever taken into use
  int free_ = 0;            // 1 + the first of those that are free again
  std::uint64_t base_ = 0;  // the last bin taken
  std::uint64_t far_least_ = none;
};

}  // namespace crosswarp::device
