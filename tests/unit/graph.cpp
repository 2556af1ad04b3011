// Graphs on the host: files, generators, partitions, references.
#include "crosswarp/graph.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <system_error>
#include <thread>

#include "graph/parallel.hpp"

namespace {

namespace cw = crosswarp;
namespace gr = crosswarp::graph;
using gr::edge;
using testing::ElementsAre;
using testing::HasSubstr;

gr::csr text(gr::format as, const std::string& s, gr::build_options how = {}) {
  return gr::parse(s, "file", {.as = as, .build = how, .most_vertices = 1000});
}

std::string complaint(const std::function<void()>& f) {
  try {
    f();
  } catch (const cw::error& e) {
    return e.what();
  }
  return "nothing";
}
std::string complaint(gr::format as, const std::string& s) {
  return complaint([&] { text(as, s); });
}

bool by_ends(const edge& a, const edge& b) {
  return std::tie(a.from, a.to, a.length) < std::tie(b.from, b.to, b.length);
}
std::vector<edge> edges_of(const gr::csr& g) {
  std::vector<edge> all;
  for (gr::vertex v = 0; v < g.vertices(); ++v) {
    for (std::uint64_t i = g.offsets()[v]; i < g.offsets()[v + 1]; ++i) {
      all.push_back({v, g.targets()[i], g.weighted() ? g.lengths()[i] : 1});
    }
  }
  return all;
}

bool same(const gr::csr& a, const gr::csr& b) {
  return edges_of(a) == edges_of(b) && a.vertices() == b.vertices() &&
         a.weighted() == b.weighted() && a.symmetric() == b.symmetric();
}

/// A folder that is gone after the test.
class GraphFiles : public testing::Test {
 protected:
  GraphFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "graph.XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) folder_ = name;
  }
  ~GraphFiles() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  [[nodiscard]] std::string contents(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::filesystem::path folder_;
};

constexpr auto market = gr::format::matrix_market;
constexpr auto plain = gr::format::edges;
constexpr auto metis = gr::format::metis;
constexpr auto dimacs = gr::format::dimacs;

TEST(GraphText, MatrixMarketHasEntriesFromOne) {
  const auto g = text(market,
                      "%%MatrixMarket matrix coordinate integer general\n% a comment\n\n"
                      "3 3 3\n1 2 7\n3 1 0\n1 1 4\n");
  EXPECT_EQ(g.vertices(), 3U);
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 0, 4}, edge{0, 1, 7}, edge{2, 0, 0}));
  EXPECT_FALSE(g.symmetric());
}

TEST(GraphText, ASymmetricMatrixHasBothDirections) {
  const auto g =
      text(market, "%%matrixmarket MATRIX coordinate pattern symmetric\r\n2 2 2\r\n2 1\r\n1 1");
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 0}, edge{0, 1}, edge{1, 0}));
  EXPECT_TRUE(g.symmetric());
  EXPECT_FALSE(g.weighted());
}

TEST(GraphText, RealValuesAreTakenWhenTheyAreWhole) {
  const std::string head = "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 ";
  EXPECT_THAT(edges_of(text(market, head + "3.000\n")), ElementsAre(edge{0, 1, 3}));
  EXPECT_THAT(complaint(market, head + "3.5\n"),
              HasSubstr("file:3: invalid argument: value '3.5'"));
  EXPECT_THAT(complaint(market, head + "-3\n"), HasSubstr("file:3:"));
  EXPECT_THAT(complaint(market, head + "1e3\n"), HasSubstr("no whole number"));
}

TEST(GraphText, EdgesBeginAtZeroAndMayHaveLengths) {
  const auto g = text(plain, "# comment\n0 2\n\t2 1 \n% other\n");
  EXPECT_EQ(g.vertices(), 3U);
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 2}, edge{2, 1}));
  EXPECT_THAT(edges_of(text(plain, "0 1 9\n")), ElementsAre(edge{0, 1, 9}));
  EXPECT_EQ(text(plain, "").vertices(), 0U);
}

TEST(GraphText, MetisHasARowForEachVertex) {
  const auto g = text(metis, "% c\n4 2\n2 3\n1\n1\n\n");
  EXPECT_EQ(g.vertices(), 4U);
  EXPECT_TRUE(g.symmetric());
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 1}, edge{0, 2}, edge{1, 0}, edge{2, 0}));
}

TEST(GraphText, MetisMayHaveSizesAndWeights) {
  const auto g = text(metis, "2 1 111 2\n9 8 7 2 5\n9 8 7 1 5\n");
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 1, 5}, edge{1, 0, 5}));
  EXPECT_TRUE(g.weighted());
}

