// Which algorithm is taken, by whose rules, and that it does not show in results.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <span>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"
#include "support/coll_worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::coll_algorithm;
using cw::status;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A file that CROSSWARP_TUNING names as long as this lives.
class tuning_file {
 public:
  explicit tuning_file(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / ("cw-choice-" + std::to_string(getpid())))
                  .string()) {
    std::ofstream(path_) << text;
    setenv("CROSSWARP_TUNING", path_.c_str(), 1);
  }
  ~tuning_file() {
    unsetenv("CROSSWARP_TUNING");
    std::filesystem::remove(path_);
  }
  tuning_file(const tuning_file&) = delete;
  tuning_file& operator=(const tuning_file&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string table_for(int ranks) {
  std::string description;
  for (const auto& d : cw::devices()) {
    if (d.device == test_device()) description = d.description;
  }
  return "crosswarp tuning 1\ndevice " + description + "\nranks " + std::to_string(ranks) +
         "  push 16  pull 1000  block 1024  long_block 2048\n";
}

int ranks_of_this_test(int wanted) {
  int ranks = wanted;
  on_ranks(wanted, [&](cw::world& w) {
    if (w.rank() == 0 || cw::launched()) ranks = w.size();
  });
  return ranks;
}

TEST(Rules, OfTheCallerAreTaken) {
  with_ranks(2, [](cw::world& w) {
    const cw::coll all(w, {.tuning = cw::coll_tuning{.push = 32, .pull = 5000}});
    cw::buffer<float> own(w.options().device, 20000);
    const auto at = [&](std::size_t bytes) { return all.explain(own.data(), own.data(), bytes); };
    EXPECT_EQ(at(32).algorithm, coll_algorithm::push);
    EXPECT_EQ(at(36).algorithm, coll_algorithm::pull);
    EXPECT_EQ(at(5000).algorithm, coll_algorithm::pull);
    EXPECT_EQ(at(5004).algorithm, coll_algorithm::two_shot);
    EXPECT_TRUE(has(at(32).why, "up to 32 bytes (by coll_options)")) << at(32).why;
    EXPECT_TRUE(has(at(5004).why, "above 5000 bytes (by coll_options)")) << at(5004).why;
    w.barrier();
  });
}

TEST(Rules, OfNobodyAreTheDefaults) {
  setenv("CROSSWARP_TUNING", "none", 1);
  with_ranks(2, [](cw::world& w) {
    const cw::coll all(w);
    const auto why = all.explain(nullptr, nullptr, 8).why;
    EXPECT_TRUE(has(why, "(by the defaults)")) << why;
    w.barrier();
  });
  unsetenv("CROSSWARP_TUNING");
}

TEST(Rules, OfAFileAreTakenAndNamed) {
  const tuning_file file(table_for(ranks_of_this_test(2)));
  with_ranks(2, [&](cw::world& w) {
    // Rank 0's: others may have none, or what is none.
    if (cw::launched() && w.rank() != 0) setenv("CROSSWARP_TUNING", "/no/such/file", 1);
    const cw::coll all(w);
    cw::buffer<float> own(w.options().device, 20000);
    const auto at = [&](std::size_t bytes) { return all.explain(own.data(), own.data(), bytes); };
    EXPECT_EQ(at(16).algorithm, coll_algorithm::push);
    EXPECT_EQ(at(20).algorithm, coll_algorithm::pull);
    EXPECT_EQ(at(1004).algorithm, coll_algorithm::two_shot);
    const std::string name = "bytes (by " + file.path().substr(0, file.path().rfind('-') + 1);
    for (const std::size_t bytes : {16U, 20U, 1004U}) {
      EXPECT_TRUE(has(at(bytes).why, name)) << at(bytes).why;
    }
    w.barrier();
  });
}

TEST(Rules, OfAFileForOthersAreTheDefaults) {
  const tuning_file file(
      "crosswarp tuning 1\ndevice Abacus\nranks 2 push 1 pull 1 block 256 "
      "long_block 256\n");
  with_ranks(2, [&](cw::world& w) {
    const cw::coll all(w);
    const auto why = all.explain(nullptr, nullptr, 8).why;
    EXPECT_TRUE(has(why, "(by the defaults, as ")) << why;
    EXPECT_TRUE(has(why, " has no " + std::to_string(w.size()) + " ranks of ")) << why;
    w.barrier();
  });
}

TEST(Rules, ThatAreNoneAreAnErrorOfAllRanks) {
  const tuning_file file("crosswarp tuning 1\ndevice Abacus\nranks 2 push x\n");
  with_ranks(3, [&](cw::world& w) {
    try {
      const cw::coll all(w);
      ADD_FAILURE() << "rank " << w.rank() << " was not told";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::invalid_argument);
      EXPECT_TRUE(has(e.what(), ":3: ") && has(e.what(), "'x' is not a size")) << e.what();
    }
    w.barrier();
    try {
      const cw::coll all(w, {.tuning = cw::coll_tuning{.block = 1}});
      ADD_FAILURE() << "rank " << w.rank() << " was not told";
    } catch (const cw::error& e) {
      EXPECT_TRUE(has(e.what(), "coll_options::tuning") && has(e.what(), "block is 1")) << e.what();
    }
    w.barrier();
  });
}

