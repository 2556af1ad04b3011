// Policies that know how fast the ways between endpoints are.
#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>

#include "crosswarp/error.hpp"
#include "crosswarp/flow_policy.hpp"

namespace crosswarp::flow {
namespace {

error wrong(const std::string& why) {
  return {errc::invalid_argument, "topology", why};
}

double way(const bandwidth_table& t, int from, int to) {
  return t[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

int checked_size(const bandwidth_table& t) {
  if (t.empty()) throw wrong("the table of bandwidths is empty");
  for (const auto& row : t) {
    if (row.size() != t.size()) throw wrong("the table of bandwidths is not square");
    for (const double b : row) {
      if (!(b >= 0)) throw wrong("a bandwidth is negative or no number");
    }
  }
  return static_cast<int>(t.size());
}

/// The next endpoint on the way from one to another, by [from][to].
using hops = std::vector<std::vector<int>>;

/// Time until all have sent one GB to all: of the way that has most to carry for its width.
double time_of(const hops& next, const bandwidth_table& t) {
  const int n = static_cast<int>(t.size());
  std::vector<std::vector<double>> load(t.size(), std::vector<double>(t.size(), 0));
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      for (int at = from; at != to;) {
        const int then = next[static_cast<std::size_t>(at)][static_cast<std::size_t>(to)];
        load[static_cast<std::size_t>(at)][static_cast<std::size_t>(then)] += 1;
        at = then;
      }
    }
  }
  double worst = 0;
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      const double l = load[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
      if (l == 0) continue;
      const double width = way(t, a, b);
      worst = std::max(worst, width > 0 ? l / width : std::numeric_limits<double>::infinity());
    }
  }
  return worst;
}

policy by_hops(const std::string& name, const hops& next, std::string why) {
  const int n = static_cast<int>(next.size());
  policy p;
  p.name = name;
  p.why = std::move(why);
  p.reachable = [next, n](int source, const fan& f) {
    if (f.inputs != n || f.outputs != n) {
      throw wrong("the table has " + std::to_string(n) + " endpoints, the router " +
                  std::to_string(f.inputs) + " inputs and " + std::to_string(f.outputs) +
                  " outputs: input i and output i are endpoint i");
    }
    std::vector<int> all = next[static_cast<std::size_t>(source)];
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  };
  p.choose = [next, n](const segment& s, int source, const fan&) {
    if (s.tag >= static_cast<std::uint64_t>(n)) {
      throw wrong("a segment's tag is the endpoint that it is for; " + std::to_string(s.tag) +
                  " is none of " + std::to_string(n));
    }
    return route{
        spread::any, {next[static_cast<std::size_t>(source)][static_cast<std::size_t>(s.tag)]}, 1};
  };
  return p;
}

// ---- straight

hops straight(int n) {
  hops next(static_cast<std::size_t>(n), std::vector<int>(static_cast<std::size_t>(n)));
  for (auto& row : next) std::iota(row.begin(), row.end(), 0);
  return next;
}

double narrowest_pair(const bandwidth_table& t) {
  double least = std::numeric_limits<double>::infinity();
  const int n = static_cast<int>(t.size());
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      if (a != b) least = std::min(least, way(t, a, b));
    }
  }
  return least;
}

// ---- rings

struct ring_of {
  std::vector<int> order;
  double narrowest = 0;
};

double narrowest_of(const std::vector<int>& order, const bandwidth_table& t) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < order.size(); ++i) {
    least = std::min(least, way(t, order[i], order[(i + 1) % order.size()]));
  }
  return least;
}

ring_of best_of_all(const bandwidth_table& t) {
  std::vector<int> order(t.size());
  std::iota(order.begin(), order.end(), 0);
  ring_of best;
  do {
    const double width = narrowest_of(order, t);
    if (width > best.narrowest) best = {order, width};
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

ring_of greedy(const bandwidth_table& t) {
  std::vector<int> order{0};
  std::vector<bool> in(t.size(), false);
  in[0] = true;
  while (order.size() < t.size()) {
    int best = -1;
    for (int to = 0; to < static_cast<int>(t.size()); ++to) {
      if (in[static_cast<std::size_t>(to)]) continue;
      if (best < 0 || way(t, order.back(), to) > way(t, order.back(), best)) best = to;
    }
    order.push_back(best);
    in[static_cast<std::size_t>(best)] = true;
  }
  return {order, narrowest_of(order, t)};
}

std::vector<ring_of> rings_of(bandwidth_table left, int most) {
  constexpr std::size_t small = 8;  // 5040 rings
  std::vector<ring_of> rings;
  while (static_cast<int>(rings.size()) < most) {
    ring_of r = left.size() <= small ? best_of_all(left) : greedy(left);
    if (!(r.narrowest > 0)) break;
    for (std::size_t i = 0; i < r.order.size(); ++i) {
      left[static_cast<std::size_t>(r.order[i])]
          [static_cast<std::size_t>(r.order[(i + 1) % r.order.size()])] = 0;
    }
    rings.push_back(std::move(r));
  }
  return rings;
}

/// Each hop is along a ring on which the fewest are left: one fewer are left afterwards.
hops along(const std::vector<ring_of>& rings, int n) {
  hops next(static_cast<std::size_t>(n), std::vector<int>(static_cast<std::size_t>(n)));
  std::vector<std::vector<int>> left(static_cast<std::size_t>(n),
                                     std::vector<int>(static_cast<std::size_t>(n), n));
  for (const ring_of& r : rings) {
    for (int i = 0; i < n; ++i) {
      const int at = r.order[static_cast<std::size_t>(i)];
      for (int k = 1; k < n; ++k) {
        const int to = r.order[static_cast<std::size_t>((i + k) % n)];
        int& fewest = left[static_cast<std::size_t>(at)][static_cast<std::size_t>(to)];
        if (k >= fewest) continue;
        fewest = k;
        next[static_cast<std::size_t>(at)][static_cast<std::size_t>(to)] =
            r.order[static_cast<std::size_t>((i + 1) % n)];
      }
      next[static_cast<std::size_t>(at)][static_cast<std::size_t>(at)] =
          r.order[static_cast<std::size_t>((i + 1) % n)];
    }
  }
  return next;
}

// ---- trees

struct tree_of {
  std::vector<int> parent;
  double narrowest = std::numeric_limits<double>::infinity();
};

/// The tree grows by the widest way out of it, in both directions of which the narrower counts.
tree_of widest_tree(const bandwidth_table& t) {
  const int n = static_cast<int>(t.size());
  tree_of tree{std::vector<int>(t.size(), -1)};
  std::vector<bool> in(t.size(), false);
  in[0] = true;
  for (int grown = 1; grown < n; ++grown) {
    int from = -1;
    int to = -1;
    double best = 0;
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        if (!in[static_cast<std::size_t>(a)] || in[static_cast<std::size_t>(b)]) continue;
        const double width = std::min(way(t, a, b), way(t, b, a));
        if (width > best) {
          best = width;
          from = a;
          to = b;
        }
      }
    }
    if (to < 0) return {};
    tree.parent[static_cast<std::size_t>(to)] = from;
    tree.narrowest = std::min(tree.narrowest, best);
    in[static_cast<std::size_t>(to)] = true;
  }
  return tree;
}

