// Serial algorithms: short, and what the fast ones are measured by.
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>

#include "crosswarp/graph.hpp"

namespace crosswarp::graph {
namespace {

void check_source(const csr& g, vertex source) {
  if (source >= g.vertices()) {
    throw error(
        errc::invalid_argument, "source",
        std::to_string(source) + " in a graph of " + std::to_string(g.vertices()) + " vertices");
  }
}

vertex root(std::vector<vertex>& above, vertex v) {
  while (above[v] != v) {
    above[v] = above[above[v]];
    v = above[v];
  }
  return v;
}

}  // namespace

std::vector<std::uint32_t> bfs_levels(const csr& g, vertex source) {
  check_source(g, source);
  std::vector<std::uint32_t> levels(g.vertices(), unreached_level);
  std::vector<vertex> queue = {source};
  levels[source] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const vertex v = queue[i];
    for (const vertex t : g.neighbours(v)) {
      if (levels[t] != unreached_level) continue;
      levels[t] = levels[v] + 1;
      queue.push_back(t);
    }
  }
  return levels;
}

std::vector<distance> shortest_paths(const csr& g, vertex source) {
  check_source(g, source);
  if (!g.weighted() && g.edges() > 0) {
    throw error(errc::invalid_argument, "shortest_paths",
                "the graph has no lengths; with_lengths() draws some");
  }
  std::vector<distance> best(g.vertices(), unreached);
  using entry = std::pair<distance, vertex>;
  std::priority_queue<entry, std::vector<entry>, std::greater<>> nearest;
  best[source] = 0;
  nearest.emplace(0, source);
  while (!nearest.empty()) {
    const auto [d, v] = nearest.top();
    nearest.pop();
    if (d > best[v]) continue;
    for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + 1]; ++i) {
      const distance through = d + g.lengths()[i];
      const vertex t = g.targets()[i];
      if (through >= best[t]) continue;
      best[t] = through;
      nearest.emplace(through, t);
    }
  }
  return best;
}

std::vector<vertex> components(const csr& g) {
  std::vector<vertex> above(g.vertices());
  std::iota(above.begin(), above.end(), vertex{0});
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (const vertex t : g.neighbours(v)) {
      const vertex a = root(above, v);
      const vertex b = root(above, t);
      above[std::max(a, b)] = std::min(a, b);  // so a root is the smallest of its component
    }
  }
  for (vertex v = 0; v < g.vertices(); ++v) above[v] = root(above, v);
  return above;
}

std::vector<double> pagerank(const csr& g, const pagerank_options& o) {
  const double n = g.vertices();
  std::vector<double> ranks(g.vertices(), 1 / n);
  std::vector<double> next(g.vertices());
  for (int round = 0; round < o.most_rounds; ++round) {
    std::fill(next.begin(), next.end(), (1 - o.damping) / n);
    for (vertex v = 0; v < g.vertices(); ++v) {
      const double share = o.damping * ranks[v] / static_cast<double>(g.degree(v));
      for (const vertex t : g.neighbours(v)) next[t] += share;
    }
    double moved = 0;
    for (vertex v = 0; v < g.vertices(); ++v) moved += std::abs(next[v] - ranks[v]);
    ranks.swap(next);
    if (moved < o.tolerance) break;
  }
  return ranks;
}

std::string check_parents(const csr& g, vertex source, std::span<const vertex> parents) {
  const std::vector<std::uint32_t> levels = bfs_levels(g, source);
  const auto about = [](vertex v) { return "vertex " + std::to_string(v); };
  if (parents.size() != g.vertices()) {
    return std::to_string(parents.size()) + " parents for " + std::to_string(g.vertices()) +
           " vertices";
  }
  if (parents[source] != source) return about(source) + " is the source and not its own parent";
  // What each parent must lead to, crossed out edge by edge.
  std::vector<bool> by_an_edge(g.vertices());
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (const vertex t : g.neighbours(v)) {
      if (parents[t] == v) by_an_edge[t] = true;
    }
  }
  for (vertex v = 0; v < g.vertices(); ++v) {
    const vertex p = parents[v];
    if (levels[v] == unreached_level) {
      if (p != no_vertex) return about(v) + " is not reached and has parent " + std::to_string(p);
    } else if (v != source) {
      if (p == no_vertex) return about(v) + " is reached and has no parent";
      if (!by_an_edge[v]) return about(v) + ": no edge from its parent " + std::to_string(p);
      if (levels[p] + 1 != levels[v]) {
        return about(v) + " of level " + std::to_string(levels[v]) + " has a parent of level " +
               std::to_string(levels[p]);
      }
    }
  }
  return "";
}

}  // namespace crosswarp::graph
