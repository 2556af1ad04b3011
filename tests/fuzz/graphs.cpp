#include "fuzz/graphs.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "crosswarp/graph.hpp"

namespace fuzz {
namespace {

namespace gr = crosswarp::graph;

/// A file that has no name but this one.
class memory_file {
 public:
  explicit memory_file(std::string_view text) : fd_(memfd_create("graph", MFD_CLOEXEC)) {
    complete_ = write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  ~memory_file() { close(fd_); }
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  [[nodiscard]] bool complete() const noexcept { return complete_; }

 private:
  int fd_;
  bool complete_ = false;
};

gr::csr take(gr::format as, std::string_view text) {
  if (as != gr::format::binary) return gr::parse(text, "input", {.as = as, .most_vertices = 4096});
  const memory_file file(text);
  return file.complete() ? gr::map_binary(file.path()) : gr::csr();
}

/// Follows every edge: a sanitizer sees what leads out of the graph.
std::string walk(const gr::csr& g) {
  if (g.weighted() && g.lengths().size() != g.edges()) return "lengths do not go with edges";
  std::uint64_t degrees = 0;
  for (gr::vertex v = 0; v < g.vertices(); ++v) {
    for (const gr::vertex t : g.neighbours(v)) degrees += g.degree(t) == 0 ? 0 : 1;
  }
  if (degrees > g.edges()) return "more edges than there are";
  return gr::transpose(g).edges() == g.edges() ? "" : "edges are lost when they are turned round";
}

}  // namespace

std::string read_graph(std::span<const std::byte> input) {
  constexpr gr::format formats[] = {gr::format::matrix_market, gr::format::edges, gr::format::metis,
                                    gr::format::dimacs, gr::format::binary};
  if (input.empty()) return "";
  const auto as = formats[std::to_integer<std::size_t>(input.front()) % std::size(formats)];
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    return walk(take(as, text));
  } catch (const crosswarp::error& e) {
    return e.code() == crosswarp::errc::invalid_argument ? "" : e.what();
  }
}

}  // namespace fuzz
