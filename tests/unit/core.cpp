// The pieces that need no ranks and no kernel.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "core/log.hpp"
#include "core/variables.hpp"
#include "crosswarp/device/signal.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "crosswarp/stats.hpp"
#include "crosswarp/world.hpp"
#include "memory/allocator.hpp"

namespace cw = crosswarp;

namespace {

TEST(Options, SizesParse) {
  EXPECT_EQ(cw::options::parse_bytes("0", "x"), 0U);
  EXPECT_EQ(cw::options::parse_bytes("4096", "x"), 4096U);
  EXPECT_EQ(cw::options::parse_bytes("64K", "x"), 64U << 10U);
  EXPECT_EQ(cw::options::parse_bytes("3m", "x"), 3U << 20U);
  EXPECT_EQ(cw::options::parse_bytes("2GiB", "x"), 2ULL << 30U);
  EXPECT_EQ(cw::options::parse_bytes("1TB", "x"), 1ULL << 40U);
  for (const char* bad : {"", "K", "-1", "1.5G", "4X", "4KK", "4Kb", " 4", "4 ", "99999999T"}) {
    EXPECT_THROW(cw::options::parse_bytes(bad, "x"), cw::error) << "'" << bad << "'";
  }
}

TEST(Options, EverySettingIsOursAndExplained) {
  for (const auto& s : cw::options::all()) {
    EXPECT_TRUE(s.name.starts_with("CROSSWARP_")) << s.name;
    EXPECT_FALSE(s.meaning.empty()) << s.name;
  }
}

TEST(Options, MisspeltNamesAreRecognised) {
  EXPECT_EQ(cw::options::nearest_variable("CROSSWARP_TIMOUT"), "CROSSWARP_TIMEOUT");
  EXPECT_EQ(cw::options::nearest_variable("CROSSWARP_LOGS"), "CROSSWARP_LOG");
  EXPECT_EQ(cw::options::nearest_variable("CROSSWARP_SOMETHING_ELSE"), "");
  EXPECT_EQ(cw::options::nearest_variable("CROSSWARP_FOO"), "") << "as long as LOG is not like it";
  EXPECT_EQ(cw::options::nearest_variable("CROSSWARP_"), "") << "nothing is like everything";
}

TEST(Options, WhatIsNoIntegerIsToldWithWhatItShouldBe) {
  setenv("CROSSWARP_TEST_NUMBER", "5s", 1);
  try {
    (void)cw::options::read_integer("CROSSWARP_TEST_NUMBER", "a whole number of seconds");
    ADD_FAILURE();
  } catch (const cw::error& e) {
    EXPECT_STREQ(e.what(),
                 "CROSSWARP_TEST_NUMBER: invalid argument: '5s' is not a whole number of seconds");
  }
  unsetenv("CROSSWARP_TEST_NUMBER");
}

TEST(Options, ADeadlineIsInSeconds) {
  for (const char* bad : {"5s", "0", "-1", "1.5", "99999999999"}) {
    setenv("CROSSWARP_TIMEOUT", bad, 1);
    try {
      (void)cw::world_options::from_environment();
      ADD_FAILURE() << bad;
    } catch (const cw::error& e) {
      EXPECT_EQ(std::string(e.what()), "CROSSWARP_TIMEOUT: invalid argument: '" + std::string(bad) +
                                           "' is not a whole number of seconds, from 1 to "
                                           "31536000 (a year)");
    }
  }
  unsetenv("CROSSWARP_TIMEOUT");
}

// Long names pushed the columns aside, and what nobody measured was 0.
TEST(Stats, ColumnsStayAndWhatWasNotMeasuredIsADash) {
  cw::operation_stats timed{
      .name = "put", .count = 2, .to_completion = std::chrono::microseconds(3)};
  cw::operation_stats mapped{.name = "atomic compare_swap, mapped", .count = 1, .mapped = true};
  const std::string table =
      cw::print_stats({timed, mapped, {.name = "of which there was none at all"}});
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < table.size(); from = table.find('\n', from) + 1) {
    lines.push_back(table.substr(from, table.find('\n', from) - from));
  }
  ASSERT_EQ(lines.size(), 3U) << table;
  for (const std::string& l : lines) EXPECT_EQ(l.size(), lines[0].size()) << table;
  EXPECT_TRUE(lines[1].starts_with("put  ") && lines[1].ends_with(" 0.000                1.500"))
      << table;
  EXPECT_TRUE(lines[2].ends_with(" -                    -")) << table;
}

