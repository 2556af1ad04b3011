// Bodies of graph_rounds.hpp.
#pragma once

#include "crosswarp/device/graph_rounds.hpp"

namespace crosswarp::device::graph {

namespace impl {

/// An own or another rank's vertex, as its owner has it.
struct place {
  int rank;
  vertex index;
};
[[nodiscard]] CW_FN inline place place_of(const part& p, vertex everywhere) noexcept {
  const int r = p.owner(everywhere);
  return {r, everywhere - p.first[r]};
}
[[nodiscard]] CW_FN inline place place_here(const part& p, vertex here) noexcept {
  return p.is_own(here) ? place{p.rank, here} : place_of(p, p.others[here - p.count]);
}
[[nodiscard]] CW_FN inline std::uint64_t words_for(std::uint64_t bits) noexcept {
  return (bits + 63) / 64;
}
[[nodiscard]] CW_FN inline bool bit(const std::uint64_t* words, std::uint64_t i) noexcept {
  return ((words[i / 64] >> (i % 64)) & 1U) != 0;
}
[[nodiscard]] CW_FN inline int count_bits64(std::uint64_t bits) noexcept {
  return count_bits(static_cast<std::uint32_t>(bits)) +
         count_bits(static_cast<std::uint32_t>(bits >> 32U));
}

/// A run of bfs_rounds in one thread.
template <class G>
class bfs_search {
  // When to turn: more edges lead on than this part of those that are left; fewer vertices are new
  // than this part of all. The values are those that GAPBS found.
  static constexpr std::uint64_t alpha = 15;
  static constexpr std::uint64_t beta = 18;

 public:
  CW_FN bfs_search(const bfs_rounds& program, rounds& all, const G& g) noexcept
      : b_(program),
        all_(all),
        g_(g),
        staged_(b_.staged + static_cast<std::ptrdiff_t>(all.warp()) * b_.graph.ranks *
                                staged_items<vertex>::batch,
                b_.staged_counts + static_cast<std::ptrdiff_t>(all.warp()) * b_.graph.ranks,
                b_.graph.ranks),
        edges_left_(b_.edges) {}

  CW_FN status run() noexcept {
    staged_.clear(g_);
    tally sum = {};
    status s = begin(sum);
    bool up = false;
    std::uint64_t before = 0;
    while (s == status::ok && sum.vertices > 0) {
      const std::uint64_t fresh = sum.vertices;
      if (!up) {
        s = turn_up(fresh, up);
      } else if (fresh < before && fresh <= b_.vertices / beta) {
        up = false;
        s = bits_to_queue();
      }
      if (s != status::ok) break;
      before = fresh;
      // Read in the last round, and filled in the next one.
      if (is_first()) arrived(b_.graph.rank, level_ + 2) = 0;
      tally mine = {};
      s = up ? look_up(mine) : look_down(mine);
      if (s == status::ok) s = all_.end(mine, sum);
      ++level_;
    }
    return s;
  }

 private:
  [[nodiscard]] CW_FN bool is_first() const noexcept { return all_.context().grid().rank() == 0; }
  [[nodiscard]] CW_FN std::uint64_t& arrived(int rank, unsigned level) const noexcept {
    return all_.words().at(rank)->arrived[level % 3].count;
  }
  [[nodiscard]] CW_FN vertex* queue(int rank, unsigned level) const noexcept {
    const vertex* const first = b_.graph.first;
    return b_.queues.at(rank) + (level % 2) * (first[rank + 1] - first[rank]);
  }
  [[nodiscard]] CW_FN std::uint64_t* front(int rank, unsigned level) const noexcept {
    const vertex* const first = b_.graph.first;
    return b_.fronts.at(rank) + (level % 2) * words_for(first[rank + 1] - first[rank]);
  }

  CW_FN status begin(tally& sum) noexcept {
    vertex* const parents = b_.parents.local();
    all_.for_each(b_.graph.count, [&](std::uint64_t v) { parents[v] = none; });
    status s = all_.meet_own();
    if (s != status::ok) return s;
    tally mine = {};
    const place at = place_of(b_.graph, b_.source);
    if (is_first() && at.rank == b_.graph.rank) {
      parents[at.index] = b_.source;
      queue(at.rank, 0)[0] = at.index;
      arrived(at.rank, 0) = 1;
      mine.vertices = 1;
    }
    return all_.end(mine, sum);
  }