hops along(const tree_of& tree) {
  const int n = static_cast<int>(tree.parent.size());
  hops next(tree.parent.size(), std::vector<int>(tree.parent.size()));
  for (int at = 0; at < n; ++at) {
    for (int to = 0; to < n; ++to) {
      // Down, when `at` is above `to`: by the one on the way. Else up.
      int hop = tree.parent[static_cast<std::size_t>(at)];
      for (int v = to; v >= 0; v = tree.parent[static_cast<std::size_t>(v)]) {
        if (tree.parent[static_cast<std::size_t>(v)] == at) hop = v;
      }
      // To itself: by any neighbour and back; the root of one endpoint alone has none.
      if (at == to && hop < 0) {
        hop = at;
        for (int v = 0; v < n; ++v) {
          if (tree.parent[static_cast<std::size_t>(v)] == at) hop = v;
        }
      }
      next[static_cast<std::size_t>(at)][static_cast<std::size_t>(to)] = hop;
    }
  }
  return next;
}

std::string number(double x) {
  std::ostringstream out;
  out.precision(3);
  out << x;
  return out.str();
}

}  // namespace

policy direct(const bandwidth_table& ways) {
  const int n = checked_size(ways);
  const double width = n > 1 ? narrowest_pair(ways) : 0;
  if (n > 1 && !(width > 0)) throw wrong("a pair of endpoints has no way: take rings or a tree");
  return by_hops("direct", straight(n),
                 "every pair has a way, the narrowest of " + number(width) + " GB/s");
}

policy multi_ring(const bandwidth_table& ways, int rings) {
  const int n = checked_size(ways);
  if (rings < 1) throw wrong("at least one ring");
  if (n == 1) return by_hops("multi-ring", straight(1), "one endpoint, nobody to go to");
  const auto found = rings_of(ways, rings);
  if (found.empty()) throw wrong("no ring leads through all endpoints: take a tree");
  std::string why = std::to_string(found.size()) + (found.size() == 1 ? " ring" : " rings");
  for (const ring_of& r : found) {
    why += "; ";
    for (const int at : r.order) why += std::to_string(at) + " ";
    why += "(" + number(r.narrowest) + " GB/s)";
  }
  return by_hops("multi-ring", along(found, n), why);
}

policy tree(const bandwidth_table& ways) {
  const int n = checked_size(ways);
  if (n == 1) return by_hops("tree", straight(1), "one endpoint, nobody to go to");
  const tree_of found = widest_tree(ways);
  if (found.parent.empty()) throw wrong("no tree: some endpoints are cut off from the others");
  std::string why = "its narrowest way has " + number(found.narrowest) + " GB/s;";
  for (int v = 1; v < n; ++v) {
    why += " " + std::to_string(v) + " under " +
           std::to_string(found.parent[static_cast<std::size_t>(v)]);
  }
  return by_hops("tree", along(found), why);
}

policy by_topology(const bandwidth_table& ways, int rings) {
  const int n = checked_size(ways);
  struct candidate {
    policy how;
    double seconds;
  };
  std::vector<candidate> all;
  const auto add = [&](auto make, const hops& next) {
    const double seconds = time_of(next, ways);
    if (seconds < std::numeric_limits<double>::infinity()) all.push_back({make(), seconds});
  };
  add([&] { return direct(ways); }, straight(n));
  if (n > 1) {
    if (const auto found = rings_of(ways, rings); !found.empty()) {
      add([&] { return multi_ring(ways, rings); }, along(found, n));
    }
    if (const auto found = widest_tree(ways); !found.parent.empty()) {
      add([&] { return tree(ways); }, along(found));
    }
  }
  if (all.empty()) throw wrong("some endpoints are cut off from the others");
  const auto best = std::min_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  std::string why = best->how.why + ". All send a GB to all:";
  for (const candidate& c : all) why += " " + c.how.name + " " + number(c.seconds) + " s,";
  why.back() = '.';
  best->how.why = why;
  return best->how;
}

}  // namespace crosswarp::flow
