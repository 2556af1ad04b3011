// Graphs on the host: what they are, where they come from, how they are divided among ranks, and
// what is right.
//
//   const cw::graph::csr g = cw::graph::read("roads.gr");
//   const cw::graph::partition p = cw::graph::edge_balanced(g, w.size());
//   const auto levels = cw::graph::bfs_levels(g, 0);       // the serial reference
//
// Everything here is serial, or gives the same result for any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crosswarp/error.hpp"

namespace crosswarp::graph {

using vertex = std::uint32_t;
/// Lengths of edges; whole numbers that are not negative.
using weight = std::uint32_t;
/// Sums of them.
using distance = std::uint64_t;

/// No vertex: the largest number is not used for one.
inline constexpr vertex no_vertex = ~vertex{0};
inline constexpr std::uint32_t unreached_level = ~std::uint32_t{0};
inline constexpr distance unreached = ~distance{0};

struct edge {
  vertex from = 0;
  vertex to = 0;
  weight length = 1;
  friend bool operator==(const edge&, const edge&) = default;
};

/// Edges in any order, as a reader or a generator finds them.
struct edge_list {
  std::uint64_t vertices = 0;  ///< numbered from 0
  std::vector<edge> edges = {};
  bool weighted = false;   ///< else lengths mean nothing
  bool symmetric = false;  ///< each edge stands for both directions
};

/// Compressed sparse rows: the edges of vertex v are [offsets[v], offsets[v + 1]) of `targets` and
/// `lengths`. Does not change; copies share the memory, which may be a mapped file.
class csr {
 public:
  csr();
  /// Throws error(invalid_argument) when they are no graph.
  csr(std::vector<std::uint64_t> offsets, std::vector<vertex> targets, std::vector<weight> lengths,
      bool symmetric);

  [[nodiscard]] vertex vertices() const noexcept {
    return static_cast<vertex>(offsets_.size() - 1);
  }
  /// Directed ones: an edge of a symmetric graph counts twice.
  [[nodiscard]] std::uint64_t edges() const noexcept { return targets_.size(); }
  [[nodiscard]] bool weighted() const noexcept { return weighted_; }
  /// Each edge is there in both directions, with one length.
  [[nodiscard]] bool symmetric() const noexcept { return symmetric_; }

  [[nodiscard]] std::span<const std::uint64_t> offsets() const noexcept { return offsets_; }
  [[nodiscard]] std::span<const vertex> targets() const noexcept { return targets_; }
  /// Empty when the graph has none.
  [[nodiscard]] std::span<const weight> lengths() const noexcept { return lengths_; }

  [[nodiscard]] std::uint64_t degree(vertex v) const noexcept {
    return offsets_[v + 1] - offsets_[v];
  }
  [[nodiscard]] std::span<const vertex> neighbours(vertex v) const noexcept {
    return targets_.subspan(offsets_[v], degree(v));
  }