  /// Turns when the new vertices have many edges. To count these takes a meeting, so only when
  /// they can be so many.
  CW_FN status turn_up(std::uint64_t fresh, bool& up) noexcept {
    if (!b_.symmetric_graph || fresh * b_.most_edges <= edges_left_ / alpha) return status::ok;
    tally mine = {};
    const vertex* const q = queue(b_.graph.rank, level_);
    all_.for_each(arrived(b_.graph.rank, level_), [&](std::uint64_t i) {
      mine.edges += b_.graph.offsets[q[i] + 1] - b_.graph.offsets[q[i]];
    });
    tally sum = {};
    status s = all_.end(mine, sum);
    up = sum.edges > edges_left_ / alpha;
    edges_left_ -= sum.edges < edges_left_ ? sum.edges : edges_left_;
    return s == status::ok && up ? queue_to_bits() : s;
  }

  CW_FN status queue_to_bits() noexcept {
    std::uint64_t* const bits = front(b_.graph.rank, level_);
    const vertex* const q = queue(b_.graph.rank, level_);
    all_.for_each(words_for(b_.graph.count), [&](std::uint64_t i) { bits[i] = 0; });
    const status s = all_.meet_own();
    if (s != status::ok) return s;
    all_.for_each(arrived(b_.graph.rank, level_), [&](std::uint64_t i) {
      // Relaxed: read behind the meeting.
      device_atomic<std::uint64_t>(bits[q[i] / 64])
          .fetch_or(std::uint64_t{1} << (q[i] % 64), order::relaxed);
    });
    return all_.meet();
  }
  CW_FN status bits_to_queue() noexcept {
    const std::uint64_t* const bits = front(b_.graph.rank, level_);
    vertex* const q = queue(b_.graph.rank, level_);
    all_.for_each(words_for(b_.graph.count), [&](std::uint64_t i) {
      if (bits[i] == 0) return;
      std::uint64_t at = take_places(b_.graph.rank, level_, count_bits64(bits[i]));
      for (unsigned k = 0; k < 64; ++k) {
        if (((bits[i] >> k) & 1U) != 0) q[at++] = static_cast<vertex>(i * 64 + k);
      }
    });
    return all_.meet_own();
  }
  CW_FN std::uint64_t take_places(int rank, unsigned level, int n) const noexcept {
    std::uint64_t at = 0;
    // Relaxed: read behind the meeting.
    within(all_.words().reach(), arrived(rank, level),
           [&](auto w) { at = w.fetch_add(static_cast<std::uint64_t>(n), order::relaxed); });
    return at;
  }

  /// New vertices claim their neighbours, and put them into their owners' queues.
  CW_FN status look_down(tally& mine) noexcept {
    const auto send = [&](int r, const vertex* items, int n) {
      const std::uint64_t at = leader_of(g_, [&] { return take_places(r, level_ + 1, n); });
      vertex* const to = queue(r, level_ + 1) + at;
      for (int i = g_.rank(); i < n; i += g_.size()) to[i] = items[i];
    };
    const vertex* const q = queue(b_.graph.rank, level_);
    int claimed = 0;
    all_.for_each(g_, arrived(b_.graph.rank, level_), [&](std::uint64_t i) {
      const vertex v = q[i];
      b_.graph.for_each_edge(g_, v, [&](bool have, vertex t, std::uint64_t /*edge*/) {
        place at{-1, 0};
        bool is_mine = false;
        if (have) {
          at = place_here(b_.graph, t);
          is_mine = claim(b_.parents.at(at.rank)[at.index], b_.graph.begin + v);
        }
        if (g_.ballot(is_mine) == 0) return;  // most edges are no news
        claimed += staged_.put(g_, is_mine, at.rank, at.index, send);
      });
    });
    staged_.send_all(g_, send);
    if (g_.rank() == 0) mine.vertices = static_cast<std::uint64_t>(claimed);
    return status::ok;
  }
  /// True for the one whose parent it becomes.
  CW_FN bool claim(vertex& word, vertex parent) const noexcept {
    bool mine = false;
    // Relaxed: read behind the meeting.
    within(b_.parents.reach(), word, [&](auto w) {
      vertex seen = w.load(order::relaxed);
      mine = seen == none && w.compare_exchange(seen, parent, order::relaxed);
    });
    return mine;
  }

