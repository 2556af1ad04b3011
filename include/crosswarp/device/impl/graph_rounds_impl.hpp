// Bodies of graph_rounds.hpp.
#pragma once

#include <cmath>

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
/// 64 of them.
[[nodiscard]] CW_FN inline std::uint64_t bits_from(const std::uint64_t* words,
                                                   std::uint64_t i) noexcept {
  const std::uint64_t low = words[i / 64] >> (i % 64);
  return i % 64 == 0 ? low : low | words[i / 64 + 1] << (64 - i % 64);
}
[[nodiscard]] CW_FN inline int count_bits64(std::uint64_t bits) noexcept {
  return count_bits(static_cast<std::uint32_t>(bits)) +
         count_bits(static_cast<std::uint32_t>(bits >> 32U));
}

/// Rows lie anywhere in memory: a thread that has come to the i-th of a queue, and takes each
/// `stride`th, asks for those that come soon. `lengths` may be null.
CW_FN inline void fetch_rows_ahead(const part& p, const std::uint32_t* lengths, const vertex* queue,
                                   std::uint64_t i, std::uint64_t count,
                                   std::uint64_t stride) noexcept {
  const std::uint64_t soon = 8 * stride;
  if (i + 2 * soon < count) fetch_ahead(&p.offsets[queue[i + 2 * soon]]);
  if (i + soon >= count) return;
  const std::uint64_t row = p.offsets[queue[i + soon]];
  constexpr std::uint64_t line = 64 / sizeof(vertex);
  fetch_ahead(p.targets + row);
  fetch_ahead(p.targets + row + line);
  if (lengths == nullptr) return;
  fetch_ahead(lengths + row);
  fetch_ahead(lengths + row + line);
}

