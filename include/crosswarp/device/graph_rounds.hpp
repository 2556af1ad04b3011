// Graph programs in rounds: every rank does its part, all meet, and all know what came of it.
//
// Ranks read and change each other's memory by loads and atomics, so all must be mapped. What one
// round writes is read in the next one, behind the meeting, and needs no order of its own; words
// that several change at once are atomic and relaxed.
//
// On a CPU a rank of several threads is divided again: each thread (a block of one) has a part of
// its vertices, as if it were a rank. What is said here of ranks is said of these parts, then;
// `symmetric` memory is what each part has its own of. Only meetings know the difference.
#pragma once

#include <cstdint>

#include "crosswarp/device/graph.hpp"
#include "crosswarp/device/impl/staged_items.hpp"

namespace crosswarp::device::graph {

/// What a rank's threads add up in a round, and all ranks together.
struct alignas(line_bytes) tally {
  std::uint64_t vertices;
  std::uint64_t edges;
  double moved;
};

/// Zero at the start of a run. Of three that take turns, one is written, one may still be read, and
/// one is cleared.
struct round_words {
  tally tallies[3];
  struct alignas(line_bytes) {
    std::uint64_t count;
  } arrived[3];  ///< places of the rank's next queue that are taken
  struct alignas(line_bytes) {
    std::uint64_t count;
    std::uint64_t least;  ///< distance of one that stayed on it
  } piled[3];             ///< places of the rank's pile that are taken; see sssp_rounds
  struct alignas(line_bytes) {
    std::uint64_t count;
  } pieces[2];  ///< of edge_pieces
  struct alignas(line_bytes) {
    std::uint64_t rounds;
    std::uint64_t edges;
  } work;  ///< of the run, see rounds::tell()
};

/// Memory to share out the edges of a vertex with many; see impl/graph_edges_impl.hpp.
struct edge_pieces {
  /// A vertex with so many edges, or fewer, is one warp's.
  static constexpr std::uint64_t most_of_one = 512;
  struct piece {
    vertex v;
    std::uint32_t number;
  };
  piece* list;         ///< room for those of all own vertices
  std::uint64_t most;  ///< edges of a vertex
};

namespace impl {
/// What the threads of `g`, at most a warp, have together, in the first of them.
template <class G, class T>
[[nodiscard]] CW_FN inline T add_up(const G& g, T mine) noexcept {
  for (int half = warp_group::width / 2; half > 0; half /= 2) {
    const int other = g.rank() + half;
    const T theirs = g.from(mine, other < g.size() ? other : g.rank());
    if (other < g.size()) mine += theirs;
  }
  return mine;
}
}  // namespace impl

/// How the threads of all ranks go from round to round. All threads have equal copies.
class rounds {
 public:
  /// `by_block`: each block is a part; else a rank's whole grid is.
  CW_FN rounds(const kernel_context& ctx, const world& w, const symmetric<round_words>& words,
               bool by_block) noexcept
      : ctx_(ctx), world_(w), words_(words), by_block_(by_block) {}

  [[nodiscard]] CW_FN const kernel_context& context() const noexcept { return ctx_; }
  [[nodiscard]] CW_FN const symmetric<round_words>& words() const noexcept { return words_; }

  /// The calling thread's number among those of this rank, and how many these are.
  [[nodiscard]] CW_FN int thread() const noexcept {
    return by_block_ ? ctx_.thread_index() : ctx_.grid().rank();
  }
  [[nodiscard]] CW_FN int threads() const noexcept {
    return by_block_ ? ctx_.thread_count() : ctx_.grid().size();
  }
  /// The calling warp's number among those of this rank, and how many these are.
  [[nodiscard]] CW_FN int warp() const noexcept {
    const int before = by_block_ ? 0 : ctx_.block_index() * warps_of_block();
    return before + ctx_.thread_index() / warp_group::width;
  }
  [[nodiscard]] CW_FN int warps() const noexcept {
    return by_block_ ? warps_of_block() : ctx_.block_count() * warps_of_block();
  }

  /// All threads of this rank.
  [[nodiscard]] CW_FN status meet_own() const noexcept {
    if (!by_block_) return meet_grid();
    ctx_.block().sync();
    return status::ok;
  }
  /// All threads of all ranks.
  [[nodiscard]] CW_FN status meet() const noexcept {
    if (world_.size == 1) return meet_grid();
    const auto meet_ranks = [&](const block_group& g) { return world_.all.wait(g); };
    if (ctx_.block_count() == 1) return meet_ranks(ctx_.block());
    // The other blocks of a rank wait for the one that came last, and that for the other ranks.
    return ctx_.grid().sync(meet_ranks);
  }
  /// Ends a round: adds `mine` to what all threads of all ranks say, and meets.
  [[nodiscard]] CW_FN status end(const tally& mine, tally& sum) noexcept {
    tally& own = words_.local()->tallies[round_ % 3];
    add(own.vertices, mine.vertices);
    add(own.edges, mine.edges);
    add(own.moved, mine.moved);
    const status s = meet();
    if (s != status::ok) return s;
    sum = {};
    const int ranks = by_block_ ? world_.size * ctx_.block_count() : world_.size;
    for (int r = 0; r < ranks; ++r) {
      const tally& theirs = words_.at(r)->tallies[round_ % 3];
      sum.vertices += theirs.vertices;
      sum.edges += theirs.edges;
      sum.moved += theirs.moved;
    }
    // All had read it when they came here, and nobody writes it before all have met again.
    if (thread() == 0) words_.local()->tallies[(round_ + 2) % 3] = {};
    ++round_;
    return status::ok;
  }

