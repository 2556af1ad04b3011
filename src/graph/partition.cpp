#include <algorithm>

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

part take_part(const csr& g, const partition& p, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const vertex first = p.first.at(r);
  const vertex last = p.first.at(r + 1);
  part mine{.first = first, .count = last - first, .others = others_of(g, first, last)};
  const std::uint64_t begin = g.offsets()[first];
  const std::uint64_t end = g.offsets()[last];
  for (std::uint64_t v = first; v <= last; ++v) mine.offsets.push_back(g.offsets()[v] - begin);
  mine.targets.reserve(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) {
    const vertex t = g.targets()[i];
    if (t >= first && t < last) {
      mine.targets.push_back(t - first);
    } else {
      const auto at = std::lower_bound(mine.others.begin(), mine.others.end(), t);
      mine.targets.push_back(mine.count + static_cast<vertex>(at - mine.others.begin()));
    }
  }
  if (g.weighted()) {
    const auto lengths = g.lengths().subspan(begin, end - begin);
    mine.lengths.assign(lengths.begin(), lengths.end());
  }
  return mine;
}

}  // namespace crosswarp::graph