/// take(v) of each vertex in a queue, and then f(v), and what that returns, as
/// part::for_each_edge() does, of its edges: by one warp, or by many if they are many. `turn`
/// counts the calls; `lengths` are those that f will read, if any; `followed` grows by the edges,
/// in one thread of each warp. Callers: all threads of the rank, each with its warp.
template <class G, class Take, class F>
CW_FN inline status follow_edges(rounds& all, const G& g, const part& p, const edge_pieces& many,
                                 unsigned turn, const vertex* queue, std::uint64_t count,
                                 const std::uint32_t* lengths, std::uint64_t& followed,
                                 const Take& take, const F& f) noexcept {
  constexpr std::uint64_t whole = edge_pieces::most_of_one;
  const bool shares = g.size() > 1 && many.most > whole;
  auto& pieces = all.words().local()->pieces;
  const vertex* const targets = p.targets;
  const auto stride = static_cast<std::uint64_t>(all.warps());
  std::uint64_t seen = 0;
  const auto follow = [&](vertex v, std::uint64_t first, std::uint64_t end) {
    const auto edge = f(v);
    for (; first < end; first += static_cast<std::uint64_t>(g.size())) {
      const std::uint64_t i = first + static_cast<std::uint64_t>(g.rank());
      edge(i < end, i < end ? targets[i] : 0, i);
    }
  };
  all.for_each(g, count, [&](std::uint64_t i) {
    if (g.size() == 1) fetch_rows_ahead(p, lengths, queue, i, count, stride);
    const vertex v = queue[i];
    take(v);
    const std::uint64_t edges = p.offsets[v + 1] - p.offsets[v];
    seen += edges;
    if (!shares || edges <= whole) return follow(v, p.offsets[v], p.offsets[v + 1]);
    const std::uint64_t n = (edges + whole - 1) / whole;
    const std::uint64_t at = leader_of(g, [&] {
      // Relaxed: read behind the meeting.
      return device_atomic<std::uint64_t>(pieces[turn % 2].count).fetch_add(n, order::relaxed);
    });
    for (auto k = static_cast<std::uint64_t>(g.rank()); k < n;
         k += static_cast<std::uint64_t>(g.size())) {
      many.list[at + k] = {v, static_cast<std::uint32_t>(k)};
    }
  });
  if (g.rank() == 0) followed += seen;
  if (!shares) return status::ok;
  const status s = all.meet_own();
  if (s != status::ok) return s;
  // Read in the last call, and filled in the next one.
  if (all.thread() == 0) pieces[(turn + 1) % 2].count = 0;
  all.for_each(g, pieces[turn % 2].count, [&](std::uint64_t i) {
    const edge_pieces::piece x = many.list[i];
    const std::uint64_t first = p.offsets[x.v] + x.number * whole;
    const std::uint64_t end = p.offsets[x.v + 1];
    follow(x.v, first, end < first + whole ? end : first + whole);
  });
  return status::ok;
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
    all_.tell(level_, followed_);
    return s;
  }

 private:
  [[nodiscard]] CW_FN bool is_first() const noexcept { return all_.thread() == 0; }
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
    if (!b_.symmetric_graph || fresh * b_.pieces.most <= edges_left_ / alpha) return status::ok;
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
    std::uint64_t claimed = 0;
    const auto look = [&](vertex v) {
      return [&, v](bool have, vertex t, std::uint64_t /*edge*/) {
        place at{-1, 0};
        bool is_mine = false;
        if (have) {
          at = place_here(b_.graph, t);
          is_mine = claim(b_.parents.at(at.rank)[at.index], b_.graph.begin + v);
        }
        if (g_.ballot(is_mine) == 0) return;  // most edges are no news
        claimed += static_cast<std::uint64_t>(staged_.put(g_, is_mine, at.rank, at.index, send));
      };
    };
    const status s = follow_edges(
        all_, g_, b_.graph, b_.pieces, downs_++, q, arrived(b_.graph.rank, level_), nullptr,
        followed_, [](vertex) {}, look);
    staged_.send_all(g_, send);
    if (g_.rank() == 0) mine.vertices = claimed;
    return s;
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
  CW_FN bool find_parent(vertex v) noexcept {
    const std::uint64_t first = b_.graph.offsets[v];
    const std::uint64_t end = b_.graph.offsets[v + 1];
    for (std::uint64_t e = first; e < end; ++e) {
      const vertex t = b_.graph.targets[e];
      if (!bit(b_.known, t)) continue;
      b_.parents.local()[v] = b_.graph.everywhere(t);
      followed_ += e + 1 - first;
      return true;
    }
    followed_ += end - first;
    return false;
  }
  /// Which of 64 vertices, own and others', are new.
  [[nodiscard]] CW_FN std::uint64_t known_word(std::uint64_t i) const noexcept {
    const std::uint64_t own = b_.graph.count;
    std::uint64_t bits = i < words_for(own) ? front(b_.graph.rank, level_)[i] : 0;
    const std::uint64_t known = own + b_.graph.other_count;
    const std::uint64_t end = known < i * 64 + 64 ? known : i * 64 + 64;
    const vertex* const others = b_.graph.others;  // in order
    const vertex last = end > own ? others[end - 1 - own] : 0;
    for (std::uint64_t t = i * 64 < own ? own : i * 64; t < end;) {
      const place at = place_of(b_.graph, others[t - own]);
      const std::uint64_t* const theirs = front(at.rank, level_);
      const vertex begin = b_.graph.first[at.rank];
      const vertex past = b_.graph.first[at.rank + 1];
      if (end - t == 64 && last < past && last - others[t - own] == 63) {
        return bits_from(theirs, at.index);  // without a gap
      }
      for (; t < end && others[t - own] < past; ++t) {
        if (bit(theirs, others[t - own] - begin)) bits |= std::uint64_t{1} << (t % 64);
      }
    }
    return bits;
  }

  const bfs_rounds& b_;
  rounds& all_;
  const G& g_;
  staged_items<vertex> staged_;
  unsigned level_ = 0;
  unsigned downs_ = 0;
  std::uint64_t edges_left_;
  std::uint64_t followed_ = 0;  // edges, by this thread
};

}  // namespace impl

CW_FN inline status bfs_rounds::run(rounds& all) const noexcept {
  return with_warp(all.context(), [&](const auto& g) {
    return impl::bfs_search<std::remove_cvref_t<decltype(g)>>(*this, all, g).run();
  });
}