TEST(GraphText, DimacsHasArcs) {
  const auto g = text(dimacs, "c roads\np sp 3 2\na 1 2 17\nc more\na 2 3 1\n");
  EXPECT_EQ(g.vertices(), 3U);
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 1, 17}, edge{1, 2, 1}));
}

TEST(GraphText, WhatIsWrongIsSaidWithItsLine) {
  const std::string banner = "%%MatrixMarket matrix coordinate pattern general\n";
  const struct {
    gr::format as;
    std::string text;
    const char* says;
  } cases[] = {
      {market, "", "file:0: invalid argument: the first line"},
      {market, "3 3 1\n", "file:1: invalid argument: the first line"},
      {market, "%%MatrixMarket matrix array real general\n", "only 'matrix coordinate'"},
      {market, "%%MatrixMarket matrix coordinate complex general\n", "'complex'"},
      {market, "%%MatrixMarket matrix coordinate real hermitian\n", "'hermitian'"},
      {market, banner, "line of sizes is missing"},
      {market, banner + "3 4 1\n", "file:2: invalid argument: number of columns"},
      {market, banner + "2000 2000 0\n", "number of rows 2000 is not from 0 to 1000"},
      {market, banner + "3 3 99999999\n", "number of entries 99999999"},
      {market, banner + "3 3 2\n1 2\n", "ends after 1 of 2 entries"},
      {market, banner + "3 3 1\n1 2\n1 3\n", "file:4: invalid argument: more entries"},
      {market, banner + "3 3 1\n1 4\n", "column 4 is not from 1 to 3"},
      {market, banner + "3 3 1\n0 1\n", "row 0 is not from 1 to 3"},
      {market, banner + "3 3 1\n1\n", "file:3: invalid argument: column is missing"},
      {market, banner + "3 3 1\n1 2 3\n", "more than expected: '3'"},
      {market, banner + "99999999999999999999 1 1\n", "file:2:"},
      {plain, "0 1\n0 x\n", "file:2: invalid argument: vertex 'x'"},
      {plain, "0 1\n0 1 2\n", "an edge with a length after edges without"},
      {plain, "0 1 2\n0 1\n", "the length is missing"},
      {plain, "0 1 -2\n", "length '-2' is no whole number that is not negative"},
      {plain, "0 1 4294967296\n", "length 4294967296 is not from 0 to 4294967295"},
      {plain, "0 4294967295\n", "vertex 4294967295"},
      {metis, "", "line of sizes is missing"},
      {metis, "2 1\n2\n", "ends after 1 of 2 vertices"},
      {metis, "2 1\n2\n1\n1\n", "file:4: invalid argument: more lines"},
      {metis, "2 2\n2\n1\n", "2 ends of edges; 2 edges"},
      {metis, "% c\n3 1\n2 3\n\n\n", "file:3: invalid argument: the edge from 1 to 2 is not there"},
      {metis, "3 2\n2\n1 3\n% c\n1\n", "file:5: invalid argument: the edge from 3 to 1 is not"},
      {metis, "2 1 1\n2 5\n1 6\n", "two lengths"},
      {metis, "2 1 1\n2\n1 6\n", "file:2: invalid argument: length is missing"},
      {metis, "2 1 7\n2\n1\n", "format 7 has digits other"},
      {dimacs, "c\n", "no line 'p sp"},
      {dimacs, "a 1 2 3\n", "file:1: invalid argument: 'a'"},
      {dimacs, "p sp 2 1\np sp 2 1\n", "file:2: invalid argument: 'p'"},
      {dimacs, "p max 2 1\n", "not followed by 'sp'"},
      {dimacs, "p sp 2 1\n", "ends after 0 of 1 arcs"},
      {dimacs, "p sp 2 1\na 1 2\n", "length is missing"},
      {dimacs, "p sp 2 1\na 1 2 3\na 1 2 3\n", "file:3: invalid argument: more arcs"},
  };
  for (const auto& c : cases) EXPECT_THAT(complaint(c.as, c.text), HasSubstr(c.says)) << c.text;
}

