#include <algorithm>

#include "crosswarp/graph.hpp"
#include "graph/parallel.hpp"
#include "graph/random.hpp"
#include "graph/symmetry.hpp"

namespace crosswarp::graph {
namespace {

void check(const generate_options& o) {
  if (o.scale < 0 || o.scale > 31) {
    throw error(errc::invalid_argument, "generate",
                "scale " + std::to_string(o.scale) + " is not from 0 to 31");
  }
  if (o.degree < 0) throw error(errc::invalid_argument, "generate", "degree is negative");
}

/// A permutation of the numbers of `bits` bits: steps that can each be undone.
class renumbering {
 public:
  renumbering(int bits, std::uint64_t seed)
      : mask_((std::uint64_t{1} << static_cast<unsigned>(bits)) - 1),
        shift_(static_cast<unsigned>(bits) / 2 + 1),
        random_(seed, ~std::uint64_t{0}) {
    for (std::uint64_t& factor : factors_) factor = random_() | 1U;
  }
  [[nodiscard]] vertex operator()(std::uint64_t v) const noexcept {
    for (const std::uint64_t factor : factors_) {
      v = v * factor & mask_;
      v ^= v >> shift_;
    }
    return static_cast<vertex>(v);
  }

 private:
  std::uint64_t mask_;
  unsigned shift_;
  random_at random_;
  std::uint64_t factors_[4] = {};
};

/// `draw(random, i)` makes edge i.
template <class Draw>
csr drawn(const generate_options& o, const Draw& draw) {
  const std::uint64_t vertices = std::uint64_t{1} << static_cast<unsigned>(o.scale);
  edge_list list{.vertices = vertices,
                 .edges = std::vector<edge>(vertices * static_cast<std::uint64_t>(o.degree))};
  in_pieces(o.threads, list.edges.size(), [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) list.edges[i] = draw(random_at(o.seed, i));
  });
  return build(list, {.symmetrise = true, .simplify = true, .threads = o.threads});
}

}  // namespace

csr kronecker(const generate_options& o) {
  check(o);
  const renumbering renumber(o.scale, o.seed);
  return drawn(o, [&](random_at random) {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    for (int bit = 0; bit < o.scale; ++bit) {
      const std::uint64_t percent = random.below(100);
      const bool lower = percent >= 57 + 19;                               // quarters c and d
      const bool right = lower ? percent >= 57 + 19 + 19 : percent >= 57;  // b and d
      from = from << 1U | (lower ? 1U : 0U);
      to = to << 1U | (right ? 1U : 0U);
    }
    return edge{renumber(from), renumber(to)};
  });
}

csr uniform(const generate_options& o) {
  check(o);
  const std::uint64_t vertices = std::uint64_t{1} << static_cast<unsigned>(o.scale);
  return drawn(o, [&](random_at random) {
    const std::uint64_t from = random.below(vertices);
    return edge{static_cast<vertex>(from), static_cast<vertex>(random.below(vertices))};
  });
}

csr grid(const generate_options& o) {
  check(o);
  const auto width = vertex{1} << static_cast<unsigned>((o.scale + 1) / 2);
  const auto height = vertex{1} << static_cast<unsigned>(o.scale / 2);
  edge_list list{.vertices = std::uint64_t{width} * height};
  for (vertex y = 0; y < height; ++y) {
    for (vertex x = 0; x < width; ++x) {
      const vertex v = y * width + x;
      if (x + 1 < width) list.edges.push_back({v, v + 1});
      if (y + 1 < height) list.edges.push_back({v, v + width});
    }
  }
  return with_lengths(build(list, {.symmetrise = true, .threads = o.threads}), o.seed);
}

std::vector<vertex> sources(const csr& g, int count, std::uint64_t seed) {
  if (g.edges() == 0) {
    throw error(errc::invalid_argument, "sources", "no vertex has an edge to begin at");
  }
  std::vector<vertex> found;
  for (int i = 0; i < count; ++i) {
    random_at random(seed, static_cast<std::uint64_t>(i));
    auto v = static_cast<vertex>(random.below(g.vertices()));
    for (int misses = 0; g.degree(v) == 0 && misses < 64; ++misses) {
      v = static_cast<vertex>(random.below(g.vertices()));
    }
    if (g.degree(v) == 0) v = source_of(g, random() % g.edges());
    found.push_back(v);
  }
  return found;
}

}  // namespace crosswarp::graph
