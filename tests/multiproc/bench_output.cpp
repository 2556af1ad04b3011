// What `crosswarp bench --quick` prints: that all is there and means what its columns say, not how
// long anything takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "jobs.hpp"

namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;

constexpr auto limit = seconds(120);

std::string printed(const std::string& name, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {CROSSWARP_COMMAND, "bench", name,     "--quick",
                                    "--device",        "cpu",   "--peer", "none"};
  if (name == "graph") words.insert(words.end(), {"--scale", "6"});
  words.insert(words.end(), more.begin(), more.end());
  process p(words);
  EXPECT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  return p.out();
}

/// What is measured, and in which unit.
struct measurement {
  std::string what;  ///< how its case begins
  std::string unit;
};
struct benchmark {
  std::string name;
  std::vector<measurement> has;
};
void PrintTo(const benchmark& b, std::ostream* out) {
  *out << b.name;
}

/// Each of them.
benchmark rdma_rows() {
  return {"rdma",
          {{"64-byte write and its completion (limit", "us"},
           {"64-byte write and its completion by a sole producer", "us"},
           {"64-byte write and its completion, of 1024 endpoints", "us"},
           {"64-byte writes, 4 blocks on one endpoint", "M/s"},
           {"64-byte writes, 4 blocks on an endpoint each", "M/s"},
           {"64-byte writes, 32 by a warp with each doorbell", "M/s"},
           {"1 MiB writes", "GB/s"},
           {"64-byte write, 1 endpoints in turn", "us"},
           {"64-byte write, 32 endpoints in turn", "us"},
           {"64-byte write, 1024 endpoints in turn", "us"}}};
}

class Bench : public testing::TestWithParam<benchmark> {};

/// A ratio that is there when what it is made of is.
void check_ratio(const json& row, const char* ratio, const char* of) {
  ASSERT_EQ(row.at(ratio).is_null(), row.at(of).is_null()) << row;
  if (row.at(of).is_null()) return;
  EXPECT_GT(row.at(of).get<double>(), 0) << row;
  EXPECT_DOUBLE_EQ(row.at(ratio).get<double>(),
                   row.at("median").get<double>() / row.at(of).get<double>())
      << row;
}

void check_row(const json& row, const std::string& bench) {
  EXPECT_EQ(row.at("bench"), bench);
  EXPECT_NE(row.at("case"), "");
  EXPECT_GE(row.at("ranks").get<int>(), 1) << row;
  EXPECT_EQ(row.at("device"), "cpu") << row;
  const std::string unit = row.at("unit");
  const double median = row.at("median");
  EXPECT_TRUE(std::isfinite(median)) << row;
  // Only a share of a core may be nothing: a time or a rate would not have been measured.
  EXPECT_TRUE(unit == "%" ? median >= 0 : median > 0) << row;
  EXPECT_LE(row.at("p10").get<double>(), median) << row;
  EXPECT_GE(row.at("p90").get<double>(), median) << row;
  EXPECT_TRUE(row.at("bytes").is_null() || row.at("bytes").get<std::size_t>() > 0) << row;
  // A case that has a limit names it.
  EXPECT_EQ(row.at("case").get<std::string>().find("(limit: ") != std::string::npos,
            !row.at("limit").is_null())
      << row;
  check_ratio(row, "ratio_to_limit", "limit");
  check_ratio(row, "ratio_to_peer", "peer_median");
  EXPECT_EQ(row.at("peer").is_null(), row.at("peer_median").is_null()) << row;
}