// Errors are shown on terminals, which obey what they are sent.
TEST(GraphText, WhatAFileSaysIsShownWithoutObeyingIt) {
  const std::string hostile = "\033]0;owned\a\x9b" + std::string(100, 'x');
  const std::string sizes = "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n";
  const std::pair<gr::format, std::string> files[] = {
      {market, "%%MatrixMarket " + hostile + " coordinate pattern general\n"},
      {market, "%%MatrixMarket matrix " + hostile + " pattern general\n"},
      {market, "%%MatrixMarket matrix coordinate " + hostile + " general\n"},
      {market, "%%MatrixMarket matrix coordinate pattern " + hostile + "\n"},
      {market, sizes + "1 2 " + hostile + "\n"},
      {plain, "0 " + hostile + "\n"},
      {dimacs, hostile + "\n"},
  };
  for (const auto& [as, file] : files) {
    const std::string says = complaint(as, file);
    EXPECT_THAT(says, HasSubstr("\\x1b]0;owned\\x07\\x9bx")) << file;
    EXPECT_TRUE(std::all_of(says.begin(), says.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    EXPECT_THAT(says, testing::Not(HasSubstr(std::string(50, 'x')))) << file;
  }
}

TEST(GraphText, LengthsThatNobodyAsksForMayBeAnyNumbers) {
  const std::pair<gr::format, std::string> files[] = {
      {market, "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n2 1 -3.5e-7\n"},
      {plain, "0 1 0.25\n1 0 -8\n"},
      {metis, "2 1 1\n2 1.5\n1 99999999999\n"},
      {dimacs, "p sp 2 2\na 1 2 -1\na 2 1 1e999\n"},
  };
  for (const auto& [as, file] : files) {
    EXPECT_NE(complaint(as, file), "nothing") << file;
    const auto g = gr::parse(file, "file", {.as = as, .lengths = false});
    EXPECT_FALSE(g.weighted());
    EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 1}, edge{1, 0})) << file;
  }
  EXPECT_THAT(complaint([] { gr::parse("0 1 far\n", "file", {.as = plain, .lengths = false}); }),
              HasSubstr("file:1: invalid argument: length 'far' is no number"));
}

// Most symmetric graphs in files have a line for each direction: asked to be symmetric, they became
// twice as large.
TEST(GraphBuild, WhatIsThereInBothDirectionsIsNotDoubled) {
  const std::string both = "p sp 3 4\na 1 2 5\na 2 1 5\na 2 3 7\na 3 2 7\n";
  const auto g = text(dimacs, both, {.symmetrise = true});
  EXPECT_TRUE(g.symmetric());
  EXPECT_THAT(edges_of(g), ElementsAre(edge{0, 1, 5}, edge{1, 0, 5}, edge{1, 2, 7}, edge{2, 1, 7}));
  // One direction is there, one with another length, one twice, and a loop.
  const auto mended =
      text(plain, "0 1 5\n1 0 6\n1 2 7\n2 3 8\n2 3 8\n3 2 8\n3 3 1\n", {.symmetrise = true});
  EXPECT_TRUE(mended.symmetric());
  EXPECT_THAT(edges_of(mended),
              ElementsAre(edge{0, 1, 5}, edge{0, 1, 6}, edge{1, 0, 5}, edge{1, 0, 6}, edge{1, 2, 7},
                          edge{2, 1, 7}, edge{2, 3, 8}, edge{2, 3, 8}, edge{3, 2, 8}, edge{3, 2, 8},
                          edge{3, 3, 1}));
  EXPECT_TRUE(
      same(gr::symmetrised(text(plain, "0 1\n1 0\n")), text(plain, "0 1\n", {.symmetrise = true})));
  // Rows in any order.
  EXPECT_EQ(gr::symmetrised(gr::csr({0, 2, 3, 4}, {2, 1, 0, 0}, {}, false)).edges(), 4U);
}

TEST(GraphBuild, AFileOfMetisIsNotMadeSymmetric) {
  EXPECT_EQ(text(metis, "2 1\n2\n1\n", {.symmetrise = true}).edges(), 2U);
  EXPECT_THAT(complaint([] { text(metis, "3 1\n2 3\n\n\n", {.symmetrise = true}); }),
              HasSubstr("not there in both directions"));
}

// Where no more threads are to be had the process ended.
TEST(GraphBuild, PiecesWithoutAThreadAreDoneAllTheSame) {
  for (const int threads : {0, 2, 3}) {
    std::vector<int> seen(10);
    const auto count = [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) ++seen[i];
    };
    int begun = 0;
    gr::in_pieces(4, seen.size(), count, [&](const auto& piece, std::uint64_t i) {
      if (begun++ == threads) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::cref(piece), i);
    });
    EXPECT_EQ(seen, std::vector<int>(10, 1)) << threads;
  }
}

