// Graph programs for worklists: what each item means, and what is done with it.
//
// Each rank holds the rows of its own vertices, what is known of these, and what it has told others
// of theirs (graph::part): it tells them only what is news to them, as far as it knows.
// Words of own vertices are shared by the workers of one rank, so they are atomic at device scope.
// All are relaxed: an item is ordered by its queue, and what a worker reads of a word that others
// change is old at worst, in which case whoever changed it has made an item of it.
#pragma once

#include <cstdint>

#include "crosswarp/device/worklist.hpp"

namespace crosswarp::device::graph {

using vertex = std::uint32_t;

/// A rank's part of a graph; see crosswarp::graph::part.
struct part {
  const std::uint64_t* offsets;
  const vertex* targets;
  const std::uint32_t* lengths;
  const vertex* others;
  vertex other_count;
  const vertex* first;  ///< of each rank, and the end
  vertex begin;
  vertex count;
  int rank;
  int ranks;

  [[nodiscard]] CW_FN int owner(vertex v) const noexcept {
    if (v - begin < count) return rank;
    int low = 0;
    for (int high = ranks; high - low > 1;) {
      const int middle = low + (high - low) / 2;
      (v < first[middle] ? high : low) = middle;
    }
    return low;
  }
  /// Own vertices are numbered from 0 in here, then come others'.
  [[nodiscard]] CW_FN bool is_own(vertex here) const noexcept { return here < count; }
  [[nodiscard]] CW_FN vertex everywhere(vertex here) const noexcept {
    return here < count ? begin + here : others[here - count];
  }

  /// f(have, number here, index of the edge) for all edges of own vertex `v`, by all threads of `g`
  /// equally often; `have` is false for those that are left over.
  template <class G, class F>
  CW_FN void for_each_edge(const G& g, vertex v, const F& f) const noexcept {
    const std::uint64_t end = offsets[v + 1];
    for (std::uint64_t first_of = offsets[v]; first_of < end;
         first_of += static_cast<std::uint64_t>(g.size())) {
      const std::uint64_t i = first_of + static_cast<std::uint64_t>(g.rank());
      const bool have = i < end;
      f(have, have ? targets[i] : 0, i);
    }
  }
};

inline constexpr vertex none = ~vertex{0};

// A program for graphs also has forget(v), which makes what is known of own and others' vertices as
// it is at the start, and conclude(v), which makes the result of an own one.

namespace impl {
template <class T>
CW_FN inline T look(T& word) noexcept {
  return device_atomic<T>(word).load(order::relaxed);
}
/// Returns what was there; `value` is there now, or something less.
template <class T>
CW_FN inline T lower(T& word, T value) noexcept {
  const device_atomic<T> w(word);
  T seen = w.load(order::relaxed);
  while (value < seen && !w.compare_exchange(seen, value, order::relaxed)) {
  }
  return seen;
}
}  // namespace impl

/// Breadth-first search. A vertex's word is its level and its parent, so that the two go together;
/// less is better. Of others' vertices a rank keeps what it told.
struct bfs {
  struct item {
    vertex v;  ///< everywhere
    std::uint32_t level;
    vertex parent;  ///< none: the word holds it already, and its edges are to be followed
  };

  part graph;
  std::uint64_t* words;  ///< of own vertices and others'; all bits at the start
  vertex* parents;       ///< of own vertices
  vertex source;

  CW_FN void forget(std::uint64_t v) const noexcept { words[v] = ~std::uint64_t{0}; }
  CW_FN void conclude(vertex v) const noexcept { parents[v] = static_cast<vertex>(words[v]); }

  [[nodiscard]] CW_FN static std::uint64_t pack(std::uint32_t level, vertex parent) noexcept {
    return (std::uint64_t{level} << 32U) | parent;
  }
  [[nodiscard]] CW_FN static std::uint32_t level_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> 32U);
  }
  [[nodiscard]] CW_FN int owner(const item& x) const noexcept { return graph.owner(x.v); }
  [[nodiscard]] CW_FN std::uint64_t priority(const item& x) const noexcept { return x.level; }

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    const bool mine = graph.owner(source) == graph.rank && worker == 0 && g.rank() == 0;
    out.push(g, mine, {source, 0, source});
  }

  template <class G, class Out>
  CW_FN void work(const G& g, const item& x, Out& out) const noexcept {
    const vertex v = x.v - graph.begin;
    const bool news = leader_of(g, [&] {
      if (x.parent == none) return level_of(impl::look(words[v])) == x.level;
      return x.level < level_of(impl::lower(words[v], pack(x.level, x.parent)));
    });
    if (!news) return;
    graph.for_each_edge(g, v, [&](bool have, vertex t, std::uint64_t /*edge*/) {
      const std::uint32_t level = x.level + 1;
      bool tell = false;
      if (have && level < level_of(impl::look(words[t]))) {
        tell = level < level_of(impl::lower(words[t], pack(level, x.v)));
      }
      out.push(g, tell, {tell ? graph.everywhere(t) : 0, level, graph.is_own(t) ? none : x.v});
    });
  }
};

