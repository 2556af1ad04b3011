#include <algorithm>
#include <numeric>

#include "crosswarp/graph.hpp"

namespace crosswarp::graph {
namespace {

void check(int ranks) {
  if (ranks < 1) throw error(errc::invalid_argument, "partition", "there is at least one rank");
}

/// The vertices of others that the rows of [first, last) lead to, in order.
std::vector<vertex> others_of(const csr& g, vertex first, vertex last) {
  std::vector<vertex> others;
  for (std::uint64_t i = g.offsets()[first]; i < g.offsets()[last]; ++i) {
    const vertex t = g.targets()[i];
    if (t < first || t >= last) others.push_back(t);
  }
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  return others;
}

}  // namespace

int partition::owner(vertex v) const noexcept {
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), v) - first.begin()) - 1;
}

partition contiguous(vertex vertices, int ranks) {
  check(ranks);
  partition p;
  const auto n = static_cast<std::uint64_t>(ranks);
  for (std::uint64_t r = 0; r <= n; ++r) {
    p.first.push_back(static_cast<vertex>(std::uint64_t{vertices} * r / n));
  }
  return p;
}

partition edge_balanced(const csr& g, int ranks) {
  check(ranks);
  partition p;
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t all = g.edges() + g.vertices();
  vertex v = 0;
  for (std::uint64_t r = 0; r < n; ++r) {
    // Without overflow for as many edges as there may be.
    const std::uint64_t share = all / n * r + all % n * r / n;
    while (v < g.vertices() && g.offsets()[v] + v < share) ++v;
    p.first.push_back(v);
  }
  p.first.push_back(g.vertices());
  return p;
}

std::uint64_t cut_edges(const csr& g, const partition& p) {
  std::uint64_t cut = 0;
  for (int r = 0; r < p.ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    for (std::uint64_t e = g.offsets()[p.first[i]]; e < g.offsets()[p.first[i + 1]]; ++e) {
      const vertex t = g.targets()[e];
      cut += t < p.first[i] || t >= p.first[i + 1] ? 1 : 0;
    }
  }
  return cut;
}

renumbered renumber(const csr& g, const std::vector<int>& owners, int ranks) {
  check(ranks);
  const auto is_rank = [&](int r) { return r >= 0 && r < ranks; };
  if (owners.size() != g.vertices() || !std::all_of(owners.begin(), owners.end(), is_rank)) {
    throw error(errc::invalid_argument, "renumber",
                "one of " + std::to_string(ranks) + " ranks for each of " +
                    std::to_string(g.vertices()) + " vertices");
  }
  renumbered made;
  made.was.resize(g.vertices());
  std::iota(made.was.begin(), made.was.end(), 0U);
  std::stable_sort(made.was.begin(), made.was.end(),
                   [&](vertex a, vertex b) { return owners[a] < owners[b]; });
  std::vector<vertex> now(g.vertices());
  made.parts.first.assign(static_cast<std::size_t>(ranks) + 1, 0);
  for (vertex v = 0; v < g.vertices(); ++v) now[made.was[v]] = v;
  for (const int r : owners) ++made.parts.first[static_cast<std::size_t>(r) + 1];
  std::partial_sum(made.parts.first.begin(), made.parts.first.end(), made.parts.first.begin());

  std::vector<std::uint64_t> offsets{0};
  std::vector<vertex> targets;
  std::vector<weight> lengths;
  std::vector<std::pair<vertex, weight>> row;
  for (const vertex v : made.was) {
    row.clear();
    for (std::uint64_t e = g.offsets()[v]; e < g.offsets()[v + 1]; ++e) {
      row.emplace_back(now[g.targets()[e]], g.weighted() ? g.lengths()[e] : 0);
    }
    std::sort(row.begin(), row.end());
    for (const auto& [t, length] : row) {
      targets.push_back(t);
      if (g.weighted()) lengths.push_back(length);
    }
    offsets.push_back(targets.size());
  }
  made.graph = csr(std::move(offsets), std::move(targets), std::move(lengths), g.symmetric());
  return made;
}

part take_part(const csr& g, const partition& p, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const vertex first = p.first.at(r);
  const vertex last = p.first.at(r + 1);
  part mine{.first = first, .count = last - first, .others = others_of(g, first, last)};
  const std::uint64_t begin = g.offsets()[first];
  const std::uint64_t edges = g.offsets()[last] - begin;
  for (std::uint64_t v = first; v <= last; ++v) mine.offsets.push_back(g.offsets()[v] - begin);
  mine.targets.reserve(edges);
  if (g.weighted()) mine.lengths.reserve(edges);
  const auto is_own = [&](vertex t) { return t >= first && t < last; };
  const auto add = [&](std::uint64_t edge, vertex here) {
    mine.targets.push_back(here);
    if (g.weighted()) mine.lengths.push_back(g.lengths()[edge]);
  };
  for (vertex v = first; v < last; ++v) {
    const std::uint64_t end = g.offsets()[v + std::size_t{1}];
    for (std::uint64_t e = g.offsets()[v]; e < end; ++e) {
      if (is_own(g.targets()[e])) add(e, g.targets()[e] - first);
    }
    for (std::uint64_t e = g.offsets()[v]; e < end; ++e) {
      if (is_own(g.targets()[e])) continue;
      const auto at = std::lower_bound(mine.others.begin(), mine.others.end(), g.targets()[e]);
      add(e, mine.count + static_cast<vertex>(at - mine.others.begin()));
    }
  }
  return mine;
}

}  // namespace crosswarp::graph
