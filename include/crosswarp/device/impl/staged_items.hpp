// What one worker collects for each rank before it is sent together.
#pragma once

#include "crosswarp/device/group.hpp"

namespace crosswarp::device {

/// In memory of the worker's own: `batch` items and one count for each rank.
template <class Item>
class staged_items {
 public:
  /// Items that are kept for each rank.
  static constexpr int batch = 64;

  CW_FN staged_items(Item* items, int* counts, int ranks) noexcept
      : items_(items), counts_(counts), ranks_(ranks) {}

  template <class G>
  CW_FN void clear(const G& g) noexcept {
    for (int r = g.rank(); r < ranks_; r += g.size()) counts_[r] = 0;
    g.sync();
  }

  /// An item for rank `to` from each thread that has one; send(r, items, count) when there is no
  /// room for what comes. Returns how many had one.
  /// Callers: all threads of `g`.
  template <class G, class Send>
  CW_FN int put(const G& g, bool have, int to, const Item& item, const Send& send) noexcept {
    std::uint32_t left = g.ballot(have);
    const int all = count_bits(left);
    if (!have) to = -1;
    // Items for one rank are put together, by as many threads as have some.
    for (int r = 0; left != 0; ++r) {
      const std::uint32_t theirs = g.ballot(to == r);
      if (theirs == 0) continue;
      left &= ~theirs;
      const int n = count_bits(theirs);
      if (counts_[r] + n > batch) send_one(g, r, send);
      const int before = count_bits(theirs & ((1U << static_cast<unsigned>(g.rank())) - 1U));
      const int first = counts_[r];
      if (to == r) items_[r * batch + first + before] = item;
      g.sync();
      if (g.rank() == 0) counts_[r] = first + n;
      g.sync();
    }
    return all;
  }

  /// send(r, items, count) for each rank that there is something for.
  template <class G, class Send>
  CW_FN void send_all(const G& g, const Send& send) noexcept {
    for (int r = 0; r < ranks_; ++r) {
      if (counts_[r] > 0) send_one(g, r, send);
    }
  }

 private:
  template <class G, class Send>
  CW_FN void send_one(const G& g, int r, const Send& send) noexcept {
    send(r, items_ + r * batch, counts_[r]);
    g.sync();
    if (g.rank() == 0) counts_[r] = 0;
    g.sync();
  }

  Item* items_;
  int* counts_;
  int ranks_;
};

}  // namespace crosswarp::device
