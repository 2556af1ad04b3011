// What `crosswarp tune` makes of what it measured.
#include <gtest/gtest.h>

#include <functional>

#include "benchmarks/tune.hpp"
#include "crosswarp/error.hpp"

namespace {

using namespace crosswarp::bench;
using crosswarp::coll_algorithm;

/// Rows of one algorithm and one size of blocks, for 8 to `last` bytes.
void add(std::vector<row>& rows, coll_algorithm how, std::size_t block, std::size_t last,
         const std::function<double(std::size_t)>& us) {
  for (std::size_t bytes = 8; bytes <= last; bytes *= 2) {
    row r;
    r.what = series_of(how, block);
    r.bytes = bytes;
    r.median = us(bytes);
    rows.push_back(r);
  }
}

/// So much at once, and so much more for each KiB.
std::function<double(std::size_t)> line(double start, double per_kib) {
  return [=](std::size_t bytes) { return start + per_kib * static_cast<double>(bytes) / 1024; };
}

TEST(BestTuning, ChangesWhereLinesCross) {
  std::vector<row> rows;
  add(rows, coll_algorithm::push, 8192, 1U << 14U, line(1, 1));
  add(rows, coll_algorithm::pull, 8192, 1U << 20U, line(2, 0.4));       // less from 1.67 KiB on
  add(rows, coll_algorithm::two_shot, 32768, 1U << 20U, line(4, 0.1));  // less from 6.67 KiB on
  const auto best = best_tuning(rows);
  EXPECT_EQ(best.push, 1024U);
  EXPECT_EQ(best.pull, 4096U);
  EXPECT_EQ(best.block, 8192U);
  EXPECT_EQ(best.long_block, 32768U);
}

TEST(BestTuning, TakesTheBestBlocks) {
  std::vector<row> rows;
  add(rows, coll_algorithm::push, 8192, 1U << 12U, line(1, 1));
  add(rows, coll_algorithm::pull, 4096, 1U << 20U, line(3, 0.4));
  add(rows, coll_algorithm::pull, 16384, 1U << 20U, line(2, 0.4));
  add(rows, coll_algorithm::two_shot, 8192, 1U << 20U, line(4, 0.2));
  add(rows, coll_algorithm::two_shot, 65536, 1U << 20U, line(4, 0.1));
  const auto best = best_tuning(rows);
  EXPECT_EQ(best.block, 16384U);
  EXPECT_EQ(best.long_block, 65536U);
}

TEST(BestTuning, LeavesOutWhatIsNeverBest) {
  std::vector<row> rows;
  add(rows, coll_algorithm::push, 8192, 256, line(9, 1));
  add(rows, coll_algorithm::pull, 8192, 1U << 20U, line(9, 1));
  add(rows, coll_algorithm::two_shot, 32768, 1U << 20U, line(2, 0.1));
  EXPECT_EQ(best_tuning(rows).push, 0U);
  EXPECT_EQ(best_tuning(rows).pull, 0U);
}

TEST(BestTuning, PushesOnlyWhatThereIsRoomFor) {
  std::vector<row> rows;
  add(rows, coll_algorithm::push, 8192, 256, line(1, 0));
  add(rows, coll_algorithm::pull, 8192, 1U << 20U, line(9, 1));
  add(rows, coll_algorithm::two_shot, 32768, 1U << 20U, line(2, 0.1));
  EXPECT_EQ(best_tuning(rows).push, 256U);
}

TEST(BestTuning, DoesNotFollowOneOddSample) {
  std::vector<row> rows;
  add(rows, coll_algorithm::push, 8192, 1U << 14U, line(1, 1));
  add(rows, coll_algorithm::pull, 8192, 1U << 20U, line(2, 0.4));
  add(rows, coll_algorithm::two_shot, 32768, 1U << 20U, line(4, 0.1));
  rows[1].median = 2.2;  // of push, 16 bytes
  EXPECT_EQ(best_tuning(rows).push, 1024U);
}

TEST(BestTuning, NeedsAllAlgorithms) {
  std::vector<row> rows;
  add(rows, coll_algorithm::push, 8192, 256, line(1, 0));
  add(rows, coll_algorithm::pull, 8192, 256, line(1, 0));
  EXPECT_THROW((void)best_tuning(rows), crosswarp::error);
}

}  // namespace