TEST(GraphBuild, SelfLoopsAndParallelEdgesAreDroppedOnRequest) {
  const std::string list = "0 0 1\n0 1 5\n0 1 3\n1 0 9\n2 0 1\n";
  EXPECT_EQ(text(plain, list).edges(), 5U);
  EXPECT_THAT(edges_of(text(plain, list, {.simplify = true})),
              ElementsAre(edge{0, 1, 3}, edge{1, 0, 9}, edge{2, 0, 1}));
  EXPECT_THAT(edges_of(text(plain, list, {.symmetrise = true, .simplify = true})),
              ElementsAre(edge{0, 1, 3}, edge{0, 2, 1}, edge{1, 0, 3}, edge{2, 0, 1}));
}

TEST(GraphBuild, WhatIsNoGraphIsRefused) {
  EXPECT_THROW(gr::build({.vertices = 2, .edges = {{0, 2}}}), cw::error);
  EXPECT_THROW(gr::csr({0, 2}, {0}, {}, false), cw::error);
  EXPECT_THROW(gr::csr({1, 1}, {0}, {}, false), cw::error);
  EXPECT_THROW(gr::csr({0, 2, 1}, {0}, {}, false), cw::error);
  EXPECT_THROW(gr::csr({0, 1}, {1}, {}, false), cw::error);
  EXPECT_THROW(gr::csr({0, 1}, {0}, {1, 2}, false), cw::error);
  EXPECT_THROW(gr::csr({}, {}, {}, false), cw::error);
}

TEST(GraphBuild, TransposeTurnsEdgesRound) {
  const auto back = gr::transpose(text(plain, "0 1 5\n2 1 6\n1 1 7\n"));
  EXPECT_THAT(edges_of(back), ElementsAre(edge{1, 0, 5}, edge{1, 1, 7}, edge{1, 2, 6}));
}

TEST_F(GraphFiles, ABinaryGraphComesBackAsItWas) {
  for (const auto& g : {gr::csr(), gr::grid({.scale = 5}), gr::kronecker({.scale = 6, .degree = 4}),
                        text(plain, "0 1 5\n2 1 6\n")}) {
    gr::write_binary(g, path("g.csr"));
    EXPECT_TRUE(same(gr::read(path("g.csr")), g));
  }
  EXPECT_EQ(files(), 1U) << "and nothing else is left";
}

TEST_F(GraphFiles, EdgesComeBackAsTheyWere) {
  const auto g = gr::grid({.scale = 6});
  gr::write_edges(g, path("g.wel"));
  EXPECT_EQ(edges_of(gr::read(path("g.wel"))), edges_of(g));
}

TEST_F(GraphFiles, AMappedGraphOutlivesItsName) {
  gr::csr copy;
  {
    gr::write_binary(gr::grid({.scale = 4}), path("g.csr"));
    copy = gr::map_binary(path("g.csr"));
    std::filesystem::remove(path("g.csr"));
  }
  EXPECT_TRUE(same(copy, gr::grid({.scale = 4})));
}

TEST_F(GraphFiles, ABinaryGraphCutAnywhereIsRefused) {
  gr::write_binary(gr::grid({.scale = 3}), path("whole.csr"));
  const std::string whole = contents("whole.csr");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write("cut.csr", whole.substr(0, size));
    EXPECT_THAT(complaint([&] { gr::map_binary(path("cut.csr")); }),
                HasSubstr("cut.csr, offset " + std::to_string(size)));
  }
  write("cut.csr", whole + "x");
  EXPECT_THAT(complaint([&] { gr::map_binary(path("cut.csr")); }), HasSubstr("ends here"));
}

TEST_F(GraphFiles, AHostileBinaryGraphIsRefusedWithItsOffset) {
  gr::write_binary(gr::grid({.scale = 3}), path("whole.csr"));
  const std::string whole = contents("whole.csr");
  const auto with = [&](std::size_t at, char byte) {
    std::string changed = whole;
    changed[at] = byte;
    write("bad.csr", changed);
    return complaint([&] { gr::map_binary(path("bad.csr")); });
  };
  EXPECT_THAT(with(0, 'x'), HasSubstr("offset 0: invalid argument: is no binary graph"));
  EXPECT_THAT(with(8, 9), HasSubstr("offset 8: invalid argument: is of version 9"));
  EXPECT_THAT(with(12, 1), HasSubstr("another byte order"));
  EXPECT_THAT(with(16 + 4, 1), HasSubstr("more than 2^32 - 1 vertices"));
  EXPECT_THAT(with(24 + 7, 1), HasSubstr("more than 2^56 edges"));
  EXPECT_THAT(with(32, 2), HasSubstr("a flag is neither 0 nor 1"));
  EXPECT_THAT(with(64, 1), HasSubstr("offset 64: invalid argument: offsets do not rise"));
  EXPECT_THAT(with(64 + 8 + 3, 1), HasSubstr("offset 72: invalid argument: offsets"));
  EXPECT_THAT(with(64 + 128 + 4, 8), HasSubstr("offset 196: invalid argument: an edge leads to"));
}

