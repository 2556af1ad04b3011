// What the fuzzer of readers does, on changed files from a seed: in every build, without clang.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "crosswarp/graph.hpp"
#include "fuzz/graphs.hpp"

namespace {

/// A good file of each format, behind the byte that names it.
std::vector<std::string> good_files() {
  const auto path = std::filesystem::temp_directory_path() /
                    ("seeded_graphs." + std::to_string(getpid()) + ".csr");
  crosswarp::graph::write_binary(crosswarp::graph::grid({.scale = 4}), path);
  std::ifstream in(path, std::ios::binary);
  const std::string binary{std::istreambuf_iterator<char>(in), {}};
  std::filesystem::remove(path);
  return {'\0' + std::string("%%MatrixMarket matrix coordinate integer symmetric\n% c\n4 4 3\n"
                             "1 2 3\n2 3 4\n4 1 9\n"),
          "\1# c\n0 1 5\n1 2 6\n7 3 1\n", "\2% c\n4 3 1\n2 3\n1 3 3 4\n2 4 4 1\n3 1\n",
          "\3c roads\np sp 4 3\na 1 2 3\na 2 3 4\na 4 1 9\n", '\4' + binary};
}

std::string changed(std::string file, std::mt19937& random) {
  constexpr std::string_view tempting = "0123456789 \n%#-.xa\0\xff";
  for (unsigned changes = random() % 4; changes > 0 && file.size() > 1; --changes) {
    const std::size_t at = 1 + random() % (file.size() - 1);
    switch (random() % 4) {
      case 0:
        file[at] = static_cast<char>(random());
        break;
      case 1:
        file[at] = tempting[random() % tempting.size()];
        break;
      case 2:
        file.resize(at);
        break;
      default:
        file.insert(at, file.substr(1 + random() % (file.size() - 1), random() % 20));
    }
  }
  return file;
}

TEST(GraphFuzz, ChangedFilesAreGraphsOrRefused) {
  const auto files = good_files();
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    const std::string input = changed(files[seed % files.size()], random);
    ASSERT_EQ(fuzz::read_graph(std::as_bytes(std::span(input))), "") << "seed " << seed;
  }
}

}  // namespace
