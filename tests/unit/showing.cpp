// How measurements are shown: tables and pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "benchmarks/bench.hpp"

namespace {

using crosswarp::bench::row;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

row measured(const std::string& what, const std::string& path, double median,
             const std::string& unit) {
  row r;
  r.bench = "proxy";
  r.what = what;
  r.ranks = 2;
  r.device = "cpu";
  r.path = path;
  r.median = median;
  r.unit = unit;
  return r;
}

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(crosswarp::bench::align({{"a", "b", "c"}, {"long text", "100", "d"}}, "<><"),
            "a            b  c\n"
            "long text  100  d\n");
}

TEST(Plot, UnitsHaveAxesOfTheirOwn) {
  const std::string svg = crosswarp::bench::plot(
      {measured("put", "memfd", 2, "us"), measured("start", "memfd", 3, "ms"),
       measured("puts", "memfd", 4, "M/s"), measured("idle", "memfd", 0, "%")});
  EXPECT_THAT(svg, AllOf(HasSubstr("time, us (logarithmic)"), HasSubstr("rate, M/s (logarithmic)"),
                         HasSubstr("share, %")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(crosswarp::bench::plot({measured("put", "memfd", 2, "us")}).find("rate"),
            std::string::npos);
}

TEST(Plot, LabelsTellPathsApart) {
  const std::string svg = crosswarp::bench::plot(
      {measured("put", "proxy (ucx)", 2, "us"), measured("put", "proxy (mpi)", 3, "us")});
  EXPECT_THAT(
      svg, AllOf(HasSubstr("put [2 x cpu, proxy (ucx)]"), HasSubstr("put [2 x cpu, proxy (mpi)]")));
}

TEST(Plot, SaysWhenAndWhereItWasMeasured) {
  const std::string line = crosswarp::bench::provenance();
  EXPECT_THAT(line,
              MatchesRegex("20[0-9-]+ [0-9:]+ UTC, commit abc1234, Linux .*; cpu: .* cores.*"));
  EXPECT_THAT(crosswarp::bench::plot({measured("put", "memfd", 2, "us")}, "a note"),
              HasSubstr("a note"));
}

}  // namespace