// Searches that go upwards would find parents where there is no edge.
TEST_F(GraphFiles, ABinaryGraphThatIsNotSymmetricCannotSaySo) {
  const auto says_so = [&](const gr::csr& g) {
    gr::write_binary(g, path("g.csr"));
    std::string bytes = contents("g.csr");
    bytes[36] = 1;
    write("g.csr", bytes);
    return complaint([&] { gr::map_binary(path("g.csr")); });
  };
  EXPECT_THAT(says_so(text(plain, "0 1\n1 0\n1 2\n")),
              HasSubstr("g.csr, offset 136: invalid argument: said to be symmetric, and the edge "
                        "from 1 to 2 is not there"));
  EXPECT_THAT(says_so(text(plain, "0 1 5\n1 0 6\n")), HasSubstr("another length"));
  EXPECT_THAT(says_so(gr::csr({0, 2, 2, 3}, {2, 1, 0}, {}, false)), HasSubstr("offset 36"));
  EXPECT_EQ(says_so(text(plain, "0 1\n1 0\n")), "nothing");
  EXPECT_EQ(says_so(gr::csr({0, 2, 3, 4}, {2, 1, 0, 0}, {}, false)), "nothing");
}

TEST_F(GraphFiles, ABinaryGraphIsBuiltAsAsked) {
  gr::write_binary(text(plain, "0 1 5\n0 1 4\n1 1 2\n"), path("g.csr"));
  EXPECT_THAT(
      edges_of(gr::read(path("g.csr"), {.build = {.symmetrise = true}})),
      ElementsAre(edge{0, 1, 4}, edge{0, 1, 5}, edge{1, 0, 4}, edge{1, 0, 5}, edge{1, 1, 2}));
  const auto simple = gr::read(path("g.csr"), {.build = {.symmetrise = true, .simplify = true}});
  EXPECT_THAT(edges_of(simple), ElementsAre(edge{0, 1, 4}, edge{1, 0, 4}));
  EXPECT_TRUE(simple.symmetric());
  EXPECT_FALSE(gr::read(path("g.csr"), {.lengths = false}).weighted());
  gr::write_binary(text(plain, "0 1 5\n1 0 5\n"), path("both.csr"));
  const auto both = gr::read(path("both.csr"), {.build = {.symmetrise = true}});
  EXPECT_TRUE(both.symmetric());
  EXPECT_EQ(both.edges(), 2U);
}