 private:
  friend csr map_binary(const std::string& path);
  friend struct same_rows;
  std::shared_ptr<const void> storage_;
  std::span<const std::uint64_t> offsets_;
  std::span<const vertex> targets_;
  std::span<const weight> lengths_;
  bool weighted_ = false;
  bool symmetric_ = false;
};

struct build_options {
  /// Add the other direction of each edge that is not there in both.
  bool symmetrise = false;
  /// Drop edges from a vertex to itself, and all but the shortest of parallel ones.
  bool simplify = false;
  int threads = 1;
};
/// Rows sorted by target, then by length.
/// Throws error(invalid_argument) when an edge names a vertex that is not there.
csr build(const edge_list& list, const build_options& o = {});
/// The same graph with lengths from 1 to `longest`, drawn by the ends of each edge: both directions
/// have the same.
csr with_lengths(const csr& g, std::uint64_t seed, weight longest = 255);
/// The same graph without its lengths; shares its memory.
csr without_lengths(const csr& g);
/// With each edge in both directions: the same graph, in the same memory, when it has them already;
/// else what lacks is added.
csr symmetrised(const csr& g);
/// All edges turned round. A symmetric graph is its own.
csr transpose(const csr& g);

// ---- files

enum class format {
  automatic,      ///< by the end of the name: .mtx, .el, .wel, .txt, .graph, .gr, .csr
  matrix_market,  ///< coordinate; pattern, integer, or real that is whole; general or symmetric
  edges,          ///< "from to [length]" on each line, from 0; comments begin with # or %
  metis,          ///< METIS and DIMACS-10: row after row, from 1
  dimacs,         ///< the 9th challenge's: "p sp", "a from to length", from 1
  binary,         ///< this library's, mapped; see write_binary
};
struct read_options {
  format as = format::automatic;
  build_options build = {};
  /// false: lengths are read over, whatever numbers they are, and the graph has none.
  bool lengths = true;
  /// Files that claim more are refused: a few bytes can name four billion.
  std::uint64_t most_vertices = std::uint64_t{1} << 28U;
};
/// Throws error(invalid_argument) with file and line (binary: offset) for what is no such file,
/// error(system) when it cannot be read.
csr read(const std::string& path, const read_options& o = {});
/// The same of text that is in memory; `name` stands for the file in errors. Not for binary.
csr parse(std::string_view text, const std::string& name, const read_options& o);

/// A file that read() and map_binary() take without parsing. Complete, or not there: it is written
/// under another name first. For machines with the byte order of this one.
/// Throws error(system).
void write_binary(const csr& g, const std::string& path);
/// All that the graph's form can tell is checked, also that it is symmetric if the file says so, in
/// time that goes with its edges; whether rows are sorted and lengths are the right ones is not.
/// The file must not change while the graph or a copy of it lives.
csr map_binary(const std::string& path);
/// As text of `format::edges`. Complete, or not there.
void write_edges(const csr& g, const std::string& path);

// ---- generators: symmetric, simple, the same for any number of threads

struct generate_options {
  int scale = 16;   ///< 2^scale vertices
  int degree = 16;  ///< edges drawn for each vertex; not for grids
  std::uint64_t seed = 1;
  int threads = 1;
};
/// Graph500's and GAPBS's: edges fall into quarters by 0.57, 0.19, 0.19, 0.05; vertices are then
/// renumbered at random.
csr kronecker(const generate_options& o);
/// Both ends of each edge at random.
csr uniform(const generate_options& o);
/// Roads: a rectangle of crossings, as square as 2^scale allows, with lengths from 1 to 255.
csr grid(const generate_options& o);
/// Vertices that have neighbours, drawn at random, to begin at. Throws error(invalid_argument) when
/// there are none.
std::vector<vertex> sources(const csr& g, int count, std::uint64_t seed);

// ---- partitions

/// Which rank owns a vertex: rank r those from first[r] to first[r + 1].
struct partition {
  std::vector<vertex> first;
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(first.size()) - 1; }
  [[nodiscard]] int owner(vertex v) const noexcept;
};
/// As many vertices for each rank, give or take one.
partition contiguous(vertex vertices, int ranks);
/// As many edges (and vertices, which count as one each) for each rank, as far as whole vertices
/// allow.
partition edge_balanced(const csr& g, int ranks);

/// Directed edges between vertices of different ranks.
std::uint64_t cut_edges(const csr& g, const partition& p);

/// A graph whose vertices were given other numbers, so that those of each rank follow each other.
struct renumbered {
  csr graph;
  partition parts;
  std::vector<vertex> was;  ///< by number now: by number before
};
/// `owners`: of each vertex. Throws error(invalid_argument) for owners that are no ranks.
renumbered renumber(const csr& g, const std::vector<int>& owners, int ranks);
/// Few edges between ranks, and about as many for each: METIS's k-way partition. All ranks that
/// call it get the same, as long as nobody else in their processes calls rand() meanwhile. Takes
/// long, and calls of one process wait for each other: ranks that are its threads share one result.
/// Throws error(not_supported) where METIS was not found at configure time, error(invalid_argument)
/// for a graph that is not symmetric.
renumbered metis(const csr& g, int ranks);
[[nodiscard]] bool has_metis() noexcept;

/// What one rank holds: the rows of its own vertices, and names for those of others that they lead
/// to. In here own vertices are numbered from 0, then come the others, by their numbers.
struct part {
  vertex first = 0;                         ///< own vertices in the whole graph: from here,
  vertex count = 0;                         ///< so many
  std::vector<std::uint64_t> offsets = {};  ///< of own vertices
  std::vector<vertex> targets = {};         ///< numbered as here; of each vertex own ones first
  std::vector<weight> lengths = {};         ///< empty without
  std::vector<vertex> others = {};  ///< in the whole graph; number `count + i` here is others[i]
};
part take_part(const csr& g, const partition& p, int rank);

// ---- serial references, and checks of what others computed

std::vector<std::uint32_t> bfs_levels(const csr& g, vertex source);
std::vector<distance> shortest_paths(const csr& g, vertex source);
/// The smallest vertex of each vertex's component, directions ignored.
std::vector<vertex> components(const csr& g);
struct pagerank_options {
  double damping = 0.85;
  double tolerance = 1e-4;  ///< ends when all ranks together moved by less
  int most_rounds = 1000;
};
/// Sums to 1 when each vertex has an edge; what would leave a vertex without edges is lost.
std::vector<double> pagerank(const csr& g, const pagerank_options& o = {});

/// What is wrong, for people; empty: nothing.
/// Parents form a tree of edges of g from the source, on which each vertex has its least depth.
std::string check_parents(const csr& g, vertex source, std::span<const vertex> parents);

}  // namespace crosswarp::graph
