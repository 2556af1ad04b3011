// Graph programs over the ranks of a world: breadth-first search, shortest paths, components and
// PageRank, inside one kernel. What kernels do is in device/graph.hpp (by worklists) and
// device/graph_rounds.hpp (in rounds).
//
//   cw::graph::divided d(w, g);                    // on each rank
//   const cw::graph::run_report r = d.bfs(0);
//   const std::vector<cw::graph::vertex> parents = d.parents();
#pragma once

#include <chrono>
#include <memory>

#include "crosswarp/graph.hpp"
#include "crosswarp/worklist.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::graph {

/// How ranks work together.
enum class method {
  automatic,  ///< in rounds where all ranks are mapped, else by a worklist
  rounds,     ///< all meet after each step, and read each other's memory
  worklist,   ///< without meeting: each goes on with what it has
};

struct divided_options {
  method how = method::automatic;
  /// The rank's kernel; 0: one thread on a CPU, on a GPU a block for each of its share of the
  /// multiprocessors, of 128 threads for a worklist, in rounds of 1024, or of 512 where vertices
  /// have fewer than eight edges on average (of fewer for more blocks than that share). At most 32
  /// threads, or a multiple of that.
  int blocks = 0;
  int threads = 0;
  /// Places of each worker's queue, a power of two; 0: 4096 on a CPU, 256 on a GPU, which has many.
  std::uint64_t queue = 0;
  /// Items that each worker of a worklist may keep when queues are full, at most 2^30; 0: four for
  /// each vertex that the rank knows, shared among its workers, and 65536.
  std::uint64_t spill = 0;
  /// How much farther than the nearest paths may be that are followed with them; 0: 64 times the
  /// mean length of an edge (in rounds on a GPU 256 times), divided by the square of the mean
  /// number of edges of a vertex.
  distance delta = 0;
  /// How items of worklists go from rank to rank.
  routing route = routing::direct;
};

/// What a run took, of all ranks together.
struct run_report {
  /// From when all ranks had called until the slowest had its result in its device's memory. The
  /// first run of a program makes its memory, which is kept.
  std::chrono::nanoseconds took{};
  std::chrono::nanoseconds in_kernels{};  ///< of that, with starting them and waiting for their end
  device::worklist_counts items{};        ///< of programs by worklists
  // Of programs in rounds:
  std::uint64_t rounds = 0;  ///< how often they went round; of components, over all vertices
  std::uint64_t edges = 0;   ///< that they followed, or looked at until they had found
};

/// A graph divided among the ranks of a world, in the memory of their devices: each has its own
/// vertices, and those of others that its edges lead to. All members are collective and throw
/// error(timeout), error(peer_lost) and error(aborted).
class divided {
 public:
  /// All ranks have the same graph and pass the same options. The queues are in the symmetric heap.
  divided(world& w, const csr& g, const divided_options& o = {});
  divided(world& w, const csr& g, const partition& p, const divided_options& o = {});
  /// Runs and results have the numbers that vertices had before they were renumbered.
  divided(world& w, const renumbered& g, const divided_options& o = {});
  ~divided();
  divided(divided&&) noexcept;
  divided& operator=(divided&&) = delete;

  /// Throws error(invalid_argument) for a source that is no vertex.
  run_report bfs(vertex source);
  /// Also for a graph without lengths.
  run_report sssp(vertex source);
  /// Also for a graph that is not symmetric.
  run_report cc();
  /// Ends when all ranks together moved by less than the tolerance in a round; by a worklist, when
  /// what is left to pass on can move them by less. A tolerance below 1e-6 is by a worklist.
  run_report pr(const pagerank_options& o = {});

  // ---- results of the last such run, of all vertices, on every rank

  [[nodiscard]] std::vector<vertex> parents();
  [[nodiscard]] std::vector<std::uint32_t> levels();
  [[nodiscard]] std::vector<distance> distances();
  [[nodiscard]] std::vector<vertex> labels();
  [[nodiscard]] std::vector<double> ranks();

  /// Bytes of this rank's device memory that are there now: for its part of the graph; for results,
  /// and what programs keep of vertices from their first run on; for items of worklists.
  [[nodiscard]] std::size_t graph_bytes() const noexcept;
  [[nodiscard]] std::size_t vertex_bytes() const noexcept;
  [[nodiscard]] std::size_t item_bytes() const noexcept;

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace crosswarp::graph
