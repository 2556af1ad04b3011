// Collectives under chosen interleavings: the first of the small cases, random ones of the larger.
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

// ---- rings and messages, of several pieces

/// A channel in memory of the test's own, of ranks that take each other for others' machines, and
/// with messages before this one's number.
struct far_channel {
  static constexpr std::size_t mail_bytes = 64;
  cw::symmetric_buffer<std::byte> work;
  cw::symmetric_buffer<std::byte> mail;
  cw::buffer<int> runs;
  cw::buffer<dev::coll::rare_parts> rare;
  dev::coll::parts view;

  far_channel(cw::world& w, const std::vector<int>& firsts, std::uint32_t messages = 0)
      : work(w, dev::coll::bytes_of_channel(w.size(), shelf, 0)),
        mail(w, dev::coll::mail_of_channel(w.size(), mail_bytes)),
        runs(w.options().device, std::span(firsts)),
        rare(w.options().device, 1) {
    dev::coll::rare_parts more;
    more.runs = runs.data();
    more.run_count = static_cast<int>(firsts.size()) - 1;
    while (firsts[static_cast<std::size_t>(more.run) + 1] <= w.rank()) ++more.run;
    more.mail_bytes = mail_bytes;
    more.mail = mail.device();
    rare.write(std::span(&more, 1));
    view.rank = w.rank();
    view.size = w.size();
    view.limits = w.device().limits;
    view.work = work.device();
    view.shelf_bytes = shelf;
    view.channel_bytes = dev::coll::bytes_of_channel(w.size(), shelf, 0);
    view.rare = rare.data();
    const std::size_t box = mail.size() / static_cast<std::size_t>(w.size());
    for (std::size_t pe = 0; pe < static_cast<std::size_t>(w.size()) && messages != 0; ++pe) {
      dev::impl::coll_box before = {};
      before.came[messages % 2] = messages;
      before.came[(messages - 1) % 2] = messages - 1;
      before.taken = before.sent = before.received = messages;
      mail.write(std::as_bytes(std::span(&before, 1)), pe * box);
    }
    w.barrier();
  }
};

/// `body(world, device)` under each schedule, on ranks that are threads.
template <class Body>
void explore_ranks(cw::schedule s, int ranks, const Body& body) {
  cw::explore(s, [&](cw::device_ref device) {
    cw::world_options o;
    o.device = device;
    o.heap_bytes = 256U << 10U;
    o.self_test = false;
    cw::run_local(ranks, o, [&](cw::world& w) {
      const outcome got = body(w, device);
      ASSERT_EQ(got.s, status::ok) << to_string(got.s) << ", " << s.describe();
      ASSERT_EQ(got.wrong, 0) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

/// More pieces than are under way at a time.
void explore_runs(const std::vector<int>& firsts, const std::vector<coll_algorithm>& plan) {
  constexpr std::size_t count = 64 * 19 + 5;
  explore_ranks(cw::schedule::random(20261116, 12), firsts.back(),
                [&](cw::world& w, cw::device_ref device) {
                  const far_channel channel(w, firsts);
                  const cw::symmetric_buffer<std::int32_t> data(w, count);
                  const cw::buffer<coll_algorithm> algorithms(device, plan);
                  const cw::buffer<outcome> out(device, 1);
                  cw::launch(w, {.threads = 2}, calls{}, dev::coll(channel.view), data.device(),
                             static_cast<const coll_algorithm*>(algorithms.data()),
                             static_cast<int>(plan.size()), count, out.data());
                  return out.read()[0];
                });
}

TEST_F(CollModel, RingsOfSeveralRuns) {
  explore_runs({0, 2}, {ring, pull, ring});
  explore_runs({0, 1, 2}, {ring, ring, pull, ring});
  explore_runs({0, 2, 3}, {pull, ring, ring, pull});
  explore_runs({0, 1, 2, 3}, {ring, two_shot, ring});
  explore_runs({0, 3, 5}, {ring, ring});
}

/// Rank 0 sends, the others receive first; the source is overwritten at once.
struct pass_on {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, std::int32_t* in,
                        std::int32_t* got, std::size_t count, int rounds, outcome* out) const {
    const auto g = k.block();
    const int n = with.size();
    const int right = (with.rank() + 1) % n;
    const int left = (with.rank() + n - 1) % n;
    for (int round = 0; round < rounds; ++round) {
      for (auto i = static_cast<std::size_t>(g.rank()); i < count;
           i += static_cast<std::size_t>(g.size())) {
        in[i] = value(with.rank(), round, i);
      }
      g.sync();
      status s = status::ok;
      if (with.rank() == 0) s = with.send(g, in, count, right);
      if (s == status::ok) s = with.receive(g, got, count, left);
      if (s == status::ok && with.rank() != 0) s = with.send(g, in, count, right);
      if (g.rank() == 0) {
        out->s = s;
        for (std::size_t i = 0; i < count; ++i) out->wrong += got[i] != value(left, round, i);
      }
      g.sync();
      if (s != status::ok) return;
    }
  }

 private:
  CW_FN static std::int32_t value(int rank, int round, std::size_t i) {
    return 1000 * (10 * round + rank) + static_cast<std::int32_t>(i);
  }
};

void explore_messages(cw::schedule s, int ranks, int threads, std::size_t count,
                      std::uint32_t before) {
  explore_ranks(s, ranks, [&](cw::world& w, cw::device_ref device) {
    const far_channel channel(w, {0, w.size()}, before);
    const cw::buffer<std::int32_t> in(device, count + 1);
    const cw::buffer<std::int32_t> got(device, count + 1);
    const cw::buffer<outcome> out(device, 1);
    cw::launch(w, {.threads = threads}, pass_on{}, dev::coll(channel.view), in.data(), got.data(),
               count, 3, out.data());
    return out.read()[0];
  });
}

TEST_F(CollModel, MessagesOfOneAndOfManyPieces) {
  explore_messages(few(), 2, 1, 1, 0);
  explore_messages(few(), 2, 1, 50, 0);  // four pieces
  explore_messages(walks(), 3, 2, 150, 0);
  explore_messages(few(), 2, 1, 0, 0);
}

TEST_F(CollModel, MessagesWhosePiecesNumbersWrapAround) {
  for (const std::uint32_t before :
       {0xfffffffaU, 0xfffffffdU, 0xfffffffeU, 0xffffffffU, 0x7ffffffeU, 0x80000000U}) {
    explore_messages(few(), 2, 1, 50, before);
  }
  explore_messages(walks(), 3, 2, 150, 0xfffffff9U);
}

}  // namespace
