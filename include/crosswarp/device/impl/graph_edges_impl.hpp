// How the threads of a rank follow the edges of vertices in a queue; see graph_rounds.hpp.
#pragma once

#include "crosswarp/device/graph_rounds.hpp"

namespace crosswarp::device::graph::impl {

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

/// What is done with a vertex: take(v) by one thread, then value(v), perhaps by several, and with
/// that edge(have, value, target, number of the edge) for each edge, by all threads of a warp
/// equally often; `have` is false for those that are left over.
template <class Take, class Value, class Edge>
struct edge_rules {
  Take take;
  Value value;
  Edge edge;
};
template <class Take, class Value, class Edge>
edge_rules(Take, Value, Edge) -> edge_rules<Take, Value, Edge>;

/// Edges from `first` to `end`, by the threads of `g` together.
template <class G, class Rules>
CW_FN inline void follow_row(const G& g, const part& p, std::uint64_t first, std::uint64_t end,
                             std::uint64_t value, const Rules& rules) noexcept {
  const vertex* const targets = p.targets;
  for (; first < end; first += static_cast<std::uint64_t>(g.size())) {
    const std::uint64_t i = first + static_cast<std::uint64_t>(g.rank());
    rules.edge(i < end, value, i < end ? targets[i] : 0, i);
  }
}

/// So many edges from `first` on, each thread of `g` its own: all of them by all threads together,
/// so that each has as many to follow.
template <class G, class Rules>
CW_FN inline void follow_rows(const G& g, const part& p, std::uint64_t first, std::uint32_t edges,
                              std::uint64_t value, const Rules& rules) noexcept {
  std::uint32_t end = edges;  // how many the threads up to this one have
  for (int step = 1; step < g.size(); step *= 2) {
    const std::uint32_t before = g.from(end, g.rank() < step ? g.rank() : g.rank() - step);
    if (g.rank() >= step) end += before;
  }
  const std::uint32_t begin = end - edges;
  const std::uint32_t all = g.from(end, g.size() - 1);
  const std::uint64_t origin = first - begin;
  for (std::uint32_t of = 0; of < all; of += static_cast<std::uint32_t>(g.size())) {
    const std::uint32_t i = of + static_cast<std::uint32_t>(g.rank());
    // It is an edge of the last thread that does not begin behind it.
    int whose = 0;
    for (int step = warp_group::width / 2; step > 0; step /= 2) {
      const int next = whose + step < g.size() ? whose + step : whose;
      if (g.from(begin, next) <= i) whose = next;
    }
    const std::uint64_t edge = g.from(origin, whose) + i;
    rules.edge(i < all, g.from(value, whose), i < all ? p.targets[edge] : 0, edge);
  }
}

/// The edges of a queue's vertices, by all threads of a rank.
template <class G>
class edge_followers {
  static constexpr std::uint64_t whole = edge_pieces::most_of_one;
  /// Vertices that a warp takes at a time: with four edges each they are as many as its threads.
  /// With more, who meets vertices of many edges would hold up the others.
  static constexpr std::uint64_t most_at_once = 8;

 public:
  CW_FN edge_followers(const rounds& all, const G& g, const part& p,
                       const edge_pieces& many) noexcept
      : all_(all), g_(g), p_(p), many_(many), shares_(g.size() > 1 && many.most > whole) {}

  /// `lengths` are those that the rules will read, if any. Callers: all threads of the rank, each
  /// with its warp.
  template <class Rules>
  CW_FN status follow(const vertex* queue, std::uint64_t count, const std::uint32_t* lengths,
                      const Rules& rules) noexcept {
    if constexpr (std::is_same_v<G, thread_group>) {
      const auto stride = static_cast<std::uint64_t>(all_.warps());
      all_.for_each(g_, count, [&](std::uint64_t i) {
        fetch_rows_ahead(p_, lengths, queue, i, count, stride);
        follow_one(queue[i], rules);
      });
      return status::ok;
    } else {
      follow_all(queue, count, rules);
      return shares_ ? follow_pieces(rules) : status::ok;
    }
  }
  /// Edges that were given to the calling thread.
  [[nodiscard]] CW_FN std::uint64_t followed() const noexcept { return followed_; }

