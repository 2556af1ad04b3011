// Collectives under chosen interleavings: all of the small cases, many of the larger.
#include "crosswarp/coll.hpp"

#include <gtest/gtest.h>

#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::coll_algorithm;
using cw::status;

namespace {

struct outcome {
  status s;
  int wrong;
};

/// Calls of these algorithms in turn, in place, on an input that is overwritten at once after each.
struct calls {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with,
                        const dev::symmetric<std::int32_t>& data, const coll_algorithm* plan,
                        int rounds, std::size_t count, outcome* out) const {
    const auto g = k.block();
    const int n = with.size();
    for (int round = 0; round < rounds; ++round) {
      for (auto i = static_cast<std::size_t>(g.rank()); i < count;
           i += static_cast<std::size_t>(g.size())) {
        data.local()[i] = 100 * round + with.rank();
      }
      g.sync();
      const status s = plan[round] == coll_algorithm::automatic  // stands for symmetric memory
                           ? with.all_reduce(g, data, data, count)
                           : with.all_reduce(g, data.local(), data.local(), count,
                                             dev::coll_ops::sum{}, plan[round]);
      if (g.rank() == 0) {
        out->s = s;
        for (std::size_t i = 0; i < count; ++i) {
          if (data.local()[i] != n * 100 * round + n * (n - 1) / 2) ++out->wrong;
        }
      }
      g.sync();
      if (s != status::ok) return;
    }
  }
};

void explore(cw::schedule s, int ranks, int threads, const std::vector<coll_algorithm>& plan,
             std::uint32_t first_epoch = 0) {
  constexpr std::size_t count = 3;
  cw::explore(s, [&](cw::device_ref device) {
    cw::world_options o;
    o.device = device;
    o.heap_bytes = 2U << 20U;
    o.self_test = false;
    cw::run_local(ranks, o, [&](cw::world& w) {
      const cw::coll all(w, {.channels = 1, .shelf_bytes = 4096, .first_epoch = first_epoch});
      const cw::symmetric_buffer<std::int32_t> data(w, count);
      const cw::buffer<coll_algorithm> algorithms(device, plan);
      const cw::buffer<outcome> out(device, 1);
      cw::launch(w, {.threads = threads}, calls{}, all.device(), data.device(),
                 static_cast<const coll_algorithm*>(algorithms.data()),
                 static_cast<int>(plan.size()), count, out.data());
      const outcome got = out.read()[0];
      ASSERT_EQ(got.s, status::ok) << to_string(got.s) << ", " << s.describe();
      ASSERT_EQ(got.wrong, 0) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

cw::schedule few() {
  return cw::schedule::exhaustive(1, 600);
}
cw::schedule walks() {
  return cw::schedule::random(20261115, 100);
}

class CollModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
};

constexpr auto push = coll_algorithm::push;
constexpr auto pull = coll_algorithm::pull;
constexpr auto two_shot = coll_algorithm::two_shot;
constexpr auto ring = coll_algorithm::ring;
constexpr auto symmetric = coll_algorithm::automatic;

TEST_F(CollModel, EachAlgorithmByTwoRanks) {
  explore(few(), 2, 1, {push, push, push});
  explore(few(), 2, 1, {pull, pull, pull});
  explore(few(), 2, 1, {two_shot, two_shot});
  explore(few(), 2, 1, {symmetric, symmetric});
  explore(few(), 2, 1, {ring, ring});
}

TEST_F(CollModel, AlgorithmsInTurnByTwoRanks) {
  explore(few(), 2, 1, {pull, push, pull, push});
  explore(few(), 2, 1, {two_shot, push, push, pull});
  explore(few(), 2, 1, {symmetric, pull, symmetric});
  explore(few(), 2, 1, {pull, ring, pull});
}

TEST_F(CollModel, ThreeRanks) {
  explore(few(), 3, 1, {push, push});
  explore(few(), 3, 1, {pull, push, pull});
  explore(walks(), 3, 2, {push, pull, two_shot, push, ring, symmetric, pull, push, ring});
}

TEST_F(CollModel, WhereOldPacketsAreClearedAway) {
  explore(few(), 2, 1, {push, push, push, push}, 0x1ffffffdU);
  explore(walks(), 3, 2, {push, push, pull, push, push}, 0xfffffffdU);
}

// ---- packets of 2^31 steps ago

constexpr std::size_t shelf = 4096;
constexpr std::size_t packets = 2;

/// A channel in memory of the test's own, whose number of steps it may set.
struct old_channel {
  cw::symmetric_buffer<std::byte> work;
  dev::coll::parts view;

  explicit old_channel(cw::world& w)
      : work(w, dev::coll::bytes_of_channel(w.size(), shelf, packets)) {
    view.rank = w.rank();
    view.size = w.size();
    view.limits = w.device().limits;
    view.work = work.device();
    view.shelf_bytes = shelf;
    view.packets = packets;
    view.channel_bytes = dev::coll::bytes_of_channel(w.size(), shelf, packets);
  }
};

/// Pushes three times from step `begin` on, goes through the two steps from `cleaning` on without
/// any packet, and pushes again where steps have the tags of the first ones. Jumps are from odd
/// steps to even ones, as from one step to the next.
struct come_again {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, std::uint32_t* steps,
                        std::uint32_t begin, std::uint32_t cleaning, outcome* out) const {
    const auto me = k.thread();
    *steps = begin;
    push(me, with, 3, 100, out);
    *steps = cleaning - 1;
    for (int i = 0; i < 2 && out->s == status::ok; ++i) out->s = with.barrier(me);
    *steps = begin + 0x80000001U;
    push(me, with, 2, 700, out);
  }

 private:
  CW_FN static void push(const dev::thread_group& me, const dev::coll& with, int rounds,
                         std::int32_t base, outcome* out) {
    const int n = with.size();
    for (int i = 0; i < rounds && out->s == status::ok; ++i) {
      std::int32_t value = base + 10 * i + with.rank();
      out->s = with.all_reduce(me, &value, &value, 1, dev::coll_ops::sum{}, coll_algorithm::push);
      if (value != n * (base + 10 * i) + n * (n - 1) / 2) ++out->wrong;
    }
  }
};

void push_again(std::uint32_t begin, std::uint32_t cleaning) {
  cw::schedule s = cw::schedule::exhaustive(1, 1500);
  cw::explore(s, [&](cw::device_ref device) {
    cw::world_options o;
    o.device = device;
    o.heap_bytes = 1U << 20U;
    o.self_test = false;
    cw::run_local(2, o, [&](cw::world& w) {
      const old_channel channel(w);
      const cw::buffer<outcome> out(device, 1);
      auto* const steps =
          reinterpret_cast<std::uint32_t*>(channel.work.data() + dev::coll::epoch_offset(2));
      cw::launch(w, {}, come_again{}, dev::coll(channel.view), steps, begin, cleaning, out.data());
      const outcome got = out.read()[0];
      ASSERT_EQ(got.s, status::ok) << to_string(got.s) << ", " << s.describe();
      ASSERT_EQ(got.wrong, 0) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
  EXPECT_TRUE(s.complete()) << "not all interleavings were tried";
}

TEST_F(CollModel, PacketsAreNotTakenForThoseOf2To31StepsLater) {
  for (const std::uint32_t cleaning : {0x20000000U, 0x40000000U, 0x60000000U, 0x80000000U}) {
    push_again(0, cleaning);
    push_again(0x80000000U, cleaning + 0x80000000U);  // and around the end of the numbers
  }
}

}  // namespace