TEST(LogLevel, IsOneOfSix) {
  EXPECT_EQ(cw::log::parse("off"), cw::log::level::off);
  EXPECT_EQ(cw::log::parse("error"), cw::log::level::error);
  EXPECT_EQ(cw::log::parse("trace"), cw::log::level::trace);
  for (const char* bad : {"", "WARN", "warning", "warn ", "7"}) {
    try {
      (void)cw::log::parse(bad);
      ADD_FAILURE() << bad;
    } catch (const cw::error& e) {
      EXPECT_NE(std::string(e.what()).find("off, error, warn, info, debug, trace"),
                std::string::npos);
    }
  }
}

TEST(Epoch, ReachedAcrossTheWrap) {
  constexpr auto top = std::numeric_limits<std::uint32_t>::max();
  EXPECT_TRUE(cw::device::reached(5U, 5U));
  EXPECT_TRUE(cw::device::reached(6U, 5U));
  EXPECT_FALSE(cw::device::reached(4U, 5U));
  EXPECT_TRUE(cw::device::reached(2U, top));
  EXPECT_FALSE(cw::device::reached(top, 2U));
}

TEST(Fault, CarriesStatusAndRank) {
  const cw::fault_word w = cw::make_fault(cw::status::peer_lost, 4095);
  EXPECT_EQ(cw::fault_status(w), cw::status::peer_lost);
  EXPECT_EQ(cw::fault_rank(w), 4095);
  EXPECT_EQ(cw::fault_rank(cw::make_fault(cw::status::aborted, -1)), -1);
  EXPECT_NE(cw::make_fault(cw::status::aborted, -1), 0U);
}

TEST(Error, SaysWhatWhoAndWhy) {
  const cw::error e(cw::errc::timeout, "barrier", "did not come", 3);
  EXPECT_STREQ(e.what(), "barrier: timeout (rank 3): did not come");
  EXPECT_EQ(e.peer(), 3);
}

/// Random steps against a model: blocks never overlap, never leave the heap, and all of it comes
/// back when all are released.
TEST(Allocator, BlocksAreApartAlignedAndComeBack) {
  constexpr std::size_t first = 1000;
  constexpr std::size_t last = 1U << 20U;
  cw::memory::allocator a(first, last);
  std::mt19937 random(7);
  std::map<std::size_t, std::size_t> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 200 && random() % 3 != 0) {
      const std::size_t bytes = random() % 9000;
      const std::size_t alignment = std::size_t{1} << random() % 13;
      std::size_t at = 0;
      try {
        at = a.allocate(bytes, alignment, 4096);
      } catch (const cw::error& e) {
        ASSERT_EQ(e.code(), cw::errc::out_of_memory);
        continue;
      }
      ASSERT_EQ(at % alignment, 0U);
      ASSERT_GE(at, first);
      ASSERT_LE(at + bytes, last);
      const auto next = live.lower_bound(at);
      if (next != live.end()) {
        ASSERT_LE(at + bytes, next->first);
      }
      if (next != live.begin()) {
        const auto before = std::prev(next);
        ASSERT_LE(before->first + before->second, at);
      }
      live[at] = bytes;
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      a.release(victim->first);
      live.erase(victim);
    }
  }
  for (const auto& [at, bytes] : live) a.release(at);
  EXPECT_EQ(a.used(), 0U);
  EXPECT_NO_THROW((void)a.allocate(last - 1024, 128, 4096))
      << "free pieces have grown together again";
}

TEST(Allocator, EqualStepsGiveEqualHistories) {
  cw::memory::allocator a(0, 1U << 20U);
  cw::memory::allocator b(0, 1U << 20U);
  EXPECT_EQ(a.allocate(100, 256, 4096), b.allocate(100, 256, 4096));
  EXPECT_EQ(a.history(), b.history());
  a.release(0);
  EXPECT_NE(a.history(), b.history());
}

TEST(Allocator, HugeAndOddRequestsAreRefused) {
  cw::memory::allocator a(0, 1U << 20U);
  EXPECT_THROW((void)a.allocate(std::numeric_limits<std::size_t>::max(), 128, 4096), cw::error);
  EXPECT_THROW((void)a.allocate(16, 3, 4096), cw::error);
  EXPECT_THROW((void)a.allocate(16, 0, 4096), cw::error);
  EXPECT_THROW((void)a.allocate(1, std::size_t{1} << 62U, 4096), cw::error);
}

}  // namespace