 private:
  [[nodiscard]] CW_FN std::uint64_t& piece_count(unsigned turn) const noexcept {
    return all_.words().local()->pieces[turn % 2].count;
  }

  /// A warp takes one vertex of few, so that as many warps as can be have one, and several of many.
  template <class Rules>
  CW_FN void follow_all(const vertex* queue, std::uint64_t count, const Rules& rules) noexcept {
    const auto warps = static_cast<std::uint64_t>(all_.warps());
    const auto width = static_cast<std::uint64_t>(g_.size());
    const std::uint64_t most = width < most_at_once ? width : most_at_once;
    if (count <= warps) {
      return all_.for_each(g_, count, [&](std::uint64_t i) { follow_one(queue[i], rules); });
    }
    const std::uint64_t evenly = (count + warps - 1) / warps;
    const std::uint64_t each = evenly < most ? evenly : most;
    all_.for_each(g_, (count + each - 1) / each, [&](std::uint64_t k) {
      const std::uint64_t i = k * each + static_cast<std::uint64_t>(g_.rank());
      const bool have = static_cast<std::uint64_t>(g_.rank()) < each && i < count;
      follow_many(have, have ? queue[i] : 0, rules);
    });
  }
  template <class Rules>
  CW_FN void follow_one(vertex v, const Rules& rules) noexcept {
    if (g_.rank() == 0) rules.take(v);
    g_.sync();  // the value is read behind it
    const std::uint64_t first = p_.offsets[v];
    const std::uint64_t end = p_.offsets[v + std::size_t{1}];
    if (g_.rank() == 0) followed_ += end - first;
    if (shares_ && end - first > whole) return cut(v, end - first);
    follow_row(g_, p_, first, end, rules.value(v), rules);
  }
  /// Of each thread a vertex, if it has one.
  template <class Rules>
  CW_FN void follow_many(bool have, vertex v, const Rules& rules) noexcept {
    std::uint64_t first = 0;
    std::uint64_t edges = 0;
    std::uint64_t value = 0;
    if (have) {
      rules.take(v);
      value = rules.value(v);
      first = p_.offsets[v];
      edges = p_.offsets[v + std::size_t{1}] - first;
    }
    followed_ += edges;
    const bool is_cut = shares_ && edges > whole;
    for (std::uint32_t left = g_.ballot(is_cut); left != 0; left &= left - 1) {
      const int whose = leading_bits(~left);
      cut(g_.from(v, whose), g_.from(edges, whose));
    }
    follow_rows(g_, p_, first, is_cut ? 0 : static_cast<std::uint32_t>(edges), value, rules);
  }

  /// Cuts a row into pieces for all warps.
  CW_FN void cut(vertex v, std::uint64_t edges) noexcept {
    const std::uint64_t n = (edges + whole - 1) / whole;
    const std::uint64_t at = leader_of(g_, [&] {
      // Relaxed: read behind the meeting.
      return device_atomic<std::uint64_t>(piece_count(turn_)).fetch_add(n, order::relaxed);
    });
    for (auto k = static_cast<std::uint64_t>(g_.rank()); k < n;
         k += static_cast<std::uint64_t>(g_.size())) {
      many_.list[at + k] = {v, static_cast<std::uint32_t>(k)};
    }
  }
  template <class Rules>
  CW_FN status follow_pieces(const Rules& rules) noexcept {
    const status s = all_.meet_own();
    if (s != status::ok) return s;
    // Read in the last call, and filled in the next one.
    if (all_.thread() == 0) piece_count(turn_ + 1) = 0;
    all_.for_each(g_, piece_count(turn_), [&](std::uint64_t i) {
      const edge_pieces::piece x = many_.list[i];
      const std::uint64_t first = p_.offsets[x.v] + x.number * whole;
      const std::uint64_t end = p_.offsets[x.v + std::size_t{1}];
      follow_row(g_, p_, first, end < first + whole ? end : first + whole, rules.value(x.v), rules);
    });
    ++turn_;
    return status::ok;
  }

  const rounds& all_;
  const G& g_;
  const part& p_;
  const edge_pieces& many_;
  bool shares_;
  unsigned turn_ = 0;  ///< calls that may have cut rows
  std::uint64_t followed_ = 0;
};

}  // namespace crosswarp::device::graph::impl
