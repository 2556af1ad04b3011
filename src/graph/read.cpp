// Readers of text formats.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "crosswarp/graph.hpp"
#include "graph/file.hpp"
#include "graph/symmetry.hpp"
#include "graph/text.hpp"

namespace crosswarp::graph {
namespace {

constexpr std::uint64_t longest = ~weight{0};

/// How many vertices there may be: none has the largest number.
std::uint64_t most_vertices(const read_options& o) {
  return std::min<std::uint64_t>(o.most_vertices, no_vertex);
}

/// A file cannot hold more edges than bytes: what claims more is not believed, nor made room for.
std::uint64_t most_edges(const text_lines& in) {
  return in.bytes_left();
}

std::string lower(std::string_view w) {
  std::string text(w);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The next word as a length, or read over.
void take_length(text_lines& in, const read_options& o, const char* what, edge& e) {
  if (!o.lengths) return in.any_number(what);
  e.length = static_cast<weight>(in.number(what, 0, longest));
}

struct market_kind {
  bool weighted;
  bool symmetric;
};

market_kind market_banner(text_lines& in) {
  if (!in.next() || lower(in.word()) != "%%matrixmarket") {
    throw in.wrong("the first line is not '%%MatrixMarket matrix coordinate ...'");
  }
  const std::string object = lower(in.word());
  const std::string layout = lower(in.word());
  if (object != "matrix" || layout != "coordinate") {
    throw in.wrong("'" + shown(object) + " " + shown(layout) +
                   "': only 'matrix coordinate' is a graph");
  }
  const std::string field = lower(in.word());
  if (field != "pattern" && field != "integer" && field != "real") {
    throw in.wrong("entries are '" + shown(field) + "'; known are pattern, integer and real");
  }
  const std::string symmetry = lower(in.word());
  if (symmetry != "general" && symmetry != "symmetric") {
    throw in.wrong("symmetry is '" + shown(symmetry) + "'; known are general and symmetric");
  }
  in.expect_end();
  return {field != "pattern", symmetry == "symmetric"};
}

edge_list market(text_lines& in, const read_options& o) {
  const market_kind kind = market_banner(in);
  edge_list list{
      .vertices = 0, .weighted = kind.weighted && o.lengths, .symmetric = kind.symmetric};
  if (!in.next_with_words("%")) throw in.wrong("the line of sizes is missing");
  list.vertices = in.number("number of rows", 0, most_vertices(o));
  in.number("number of columns (as many as rows)", list.vertices, list.vertices);
  const std::uint64_t entries = in.number("number of entries", 0, most_edges(in));
  in.expect_end();
  list.edges.reserve(entries);
  while (in.next_with_words("%")) {
    if (list.edges.size() == entries) throw in.wrong("more entries than the sizes said");
    edge e;
    e.from = static_cast<vertex>(in.number("row", 1, list.vertices) - 1);
    e.to = static_cast<vertex>(in.number("column", 1, list.vertices) - 1);
    if (kind.weighted) take_length(in, o, "value", e);
    in.expect_end();
    list.edges.push_back(e);
  }
  if (list.edges.size() != entries) {
    throw in.wrong("ends after " + std::to_string(list.edges.size()) + " of " +
                   std::to_string(entries) + " entries");
  }
  return list;
}

edge_list edges(text_lines& in, const read_options& o) {
  edge_list list;
  bool have_lengths = false;
  while (in.next_with_words("#%")) {
    edge e;
    e.from = static_cast<vertex>(in.number("vertex", 0, most_vertices(o) - 1));
    e.to = static_cast<vertex>(in.number("vertex", 0, most_vertices(o) - 1));
    const bool weighted = !in.is_empty();
    if (list.edges.empty()) have_lengths = weighted;
    if (weighted != have_lengths) {
      throw in.wrong(weighted ? "an edge with a length after edges without"
                              : "the length is missing; edges before have one");
    }
    if (weighted) take_length(in, o, "length", e);
    in.expect_end();
    list.vertices = std::max<std::uint64_t>({list.vertices, e.from + 1ULL, e.to + 1ULL});
    list.edges.push_back(e);
  }
  list.weighted = have_lengths && o.lengths;
  return list;
}

struct metis_kind {
  std::uint64_t vertices;
  std::uint64_t edges;
  std::uint64_t ignored;  ///< numbers of each vertex before its edges: sizes and weights
  bool weighted;
};

metis_kind metis_header(text_lines& in, const read_options& o) {
  if (!in.next_with_words("%")) throw in.wrong("the line of sizes is missing");
  metis_kind kind{};
  kind.vertices = in.number("number of vertices", 0, most_vertices(o));
  kind.edges = in.number("number of edges", 0, most_edges(in));
  const std::uint64_t flags = in.is_empty() ? 0 : in.number("format", 0, 111);
  if (flags % 10 > 1 || flags / 10 % 10 > 1) {
    throw in.wrong("format " + std::to_string(flags) + " has digits other than 0 and 1");
  }
  const bool vertex_weights = flags / 10 % 10 == 1;
  const std::uint64_t weights = in.is_empty() ? 1 : in.number("weights of a vertex", 0, 1000);
  in.expect_end();
  kind.ignored = (vertex_weights ? weights : 0) + flags / 100;
  kind.weighted = flags % 10 == 1;
  return kind;
}

/// A line without words is a vertex without edges.
bool next_row(text_lines& in) {
  while (in.next()) {
    if (in.is_empty() || in.line().front() != '%') return true;
  }
  return false;
}

/// `lines`: of each vertex, from 1.
edge_list metis(text_lines& in, const read_options& o, std::vector<std::uint64_t>& lines) {
  const metis_kind kind = metis_header(in, o);
  // Both directions are in the file.
  edge_list list{.vertices = kind.vertices, .weighted = kind.weighted && o.lengths};
  for (std::uint64_t v = 0; v < kind.vertices; ++v) {
    if (!next_row(in)) {
      throw in.wrong("ends after " + std::to_string(v) + " of " + std::to_string(kind.vertices) +
                     " vertices");
    }
    lines.push_back(in.line_number());
    for (std::uint64_t i = 0; i < kind.ignored; ++i) in.number("size or weight", 0, longest);
    while (!in.is_empty()) {
      edge e{.from = static_cast<vertex>(v)};
      e.to = static_cast<vertex>(in.number("vertex", 1, kind.vertices) - 1);
      if (kind.weighted) take_length(in, o, "length", e);
      list.edges.push_back(e);
    }
  }
  if (in.next_with_words("%")) throw in.wrong("more lines than vertices");
  if (list.edges.size() != 2 * kind.edges) {
    throw in.wrong(std::to_string(list.edges.size()) + " ends of edges; " +
                   std::to_string(kind.edges) + " edges have twice as many ends");
  }
  return list;
}

edge_list dimacs(text_lines& in, const read_options& o) {
  edge_list list{.vertices = 0, .weighted = o.lengths};
  std::optional<std::uint64_t> arcs;
  while (in.next_with_words("")) {
    const std::string_view kind = in.word();
    if (kind == "c") continue;
    if (kind == "p" && !arcs) {
      if (in.word() != "sp") throw in.wrong("'p' is not followed by 'sp'");
      list.vertices = in.number("number of vertices", 0, most_vertices(o));
      arcs = in.number("number of arcs", 0, most_edges(in));
      list.edges.reserve(*arcs);
    } else if (kind == "a" && arcs) {
      if (list.edges.size() == *arcs) throw in.wrong("more arcs than 'p' said");
      edge e;
      e.from = static_cast<vertex>(in.number("vertex", 1, list.vertices) - 1);
      e.to = static_cast<vertex>(in.number("vertex", 1, list.vertices) - 1);
      take_length(in, o, "length", e);
      list.edges.push_back(e);
    } else {
      throw in.wrong("'" + shown(kind) +
                     "': a line is 'c ...', one 'p sp VERTICES ARCS', then 'a FROM TO LENGTH'");
    }
    in.expect_end();
  }
  if (!arcs) throw in.wrong("no line 'p sp VERTICES ARCS'");
  if (list.edges.size() != *arcs) {
    throw in.wrong("ends after " + std::to_string(list.edges.size()) + " of " +
                   std::to_string(*arcs) + " arcs");
  }
  return list;
}

/// Of a file that has each edge in both directions.
csr read_metis(text_lines& in, const read_options& o) {
  std::vector<std::uint64_t> lines;
  build_options how = o.build;
  how.symmetrise = false;  // it is, or it is no such file
  const csr g = build(metis(in, o, lines), how);
  if (const auto lonely = edge_without_return(g)) {
    const vertex v = source_of(g, *lonely);
    throw in.wrong_at(lines[v], "the edge from " + std::to_string(v + std::uint64_t{1}) + " to " +
                                    std::to_string(g.targets()[*lonely] + std::uint64_t{1}) +
                                    " is not there in both directions, or with two lengths");
  }
  return same_rows::symmetric(g);
}

csr read_binary(const std::string& path, const read_options& o) {
  csr g = map_binary(path);
  if (!o.lengths) g = without_lengths(g);
  if (!o.build.simplify) return o.build.symmetrise ? symmetrised(g) : g;
  build_options how = o.build;
  how.symmetrise = how.symmetrise || g.symmetric();
  return build(edges_of(g), how);
}

format by_name(const std::string& path) {
  constexpr std::pair<std::string_view, format> known[] = {
      {".mtx", format::matrix_market}, {".el", format::edges},    {".wel", format::edges},
      {".txt", format::edges},         {".graph", format::metis}, {".gr", format::dimacs},
      {".csr", format::binary}};
  const std::string ending = std::filesystem::path(path).extension();
  for (const auto& [name, as] : known) {
    if (ending == name) return as;
  }
  throw error(errc::invalid_argument, path,
              "the name does not say what it is: it should end with .mtx, .el, .wel, .txt, "
              ".graph, .gr or .csr");
}

}  // namespace

csr parse(std::string_view text, const std::string& name, const read_options& o) {
  text_lines in(text, name);
  const format as = o.as == format::automatic ? by_name(name) : o.as;
  if (as == format::matrix_market) return build(market(in, o), o.build);
  if (as == format::edges) return build(edges(in, o), o.build);
  if (as == format::dimacs) return build(dimacs(in, o), o.build);
  if (as == format::metis) return read_metis(in, o);
  throw error(errc::invalid_argument, name, "a binary graph is no text: use map_binary");
}

csr read(const std::string& path, const read_options& o) {
  const format as = o.as == format::automatic ? by_name(path) : o.as;
  if (as == format::binary) return read_binary(path, o);
  const mapped_file file(path);
  read_options with = o;
  with.as = as;
  return parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path,
               with);
}

}  // namespace crosswarp::graph