TEST_P(Bench, HasARowForAllThatItMeasures) {
  const auto& [name, has] = GetParam();
  const json report = json::parse(printed(name, {"--json"}));
  for (const char* about : {"date", "machine", "commit"}) EXPECT_TRUE(report.contains(about));
  std::set<std::string> keys;
  for (const json& row : report.at("rows")) {
    check_row(row, name);
    std::string key;
    for (const char* part : {"case", "ranks", "path", "bytes"}) key += row.at(part).dump() + ' ';
    EXPECT_TRUE(keys.insert(key).second) << "twice: " << key;
  }
  for (const measurement& m : has) {
    const auto fits = [&](const json& row) {
      return row.at("case").get<std::string>().starts_with(m.what) && row.at("unit") == m.unit;
    };
    EXPECT_THAT(report.at("rows"), Contains(testing::Truly(fits))) << m.what << ", " << m.unit;
  }
}
INSTANTIATE_TEST_SUITE_P(
    , Bench,
    testing::Values(
        benchmark{"exec", {{"empty launch and sync, 1 x 1", "us"}, {"barrier of a block", "us"}}},
        benchmark{"memory",
                  {{"signal, one way", "us"},
                   {"unordered signal", "us"},
                   {"barrier in a kernel", "us"},
                   {"put by a kernel", "GB/s"}}},
        benchmark{"proxy",
                  {{"command (atomic fetch) and answer", "us"},
                   {"8-byte puts", "M/s"},
                   {"8-byte put + quiet", "us"},
                   {"puts in a stream", "GB/s"}}},
        benchmark{"shmem",
                  {{"put of 8 bytes", "us"},
                   {"get of 8 bytes", "us"},
                   {"fetch_add", "us"},
                   {"put_signal, one way", "us"},
                   {"barrier", "us"},
                   {"put_nbi from many blocks", "GB/s"}}},
        benchmark{"coll",
                  {{"all_reduce of floats in a kernel", "us"},
                   {"all_reduce of floats on a stream", "us"}}},
        rdma_rows(),
        benchmark{"flow",
                  {{"send to receive, one way", "us"},
                   {"packets through two buffers", "GB/s"},
                   {"link of kernels, one way", "us"},
                   {"context between ranks: send to receive", "us"},
                   {"filter of", "M/s"}}},
        benchmark{"socket",
                  {{"1 byte there and back", "us"},
                   {"one stream there and back", "GB/s"},
                   {"connect, 1 byte there and back, close", "k/s"},
                   {"two ranks of a world, around TCP", "us"},
                   {"CPU of the host's thread", "%"}}},
        benchmark{"graph",
                  {{"bfs, kron 6", "ms"},
                   {"sssp, uniform 6", "ms"},
                   {"pr, grid 10", "ms"},
                   {"cc, grid 10", "ms"},
                   {"items of bfs", "M items/s"}}}),
    [](const auto& i) { return i.param.name; });

TEST(BenchTable, HasALineForEachRowAndSaysHowToReadIt) {
  std::istringstream in(printed("rdma"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_FALSE(lines.empty());
  const std::string& head = lines[0];
  std::istringstream words(head);
  EXPECT_THAT(std::vector<std::string>(std::istream_iterator<std::string>(words), {}),
              ElementsAre("case", "ranks", "device", "path", "bytes", "median", "p10", "p90",
                          "unit", "limit", "ratio", "peer"));
  EXPECT_THAT(lines,
              Contains(StartsWith("rdma: ")).Times(static_cast<int>(rdma_rows().has.size())));
  EXPECT_THAT(lines, Contains(StartsWith("limit: ")));
  EXPECT_THAT(lines, Contains(StartsWith("ratio: ")));
  const auto line = std::find_if(lines.begin(), lines.end(), [](const std::string& l) {
    return l.starts_with("rdma: 1 MiB writes (limit: memcpy)");
  });
  ASSERT_NE(line, lines.end());
  // Cells are below their column's name: those of numbers end where it ends.
  const auto ends_below = [&](const char* column) {
    const std::size_t end = head.find(column) + std::strlen(column);
    return line->size() >= end && (*line)[end - 1] != ' ' && (*line)[end] == ' ';
  };
  for (const char* column : {"ranks", "bytes", "median", "p10", "p90", "limit", "ratio"}) {
    EXPECT_TRUE(ends_below(column)) << column << '\n' << head << '\n' << *line;
  }
  EXPECT_EQ(line->substr(head.find("device"), 4), "cpu ");
  EXPECT_EQ(line->substr(head.find("path"), 9), "soft NIC ");
  EXPECT_EQ(line->substr(head.find("unit"), 5), "GB/s ");
}

}  // namespace
