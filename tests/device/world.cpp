// Worlds: ranks meet, share memory, and fail together.
#include "crosswarp/world.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "crosswarp/world_launch.hpp"
#include "support/worlds.hpp"

namespace cw = crosswarp;
using context = cw::device::kernel_context;

namespace {

TEST(World, RanksGatherAndExchangeKeys) {
  on_ranks(4, [](cw::world& w) {
    const auto all = w.allgather(w.rank() * 10);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(w.size()));
    for (int r = 0; r < w.size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], r * 10);
    const int value = 1000 + w.rank();
    w.put("key" + std::to_string(w.rank()), std::as_bytes(std::span(&value, 1)));
    const auto got = w.get("key" + std::to_string((w.rank() + 1) % w.size()));
    int next = 0;
    ASSERT_EQ(got.size(), sizeof(next));
    std::memcpy(&next, got.data(), sizeof(next));
    EXPECT_EQ(next, 1000 + (w.rank() + 1) % w.size());
    for (int i = 0; i < 20; ++i) w.barrier();
  });
}

struct write_everywhere {
  CW_FN void operator()(const context& ctx, cw::device::world w, cw::device::symmetric<int> box,
                        cw::status* out) const {
    const auto g = ctx.block();
    cw::status s = cw::status::ok;
    for (int round = 1; round <= 10 && s == cw::status::ok; ++round) {
      for (int pe = g.rank(); pe < w.size; pe += g.size())
        box.at(pe)[w.rank] = round * 100 + w.rank;
      s = w.barrier_all(g);
      for (int pe = 0; pe < w.size && s == cw::status::ok; ++pe) {
        if (box.local()[pe] != round * 100 + pe) s = cw::status::invalid;
      }
      if (s == cw::status::ok) s = w.barrier_all(g);
    }
    s = cw::device::agree(g, s);
    if (g.rank() == 0) *out = s;
  }
};

class WorldBarrier : public testing::TestWithParam<int> {};

TEST_P(WorldBarrier, OrdersWritesToAllRanks) {
  on_ranks(4, [](cw::world& w) {
    cw::symmetric_buffer<int> box(w, static_cast<std::size_t>(w.size()));
    cw::buffer<cw::status> out(w.options().device, 1);
    cw::launch(w, {.threads = GetParam()}, write_everywhere{}, w.device(), box.device(),
               out.data());
    w.stream().sync();
    EXPECT_EQ(out.read()[0], cw::status::ok);
  });
}
INSTANTIATE_TEST_SUITE_P(Threads, WorldBarrier, testing::Values(1, 3, 32, 100));

TEST(World, SymmetricMemoryIsZeroAndReused) {
  on_ranks(3, [](cw::world& w) {
    for (int again = 0; again < 50; ++again) {
      cw::symmetric_buffer<std::uint64_t> a(w, 1000);
      cw::symmetric_buffer<char> b(w, 3, 4096);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 4096, 0U);
      for (const auto v : a.read()) ASSERT_EQ(v, 0U);
      a.write(std::vector<std::uint64_t>(1000, 7));
      for (const auto v : a.read()) ASSERT_EQ(v, 7U);
    }
  });
}

TEST(World, ExhaustionSaysWhatIsLeft) {
  on_ranks(2, [](cw::world& w) {
    try {
      cw::symmetric_buffer<char> huge(w, 1U << 30U);
      ADD_FAILURE() << "allocated";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::out_of_memory);
      EXPECT_NE(std::string(e.what()).find("CROSSWARP_HEAP"), std::string::npos) << e.what();
    }
  });
}

TEST(World, DifferentAllocationsAreNamed) {
  on_ranks(3, [](cw::world& w) {
    const std::size_t count = w.rank() == w.size() - 1 ? 20 : 10;
    try {
      cw::symmetric_buffer<char> odd(w, count);
      ADD_FAILURE() << "accepted";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::asymmetric);
      EXPECT_EQ(e.peer(), w.rank() == w.size() - 1 ? 0 : w.size() - 1) << e.what();
    }
  });
}

struct read_right {
  CW_FN void operator()(const context&, cw::device::world w, cw::device::symmetric<int> mem,
                        int* out) const {
    const int right = (w.rank + 1) % w.size;
    *out = w.barrier_all(cw::device::thread_group{}) == cw::status::ok ? mem.at(right)[1] : -1;
  }
};

TEST(World, BuffersCanBeRegisteredAfterTheFact) {
  on_ranks(3, [](cw::world& w) {
    const cw::device_ref d = w.options().device;
    const std::vector<int> values = {w.rank(), 70 + w.rank(), 0};
    cw::buffer<int> mine(d, std::span<const int>(values));
    cw::buffer<int> out(d, 1);
    {
      cw::registration shared(w, mine.data(), 3 * sizeof(int));
      cw::launch(w, {}, read_right{}, w.device(), shared.device<int>(), out.data());
      w.stream().sync();
      EXPECT_EQ(out.read()[0], 70 + (w.rank() + 1) % w.size());
    }
    EXPECT_EQ(mine.read(), values) << "the buffer keeps its contents";
  });
}