namespace impl {

/// A run of pagerank_rounds in one thread. Shares are changed and read by several at once, also of
/// other ranks: any of their values will do.
template <class G>
class pagerank_search {
  /// A thread takes so many shares for its vertex alone; for one with more, its whole warp does.
  static constexpr std::uint64_t alone = 32;

 public:
  CW_FN pagerank_search(const pagerank_rounds& program, rounds& all, const G& g) noexcept
      : p_(program), all_(all), g_(g), given_(program.shares.local()) {}

  CW_FN status run() noexcept {
    const std::uint64_t own = p_.graph.count;
    all_.for_each(own, [&](std::uint64_t v) {
      const std::uint64_t edges = p_.graph.offsets[v + 1] - p_.graph.offsets[v];
      p_.ranks[v] = p_.at_first.vertex + p_.at_first.edge * static_cast<double>(edges);
      give(v, p_.ranks[v]);
      if (shares()) p_.collected[v] = 0;  // a run that failed may have left something
    });
    tally sum = {};
    std::uint64_t times = 0;
    status s = all_.end({}, sum);
    for (int round = 0; round < p_.most_rounds && s == status::ok; ++round) {
      tally mine = {};
      ++times;
      for (std::uint64_t piece = 0; piece < pagerank_rounds::fetches; ++piece) {
        fetch();
        // Nothing that is used is older than the round: so what the round moved, and `damping`
        // times what that will move, is all that can still come.
        if (piece == 0) s = all_.meet_own();
        if (s == status::ok && piece == 0) s = collect();
        if (s != status::ok) return s;
        take(own * piece / pagerank_rounds::fetches, own * (piece + 1) / pagerank_rounds::fetches,
             mine);
      }
      s = all_.end(mine, sum);
      if (sum.moved < p_.tolerance) break;
    }
    // Each round takes along all edges: nobody needs to count them.
    all_.tell(times, all_.thread() == 0 ? times * p_.graph.offsets[own] : 0);
    return s;
  }

