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

  /// A member that is not there yet. False: no memory, and all is as before.
  [[nodiscard]] CW_COLD CW_FN bool add(const arena& a, heap& h, std::uint32_t hash, text name,
                                       double score) noexcept {
    const std::uint32_t place = members.count;
    if (!order.add(a, h, place)) return false;
    entry* const e = members.add(a, h, hash, name, sizeof(score));
    if (e == nullptr) {
      order.remove(a, h, place);
      return false;
    }
    memcpy(e->value_data(), &score, sizeof(score));
    rise(a, *members.find(a, hash, name), place);
    return true;
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

  CW_FN void clear(const arena& a, heap& h) noexcept {
    order.clear(a, h);
    members.clear(a, h);
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
