#include <metis.h>

#include <limits>
#include <mutex>

#include "crosswarp/graph.hpp"

namespace crosswarp::graph {
namespace {

constexpr const char* call = "metis";

idx_t narrow(std::uint64_t n) {
  if (n > static_cast<std::uint64_t>(std::numeric_limits<idx_t>::max())) {
    throw error(errc::invalid_argument, call,
                std::to_string(n) + " edges are more than this METIS can count");
  }
  return static_cast<idx_t>(n);
}

/// As METIS wants it: no edges from a vertex to itself, no parallel ones.
struct input {
  explicit input(const csr& g) : rows{0} {
    for (vertex v = 0; v < g.vertices(); ++v) {
      vertex last = v;
      for (const vertex t : g.neighbours(v)) {
        if (t != v && t != last) targets.push_back(narrow(t));
        last = t;
      }
      rows.push_back(narrow(targets.size()));
      weights.push_back(narrow(g.degree(v) + 1));
    }
  }
  std::vector<idx_t> rows;
  std::vector<idx_t> targets;
  std::vector<idx_t> weights;  ///< what a vertex costs its owner
};

std::vector<int> divide(const csr& g, int ranks) {
  // METIS draws from the process's one sequence of random numbers; ranks may be threads.
  static std::mutex one_at_a_time;
  const std::lock_guard hold(one_at_a_time);
  input in(g);
  idx_t vertices = narrow(g.vertices());
  idx_t constraints = 1;
  idx_t parts = ranks;
  idx_t cut = 0;
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = 1;  // the same on all ranks
  std::vector<idx_t> owners(g.vertices());
  const int said = METIS_PartGraphKway(&vertices, &constraints, in.rows.data(), in.targets.data(),
                                       in.weights.data(), nullptr, nullptr, &parts, nullptr,
                                       nullptr, options, &cut, owners.data());
  if (said == METIS_ERROR_MEMORY) throw error(errc::out_of_memory, call, "METIS has not enough");
  if (said != METIS_OK) throw error(errc::invalid_argument, call, "METIS refuses the graph");
  return {owners.begin(), owners.end()};
}

}  // namespace

bool has_metis() noexcept {
  return true;
}

renumbered metis(const csr& g, int ranks) {
  if (!g.symmetric()) {
    throw error(
        errc::invalid_argument, call,
        "the graph is not symmetric: build it with build_options::symmetrise (--symmetrise)");
  }
  // METIS is not asked what it cannot answer.
  if (ranks > 1 && g.vertices() > static_cast<vertex>(ranks)) {
    return renumber(g, divide(g, ranks), ranks);
  }
  std::vector<int> owners(g.vertices());
  for (std::size_t v = 0; ranks > 1 && v < owners.size(); ++v) owners[v] = static_cast<int>(v);
  return renumber(g, owners, ranks);
}

}  // namespace crosswarp::graph