/// Shortest paths; items near the source first. A vertex's word is the best distance so far.
struct sssp {
  struct item {
    std::uint64_t distance;
    vertex v;             ///< everywhere
    std::uint32_t known;  ///< the word holds it already, and its edges are to be followed
  };

  part graph;
  std::uint64_t* words;      ///< of own vertices and others'; all bits at the start
  std::uint64_t* distances;  ///< of own vertices
  vertex source;

  CW_FN void forget(std::uint64_t v) const noexcept { words[v] = ~std::uint64_t{0}; }
  CW_FN void conclude(vertex v) const noexcept { distances[v] = words[v]; }

  [[nodiscard]] CW_FN int owner(const item& x) const noexcept { return graph.owner(x.v); }
  [[nodiscard]] CW_FN std::uint64_t priority(const item& x) const noexcept { return x.distance; }

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    const bool mine = graph.owner(source) == graph.rank && worker == 0 && g.rank() == 0;
    out.push(g, mine, {0, source, 0});
  }

  template <class G, class Out>
  CW_FN void work(const G& g, const item& x, Out& out) const noexcept {
    const vertex v = x.v - graph.begin;
    const bool news = leader_of(g, [&] {
      if (x.known != 0) return impl::look(words[v]) == x.distance;
      return x.distance < impl::lower(words[v], x.distance);
    });
    if (!news) return;
    graph.for_each_edge(g, v, [&](bool have, vertex t, std::uint64_t edge) {
      std::uint64_t through = 0;
      bool tell = false;
      if (have) {
        through = x.distance + graph.lengths[edge];
        tell = through < impl::look(words[t]) && through < impl::lower(words[t], through);
      }
      out.push(g, tell, {through, tell ? graph.everywhere(t) : 0, graph.is_own(t) ? 1U : 0U});
    });
  }
};

/// Components, directions ignored. Each rank first joins what its own edges join, in trees whose
/// roots are the least of them; then roots tell each other across ranks who is the least.
struct components {
  struct item {
    vertex v;      ///< everywhere
    vertex label;  ///< one that it is connected to; everywhere
  };

  part graph;
  vertex* above;  ///< of own vertices, numbered here: the tree
  /// The least that is known, everywhere: of own vertices that are roots, and of others' vertices
  /// what they were told.
  vertex* labels;
  vertex* result;  ///< of own vertices
  /// Edges to others' vertices, as a list for each root: by edge of `borders`, the next one.
  const std::uint64_t* borders;  ///< edges that lead to others' vertices, and
  const vertex* border_from;     ///< own vertices that they begin at
  std::uint64_t border_count;
  std::uint64_t* next;   ///< by border, and
  std::uint64_t* heads;  ///< by root: 1 + the first of its borders; 0: none

  [[nodiscard]] CW_FN int owner(const item& x) const noexcept { return graph.owner(x.v); }
  [[nodiscard]] CW_FN std::uint64_t priority(const item& /*x*/) const noexcept { return 0; }

  [[nodiscard]] CW_FN vertex root(vertex v) const noexcept {
    for (;;) {
      const vertex up = impl::look(above[v]);
      if (up == v) return v;
      const vertex over = impl::look(above[up]);
      // Halves the way. Whoever is slower does the same or less.
      if (over != up) impl::lower(above[v], over);
      v = over;
    }
  }
  /// Joins the trees of two own vertices; the lesser root stays one.
  CW_FN void join(vertex a, vertex b) const noexcept {
    for (;;) {
      a = root(a);
      b = root(b);
      if (a == b) return;
      if (b < a) {
        const vertex less = b;
        b = a;
        a = less;
      }
      vertex itself = b;
      if (device_atomic<vertex>(above[b]).compare_exchange(itself, a, order::relaxed)) return;
    }
  }

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    if (worker != 0) return;
    for (std::uint64_t i = 0; i < border_count; i += static_cast<std::uint64_t>(g.size())) {
      const std::uint64_t mine = i + static_cast<std::uint64_t>(g.rank());
      const bool have = mine < border_count;
      tell(g, have, have ? mine : 0, have ? graph.begin + above[border_from[mine]] : 0, out);
    }
  }

  template <class G, class Out>
  CW_FN void work(const G& g, const item& x, Out& out) const noexcept {
    const vertex r = root(x.v - graph.begin);
    const bool news = leader_of(g, [&] { return x.label < impl::lower(labels[r], x.label); });
    if (!news) return;
    for (std::uint64_t at = heads[r]; at != 0; at = next[at - 1]) {
      tell(g, g.rank() == 0, at - 1, x.label, out);
    }
  }
  template <class G, class Out>
  CW_FN void tell(const G& g, bool have, std::uint64_t border, vertex label,
                  Out& out) const noexcept {
    bool news = false;
    vertex t = 0;
    if (have) {
      t = graph.targets[borders[border]];
      news = label < impl::look(labels[t]) && label < impl::lower(labels[t], label);
    }
    out.push(g, news, {news ? graph.everywhere(t) : 0, label});
  }
};

