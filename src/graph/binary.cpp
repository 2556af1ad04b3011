// Graphs as files that are mapped, and as lines of edges.
//
// A binary file is a header of 64 bytes, then offsets, targets and lengths, each at a multiple of
// 64 bytes. A file of another version, byte order or length is refused.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "crosswarp/graph.hpp"
#include "graph/file.hpp"
#include "graph/symmetry.hpp"

namespace crosswarp::graph {
namespace {

constexpr std::array<char, 8> magic = {'c', 'w', 'g', 'r', 'a', 'p', 'h', '\n'};
constexpr std::uint32_t version = 1;
constexpr std::uint32_t byte_order = 0x01020304;
constexpr std::uint64_t unit = 64;

struct header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t vertices;
  std::uint64_t edges;
  std::uint32_t weighted;
  std::uint32_t symmetric;
  std::array<std::byte, 24> zero;
};
static_assert(sizeof(header) == unit);

constexpr std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + unit - 1) / unit * unit;
}

/// Where things lie. Vertices and edges are at most 2^56, so nothing overflows.
struct layout {
  explicit layout(const header& h)
      : targets(unit + rounded((h.vertices + 1) * sizeof(std::uint64_t))),
        lengths(targets + rounded(h.edges * sizeof(vertex))),
        end(h.weighted != 0 ? lengths + rounded(h.edges * sizeof(weight)) : lengths) {}
  std::uint64_t targets;
  std::uint64_t lengths;
  std::uint64_t end;
};

error wrong_at(const std::string& path, std::uint64_t offset, const std::string& why) {
  return {errc::invalid_argument, path + ", offset " + std::to_string(offset), why};
}

header checked_header(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < sizeof(header)) {
    throw wrong_at(path, bytes.size(), "ends within the header of 64 bytes");
  }
  header h{};
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (h.magic != magic) throw wrong_at(path, 0, "is no binary graph");
  if (h.byte_order != byte_order) {
    throw wrong_at(path, offsetof(header, byte_order), "was written with another byte order");
  }
  if (h.version != version) {
    throw wrong_at(path, offsetof(header, version),
                   "is of version " + std::to_string(h.version) + "; this library reads version " +
                       std::to_string(version));
  }
  if (h.vertices > no_vertex) {
    throw wrong_at(path, offsetof(header, vertices), "more than 2^32 - 1 vertices");
  }
  if (h.edges > std::uint64_t{1} << 56U) {
    throw wrong_at(path, offsetof(header, edges), "more than 2^56 edges");
  }
  if (h.weighted > 1 || h.symmetric > 1) {
    throw wrong_at(path, offsetof(header, weighted), "a flag is neither 0 nor 1");
  }
  if (bytes.size() != layout(h).end) {
    throw wrong_at(path, bytes.size(),
                   "ends here; " + std::to_string(h.vertices) + " vertices and " +
                       std::to_string(h.edges) + " edges take " + std::to_string(layout(h).end) +
                       " bytes");
  }
  return h;
}

template <class T>
std::span<const T> array_at(std::span<const std::byte> bytes, std::uint64_t offset,
                            std::uint64_t count) {
  return {reinterpret_cast<const T*>(bytes.data() + offset), count};
}

void check_offsets(std::span<const std::uint64_t> offsets, std::uint64_t edges,
                   const std::string& path) {
  std::uint64_t before = 0;
  for (std::size_t v = 0; v < offsets.size(); ++v) {
    const bool last = v + 1 == offsets.size();
    if (offsets[v] < before || offsets[v] > edges || (v == 0 && offsets[v] != 0) ||
        (last && offsets[v] != edges)) {
      throw wrong_at(path, unit + v * sizeof(std::uint64_t),
                     "offsets do not rise from 0 to " + std::to_string(edges));
    }
    before = offsets[v];
  }
}

void check_targets(std::span<const vertex> targets, const header& h, const std::string& path) {
  const auto bad =
      std::find_if(targets.begin(), targets.end(), [&](vertex t) { return t >= h.vertices; });
  if (bad == targets.end()) return;
  throw wrong_at(
      path, layout(h).targets + static_cast<std::uint64_t>(bad - targets.begin()) * sizeof(vertex),
      "an edge leads to vertex " + std::to_string(*bad) + " of " + std::to_string(h.vertices));
}

/// What a file says of itself is not believed: searches upwards would find parents where no edge
/// is.
void check_symmetry(const csr& g, const header& h, const std::string& path) {
  if (!rows_in_order(g)) {
    if (is_symmetric(g)) return;
    throw wrong_at(path, offsetof(header, symmetric),
                   "said to be symmetric, and an edge is not there in both directions");
  }
  const auto lonely = edge_without_return(g);
  if (!lonely) return;
  throw wrong_at(path, layout(h).targets + *lonely * sizeof(vertex),
                 "said to be symmetric, and the edge from " +
                     std::to_string(source_of(g, *lonely)) + " to " +
                     std::to_string(g.targets()[*lonely]) +
                     " is not there in the other direction, or with another length");
}

void write_padded(new_file& to, std::span<const std::byte> bytes) {
  constexpr std::array<std::byte, unit> zeros{};
  to.write(bytes);
  to.write(std::span(zeros).first(rounded(bytes.size()) - bytes.size()));
}

}  // namespace

void write_binary(const csr& g, const std::string& path) {
  const header h{.magic = magic,
                 .version = version,
                 .byte_order = byte_order,
                 .vertices = g.vertices(),
                 .edges = g.edges(),
                 .weighted = g.weighted() ? 1U : 0U,
                 .symmetric = g.symmetric() ? 1U : 0U,
                 .zero = {}};
  new_file to(path);
  to.write(std::as_bytes(std::span(&h, 1)));
  write_padded(to, std::as_bytes(g.offsets()));
  write_padded(to, std::as_bytes(g.targets()));
  if (g.weighted()) write_padded(to, std::as_bytes(g.lengths()));
  to.publish();
}

csr map_binary(const std::string& path) {
  const auto file = std::make_shared<const mapped_file>(path);
  const header h = checked_header(file->bytes(), path);
  csr g;
  g.offsets_ = array_at<std::uint64_t>(file->bytes(), unit, h.vertices + 1);
  g.targets_ = array_at<vertex>(file->bytes(), layout(h).targets, h.edges);
  if (h.weighted != 0) g.lengths_ = array_at<weight>(file->bytes(), layout(h).lengths, h.edges);
  check_offsets(g.offsets_, h.edges, path);
  check_targets(g.targets_, h, path);
  g.weighted_ = h.weighted != 0;
  g.symmetric_ = false;
  g.storage_ = file;
  if (h.symmetric == 0) return g;
  check_symmetry(g, h, path);
  return same_rows::symmetric(g);
}

void write_edges(const csr& g, const std::string& path) {
  new_file to(path);
  std::string text;
  const auto put = [&](std::uint64_t n, char after) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof(digits), n).ptr;
    text.append(digits, end);
    text.push_back(after);
  };
  for (vertex v = 0; v < g.vertices(); ++v) {
    for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + 1]; ++i) {
      put(v, ' ');
      put(g.targets()[i], g.weighted() ? ' ' : '\n');
      if (g.weighted()) put(g.lengths()[i], '\n');
    }
    if (text.size() < 1U << 20U) continue;
    to.write(std::as_bytes(std::span(text)));
    text.clear();
  }
  to.write(std::as_bytes(std::span(text)));
  to.publish();
}

}  // namespace crosswarp::graph