  /// Vertices that are left look for a new one among their neighbours.
  CW_FN status look_up(tally& mine) noexcept {
    all_.for_each(words_for(b_.graph.count + b_.graph.other_count),
                  [&](std::uint64_t i) { b_.known[i] = known_word(i); });
    const status s = all_.meet_own();
    if (s != status::ok) return s;
    vertex* const parents = b_.parents.local();
    std::uint64_t* const next = front(b_.graph.rank, level_ + 1);
    all_.for_each(g_, words_for(b_.graph.count), [&](std::uint64_t i) {
      std::uint64_t bits = 0;
      for (int k = 0; k < 64; k += g_.size()) {
        const std::uint64_t v = i * 64 + static_cast<std::uint64_t>(k + g_.rank());
        const bool found = k + g_.rank() < 64 && v < b_.graph.count && parents[v] == none &&
                           find_parent(static_cast<vertex>(v));
        bits |= std::uint64_t{g_.ballot(found)} << static_cast<unsigned>(k);
      }
      if (g_.rank() != 0) return;
      next[i] = bits;
      mine.vertices += static_cast<std::uint64_t>(count_bits64(bits));
    });
    return status::ok;
  }
  CW_FN bool find_parent(vertex v) const noexcept {
    const std::uint64_t end = b_.graph.offsets[v + 1];
    for (std::uint64_t e = b_.graph.offsets[v]; e < end; ++e) {
      const vertex t = b_.graph.targets[e];
      if (!bit(b_.known, t)) continue;
      b_.parents.local()[v] = b_.graph.everywhere(t);
      return true;
    }
    return false;
  }
  /// Which of 64 vertices, own and others', are new.
  [[nodiscard]] CW_FN std::uint64_t known_word(std::uint64_t i) const noexcept {
    const std::uint64_t own = b_.graph.count;
    std::uint64_t bits = i < words_for(own) ? front(b_.graph.rank, level_)[i] : 0;
    const std::uint64_t known = own + b_.graph.other_count;
    const std::uint64_t end = known < i * 64 + 64 ? known : i * 64 + 64;
    for (std::uint64_t t = i * 64 < own ? own : i * 64; t < end; ++t) {
      const place at = place_of(b_.graph, b_.graph.others[t - own]);
      if (bit(front(at.rank, level_), at.index)) bits |= std::uint64_t{1} << (t % 64);
    }
    return bits;
  }

  const bfs_rounds& b_;
  rounds& all_;
  const G& g_;
  staged_items<vertex> staged_;
  unsigned level_ = 0;
  std::uint64_t edges_left_;
};

}  // namespace impl

CW_FN inline status bfs_rounds::run(rounds& all) const noexcept {
  return with_warp(all.context(), [&](const auto& g) {
    return impl::bfs_search<std::remove_cvref_t<decltype(g)>>(*this, all, g).run();
  });
}

// Shares are changed and read by several at once, also of other ranks: any of their values will do.

CW_FN inline status pagerank_rounds::run(rounds& all) const noexcept {
  const vertex own = graph.count;
  float* const given = shares.local();
  const auto give = [&](std::uint64_t v, double rank) {
    const std::uint64_t degree = offsets_out[v + 1] - offsets_out[v];
    const double share = degree == 0 ? 0.0 : damping * rank / static_cast<double>(degree);
    system_atomic<float>(given[v]).store(static_cast<float>(share), order::relaxed);
  };
  const auto fetch = [&] {
    all.for_each(graph.other_count, [&](std::uint64_t i) {
      const impl::place at = impl::place_of(graph, graph.others[i]);
      const float theirs = system_atomic<float>(shares.at(at.rank)[at.index]).load(order::relaxed);
      system_atomic<float>(given[own + i]).store(theirs, order::relaxed);
    });
  };
  const auto taken = [offsets = graph.offsets, targets = graph.targets, given](std::uint64_t v) {
    const auto share = [&](std::uint64_t e) {
      return static_cast<double>(system_atomic<float>(given[targets[e]]).load(order::relaxed));
    };
    // Two sums: an addition need not wait for the one before.
    double even = 0;
    double odd = 0;
    std::uint64_t e = offsets[v];
    const std::uint64_t end = offsets[v + 1];
    for (; e + 1 < end; e += 2) {
      even += share(e);
      odd += share(e + 1);
    }
    return e < end ? even + odd + share(e) : even + odd;
  };
  all.for_each(own, [&](std::uint64_t v) {
    ranks[v] = 1 / vertices;
    give(v, ranks[v]);
  });
  tally sum = {};
  status s = all.end({}, sum);
  for (int round = 0; round < most_rounds && s == status::ok; ++round) {
    tally mine = {};
    for (std::uint64_t piece = 0; piece < fetches; ++piece) {
      fetch();
      // Nothing that is used is older than the round: so what the round moved, and `damping` times
      // what that will move, is all that can still come.
      if (piece == 0) s = all.meet_own();
      if (s != status::ok) return s;
      const std::uint64_t begin = own * piece / fetches;
      all.for_each(own * (piece + 1) / fetches - begin, [&](std::uint64_t i) {
        const std::uint64_t v = begin + i;
        const double rank = (1 - damping) / vertices + taken(v);
        mine.moved += rank < ranks[v] ? ranks[v] - rank : rank - ranks[v];
        ranks[v] = rank;
        give(v, rank);
      });
    }
    s = all.end(mine, sum);
    if (sum.moved < tolerance) break;
  }
  return s;
}

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