 private:
  CW_FN void give(std::uint64_t v, double rank) const noexcept {
    // Fewer than 2^32, and quicker to convert as such.
    const std::uint64_t degree = p_.offsets_out[v + 1] - p_.offsets_out[v];
    const float share = degree == 0 ? 0.0F
                                    : static_cast<float>(p_.damping * rank) /
                                          static_cast<float>(static_cast<std::uint32_t>(degree));
    system_atomic<float>(given_[v]).store(share, order::relaxed);
  }
  CW_FN void fetch() const noexcept {
    const vertex* const others = p_.graph.others;  // in order
    const vertex* const first = p_.graph.first;
    std::uint64_t begin = 0;
    for (int r = 0; r < p_.graph.ranks; ++r) {
      if (r == p_.graph.rank) continue;
      const std::uint64_t end = first_from(first[r + 1]);
      const vertex base = first[r];
      float* const theirs = p_.shares.at(r);
      float* const here = given_ + p_.graph.count + begin;
      all_.for_each(end - begin, [&](std::uint64_t i) {
        const float share =
            system_atomic<float>(theirs[others[begin + i] - base]).load(order::relaxed);
        system_atomic<float>(here[i]).store(share, order::relaxed);
      });
      begin = end;
    }
  }
  /// How many others' vertices come before `v`.
  [[nodiscard]] CW_FN std::uint64_t first_from(vertex v) const noexcept {
    std::uint64_t low = 0;
    for (std::uint64_t high = p_.graph.other_count; low < high;) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (p_.graph.others[middle] < v) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  [[nodiscard]] CW_FN bool shares() const noexcept { return g_.size() > 1 && p_.piece_count > 0; }
  /// What vertices take that have many edges, by all warps.
  CW_FN status collect() const noexcept {
    if (!shares()) return status::ok;
    constexpr std::uint64_t whole = edge_pieces::most_of_one;
    all_.for_each(g_, p_.piece_count, [&](std::uint64_t i) {
      const edge_pieces::piece x = p_.pieces[i];
      const std::uint64_t begin = p_.graph.offsets[x.v] + x.number * whole;
      const std::uint64_t end = p_.graph.offsets[x.v + 1];
      const double part =
          sum_of(begin + static_cast<std::uint64_t>(g_.rank()),
                 end < begin + whole ? end : begin + whole, static_cast<std::uint64_t>(g_.size()));
      // Relaxed: read behind the meeting.
      device_atomic<double>(p_.collected[x.v]).fetch_add(part, order::relaxed);
    });
    return all_.meet_own();
  }
  /// New ranks of own vertices, one for each thread of a warp at a time.
  CW_FN void take(std::uint64_t begin, std::uint64_t end, tally& mine) const noexcept {
    const auto width = static_cast<std::uint64_t>(g_.size());
    const double least = (1 - p_.damping) / p_.vertices;
    double* const ranks = p_.ranks;
    double moved = 0;
    all_.for_each(g_, (end - begin + width - 1) / width, [&](std::uint64_t i) {
      const std::uint64_t first = begin + i * width;
      const std::uint64_t v = first + static_cast<std::uint64_t>(g_.rank());
      const bool have = v < end;
      const std::uint64_t edges = have ? p_.graph.offsets[v + 1] - p_.graph.offsets[v] : 0;
      const bool is_collected = shares() && edges > edge_pieces::most_of_one;
      const bool is_long = width > 1 && !is_collected && edges > alone;
      double taken = 0;
      if (is_collected) {
        taken = p_.collected[v];
        p_.collected[v] = 0;
      } else if (have && !is_long) {
        taken = sum_of(p_.graph.offsets[v], p_.graph.offsets[v + 1], 1);
      }
      std::uint32_t together = g_.ballot(is_long);
      for (unsigned k = 0; together != 0; ++k, together >>= 1U) {
        if ((together & 1U) == 0) continue;
        const std::uint64_t begin_of = p_.graph.offsets[first + k];
        const double sum = add_up(sum_of(begin_of + static_cast<std::uint64_t>(g_.rank()),
                                         p_.graph.offsets[first + k + 1], width));
        if (static_cast<unsigned>(g_.rank()) == k) taken = sum;
      }
      if (!have) return;
      const double rank = least + taken;
      moved += std::fabs(rank - ranks[v]);  // without a jump: nobody can guess its direction
      ranks[v] = rank;
      give(v, rank);
    });
    mine.moved += moved;
  }
  /// Each `step`th share, along edges from `e` on.
  [[nodiscard]] CW_FN double sum_of(std::uint64_t e, std::uint64_t end,
                                    std::uint64_t step) const noexcept {
    const vertex* const targets = p_.graph.targets;
    const auto share = [&](std::uint64_t along) {
      return static_cast<double>(system_atomic<float>(given_[targets[along]]).load(order::relaxed));
    };
    // Two sums: an addition need not wait for the one before.
    double even = 0;
    double odd = 0;
    for (; e + step < end; e += 2 * step) {
      even += share(e);
      odd += share(e + step);
    }
    return e < end ? even + odd + share(e) : even + odd;
  }
  /// What the threads of a warp have, together.
  [[nodiscard]] CW_FN double add_up(double mine) const noexcept {
    double& word = p_.sums[all_.warp()];
    // Relaxed, all of it: the group is in step.
    device_atomic<double>(word).fetch_add(mine, order::relaxed);
    g_.sync();
    const double all = device_atomic<double>(word).load(order::relaxed);
    g_.sync();
    if (g_.rank() == 0) device_atomic<double>(word).store(0, order::relaxed);
    g_.sync();
    return all;
  }

  const pagerank_rounds& p_;
  rounds& all_;
  const G& g_;
  float* given_;
};

}  // namespace impl

CW_FN inline status pagerank_rounds::run(rounds& all) const noexcept {
  return with_warp(all.context(), [&](const auto& g) {
    return impl::pagerank_search<std::remove_cvref_t<decltype(g)>>(*this, all, g).run();
  });
}

}  // namespace crosswarp::device::graph