  /// What was done: how often the program went round, and edges that the calling thread followed.
  /// Said once, at the end: threads count for themselves.
  CW_FN void tell(std::uint64_t times, std::uint64_t edges) const noexcept {
    auto& work = words_.local()->work;
    add(work.edges, edges);
    if (thread() == 0) work.rounds = times;
  }

  /// f of each number below n, by all threads of this rank.
  template <class F>
  CW_FN void for_each(std::uint64_t n, const F& f) const noexcept {
    const auto all = static_cast<std::uint64_t>(threads());
    for (auto i = static_cast<std::uint64_t>(thread()); i < n; i += all) f(i);
  }
  /// The same, by warps.
  template <class G, class F>
  CW_FN void for_each(const G& /*g*/, std::uint64_t n, const F& f) const noexcept {
    const auto all = static_cast<std::uint64_t>(warps());
    for (auto i = static_cast<std::uint64_t>(warp()); i < n; i += all) f(i);
  }

 private:
  /// All threads of the grid.
  [[nodiscard]] CW_FN status meet_grid() const noexcept {
    if (ctx_.block_count() > 1) return ctx_.grid().sync();
    ctx_.block().sync();
    return status::ok;
  }
  [[nodiscard]] CW_FN int warps_of_block() const noexcept {
    return (ctx_.thread_count() + warp_group::width - 1) / warp_group::width;
  }
  /// By all threads of the rank: one of a warp adds what all have, for a GPU has so many that a
  /// word which each of them changes takes longer than the round.
  template <class T>
  CW_FN void add(T& word, T mine) const noexcept {
    const T n = with_warp(ctx_, [&](const auto& g) {
      const T all = impl::add_up(g, mine);
      return g.rank() == 0 ? all : T{};
    });
    // Relaxed: read behind the meeting.
    if (n != 0) device_atomic<T>(word).fetch_add(n, order::relaxed);
  }

  const kernel_context& ctx_;
  const world& world_;
  symmetric<round_words> words_;
  bool by_block_;
  unsigned round_ = 0;
};

/// Breadth-first search that turns round: as long as few vertices are new, they look for others
/// (down); when many are, those that are left look for one of them (up).
struct bfs_rounds {
  part graph;
  symmetric<vertex> parents;        ///< of own vertices, everywhere
  symmetric<vertex> queues;         ///< two for own vertices, numbered here: this round's, the next
  symmetric<std::uint64_t> fronts;  ///< the same as bits
  std::uint64_t* known;             ///< this round's, as bits of own vertices and others'
  vertex* staged;                   ///< memory of staged_items, for each warp
  int* staged_counts;
  edge_pieces pieces;
  vertex source;
  bool symmetric_graph;  ///< else it does not turn round
  std::uint64_t edges;   ///< of the whole graph, and
  std::uint64_t vertices;

  /// Ends with the same status in all threads of a block.
  CW_FN status run(rounds& all) const noexcept;
};

/// Shortest paths by steps of a distance: vertices nearer than a limit follow their edges until
/// none of them has news, then the limit moves on. Those beyond it wait on a pile.
struct sssp_rounds {
  /// Of a vertex's word, which are not its distance: paths are shorter than
  /// 2^(64 - state_bits) - 1.
  static constexpr unsigned state_bits = 2;

  part graph;
  symmetric<std::uint64_t> words;  ///< of own vertices; in the end their distances
  symmetric<vertex> queues;        ///< two for own vertices, numbered here: this round's, the next
  symmetric<vertex> piles;         ///< likewise
  std::uint64_t* told;  ///< of others' vertices: a way that this rank found, mostly the shortest
  vertex* staged;       ///< memory of staged_items, two for each warp
  int* staged_counts;
  edge_pieces pieces;
  vertex source;
  std::uint64_t delta;  ///< of the limit's steps

  CW_FN status run(rounds& all) const noexcept;
};

/// PageRank by what vertices take from those before them. Own news are used at once, others' are
/// looked at a few times in each round, whatever they are at that moment, but none older than the
/// round.
struct pagerank_rounds {
  /// How often others' news are fetched in a round.
  static constexpr int fetches = 4;

  part graph;                        ///< with edges turned round: where each vertex takes from
  const std::uint64_t* offsets_out;  ///< of edges as they are
  /// What own vertices give along each edge, then copies of others'. In 32 bits: they are read at
  /// random, and twice as many fit into a cache.
  symmetric<float> shares;
  double* ranks;  ///< of own vertices
  /// Edges of own vertices that have more than one warp takes, in pieces, and what they collect.
  const edge_pieces::piece* pieces;
  std::uint64_t piece_count;
  double* collected;  ///< of own vertices
  double damping;
  double tolerance;
  double vertices;  ///< of the whole graph
  struct guess {
    double vertex;
    double edge;
  } at_first;  ///< what a vertex begins with, and what for each edge that it takes from
  int most_rounds;

  CW_FN status run(rounds& all) const noexcept;
};

/// Components: a forest that spans ranks. Vertices lie under lesser ones, roots are joined by
/// compare-and-swap wherever they are. A few edges of each vertex join most of them; who then is in
/// the largest component needs not look at its other edges, for those who are not do.
struct components_rounds {
  part graph;
  symmetric<vertex> above;  ///< of own vertices, everywhere; in the end the least of the component
  std::uint64_t vertices;   ///< of the whole graph

  CW_FN status run(rounds& all) const noexcept;
};

}  // namespace crosswarp::device::graph

#include "crosswarp/device/impl/graph_components_impl.hpp"
#include "crosswarp/device/impl/graph_rounds_impl.hpp"
#include "crosswarp/device/impl/graph_sssp_impl.hpp"
