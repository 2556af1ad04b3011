#include <algorithm>
#include <iterator>
#include <utility>

#include "crosswarp/graph.hpp"
#include "graph/parallel.hpp"
#include "graph/random.hpp"
#include "graph/symmetry.hpp"

namespace crosswarp::graph {
namespace {

struct owned {
  std::vector<std::uint64_t> offsets;
  std::vector<vertex> targets;
  std::vector<weight> lengths;
};

error refuse(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

void check_rows(std::span<const std::uint64_t> offsets, std::span<const vertex> targets) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != targets.size() ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    throw refuse("csr", "offsets do not rise from 0 to the number of edges");
  }
  const std::uint64_t vertices = offsets.size() - 1;
  if (vertices > no_vertex) throw refuse("csr", "more than 2^32 - 1 vertices");
  for (const vertex t : targets) {
    if (t >= vertices) {
      throw refuse("csr", "an edge leads to vertex " + std::to_string(t) + " of " +
                              std::to_string(vertices));
    }
  }
}

/// Of one vertex, sorted: what has been there is left out.
std::uint64_t drop_loops_and_doubles(vertex v, std::span<std::pair<vertex, weight>> row) {
  std::uint64_t kept = 0;
  for (const auto& [to, length] : row) {
    if (to == v || (kept > 0 && row[kept - 1].first == to)) continue;
    row[kept++] = {to, length};
  }
  return kept;
}

using rows = std::vector<std::pair<vertex, weight>>;

rows row_of(const csr& g, vertex v) {
  rows row;
  for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + std::size_t{1}]; ++i) {
    row.emplace_back(g.targets()[i], g.weighted() ? g.lengths()[i] : 0);
  }
  return row;
}

/// The edges of both, each as often as it is in one of them. Rows are in order.
csr united(const csr& a, const csr& b) {
  std::vector<std::uint64_t> offsets{0};
  std::vector<vertex> targets;
  std::vector<weight> lengths;
  rows row;
  for (vertex v = 0; v < a.vertices(); ++v) {
    const rows of_a = row_of(a, v);
    const rows of_b = row_of(b, v);
    row.clear();
    std::set_union(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::back_inserter(row));
    for (const auto& [to, length] : row) {
      targets.push_back(to);
      if (a.weighted()) lengths.push_back(length);
    }
    offsets.push_back(targets.size());
  }
  return {std::move(offsets), std::move(targets), std::move(lengths), true};
}

std::vector<std::uint64_t> count_degrees(const edge_list& list, bool both_ways) {
  std::vector<std::uint64_t> offsets(list.vertices + 1);
  for (const edge& e : list.edges) {
    if (e.from >= list.vertices || e.to >= list.vertices) {
      throw refuse("build", "edge " + std::to_string(e.from) + " to " + std::to_string(e.to) +
                                " in a graph of " + std::to_string(list.vertices) + " vertices");
    }
    ++offsets[e.from + 1];
    if (both_ways && e.from != e.to) ++offsets[e.to + 1];
  }
  for (std::size_t v = 1; v < offsets.size(); ++v) offsets[v] += offsets[v - 1];
  return offsets;
}

rows deal_out(const edge_list& list, bool both_ways, const std::vector<std::uint64_t>& offsets) {
  rows all(offsets.back());
  std::vector<std::uint64_t> next(offsets.begin(), offsets.end() - 1);
  for (const edge& e : list.edges) {
    all[next[e.from]++] = {e.to, e.length};
    if (both_ways && e.from != e.to) all[next[e.to]++] = {e.from, e.length};
  }
  return all;
}

}  // namespace

csr::csr() : csr({0}, {}, {}, true) {}

csr::csr(std::vector<std::uint64_t> offsets, std::vector<vertex> targets,
         std::vector<weight> lengths, bool symmetric)
    : weighted_(!lengths.empty()), symmetric_(symmetric) {
  check_rows(offsets, targets);
  if (!lengths.empty() && lengths.size() != targets.size()) {
    throw refuse("csr", std::to_string(lengths.size()) + " lengths for " +
                            std::to_string(targets.size()) + " edges");
  }
  auto mine =
      std::make_shared<owned>(owned{std::move(offsets), std::move(targets), std::move(lengths)});
  offsets_ = mine->offsets;
  targets_ = mine->targets;
  lengths_ = mine->lengths;
  storage_ = std::move(mine);
}