// As root `--out /dev/null` made a file of the device.
TEST_F(GraphFiles, WhatIsNoFileIsWrittenAndNotReplaced) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  gr::write_edges(text(plain, "0 1\n"), path("pipe"));
  char got[8] = {};
  EXPECT_EQ(read(reader, got, sizeof got), 4);
  EXPECT_STREQ(got, "0 1\n");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));

  // A link stays one, and what it leads to is replaced.
  write("file.el", "old");
  std::filesystem::create_symlink("file.el", path("link.el"));
  gr::write_edges(text(plain, "0 1\n"), path("link.el"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.el")));
  EXPECT_EQ(contents("file.el"), "0 1\n");

  // Nothing is beside it, and what cannot take it says so.
  EXPECT_EQ(files(), 3U);
  EXPECT_THAT(complaint([] { gr::write_edges(text(plain, "0 1\n"), "/dev/full"); }),
              HasSubstr("cannot be written"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(GraphFiles, WhatCannotBeReadOrWrittenIsSaid) {
  EXPECT_THAT(complaint([&] { gr::read(path("none.mtx")); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(complaint([&] { gr::read(folder_, {.as = plain}); }), HasSubstr("cannot be mapped"));
  EXPECT_THAT(complaint([&] { gr::read(path("graph.zip")); }), HasSubstr("should end with .mtx"));
  EXPECT_THAT(complaint([&] { gr::write_binary({}, path("no/folder.csr")); }),
              HasSubstr("no file can be made beside it"));
  // A name that is taken by a folder: the temporary file goes, too.
  std::filesystem::create_directory(path("taken"));
  EXPECT_THAT(complaint([&] { gr::write_binary({}, path("taken")); }),
              HasSubstr("cannot be written"));
  EXPECT_EQ(files(), 1U);
}

TEST(GraphGenerators, GiveTheSameForAnyNumberOfThreads) {
  for (const auto make : {gr::kronecker, gr::uniform, gr::grid}) {
    const auto one = make({.scale = 9, .degree = 8, .seed = 3, .threads = 1});
    EXPECT_TRUE(same(make({.scale = 9, .degree = 8, .seed = 3, .threads = 3}), one));
    EXPECT_TRUE(same(make({.scale = 9, .degree = 8, .seed = 3, .threads = 64}), one));
    EXPECT_FALSE(same(make({.scale = 9, .degree = 8, .seed = 4, .threads = 1}), one));
  }
}

TEST(GraphGenerators, AreSymmetricAndSimple) {
  for (const auto make : {gr::kronecker, gr::uniform, gr::grid}) {
    const auto g = make({.scale = 8, .degree = 8});
    EXPECT_TRUE(g.symmetric());
    const auto all = edges_of(g);
    std::vector<edge> back;
    for (const edge& e : all) {
      EXPECT_NE(e.from, e.to);
      back.push_back({e.to, e.from, e.length});
    }
    const auto by_ends = [](const edge& a, const edge& b) {
      return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    };
    std::sort(back.begin(), back.end(), by_ends);
    EXPECT_EQ(back, all);
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  }
}

TEST(GraphGenerators, LookAsTheyShould) {
  const auto largest = [](const gr::csr& g) {
    std::uint64_t most = 0;
    for (gr::vertex v = 0; v < g.vertices(); ++v) most = std::max(most, g.degree(v));
    return most;
  };
  const auto kron = gr::kronecker({.scale = 12});
  const auto even = gr::uniform({.scale = 12});
  const auto roads = gr::grid({.scale = 7});
  EXPECT_GT(largest(kron), 300U) << "a few vertices have most of the edges";
  EXPECT_LT(largest(even), 80U);
  EXPECT_EQ(roads.vertices(), 128U);
  EXPECT_EQ(roads.edges(), 2U * (16 * 7 + 8 * 15));
  EXPECT_EQ(largest(roads), 4U);
  for (const auto w : roads.lengths()) EXPECT_TRUE(w >= 1 && w <= 255);
  EXPECT_EQ(gr::kronecker({.scale = 0}).vertices(), 1U);
  EXPECT_THROW(gr::kronecker({.scale = 32}), cw::error);
  EXPECT_THROW(gr::uniform({.scale = 3, .degree = -1}), cw::error);
}

TEST(GraphGenerators, SourcesHaveEdges) {
  // One vertex of a thousand has an edge, and it leads to one that has none.
  const auto g = gr::build({.vertices = 1000, .edges = {{17, 4}}});
  EXPECT_THAT(gr::sources(g, 3, 1), ElementsAre(17U, 17U, 17U));
  EXPECT_THROW(gr::sources(gr::csr({0, 0}, {}, {}, true), 1, 1), cw::error);
}

TEST(GraphPartition, EveryVertexHasOneOwner) {
  const auto g = gr::kronecker({.scale = 7, .degree = 4});
  for (int ranks : {1, 2, 3, 7, 200}) {
    for (const auto& p : {gr::contiguous(g.vertices(), ranks), gr::edge_balanced(g, ranks)}) {
      ASSERT_EQ(p.ranks(), ranks);
      EXPECT_EQ(p.first.front(), 0U);
      EXPECT_EQ(p.first.back(), g.vertices());
      EXPECT_TRUE(std::is_sorted(p.first.begin(), p.first.end()));
      for (gr::vertex v = 0; v < g.vertices(); ++v) {
        const auto r = static_cast<std::size_t>(p.owner(v));
        EXPECT_TRUE(p.first[r] <= v && v < p.first[r + 1]);
      }
    }
  }
  EXPECT_THROW(gr::contiguous(4, 0), cw::error);
  EXPECT_EQ(gr::edge_balanced(gr::csr(), 3).ranks(), 3);
}

TEST(GraphPartition, EdgesAreBalancedWhereVerticesAreNot) {
  // A star: all edges but one of each leaf are the first vertex's.
  gr::edge_list star{.vertices = 1001, .edges = {}};
  for (gr::vertex v = 1; v <= 1000; ++v) star.edges.push_back({0, v});
  const auto p = gr::edge_balanced(gr::build(star, {.symmetrise = true}), 2);
  EXPECT_NEAR(p.first[1], 250, 2);
}

TEST(GraphPartition, PartsMakeUpTheWhole) {
  const auto g = gr::with_lengths(gr::uniform({.scale = 7, .degree = 3}), 5);
  for (int ranks : {1, 2, 5, 200}) {
    const auto p = gr::edge_balanced(g, ranks);
    std::vector<edge> all;
    for (int r = 0; r < ranks; ++r) {
      const auto mine = gr::take_part(g, p, r);
      ASSERT_EQ(mine.offsets.size(), mine.count + 1U);
      for (const auto o : mine.others) EXPECT_NE(p.owner(o), r);
      EXPECT_TRUE(std::is_sorted(mine.others.begin(), mine.others.end()));
      const auto is_own = [&](gr::vertex t) { return t < mine.count; };
      for (gr::vertex v = 0; v < mine.count; ++v) {
        const auto row =
            std::span(mine.targets).subspan(mine.offsets[v], mine.offsets[v + 1] - mine.offsets[v]);
        EXPECT_TRUE(std::is_partitioned(row.begin(), row.end(), is_own));
        for (std::uint64_t i = mine.offsets[v]; i < mine.offsets[v + 1]; ++i) {
          const gr::vertex t = mine.targets[i];
          all.push_back({mine.first + v, is_own(t) ? mine.first + t : mine.others[t - mine.count],
                         mine.lengths[i]});
        }
      }
    }
    std::sort(all.begin(), all.end(), by_ends);
    EXPECT_EQ(all, edges_of(g));
  }
}

TEST(GraphPartition, RenumberedItIsTheSameGraph) {
  const auto g = gr::with_lengths(gr::kronecker({.scale = 6, .degree = 4}), 5);
  std::vector<int> owners;
  for (gr::vertex v = 0; v < g.vertices(); ++v) owners.push_back(static_cast<int>(v * 7 % 3));
  const auto r = gr::renumber(g, owners, 4);
  EXPECT_EQ(r.parts.first, (std::vector<gr::vertex>{0, 22, 43, 64, 64}));
  std::vector<edge> back;
  for (edge e : edges_of(r.graph)) {
    EXPECT_EQ(r.parts.owner(e.from), owners[r.was[e.from]]);
    back.push_back({r.was[e.from], r.was[e.to], e.length});
  }
  std::sort(back.begin(), back.end(), by_ends);
  EXPECT_EQ(back, edges_of(g));
  EXPECT_TRUE(r.graph.symmetric());
  EXPECT_THROW(gr::renumber(g, owners, 2), cw::error);
  EXPECT_THROW(gr::renumber(g, {0}, 2), cw::error);
}

TEST(GraphPartition, CutEdgesLeadToOtherRanks) {
  const auto path =
      gr::build({.vertices = 4, .edges = {{0, 1}, {1, 2}, {2, 3}}}, {.symmetrise = true});
  EXPECT_EQ(gr::cut_edges(path, {{0, 4}}), 0U);
  EXPECT_EQ(gr::cut_edges(path, {{0, 2, 4}}), 2U);
  EXPECT_EQ(gr::cut_edges(path, {{0, 1, 2, 4}}), 4U);
}

TEST(GraphPartition, MetisCutsFewEdges) {
  // 32 by 32: in stripes, eight ranks have seven borders of 32 edges.
  const auto g = gr::grid({.scale = 10});
  if (!gr::has_metis()) {
    try {
      (void)gr::metis(g, 2);
      ADD_FAILURE() << "METIS is not there";
    } catch (const cw::error& e) {
      EXPECT_THAT(e.what(), HasSubstr("install libmetis-dev"));
    }
    return;
  }
  const auto stripes = gr::cut_edges(g, gr::contiguous(g.vertices(), 8));
  const auto r = gr::metis(g, 8);
  EXPECT_LT(gr::cut_edges(r.graph, r.parts), stripes * 3 / 4);
  for (int k = 0; k < 8; ++k) {
    const auto i = static_cast<std::size_t>(k);
    EXPECT_NEAR(r.parts.first[i + 1] - r.parts.first[i], 128, 16) << k;
  }
  std::vector<gr::vertex> was = r.was;
  std::sort(was.begin(), was.end());
  for (gr::vertex v = 0; v < g.vertices(); ++v) EXPECT_EQ(was[v], v);
  EXPECT_EQ(gr::metis(g, 8).was, r.was) << "the same on all ranks";

  EXPECT_EQ(gr::metis(g, 1).parts.ranks(), 1);
  EXPECT_EQ(gr::metis(gr::csr(), 3).parts.ranks(), 3);
  const auto odd =
      gr::build({.vertices = 3, .edges = {{0, 0}, {0, 1}, {0, 1}, {1, 2}}}, {.symmetrise = true});
  EXPECT_EQ(gr::metis(odd, 2).graph.edges(), odd.edges()) << "loops and parallel edges stay";
  EXPECT_THROW((void)gr::metis(g, 0), cw::error);
  EXPECT_THROW((void)gr::metis(gr::build({.vertices = 2, .edges = {{0, 1}}}), 2), cw::error);
}

/// Two triangles, one of them with a tail against its edge, and a vertex alone.
gr::csr two_parts() {
  return text(plain, "0 1 4\n1 2 4\n0 2 9\n3 2 1\n4 5 1\n5 6 1\n6 4 1\n8 8 2\n");
}

TEST(GraphReference, LevelsAndDistances) {
  constexpr auto never = gr::unreached_level;
  constexpr auto far = gr::unreached;
  EXPECT_THAT(gr::bfs_levels(two_parts(), 0),
              ElementsAre(0U, 1U, 1U, never, never, never, never, never, never));
  EXPECT_THAT(gr::shortest_paths(two_parts(), 0),
              ElementsAre(0U, 4U, 8U, far, far, far, far, far, far));
  EXPECT_THROW(gr::bfs_levels(two_parts(), 9), cw::error);
  EXPECT_THROW(gr::bfs_levels(gr::csr(), 0), cw::error);
  EXPECT_THAT(complaint([] { gr::shortest_paths(text(plain, "0 1\n"), 0); }),
              HasSubstr("has no lengths"));
  // Longer than 32 bits.
  EXPECT_EQ(gr::shortest_paths(text(plain, "0 1 4294967295\n1 2 4294967295\n"), 0)[2],
            2 * 4294967295ULL);
}

TEST(GraphReference, ComponentsIgnoreDirections) {
  EXPECT_THAT(gr::components(two_parts()), ElementsAre(0U, 0U, 0U, 0U, 4U, 4U, 4U, 7U, 8U));
  EXPECT_THAT(gr::components(gr::csr()), ElementsAre());
}

TEST(GraphReference, PagerankOfACycleIsEvenAndOfAStarIsNot) {
  const auto even = gr::pagerank(text(plain, "0 1\n1 2\n2 3\n3 0\n"));
  for (const double r : even) EXPECT_NEAR(r, 0.25, 1e-6);
  // A centre and three leaves: c = .0375 + .85 * 3 l, l = .0375 + .85 c / 3.
  const auto star =
      gr::pagerank(text(plain, "0 1\n0 2\n0 3\n", {.symmetrise = true}), {.tolerance = 1e-10});
  EXPECT_NEAR(star[0], (0.0375 + 0.85 * 3 * 0.0375) / (1 - 0.85 * 0.85), 1e-8);
  EXPECT_NEAR(std::accumulate(star.begin(), star.end(), 0.0), 1, 1e-8);
}

TEST(GraphReference, ParentsAreCheckedForWhatTheyMustBe) {
  const auto g = text(plain, "0 1\n1 2\n2 3\n0 4\n4 2\n5 0\n", {.symmetrise = false});
  constexpr auto none = gr::no_vertex;
  const auto wrong = [&](const std::vector<gr::vertex>& parents) {
    return gr::check_parents(g, 0, parents);
  };
  EXPECT_EQ(wrong({0, 0, 1, 2, 0, none}), "");
  EXPECT_EQ(wrong({0, 0, 4, 2, 0, none}), "") << "another tree as short";
  EXPECT_THAT(wrong({none, 0, 1, 2, 0, none}), HasSubstr("not its own parent"));
  EXPECT_THAT(wrong({0, 0, 0, 2, 0, none}), HasSubstr("vertex 2: no edge from its parent 0"));
  EXPECT_THAT(wrong({0, 0, none, 2, 0, none}), HasSubstr("vertex 2 is reached"));
  EXPECT_THAT(wrong({0, 0, 1, 2, 0, 0}), HasSubstr("vertex 5 is not reached"));
  EXPECT_THAT(wrong({0, 0, 1, 2, 0}), HasSubstr("5 parents for 6 vertices"));
  // An edge, but not on a shortest way.
  const auto longer = text(plain, "0 1\n1 2\n2 1\n0 2\n");
  EXPECT_THAT(gr::check_parents(longer, 0, std::vector<gr::vertex>{0, 2, 0}),
              HasSubstr("vertex 1 of level 1 has a parent of level 1"));
}

}  // namespace
