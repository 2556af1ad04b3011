// Members with scores in an arena, the least of which is at hand: a dict, and a heap of its entries
// in which each entry knows its place. Zeroes are an empty one.
#pragma once

#include "dict.hpp"

namespace servers {

struct zset {
  dict members;
  segments order;  ///< a binary heap; as many words as members

  [[nodiscard]] CW_FN static double score_of(entry* e) noexcept {
    double score = 0;
    memcpy(&score, e->value_data(), sizeof(score));
    return score;
  }

  /// Room for `more` members. False: no memory, and all is as before.
  [[nodiscard]] CW_COLD CW_FN bool ready(const arena& a, heap& h, std::uint32_t more) noexcept {
    if (!members.ready(a, h)) return false;
    for (std::uint32_t i = 0; i < more; ++i) {
      if (order.add(a, h, members.count + i)) continue;
      forget(a, h, i);
      return false;
    }
    return true;
  }
  /// Gives back the room for the last `more` that ready() made, and that was not used.
  CW_FN void forget(const arena& a, heap& h, std::uint32_t more) noexcept {
    while (more-- > 0) order.remove(a, h, members.count + more);
    members.drop_if_empty(a, h);
  }
  /// A made entry as a member that is not there yet; there is room.
  CW_COLD CW_FN void link(const arena& a, heap& h, ref made, double score) noexcept {
    memcpy(a.at<entry>(made)->value_data(), &score, sizeof(score));
    members.link(a, h, made);
    rise(a, made, members.count - 1);
  }
  CW_COLD CW_FN void change(const arena& a, ref member, double score) noexcept {
    auto* const e = a.at<entry>(member);
    memcpy(e->value_data(), &score, sizeof(score));
    sink(a, member, rise(a, member, e->it));
  }

  /// The member with the least score, of these the first by name; there is one.
  [[nodiscard]] CW_FN entry* least(const arena& a) const noexcept {
    return a.at<entry>(order.at(a, 0));
  }
  CW_COLD CW_FN void pop_least(const arena& a, heap& h) noexcept {
    const std::uint32_t last = members.count - 1;
    const ref moved = order.at(a, last);
    entry* const gone = least(a);
    const std::uint32_t hash = gone->hash;
    const text name = gone->name();
    if (last > 0) order.at(a, 0) = moved;
    order.remove(a, h, last);
    members.remove(a, h, members.find(a, hash, name));
    if (last > 0) sink(a, moved, 0);
  }

  /// As dict::clear().
  CW_FN bool clear(const arena& a, heap& h, int& work) noexcept {
    order.clear(a, h);
    return members.clear(a, h, work);
  }

 private:
  [[nodiscard]] CW_FN static bool before(const arena& a, ref x, ref y) noexcept {
    auto* const ex = a.at<entry>(x);
    auto* const ey = a.at<entry>(y);
    const double sx = score_of(ex);
    const double sy = score_of(ey);
    return sx < sy || (sx == sy && comes_before(ex->name(), ey->name()));
  }
  CW_FN void place(const arena& a, ref member, std::uint32_t i) noexcept {
    order.at(a, i) = member;
    a.at<entry>(member)->it = i;
  }
  /// Both move a member from place `i` to where it belongs, up or down, and return that place.
  CW_COLD CW_FN std::uint32_t rise(const arena& a, ref member, std::uint32_t i) noexcept {
    while (i > 0) {
      const ref parent = order.at(a, (i - 1) / 2);
      if (!before(a, member, parent)) break;
      place(a, parent, i);
      i = (i - 1) / 2;
    }
    place(a, member, i);
    return i;
  }
  CW_COLD CW_FN void sink(const arena& a, ref member, std::uint32_t i) noexcept {
    const std::uint32_t n = members.count;
    for (;;) {
      std::uint32_t child = 2 * i + 1;
      if (child >= n) break;
      if (child + 1 < n && before(a, order.at(a, child + 1), order.at(a, child))) ++child;
      if (!before(a, order.at(a, child), member)) break;
      place(a, order.at(a, child), i);
      i = child;
    }
    place(a, member, i);
  }
};

}  // namespace servers