TEST(Rules, AreTheSameForAllRanks) {
  with_ranks(3, [](cw::world& w) {
    if (w.size() == 1) return;
    const bool last = w.rank() == w.size() - 1;
    const auto refused = [&](const cw::coll_options& o, const char* why) {
      try {
        const cw::coll all(w, o);
        ADD_FAILURE() << "rank " << w.rank() << " was not told of " << why;
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::asymmetric);
        EXPECT_EQ(e.peer(), w.size() - 1);
        EXPECT_TRUE(has(e.what(), why)) << e.what();
      }
      w.barrier();
    };
    refused({.algorithm = last ? coll_algorithm::pull : coll_algorithm::automatic},
            "algorithm pull, rank 0 for automatic");
    refused({.channels = last ? 3 : 2}, "3 channels, rank 0 for 2");
    refused({.shelf_bytes = last ? 8192U : 4096U}, "shelves of 8192 bytes");
    // Rank 0's thresholds are everybody's.
    const cw::coll all(w, {.tuning = cw::coll_tuning{.pull = last ? 1U : 5000U}});
    EXPECT_EQ(all.explain(nullptr, nullptr, 4000).algorithm, coll_algorithm::pull);
    w.barrier();
  });
}

/// A row of a batch has the same bits alone and among any number of others, whichever algorithm
/// the batch's size leads to. Rows are sums of numbers of very different size: another order would
/// show.
template <class T>
void batches() {
  with_ranks(5, [](cw::world& w) {
    constexpr std::size_t hidden = 64;
    constexpr std::size_t most = 4000;
    std::mt19937 random(static_cast<unsigned>(w.rank()) + 1);
    std::vector<T> mine(hidden * most);
    for (T& x : mine) {
      const float sign = random() % 2 == 0 ? 1.0F : -1.0F;
      x = dev::narrow<T>(sign * std::ldexp(1.0F + static_cast<float>(random() % 1000) / 1000.0F,
                                           static_cast<int>(random() % 12)));
    }
    cw::symmetric_buffer<T> in(w, mine.size());
    cw::symmetric_buffer<T> out(w, mine.size());
    cw::coll all(w);
    cw::exec::copy_now(w.options().device, in.data(), mine.data(), mine.size() * sizeof(T));
    std::set<coll_algorithm> taken;
    // The last row of each batch, and the same row alone.
    const auto row_of = [&](std::size_t first, std::size_t rows, std::size_t which) {
      taken.insert(all.explain(out.data(), in.data(), rows * hidden * sizeof(T)).algorithm);
      w.barrier();
      all.all_reduce(out.data() + first * hidden, static_cast<const T*>(in.data()) + first * hidden,
                     rows * hidden);
      all.check();
      w.barrier();
      std::vector<T> row(hidden);
      cw::exec::copy_now(w.options().device, row.data(), out.data() + which * hidden,
                         hidden * sizeof(T));
      return row;
    };
    for (const std::size_t rows :
         {std::size_t{1}, std::size_t{2}, std::size_t{17}, std::size_t{300}, most}) {
      const std::size_t which = rows - 1;
      const auto together = row_of(0, rows, which);
      const auto alone = row_of(which, 1, which);
      EXPECT_TRUE(
          std::ranges::equal(std::as_bytes(std::span(together)), std::as_bytes(std::span(alone))))
          << rows << " rows";
    }
    EXPECT_GE(taken.size(), 2U) << "nothing was compared";
    w.barrier();
  });
}