  CW_FN void join(vertex a, vertex b) const noexcept {
    a = look(a);
    b = look(b);
    while (a != b) {
      const vertex high = a < b ? b : a;
      const vertex low = a < b ? a : b;
      vertex up = look(high);
      if (up == low) return;
      if (up == high && word(high).compare_exchange(up, low, order::relaxed)) return;
      a = look(look(high));
      b = look(low);
    }
  }
  /// Puts a vertex under its root.
  CW_FN void flatten(vertex v) const noexcept {
    const vertex was = look(v);
    vertex up = was;
    for (vertex over = look(up); over != up; over = look(up)) up = over;
    if (up != was) put(v, up);
  }

 private:
  [[nodiscard]] CW_FN system_atomic<vertex> word(vertex v) const noexcept {
    if (v - begin_ < count_) return system_atomic<vertex>(own_[v - begin_]);
    const place at = place_of(part_, v);
    return system_atomic<vertex>(above_.at(at.rank)[at.index]);
  }
  const part& part_;
  const symmetric<vertex>& above_;
  vertex* own_;
  vertex begin_;
  vertex count_;
};

/// The root that most of some vertices have, if more than half of them have one.
[[nodiscard]] CW_FN inline vertex most_frequent(const forest& f, std::uint64_t vertices) noexcept {
  constexpr std::uint64_t looks = 1024;
  vertex found = 0;
  int lead = 0;
  for (std::uint64_t i = 0; i < looks && vertices > 0; ++i) {
    const vertex root = f.look(static_cast<vertex>(vertices * i / looks));
    if (lead == 0) found = root;
    lead += root == found ? 1 : -1;
  }
  return found;
}

}  // namespace impl

CW_FN inline status components_rounds::run(rounds& all) const noexcept {
  const impl::forest f(graph, above);
  const auto target = [&](std::uint64_t e) { return graph.everywhere(graph.targets[e]); };
  // Each under its first neighbour, if that is less.
  all.for_each(graph.count, [&](std::uint64_t i) {
    const vertex v = graph.begin + static_cast<vertex>(i);
    const std::uint64_t e = graph.offsets[i];
    const vertex first = e < graph.offsets[i + 1] ? target(e) : v;
    f.put(v, first < v ? first : v);
  });
  status s = all.meet();
  if (s != status::ok) return s;
  const auto flatten = [&] {
    all.for_each(graph.count,
                 [&](std::uint64_t i) { f.flatten(graph.begin + static_cast<vertex>(i)); });
  };
  flatten();
  all.for_each(graph.count, [&](std::uint64_t i) {
    const std::uint64_t e = graph.offsets[i];
    const vertex v = graph.begin + static_cast<vertex>(i);
    const std::uint64_t end = graph.offsets[i + 1];
    if (e < end && target(e) > v) f.join(v, target(e));  // else it lies under it
    if (e + 1 < end) f.join(v, target(e + 1));
  });
  flatten();
  // One says which component is left out, or two vertices of different ones would both be.
  tally mine = {};
  if (graph.rank == 0 && all.context().grid().rank() == 0) {
    mine.vertices = impl::most_frequent(f, vertices);
  }
  tally sum = {};
  s = all.end(mine, sum);
  if (s != status::ok) return s;
  const auto largest = static_cast<vertex>(sum.vertices);
  all.for_each(graph.count, [&](std::uint64_t i) {
    const vertex v = graph.begin + static_cast<vertex>(i);
    if (f.look(v) == largest) return;
    for (std::uint64_t e = graph.offsets[i] + 2; e < graph.offsets[i + 1]; ++e) {
      f.join(v, target(e));
    }
  });
  s = all.meet();
  if (s == status::ok) flatten();
  return s;
}

}  // namespace crosswarp::device::graph