/// PageRank by what is left to pass on: a vertex that has collected enough adds it to its rank and
/// gives its neighbours their shares. What is for others' vertices is collected here, until nothing
/// else is left to do anywhere: then it is sent, in one item for each vertex. So no more items are
/// under way than there are vertices.
struct pagerank {
  struct item {
    vertex v;  ///< everywhere; of `sends_from` on: here
    /// 0: its edges are to be followed; 1: `amount` is for it; else what was collected for it is to
    /// be sent, when the threshold has come to `kind - 1`.
    std::uint32_t kind;
    double amount;
  };
  static constexpr std::uint32_t follow = 0;
  static constexpr std::uint32_t bring = 1;
  static constexpr std::uint32_t sends_from = 2;

  part graph;
  double* ranks;      ///< of own vertices
  double* collected;  ///< of own vertices and others'
  double enough;      ///< to be passed on
  double damping;
  double start;  ///< what each vertex begins with

  CW_FN void forget(std::uint64_t v) const noexcept {
    collected[v] = 0;
    if (v < graph.count) ranks[v] = 0;
  }
  CW_FN void conclude(vertex /*v*/) const noexcept {}

  [[nodiscard]] CW_FN int owner(const item& x) const noexcept {
    return x.kind >= sends_from ? graph.rank : graph.owner(x.v);
  }
  [[nodiscard]] CW_FN std::uint64_t priority(const item& x) const noexcept {
    return x.kind >= sends_from ? x.kind - 1 : 0;
  }

  /// True for the one who brings it to `enough`.
  CW_FN bool add(vertex here, double amount) const noexcept {
    const double before = device_atomic<double>(collected[here]).fetch_add(amount, order::relaxed);
    return before < enough && before + amount >= enough;
  }
  [[nodiscard]] CW_FN double take(vertex here) const noexcept {
    return device_atomic<double>(collected[here]).exchange(0, order::relaxed);
  }

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    if (worker != 0) return;
    for (vertex v = 0; v < graph.count; v += static_cast<vertex>(g.size())) {
      const vertex mine = v + static_cast<vertex>(g.rank());
      const bool have = mine < graph.count;
      out.push(g, have && add(mine, start), {graph.begin + mine, follow, 0});
    }
  }

  template <class G, class Out>
  CW_FN void work(const G& g, const item& x, Out& out) const noexcept {
    if (x.kind >= sends_from) {
      const bool mine = g.rank() == 0;
      out.push(g, mine, {mine ? graph.everywhere(x.v) : 0, bring, mine ? take(x.v) : 0.0});
      return;
    }
    const vertex v = x.v - graph.begin;
    const double amount = leader_of(g, [&] { return settle(x, v); });
    const std::uint64_t degree = graph.offsets[v + 1] - graph.offsets[v];
    if (amount == 0 || degree == 0) return;
    const double share = damping * amount / static_cast<double>(degree);
    const auto later = static_cast<std::uint32_t>(out.threshold()) + sends_from;
    graph.for_each_edge(g, v, [&](bool have, vertex t, std::uint64_t /*edge*/) {
      const bool own = graph.is_own(t);
      out.push(g, have && add(t, share), {own ? graph.begin + t : t, own ? follow : later, 0});
    });
  }
  /// What own vertex `v` has to pass on, which then is part of its rank.
  CW_FN double settle(const item& x, vertex v) const noexcept {
    if (x.kind == bring && !add(v, x.amount)) return 0;
    const double all = take(v);
    // Two workers may have the same vertex, one after the other.
    device_atomic<double>(ranks[v]).fetch_add(all, order::relaxed);
    return all;
  }
};

}  // namespace crosswarp::device::graph