csr build(const edge_list& list, const build_options& o) {
  if (list.vertices > no_vertex) throw refuse("build", "more than 2^32 - 1 vertices");
  // What is there in both directions already would be doubled; where parallel edges are dropped,
  // that does no harm.
  if (o.symmetrise && !o.simplify && !list.symmetric) {
    return symmetrised(build(list, {.threads = o.threads}));
  }
  const bool both_ways = o.symmetrise || list.symmetric;
  const std::vector<std::uint64_t> room = count_degrees(list, both_ways);
  rows all = deal_out(list, both_ways, room);
  std::vector<std::uint64_t> kept(list.vertices + 1);
  in_pieces(o.threads, list.vertices, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t v = begin; v < end; ++v) {
      const auto row = std::span(all).subspan(room[v], room[v + 1] - room[v]);
      std::sort(row.begin(), row.end());
      kept[v + 1] = o.simplify ? drop_loops_and_doubles(static_cast<vertex>(v), row) : row.size();
    }
  });
  for (std::size_t v = 1; v < kept.size(); ++v) kept[v] += kept[v - 1];
  std::vector<vertex> targets(kept.back());
  std::vector<weight> lengths(list.weighted ? kept.back() : 0);
  in_pieces(o.threads, list.vertices, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t v = begin; v < end; ++v) {
      for (std::uint64_t to = kept[v], from = room[v]; to < kept[v + 1]; ++to, ++from) {
        targets[to] = all[from].first;
        if (list.weighted) lengths[to] = all[from].second;
      }
    }
  });
  return {std::move(kept), std::move(targets), std::move(lengths), both_ways};
}

csr with_lengths(const csr& g, std::uint64_t seed, weight longest) {
  if (longest == 0) throw refuse("with_lengths", "lengths begin at 1");
  std::vector<weight> lengths(g.edges());
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + 1]; ++i) {
      const auto [low, high] = std::minmax(v, g.targets()[i]);
      random_at draw(seed, (std::uint64_t{low} << 32U) | high);
      lengths[i] = static_cast<weight>(1 + draw.below(longest));
    }
  }
  return {{g.offsets().begin(), g.offsets().end()},
          {g.targets().begin(), g.targets().end()},
          std::move(lengths),
          g.symmetric()};
}

csr without_lengths(const csr& g) {
  return same_rows::without_lengths(g);
}

bool rows_in_order(const csr& g) {
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (std::uint64_t i = g.offsets()[v] + 1; i < g.offsets()[v + std::size_t{1}]; ++i) {
      const vertex before = g.targets()[i - 1];
      const vertex t = g.targets()[i];
      if (t < before) return false;
      if (g.weighted() && t == before && g.lengths()[i] < g.lengths()[i - 1]) return false;
    }
  }
  return true;
}

std::optional<std::uint64_t> edge_without_return(const csr& g) {
  // Vertices come in order, and so do those that a row names: each edge is answered by the first of
  // the other's row that has answered none. When all are, none is left over, for there are as many.
  std::vector<std::uint64_t> next(g.offsets().begin(), g.offsets().end() - 1);
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + std::size_t{1}]; ++i) {
      const vertex t = g.targets()[i];
      const std::uint64_t back = next[t]++;
      if (back == g.offsets()[t + std::size_t{1}] || g.targets()[back] > v) return i;
      if (g.targets()[back] < v) return back;
      if (g.weighted() && g.lengths()[back] != g.lengths()[i]) return i;
    }
  }
  return std::nullopt;
}

bool is_symmetric(const csr& g) {
  return !edge_without_return(rows_in_order(g) ? g : build(edges_of(g)));
}

vertex source_of(const csr& g, std::uint64_t edge) {
  const auto after = std::upper_bound(g.offsets().begin(), g.offsets().end(), edge);
  return static_cast<vertex>(after - g.offsets().begin() - 1);
}

edge_list edges_of(const csr& g) {
  edge_list list{.vertices = g.vertices(), .edges = {}, .weighted = g.weighted()};
  list.edges.reserve(g.edges());
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (const auto& [to, length] : row_of(g, v)) list.edges.push_back({v, to, length});
  }
  return list;
}

csr symmetrised(const csr& g) {
  if (g.symmetric()) return g;
  const csr in_order = rows_in_order(g) ? g : build(edges_of(g));
  if (!edge_without_return(in_order)) return same_rows::symmetric(g);
  return united(in_order, transpose(in_order));
}

csr transpose(const csr& g) {
  if (g.symmetric()) return g;
  std::vector<std::uint64_t> offsets(g.vertices() + std::size_t{1});
  for (const vertex t : g.targets()) ++offsets[t + std::size_t{1}];
  for (std::size_t v = 1; v < offsets.size(); ++v) offsets[v] += offsets[v - 1];
  std::vector<std::uint64_t> next(offsets.begin(), offsets.end() - 1);
  std::vector<vertex> targets(g.edges());
  std::vector<weight> lengths(g.lengths().size());
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + 1]; ++i) {
      const std::uint64_t at = next[g.targets()[i]]++;
      targets[at] = v;
      if (g.weighted()) lengths[at] = g.lengths()[i];
    }
  }
  return {std::move(offsets), std::move(targets), std::move(lengths), false};
}

}  // namespace crosswarp::graph
