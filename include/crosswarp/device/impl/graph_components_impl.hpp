// Body of components_rounds.
#pragma once

#include "crosswarp/device/graph_rounds.hpp"
#include "crosswarp/device/impl/graph_rounds_impl.hpp"

namespace crosswarp::device::graph {

namespace impl {

/// The forest of components_rounds. Only who has seen a vertex to be a root puts it under another,
/// by compare-and-swap; then it is no root any more, and only ever comes under lesser ones. So no
/// order is needed: who sees an old word looks on from there.
class forest {
 public:
  CW_FN forest(const part& p, const symmetric<vertex>& above) noexcept
      : part_(p), above_(above), own_(above.local()), begin_(p.begin), count_(p.count) {}

  [[nodiscard]] CW_FN vertex look(vertex v) const noexcept { return word(v).load(order::relaxed); }
  CW_FN void put(vertex v, vertex above) const noexcept { word(v).store(above, order::relaxed); }

  /// True when they were not joined before.
  CW_FN bool join(vertex a, vertex b) const noexcept {
    a = look(a);
    b = look(b);
    while (a != b) {
      const vertex high = a < b ? b : a;
      const vertex low = a < b ? a : b;
      vertex up = look(high);
      if (up == low) return false;
      if (up == high && word(high).compare_exchange(up, low, order::relaxed)) return true;
      a = look(look(high));
      b = look(low);
    }
    return false;
  }
  /// The first of `end` and the root that is met on the way up.
  [[nodiscard]] CW_FN vertex climb(vertex v, vertex end) const noexcept {
    for (vertex over = v; v != end; v = over) {
      over = look(v);
      if (over == v) break;
    }
    return v;
  }
  [[nodiscard]] CW_FN vertex root_of(vertex v) const noexcept { return climb(v, none); }
  /// Puts a vertex under its root, or under `end` if that lies between, and returns which.
  CW_FN vertex flatten(vertex v, vertex end = none) const noexcept {
    const vertex was = look(v);
    const vertex over = climb(was, end);
    if (over != was) put(v, over);
    return over;
  }

  /// Joins own vertices by the first `edges` edges of each.
  /// Callers: the rank's only thread, when no other rank looks at its words: nothing is to be
  /// compared and swapped. Others' words are not looked at either: a vertex of theirs counts as a
  /// root. Returns how many edges it looked at.
  CW_FN std::uint64_t join_own_alone(std::uint64_t edges) const noexcept {
    const vertex* const targets = part_.targets;
    std::uint64_t looked = 0;
    for (vertex i = 0; i < count_; ++i) own_[i] = begin_ + i;
    for (vertex i = 0; i < count_; ++i) {
      fetch_ahead_of(i);
      const std::uint64_t first = part_.offsets[i];
      const std::uint64_t all_end = part_.offsets[i + std::size_t{1}];
      const std::uint64_t end = all_end < first + edges ? all_end : first + edges;
      looked += end - first;
      vertex top = own_[i];
      if (top != begin_ + i) top = root_alone(begin_ + i);
      for (std::uint64_t e = first; e < end; ++e) {
        const vertex t = targets[e];
        if (t < i) {
          top = join_roots(top, root_alone(begin_ + t));
        } else if (!part_.is_own(t) && part_.everywhere(t) < begin_) {
          top = join_roots(top, part_.everywhere(t));
        }
      }
      own_[i] = top;
      if (top != begin_ + i) continue;
      // Greater ones only if there are no lesser ones: few have to.
      for (std::uint64_t e = first; e < end && part_.is_own(targets[e]); ++e) {
        top = join_roots(top, root_alone(begin_ + targets[e]));
      }
    }
    return looked;
  }

