// Bodies of graph_rounds.hpp.
#pragma once

#include <cmath>

#include "crosswarp/device/graph_rounds.hpp"
#include "crosswarp/device/impl/graph_edges_impl.hpp"

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
        followers_(all, g_, b_.graph, b_.pieces),
        edges_left_(b_.edges) {}

  CW_FN status run() noexcept {
    staged_.clear(g_);
    status s = begin();
    std::uint64_t fresh = s == status::ok ? arrived_anywhere() : 0;
    bool up = false;
    std::uint64_t before = 0;
    while (s == status::ok && fresh > 0) {
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
      s = up ? look_up(fresh) : look_down(fresh);
    }
    all_.tell(level_, followed_ + followers_.followed());
    return s;
  }

 private:
  [[nodiscard]] CW_FN bool is_first() const noexcept { return all_.thread() == 0; }
  [[nodiscard]] CW_FN std::uint64_t& arrived(int rank, unsigned level) const noexcept {
    return all_.words().at(rank)->arrived[level % 3].count;
  }
  /// In all queues of this level, behind the meeting that ended the one before. Nobody clears them
  /// before all have met again.
  [[nodiscard]] CW_FN std::uint64_t arrived_anywhere() const noexcept {
    std::uint64_t all = 0;
    for (int r = 0; r < b_.graph.ranks; ++r) all += arrived(r, level_);
    return all;
  }
  [[nodiscard]] CW_FN vertex* queue(int rank, unsigned level) const noexcept {
    const vertex* const first = b_.graph.first;
    return b_.queues.at(rank) + (level % 2) * (first[rank + 1] - first[rank]);
  }
  [[nodiscard]] CW_FN std::uint64_t* front(int rank, unsigned level) const noexcept {
    const vertex* const first = b_.graph.first;
    return b_.fronts.at(rank) + (level % 2) * words_for(first[rank + 1] - first[rank]);
  }

  CW_FN status begin() noexcept {
    vertex* const parents = b_.parents.local();
    const place at = place_of(b_.graph, b_.source);
    const std::uint64_t mine = at.rank == b_.graph.rank ? at.index : ~std::uint64_t{0};
    all_.for_each(b_.graph.count,
                  [&](std::uint64_t v) { parents[v] = v == mine ? b_.source : none; });
    if (is_first() && at.rank == b_.graph.rank) {
      queue(at.rank, 0)[0] = at.index;
      arrived(at.rank, 0) = 1;
    }
    return all_.meet();
  }

  /// Turns when the new vertices have many edges. To count these takes a meeting, so only when
  /// they can be so many.
  CW_FN status turn_up(std::uint64_t fresh, bool& up) noexcept {
    if (!b_.symmetric_graph || fresh * b_.pieces.most <= edges_left_ / alpha) return status::ok;
    tally mine = {};
    const vertex* const q = queue(b_.graph.rank, level_);
    std::uint64_t* const bits = front(b_.graph.rank, level_);  // for queue_to_bits()
    all_.for_each(words_for(b_.graph.count), [&](std::uint64_t i) { bits[i] = 0; });
    all_.for_each(arrived(b_.graph.rank, level_), [&](std::uint64_t i) {
      mine.edges += b_.graph.offsets[q[i] + 1] - b_.graph.offsets[q[i]];
    });
    tally sum = {};
    status s = all_.end(mine, sum);
    up = sum.edges > edges_left_ / alpha;
    edges_left_ -= sum.edges < edges_left_ ? sum.edges : edges_left_;
    return s == status::ok && up ? queue_to_bits() : s;
  }

  /// Behind a meeting since the bits were cleared.
  CW_FN status queue_to_bits() noexcept {
    std::uint64_t* const bits = front(b_.graph.rank, level_);
    const vertex* const q = queue(b_.graph.rank, level_);
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
  CW_FN status look_down(std::uint64_t& fresh) noexcept {
    const auto send = [&](int r, const vertex* items, int n) {
      const std::uint64_t at = leader_of(g_, [&] { return take_places(r, level_ + 1, n); });
      vertex* const to = queue(r, level_ + 1) + at;
      for (int i = g_.rank(); i < n; i += g_.size()) to[i] = items[i];
    };
    const auto look = [&](bool have, std::uint64_t parent, vertex t, std::uint64_t /*edge*/) {
      place at{-1, 0};
      bool is_mine = false;
      if (have) {
        at = place_here(b_.graph, t);
        is_mine = claim(b_.parents.at(at.rank)[at.index], static_cast<vertex>(parent));
      }
      if (g_.ballot(is_mine) == 0) return;  // most edges are no news
      (void)staged_.put(g_, is_mine, at.rank, at.index, send);
    };
    const auto parent_of_all = [&](vertex v) { return std::uint64_t{b_.graph.begin} + v; };
    status s = followers_.follow(queue(b_.graph.rank, level_), arrived(b_.graph.rank, level_),
                                 nullptr, edge_rules{[](vertex) {}, parent_of_all, look});
    staged_.send_all(g_, send);
    if (s == status::ok) s = all_.meet();
    ++level_;
    if (s == status::ok) fresh = arrived_anywhere();
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
  CW_FN status look_up(std::uint64_t& fresh) noexcept {
    fill_known();
    status s = all_.meet_own();
    if (s != status::ok) return s;
    tally mine = {};
    vertex* const parents = b_.parents.local();
    std::uint64_t* const next = front(b_.graph.rank, level_ + 1);
    all_.for_each(g_, words_for(b_.graph.count), [&](std::uint64_t i) {
      const std::uint64_t bits = together(i, b_.graph.count, [&](std::uint64_t v) {
        return parents[v] == none && find_parent(static_cast<vertex>(v));
      });
      if (g_.rank() != 0) return;
      next[i] = bits;
      mine.vertices += static_cast<std::uint64_t>(count_bits64(bits));
    });
    tally sum = {};
    s = all_.end(mine, sum);
    ++level_;
    fresh = sum.vertices;
    return s;
  }
  /// The i-th word of bits: is(n) of each of its 64 numbers that is less than `end`, by the threads
  /// of a warp in turn.
  template <class F>
  [[nodiscard]] CW_FN std::uint64_t together(std::uint64_t i, std::uint64_t end,
                                             const F& is) const noexcept {
    std::uint64_t bits = 0;
    for (int k = 0; k < 64; k += g_.size()) {
      const std::uint64_t n = i * 64 + static_cast<std::uint64_t>(k + g_.rank());
      const bool set = k + g_.rank() < 64 && n < end && is(n);
      bits |= std::uint64_t{g_.ballot(set)} << static_cast<unsigned>(k);
    }
    return bits;
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
  /// This round's bits of all vertices that the rank knows.
  CW_FN void fill_known() const noexcept {
    const std::uint64_t own = b_.graph.count;
    const std::uint64_t known = own + b_.graph.other_count;
    if constexpr (std::is_same_v<G, thread_group>) {
      all_.for_each(words_for(known), [&](std::uint64_t i) { b_.known[i] = known_word(i); });
    } else {
      // Threads of a warp look at one each, since others lie anywhere.
      const std::uint64_t* const mine = front(b_.graph.rank, level_);
      const auto is_new = [&](std::uint64_t t) {
        if (t < own) return bit(mine, t);
        const place at = place_of(b_.graph, b_.graph.others[t - own]);
        return bit(front(at.rank, level_), at.index);
      };
      all_.for_each(own / 64, [&](std::uint64_t i) { b_.known[i] = mine[i]; });
      all_.for_each(g_, words_for(known) - own / 64, [&](std::uint64_t k) {
        const std::uint64_t i = own / 64 + k;
        const std::uint64_t bits = together(i, known, is_new);
        if (g_.rank() == 0) b_.known[i] = bits;
      });
    }
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
  edge_followers<G> followers_;
  unsigned level_ = 0;
  std::uint64_t edges_left_;
  std::uint64_t followed_ = 0;  // edges upwards, by this thread
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
    if constexpr (std::is_same_v<G, thread_group>) {
      fetch_by_rank();
    } else {
      fetch_several();
    }
  }
  CW_FN void fetch_by_rank() const noexcept {
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
  /// The same, with several shares of each thread under way at once.
  CW_FN void fetch_several() const noexcept {
    constexpr int at_once = 4;
    const auto stride = static_cast<std::uint64_t>(all_.threads());
    const std::uint64_t count = p_.graph.other_count;
    float* const here = given_ + p_.graph.count;
    for (auto i = static_cast<std::uint64_t>(all_.thread()); i < count; i += at_once * stride) {
      const std::uint64_t last = count - 1;  // what is left over fetches it once more
      vertex of[at_once];
      float shares[at_once];
      CW_UNROLLED
      for (int k = 0; k < at_once; ++k) {
        const std::uint64_t n = i + static_cast<std::uint64_t>(k) * stride;
        of[k] = p_.graph.others[n < count ? n : last];
      }
      CW_UNROLLED
      for (int k = 0; k < at_once; ++k) {
        const place at = place_of(p_.graph, of[k]);
        shares[k] = system_atomic<float>(p_.shares.at(at.rank)[at.index]).load(order::relaxed);
      }
      CW_UNROLLED
      for (int k = 0; k < at_once; ++k) {
        const std::uint64_t n = i + static_cast<std::uint64_t>(k) * stride;
        if (n < count) system_atomic<float>(here[n]).store(shares[k], order::relaxed);
      }
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
        const double part = sum_of(begin_of + static_cast<std::uint64_t>(g_.rank()),
                                   p_.graph.offsets[first + k + 1], width);
        const double sum = g_.from(add_up(g_, part), 0);
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
    const auto share = [&](vertex from) {
      return system_atomic<float>(given_[from]).load(order::relaxed);
    };
    // Several sums: an addition need not wait for the one before. A GPU's thread has all their
    // shares under way at once.
    constexpr int sums = warps_go_together() ? 4 : 2;
    double part[sums] = {};
    for (; e + (sums - 1) * step < end; e += sums * step) {
      vertex from[sums];
      CW_UNROLLED
      for (int i = 0; i < sums; ++i) from[i] = targets[e + static_cast<std::uint64_t>(i) * step];
      float shares[sums];
      CW_UNROLLED
      for (int i = 0; i < sums; ++i) shares[i] = share(from[i]);
      CW_UNROLLED
      for (int i = 0; i < sums; ++i) part[i] += static_cast<double>(shares[i]);
    }
    for (; e < end; e += step) part[0] += static_cast<double>(share(targets[e]));
    double all = part[0];
    CW_UNROLLED
    for (int i = 1; i < sums; ++i) all += part[i];
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