TEST(World, TwoWorldsAtOnce) {
  on_ranks(2, [](cw::world& outer) {
    cw::symmetric_buffer<int> a(outer, 4);
    on_ranks(2, [&](cw::world& inner) {
      cw::symmetric_buffer<int> b(inner, 4);
      inner.barrier();
      b.write(std::vector<int>{1, 2, 3, 4});
    });
    outer.barrier();
    for (const int v : a.read()) EXPECT_EQ(v, 0);
  });
}

struct wait_for_ever {
  CW_FN void operator()(const context& ctx, cw::device::world w, cw::status* out) const {
    const cw::status s = w.barrier_all(ctx.block());
    if (ctx.thread_index() == 0) *out = s;
  }
};

TEST(WorldFailure, AbortEndsWaitsInKernels) {
  if (cw::launched()) GTEST_SKIP() << "ends the job; see the multiproc tests";
  EXPECT_THROW(cw::run_local(3, test_options(),
                             [](cw::world& w) {
                               if (w.options().device.kind() == cw::device_kind::cuda) {
                                 // Not gathered: rank 2's kernel never comes.
                                 if (w.rank() == 2) w.abort("test");
                                 w.check();
                               }
                               if (w.rank() == 2)
                                 throw cw::error(cw::errc::invalid_argument, "test", "x");
                               cw::buffer<cw::status> out(w.options().device, 1);
                               cw::launch(w.stream(), {.threads = 4}, wait_for_ever{}, w.device(),
                                          out.data());
                               EXPECT_THROW(w.stream().sync(), cw::error);
                               EXPECT_EQ(out.read()[0], cw::status::aborted);
                             }),
               cw::error);
}

TEST(WorldFailure, ADeadlineThatPassesInAKernelIsThrownBySync) {
  if (cw::launched()) GTEST_SKIP() << "ends the job";
  auto o = test_options();
  o.timeout = std::chrono::milliseconds(400);
  try {
    cw::run_local(2, o, [](cw::world& w) {
      if (w.rank() == 1) {
        // Not yet at the end, where it would wait for rank 0 in its turn, and name that.
        std::this_thread::sleep_for(std::chrono::milliseconds(350));
        return;
      }
      cw::buffer<cw::status> out(w.options().device, 1);
      cw::launch(w.stream(), {}, wait_for_ever{}, w.device(), out.data());
      w.stream().sync();
    });
    FAIL();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::timeout) << e.what();
    EXPECT_EQ(e.peer(), 1);
  }
}

TEST(WorldFailure, AStalledRankIsNamed) {
  if (cw::launched()) GTEST_SKIP();
  auto o = test_options();
  o.timeout = std::chrono::milliseconds(200);
  try {
    cw::run_local(3, o, [](cw::world& w) {
      if (w.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
      w.barrier();
    });
    FAIL();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::timeout) << e.what();
    EXPECT_EQ(e.peer(), 1);
  }
}

TEST(WorldFailure, BadRankCountsAndHeapsAreRefused) {
  if (cw::launched()) GTEST_SKIP();
  const auto nothing = [](cw::world&) {};
  for (const int n : {0, -1, 1 << 20}) EXPECT_THROW(cw::run_local(n, nothing), cw::error) << n;
  auto o = test_options();
  o.heap_bytes = 1ULL << 50U;
  EXPECT_THROW(cw::run_local(2, o, nothing), cw::error);
  o = test_options();
  o.nodes = 3;
  EXPECT_THROW(cw::run_local(2, o, nothing), cw::error);
}

struct ask_nobody {
  CW_FN void operator()(const context& ctx, cw::device::world w, cw::status* out) const {
    auto q = w.proxy.queue(ctx.block_index());
    out[0] = q.put_value(ctx.thread(), 0, {}, 1, 8);
    out[1] = q.quiet(ctx.thread());
  }
};

TEST(WorldFailure, CommandsWithoutAProxyAreUnreachable) {
  auto o = test_options();
  o.proxy.path = cw::path_choice::mapped;
  on_ranks(
      2,
      [](cw::world& w) {
        EXPECT_FALSE(w.has_proxy());
        EXPECT_TRUE(w.is_mapped(w.rank()));
        cw::buffer<cw::status> out(w.options().device, 2);
        cw::launch(w, {}, ask_nobody{}, w.device(), out.data());
        w.stream().sync();
        for (const cw::status s : out.read()) EXPECT_EQ(s, cw::status::unreachable);
      },
      o);
}

}  // namespace