TEST(Batches, DoNotShowInARowOfBfloat16) {
  batches<dev::bfloat16>();
}
TEST(Batches, DoNotShowInARowOfFloats) {
  batches<float>();
}

// ---- many ranks

enum class many { push, pull, two_shot, reduce_scatter, all_to_all };

struct by_many {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, many what,
                        std::int32_t* out, const std::int32_t* in, std::size_t count,
                        status* outcome) const {
    const auto g = k.block();
    if (what == many::reduce_scatter) {
      *outcome = with.reduce_scatter(g, out, in, count);
    } else if (what == many::all_to_all) {
      *outcome = with.all_to_all(g, out, in, count);
    } else {
      const auto how = what == many::push   ? coll_algorithm::push
                       : what == many::pull ? coll_algorithm::pull
                                            : coll_algorithm::two_shot;
      *outcome = with.all_reduce(g, out, in, count, dev::coll_ops::sum{}, how);
    }
  }
};

CW_FN std::int32_t element(int rank, std::size_t i) {
  return rank * 100003 + static_cast<int>(i) * 7 + 1;
}

/// What `rank` is to have of `count` elements, or as many for each rank.
std::vector<std::int32_t> wanted(many what, int rank, int ranks, std::size_t count) {
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t first = what == many::reduce_scatter ? me * count : 0;
  std::vector<std::int32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < ranks; ++r) out[i] += element(r, first + i);
  }
  if (what != many::all_to_all) return out;
  out.clear();
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) out.push_back(element(r, me * count + i));
  }
  return out;
}

/// Threads as ranks, one block of one thread each. `pieces`: how often a rank's part of a shelf is
/// filled.
void among_many(int ranks, std::size_t pieces) {
  auto o = roomy();
  o.self_test = false;
  cw::run_local(ranks, o, [&](cw::world& w) {
    const std::size_t shelf = std::max<std::size_t>(4096, 64 * static_cast<std::size_t>(ranks));
    const cw::coll all(w, {.channels = 1, .shelf_bytes = shelf});
    const std::size_t part = shelf / static_cast<std::size_t>(ranks) / 16 * 16 / 4;
    const std::size_t most = std::max(pieces * part * static_cast<std::size_t>(ranks), shelf);
    std::vector<std::int32_t> mine(most);
    for (std::size_t i = 0; i < most; ++i) mine[i] = element(w.rank(), i);
    cw::buffer<std::int32_t> in(o.device, most);
    const cw::buffer<std::int32_t> out(o.device, most);
    const cw::buffer<status> outcome(o.device, 1);
    in.write(mine);
    const std::pair<many, std::size_t> calls[] = {
        {many::push, 1},
        {many::push, 64},
        {many::pull, 300},
        {many::two_shot, 300},
        {many::two_shot, pieces * shelf / 4 - 3},
        {many::reduce_scatter, pieces * part - 1},
        {many::all_to_all, pieces * part - 1},
    };
    for (const auto& [what, count] : calls) {
      w.barrier();
      cw::launch(w.stream(), {}, by_many{}, all.device(), what, out.data(),
                 static_cast<const std::int32_t*>(in.data()), count, outcome.data());
      w.stream().sync();
      w.barrier();
      EXPECT_EQ(outcome.read().front(), status::ok);
      auto got = out.read();
      const auto want = wanted(what, w.rank(), ranks, count);
      got.resize(want.size());
      EXPECT_EQ(got, want) << "call " << static_cast<int>(what) << ", rank " << w.rank();
    }
  });
}

/// More than packets' batches of eight, more than two of them, and parts of a shelf that are as
/// short as can be.
TEST(ManyRanks, GetWhatFewGet) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  if (test_device().kind() != cw::device_kind::cpu) GTEST_SKIP() << "for CPUs";
  among_many(9, 3);
  among_many(17, 2);
  among_many(64, 1);
}

}  // namespace