 private:
  [[nodiscard]] CW_FN bool is_own(vertex v) const noexcept { return v - begin_ < count_; }
  /// Rows lie apart, and what they lead to lies anywhere: both are asked for before it is their
  /// turn.
  CW_FN void fetch_ahead_of(vertex i) const noexcept {
    constexpr vertex soon = 8;
    if (count_ - i <= 2 * soon) return;
    const std::uint64_t row = part_.offsets[i + soon];
    const std::uint64_t next_row = part_.offsets[i + 2 * soon];
    fetch_ahead(part_.targets + next_row);
    if (row == next_row) return;  // perhaps there are no more edges
    const vertex t = part_.targets[row];
    fetch_ahead(own_ + (t < count_ ? t : 0));
  }
  /// An own root, or the first of another rank. Halves the way for who comes next.
  [[nodiscard]] CW_FN vertex root_alone(vertex v) const noexcept {
    for (vertex over = own_[v - begin_]; over != v;) {
      if (!is_own(over)) return over;
      const vertex next = own_[over - begin_];
      if (next == over) return over;
      own_[v - begin_] = next;
      v = over;
      over = next;
    }
    return v;
  }
  /// Returns a root of both, or of the first if both are others'.
  CW_FN vertex join_roots(vertex a, vertex b) const noexcept {
    const vertex high = a < b ? b : a;
    const vertex low = a < b ? a : b;
    if (a == b || !is_own(high)) return a;
    own_[high - begin_] = low;
    return low;
  }
  [[nodiscard]] CW_FN system_atomic<vertex> word(vertex v) const noexcept {
    if (is_own(v)) return system_atomic<vertex>(own_[v - begin_]);
    const place at = place_of(part_, v);
    return system_atomic<vertex>(above_.at(at.rank)[at.index]);
  }
  const part& part_;
  const symmetric<vertex>& above_;
  vertex* own_;
  vertex begin_;
  vertex count_;
};

/// The root of most vertices, as far as a few of them tell. Roots do not count: a vertex without
/// edges is one, and there may be more of these than of any component.
[[nodiscard]] CW_FN inline vertex most_frequent(const forest& f, std::uint64_t vertices) noexcept {
  constexpr std::uint64_t looks = 64;
  vertex found = 0;
  int lead = 0;
  for (std::uint64_t i = 0; i < looks && vertices > 0; ++i) {
    const auto v = static_cast<vertex>(vertices * i / looks);
    const vertex root = f.root_of(v);
    if (root == v) continue;
    if (lead == 0) found = root;
    lead += root == found ? 1 : -1;
  }
  return found;
}

}  // namespace impl

CW_FN inline status components_rounds::run(rounds& all) const noexcept {
  constexpr std::uint64_t looked_at = 2;  // edges of each vertex, at first
  const impl::forest f(graph, above);
  const auto name = [&](std::uint64_t own) { return graph.begin + static_cast<vertex>(own); };
  const auto join = [&](std::uint64_t own, std::uint64_t e) {
    return f.join(name(own), graph.everywhere(graph.targets[e]));
  };

  // What a few edges within the rank join.
  status s = status::ok;
  std::uint64_t followed = 0;
  if (all.threads() == 1) {
    followed = f.join_own_alone(looked_at);
    s = all.meet();
  } else {
    // Each under its first neighbour, if that is less, without atomics: most of the work.
    all.for_each(graph.count, [&](std::uint64_t i) {
      const std::uint64_t e = graph.offsets[i];
      const vertex t = e < graph.offsets[i + 1] ? graph.targets[e] : static_cast<vertex>(i);
      const vertex up = graph.everywhere(t);
      f.put(name(i), up < name(i) ? up : name(i));
    });
    s = all.meet();
    if (s != status::ok) return s;
    all.for_each(graph.count, [&](std::uint64_t i) { (void)f.flatten(name(i)); });
    all.for_each(graph.count, [&](std::uint64_t i) {
      const std::uint64_t first = graph.offsets[i];
      const std::uint64_t all_end = graph.offsets[i + 1];
      const std::uint64_t end = all_end < first + looked_at ? all_end : first + looked_at;
      followed += end - first;
      for (std::uint64_t e = first; e < end && graph.is_own(graph.targets[e]); ++e) {
        if (e > first || graph.targets[e] > i) (void)join(i, e);  // else it lies under it
      }
    });
  }
  if (s != status::ok) return s;
  if (graph.ranks > 1) {
    // Some join one elsewhere, so that what is large here comes together with what is large there.
    constexpr std::uint64_t some = 64;
    all.for_each((std::uint64_t{graph.count} + some - 1) / some, [&](std::uint64_t k) {
      const std::uint64_t i = k * some;
      const std::uint64_t end = graph.offsets[i + 1];
      if (graph.offsets[i] < end && !graph.is_own(graph.targets[end - 1])) (void)join(i, end - 1);
    });
  }
  s = all.meet();
  if (s != status::ok) return s;

  // One says which component is left out, or two vertices of different ones would both be.
  tally mine = {};
  if (graph.rank == 0 && all.thread() == 0) {
    mine.vertices = impl::most_frequent(f, vertices);
  }
  tally sum = {};
  s = all.end(mine, sum);
  if (s != status::ok) return s;
  const auto largest = static_cast<vertex>(sum.vertices);
  mine = {};
  // It may come under a lesser root meanwhile; who lies under it is left out all the same.
  all.for_each(graph.count, [&](std::uint64_t i) {
    if (f.flatten(name(i), largest) == largest) return;
    followed += graph.offsets[i + 1] - graph.offsets[i];
    for (std::uint64_t e = graph.offsets[i]; e < graph.offsets[i + 1]; ++e) {
      if (join(i, e)) ++mine.edges;
    }
  });
  s = all.end(mine, sum);
  all.tell(sum.edges == 0 ? 2 : 3, followed);
  if (s != status::ok || sum.edges == 0) return s;  // all lie under their roots
  const vertex top = f.root_of(largest);
  all.for_each(graph.count, [&](std::uint64_t i) {
    const vertex over = f.look(name(i));
    // One jump for both: nobody can guess which of the two it is.
    const bool is_flat = (over == top) | (over == name(i));
    if (!is_flat) (void)f.flatten(name(i));
  });
  return s;
}

}  // namespace crosswarp::device::graph
