// Execution: what a kernel sees and how its threads meet, on every device.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/number.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/launch.hpp"
#include "support/device.hpp"

namespace cw = crosswarp;
using context = cw::device::kernel_context;

namespace {

struct fill_places {
  CW_FN void operator()(const context& ctx, int* out) const {
    const int i = ctx.grid().rank();
    out[i] = ctx.block_index() * 1000 + ctx.thread_index() + ctx.block_count() * 1'000'000;
  }
};

TEST(Exec, EveryThreadKnowsItsPlace) {
  cw::stream s(test_device());
  cw::buffer<int> out(s.device(), 3 * 40);
  cw::launch(s, {.blocks = 3, .threads = 40}, fill_places{}, out.data());
  s.sync();
  const auto got = out.read();
  for (int i = 0; i < 120; ++i) EXPECT_EQ(got[i], i / 40 * 1000 + i % 40 + 3'000'000) << i;
}

struct sum_by_tree {
  CW_FN void operator()(const context& ctx, const int* in, int* out) const {
    auto* part = reinterpret_cast<int*>(ctx.shared_memory());
    const int t = ctx.thread_index();
    part[t] = in[ctx.grid().rank()];
    for (int half = ctx.thread_count() / 2; half > 0; half /= 2) {
      ctx.block().sync();
      if (t < half) part[t] += part[t + half];
    }
    if (t == 0) out[ctx.block_index()] = part[0];
  }
};

TEST(Exec, BlocksShareMemoryAndMeet) {
  cw::stream s(test_device());
  constexpr int blocks = 4;
  constexpr int threads = 256;
  std::vector<int> in(blocks * threads);
  std::iota(in.begin(), in.end(), 1);
  cw::buffer<int> from(s.device(), std::span<const int>(in));
  cw::buffer<int> to(s.device(), blocks);
  cw::launch(s, {.blocks = blocks, .threads = threads, .shared_bytes = threads * sizeof(int)},
             sum_by_tree{}, from.data(), to.data());
  s.sync();
  const auto got = to.read();
  for (int b = 0; b < blocks; ++b) {
    EXPECT_EQ(got[b], std::accumulate(in.begin() + b * threads, in.begin() + (b + 1) * threads, 0));
  }
}

struct group_facts {
  struct wide {
    int part[16];
  };
  CW_FN void operator()(const context& ctx, int* wrong) const {
    const int t = ctx.thread_index();
    const auto warp = ctx.warp();
    const auto block = ctx.block();
    int bad = 0;
    bad += warp.rank() != t % 32;
    bad += warp.index() != t / 32;
    bad += warp.size() != (warp.index() == 3 ? 4 : 32);
    for (int round = 0; round < 10; ++round) {
      bad += warp.broadcast(t + round) != t / 32 * 32 + round;
      bad += block.broadcast(t + 7 * round) != 7 * round;
      wide w{};
      for (int i = 0; i < 16; ++i) w.part[i] = t * 100 + i;
      const wide from_leader = warp.broadcast(w);
      for (int i = 0; i < 16; ++i) bad += from_leader.part[i] != t / 32 * 32 * 100 + i;
      bad += block.any(t == 77) != true;
      bad += block.any(false) != false;
      bad += warp.any(t == 40) != (t / 32 == 1);
      for (int of = 0; of < warp.size(); ++of) {
        const int asked = (of + warp.rank()) % warp.size();
        bad += warp.from(t + round, asked) != t / 32 * 32 + asked + round;
        bad += warp.from(1e9 * t, asked) != 1e9 * (t / 32 * 32 + asked);
      }
    }
    bad += ctx.thread().broadcast(5) != 5 || ctx.thread().size() != 1;
    wrong[ctx.grid().rank()] = bad;
  }
};

TEST(Exec, GroupsBroadcastAndVote) {
  cw::stream s(test_device());
  cw::buffer<int> wrong(s.device(), 2 * 100);
  cw::launch(s, {.blocks = 2, .threads = 100}, group_facts{}, wrong.data());
  s.sync();
  for (const int w : wrong.read()) EXPECT_EQ(w, 0);
}

struct shared_values {
  CW_FN void operator()(const context& ctx, int* wrong) const {
    const int t = ctx.thread_index();
    const auto block = ctx.block();
    const auto warp = block.warp();
    const int warps = block.size() / 32;
    int bad = 0;
    for (int round = 0; round < 10; ++round) {
      for (int mask = 1; mask < 32; ++mask) {
        bad += warp.swap(100 * t + round, mask) != 100 * (t ^ mask) + round;
      }
      // As many as a broadcast carries, several for a warp.
      float all[16] = {};
      block.make_together(all, static_cast<std::size_t>(round), [&](float* told) {
        for (int i = warp.index(); i < 16; i += warps) {
          if (warp.rank() == i) told[i] = static_cast<float>(1000 * round + i);
        }
      });
      for (int i = 0; i < 16; ++i) bad += all[i] != static_cast<float>(1000 * round + i);
    }
    wrong[ctx.grid().rank()] = bad;
  }
};

TEST(Exec, ThreadsSwapValuesAndMakeSomeTogether) {
  cw::stream s(test_device());
  cw::buffer<int> wrong(s.device(), 2 * 96);
  cw::launch(s, {.blocks = 2, .threads = 96}, shared_values{}, wrong.data());
  s.sync();
  for (const int w : wrong.read()) EXPECT_EQ(w, 0);
}

// A thread that has returned does not hold up the others.
struct some_leave_early {
  CW_FN void operator()(const context& ctx, int* out) const {
    if (ctx.thread_index() % 2 == 1) return;
    ctx.block().sync();
    out[ctx.thread_index()] = 1;
  }
};

TEST(Exec, ReturnedThreadsLeaveTheBarrier) {
  if (test_device().kind() != cw::device_kind::cpu) GTEST_SKIP() << "undefined on this device";
  cw::stream s(test_device());
  cw::buffer<int> out(s.device(), 64);
  cw::launch(s, {.blocks = 1, .threads = 64}, some_leave_early{}, out.data());
  s.sync();
  const auto got = out.read();
  EXPECT_EQ(std::accumulate(got.begin(), got.end(), 0), 32);
}

// Each block waits for all others: works only if all make progress at once.
struct grid_rounds {
  CW_FN void operator()(const context& ctx, int* cells, int rounds, int* wrong) const {
    const int me = ctx.block_index();
    const int next = (me + 1) % ctx.block_count();
    for (int r = 1; r <= rounds; ++r) {
      if (ctx.thread_index() == 0) cells[me] = r;
      if (ctx.grid().sync() != cw::status::ok) wrong[me] += 1000;
      if (cells[next] != r) wrong[me] += 1;
      if (ctx.grid().sync() != cw::status::ok) wrong[me] += 1000;
    }
  }
};

TEST(Exec, ResidentBlocksMeetInGridBarriers) {
  cw::stream s(test_device());
  constexpr int blocks = 16;
  cw::buffer<int> cells(s.device(), blocks);
  cw::buffer<int> wrong(s.device(), blocks);
  for (int again = 0; again < 3; ++again) {
    cw::launch(s, {.blocks = blocks, .threads = 33, .resident = true}, grid_rounds{}, cells.data(),
               50, wrong.data());
  }
  s.sync();
  for (const int w : wrong.read()) EXPECT_EQ(w, 0);
}

// One block, behind all others, and before any of them goes on.
struct rounds_with_a_step {
  CW_FN void operator()(const context& ctx, int* cells, int* sum, int rounds, int* wrong) const {
    const int me = ctx.block_index();
    for (int r = 1; r <= rounds; ++r) {
      if (ctx.thread_index() == 0) cells[me] = r;
      const auto add_up = [&](const auto& block) {
        if (block.rank() == block.size() - 1) {
          *sum = 0;
          for (int b = 0; b < ctx.block_count(); ++b) *sum += cells[b];
        }
        return cw::status::ok;
      };
      if (ctx.grid().sync(add_up) != cw::status::ok) wrong[me] += 1000;
      if (*sum != r * ctx.block_count()) wrong[me] += 1;
      if (ctx.grid().sync() != cw::status::ok) wrong[me] += 1000;
    }
    const auto fail = [](const auto&) { return cw::status::peer_lost; };
    if (ctx.grid().sync(fail) != cw::status::peer_lost) wrong[me] += 1000000;
  }
};

TEST(Exec, TheLastBlockHasAStepToDoBeforeTheOthersGoOn) {
  cw::stream s(test_device());
  for (const int blocks : {1, 8}) {
    cw::buffer<int> cells(s.device(), 8);
    cw::buffer<int> sum(s.device(), 1);
    cw::buffer<int> wrong(s.device(), 8);
    cw::launch(s, {.blocks = blocks, .threads = 33, .resident = true}, rounds_with_a_step{},
               cells.data(), sum.data(), 50, wrong.data());
    s.sync();
    for (const int w : wrong.read()) EXPECT_EQ(w, 0);
  }
}

/// Block 0 gives up, and comes again as often as there are blocks. It had been counted, and the
/// count said that all had come.
struct comes_again {
  CW_FN void operator()(const context& ctx, int* has_given_up, int* ran, int* wrong) const {
    const cw::device::device_atomic<int> over(*has_given_up);
    const auto seen = [&] { return over.load(cw::device::order::acquire) != 0; };
    const bool first = ctx.block_index() == 0;
    // pairs with the release below
    if (!first) static_cast<void>(cw::device::poll_until(ctx.block(), seen, {}));
    const auto step = [&](const auto& block) {
      if (block.rank() == 0) ++*ran;
      return cw::status::ok;
    };
    int bad = 0;
    for (int i = 0; i < ctx.block_count(); ++i) {
      bad += ctx.grid().sync(step) != cw::status::timeout;
      bad += ctx.grid().sync() != cw::status::timeout;
    }
    wrong[ctx.grid().rank()] = bad;
    ctx.block().sync();
    if (first && ctx.thread_index() == 0) over.store(1, cw::device::order::release);
  }
};

constexpr cw::device::wait_limits soon{nullptr, 200'000'000};

TEST(Exec, AGridBarrierThatFailedStaysFailed) {
  cw::stream s(test_device());
  for (const int blocks : {2, 3}) {
    cw::buffer<int> has_given_up(s.device(), 1);
    cw::buffer<int> ran(s.device(), 1);
    cw::buffer<int> wrong(s.device(), static_cast<std::size_t>(blocks) * 33);
    cw::launch(s, {.blocks = blocks, .threads = 33, .resident = true, .limits = soon},
               comes_again{}, has_given_up.data(), ran.data(), wrong.data());
    s.sync();
    EXPECT_EQ(ran.read().front(), 0);
    for (const int w : wrong.read()) EXPECT_EQ(w, 0) << blocks << " blocks";
  }
}

/// The last block's step takes longer than the other waits, and fails.
struct fails_too_late {
  CW_FN void operator()(const context& ctx, int* has_given_up, cw::status* out) const {
    const cw::device::device_atomic<int> over(*has_given_up);
    const auto step = [&](const auto& block) {
      // Relaxed: it orders no data.
      const auto seen = [&] { return over.load(cw::device::order::relaxed) != 0; };
      static_cast<void>(cw::device::poll_until(block, seen, {}));
      return cw::status::peer_lost;
    };
    out[ctx.grid().rank()] = ctx.grid().sync(step);
    if (ctx.thread_index() == 0) over.store(1, cw::device::order::relaxed);
  }
};

TEST(Exec, AllBlocksAreToldOfTheFirstFailure) {
  cw::stream s(test_device());
  cw::buffer<int> has_given_up(s.device(), 1);
  cw::buffer<cw::status> out(s.device(), 2 * 33);
  cw::launch(s, {.blocks = 2, .threads = 33, .resident = true, .limits = soon}, fails_too_late{},
             has_given_up.data(), out.data());
  s.sync();
  for (const cw::status got : out.read()) EXPECT_EQ(got, cw::status::timeout);
}

struct sync_grid {
  CW_FN void operator()(const context& ctx, cw::status* out) const {
    const cw::status s = ctx.grid().sync();
    if (ctx.grid().rank() == 0) *out = s;
  }
};

TEST(Exec, GridBarrierWithoutResidencyIsRefused) {
  cw::stream s(test_device());
  cw::buffer<cw::status> out(s.device(), 1);
  cw::launch(s, {.blocks = 2, .threads = 2}, sync_grid{}, out.data());
  s.sync();
  EXPECT_EQ(out.read()[0], cw::status::invalid);
}

struct never_ready {
  CW_FN void operator()(const context&, cw::device::wait_limits limits, cw::status* out) const {
    *out = cw::device::poll_until([] { return false; }, limits);
  }
};

TEST(Poll, EndsAtItsDeadline) {
  cw::stream s(test_device());
  cw::buffer<cw::status> out(s.device(), 1);
  cw::launch(s, {}, never_ready{}, cw::device::wait_limits{nullptr, 2'000'000}, out.data());
  s.sync();
  EXPECT_EQ(out.read()[0], cw::status::timeout);
}

TEST(Poll, EndsWhenTheWorldBreaks) {
  cw::stream s(test_device());
  cw::buffer<cw::status> out(s.device(), 1);
  cw::buffer<cw::fault_word> fault(s.device(), 1, cw::memory_kind::pinned);
  cw::launch(s, {}, never_ready{}, cw::device::wait_limits{fault.data(), 60'000'000'000ULL},
             out.data());
  cw::device::system_atomic<cw::fault_word>(*fault.data())
      .store(cw::make_fault(cw::status::peer_lost, 7), cw::device::order::relaxed);
  s.sync();
  EXPECT_EQ(out.read()[0], cw::status::peer_lost);
}

// Who waits for somebody of its own rank, who waits for another rank, gives up at about the same
// time and knows no name.
TEST(Poll, TheRankThatWasNamedStaysForTheHost) {
  cw::stream s(test_device());
  cw::buffer<cw::status> out(s.device(), 1);
  cw::buffer<cw::fault_word> late(s.device(), 1, cw::memory_kind::pinned);
  const cw::device::wait_limits limits{nullptr, 1'000'000, late.data()};
  const auto noted_after = [&](int pe) {
    cw::launch(s, {}, never_ready{}, limits.for_peer(pe), out.data());
    s.sync();
    return cw::fault_rank(
        cw::device::system_atomic<cw::fault_word>(*late.data()).load(cw::device::order::relaxed));
  };
  EXPECT_EQ(noted_after(-1), -1);
  EXPECT_EQ(cw::fault_status(*late.data()), cw::status::timeout);
  EXPECT_EQ(noted_after(3), 3);
  EXPECT_EQ(noted_after(-1), 3);
}

// ---- short numbers, which a GPU rounds by instructions of its own

template <class T>
struct narrow_all {
  CW_FN void operator()(const context& ctx, const float* in, T* out, int n) const {
    for (int i = ctx.grid().rank(); i < n; i += ctx.grid().size()) {
      out[i] = cw::device::narrow<T>(in[i]);
    }
  }
};

/// From zero to far behind the largest number, and all around that, of each sign.
std::vector<float> numbers_up_to(float largest, float step) {
  std::vector<float> all = {0, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max()};
  for (float x = largest * 2; x > largest * 1e-7F; x *= 0.97F) all.push_back(x);
  for (int eighths = -16; eighths <= 24; ++eighths) {
    const float x = largest + step * static_cast<float>(eighths) / 8;
    for (const float y : {x, std::nextafter(x, 0.0F), std::nextafter(x, 2 * x)}) all.push_back(y);
  }
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) all.push_back(-all[i]);
  return all;
}

template <class T>
void narrows_alike(float largest, float step) {
  cw::stream s(test_device());
  const std::vector<float> all = numbers_up_to(largest, step);
  const cw::buffer<float> in(s.device(), std::span<const float>(all));
  const cw::buffer<T> out(s.device(), all.size());
  cw::launch(s, {.blocks = 2, .threads = 32}, narrow_all<T>{}, in.data(), out.data(),
             static_cast<int>(all.size()));
  s.sync();
  const std::vector<T> got = out.read();
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(got[i].bits, cw::device::narrow<T>(all[i]).bits) << all[i];
  }
}

TEST(Number, IsRoundedToTheSameBitsByEveryDevice) {
  narrows_alike<cw::device::half>(65504, 32);
  narrows_alike<cw::device::bfloat16>(0x1p100F, 0x1p93F);
  narrows_alike<cw::device::fp8_e4m3>(448, 32);
  narrows_alike<cw::device::fp8_e5m2>(57344, 8192);
}

TEST(Launch, ImpossibleShapesAreRefused) {
  cw::stream s(test_device());
  for (const cw::launch_shape bad :
       {cw::launch_shape{.blocks = 0}, cw::launch_shape{.blocks = -1},
        cw::launch_shape{.threads = 0}, cw::launch_shape{.threads = 1025}}) {
    EXPECT_THROW(cw::launch(s, bad, sync_grid{}, static_cast<cw::status*>(nullptr)), cw::error);
  }
}

TEST(Launch, ResidentGridThatDoesNotFitIsRefused) {
  cw::stream s(test_device());
  try {
    cw::launch(s, {.blocks = 1'000'000, .threads = 1024, .resident = true}, sync_grid{},
               static_cast<cw::status*>(nullptr));
    s.sync();
    FAIL() << "accepted";
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::does_not_fit) << e.what();
  }
}

TEST(Stream, EventsOrderStreams) {
  const cw::device_ref d = test_device();
  cw::stream a(d);
  cw::stream b(d);
  cw::event done(d);
  cw::buffer<int> x(d, 120);
  cw::buffer<int> y(d, 120);
  cw::launch(a, {.blocks = 3, .threads = 40}, fill_places{}, x.data());
  a.record(done);
  b.wait(done);
  b.copy(y.data(), x.data(), 120 * sizeof(int));
  b.sync();
  EXPECT_EQ(x.read(), y.read());
  EXPECT_TRUE(done.ready());
}

// ---- On a CPU whoever waits for a stream may run what is queued. Nobody is to notice who did.

/// By a plain count: two at once would be a race.
struct note_turn {
  CW_FN void operator()(const context& /*ctx*/, int* turns, int* count, int which) const {
    turns[(*count)++] = which;
  }
};

TEST(Stream, IsInOrderWhileSeveralWaitForIt) {
  constexpr int n = 2000;
  cw::stream s(test_device());
  const cw::buffer<int> turns(s.device(), n);
  const cw::buffer<int> count(s.device(), 1);
  std::atomic<bool> all{false};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      while (!all) s.sync();
    });
  }
  for (int i = 0; i < n; ++i) {
    cw::launch(s, {}, note_turn{}, turns.data(), count.data(), i);
    if (i % 16 == 0) s.sync();
  }
  s.sync();
  all = true;
  for (std::thread& w : waiters) w.join();
  std::vector<int> expected(n);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(turns.read(), expected);
}

TEST(Stream, WorkBeginsThoughNobodyWaitsForIt) {
  using clock = std::chrono::steady_clock;
  cw::stream s(test_device());
  cw::event done(s.device());
  const cw::buffer<int> turns(s.device(), 400);
  const cw::buffer<int> count(s.device(), 1);
  for (int i = 0; i < 200; ++i) {
    cw::launch(s, {}, note_turn{}, turns.data(), count.data(), i);
    s.sync();  // after which its thread may sleep, or be on its way there
    cw::launch(s, {}, note_turn{}, turns.data(), count.data(), i);
    s.record(done);
    const auto limit = clock::now() + std::chrono::seconds(20);
    while (!done.ready()) {
      ASSERT_LT(clock::now(), limit) << "round " << i;
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(count.read().front(), 400);
}

TEST(Stream, WhoWaitsOnACpuRunsWhatNobodyHasBegun) {
  using clock = std::chrono::steady_clock;
  if (test_device().kind() != cw::device_kind::cpu) return;
  cw::stream s(test_device());
  std::thread::id who;
  const auto limit = clock::now() + std::chrono::seconds(20);
  while (who != std::this_thread::get_id()) {
    ASSERT_LT(clock::now(), limit);
    s.backend().run(
        {.shape = {}, .body = [&](const context&) { who = std::this_thread::get_id(); }});
    s.sync();
  }
}

TEST(Stream, WhatAKernelOfACpuThrowsIsThrownOnceToWhoWaits) {
  if (test_device().kind() != cw::device_kind::cpu) return;
  cw::stream s(test_device());
  const cw::buffer<int> turns(s.device(), 100);
  const cw::buffer<int> count(s.device(), 1);
  for (int i = 0; i < 100; ++i) {
    s.backend().run({.shape = {}, .body = [](const context&) { throw std::runtime_error("no"); }});
    cw::launch(s, {}, note_turn{}, turns.data(), count.data(), i);
    EXPECT_THROW(s.sync(), std::runtime_error);
    s.sync();
    EXPECT_EQ(count.read().front(), i + 1) << "what was queued behind it was run";
  }
}

TEST(Stream, ABorrowedOneIsInOrderWithItsOwnersWork) {
  const cw::device_ref d = test_device();
  cw::stream owner(d);
  if (d.kind() == cw::device_kind::cpu) {
    EXPECT_THROW((void)cw::stream::borrow(d, nullptr), cw::error);
    return;
  }
  cw::buffer<int> x(d, 120);
  cw::buffer<int> y(d, 120);
  cw::buffer<cw::status> met(d, 1);
  cw::launch(owner, {.blocks = 3, .threads = 40}, fill_places{}, x.data());
  {
    cw::stream lent = cw::stream::borrow(d, owner.native());
    EXPECT_EQ(lent.native(), owner.native());
    lent.copy(y.data(), x.data(), 120 * sizeof(int));
    cw::launch(lent, {.blocks = 2, .threads = 32, .resident = true}, sync_grid{}, met.data());
  }
  owner.sync();  // it is still there
  EXPECT_EQ(x.read(), y.read());
  EXPECT_EQ(met.read()[0], cw::status::ok);
}

struct copy_parts {
  CW_FN void operator()(const context& ctx, char* to, const char* from, std::size_t bytes) const {
    cw::device::copy_part(ctx, to, from, bytes);
  }
};

struct add_to_each {
  CW_FN void operator()(const cw::device::kernel_context& ctx, int* x, int n, int amount) const {
    for (int i = ctx.grid().rank(); i < n; i += ctx.grid().size()) x[i] += amount;
  }
};

TEST(Recording, RunsWhenItIsReplayedAndInOrder) {
  constexpr int n = 100;
  cw::stream s(test_device());
  const cw::buffer<int> from(test_device(), std::vector<int>(n, 5));
  const cw::buffer<int> x(test_device(), std::vector<int>(n, 1));
  cw::recording r(s, [&] {
    cw::launch(s, {.blocks = 2, .threads = 32}, add_to_each{}, x.data(), n, 1);
    cw::launch(s, {.blocks = 2, .threads = 32}, add_to_each{}, x.data(), n, 10);
  });
  s.sync();
  EXPECT_EQ(x.read(), std::vector<int>(n, 1)) << "nothing runs while it is recorded";
  r.replay(s);
  s.copy(x.data(), from.data(), n * sizeof(int));
  r.replay(s);
  r.replay(s);
  cw::launch(s, {}, add_to_each{}, x.data(), n, 100);
  s.sync();
  EXPECT_EQ(x.read(), std::vector<int>(n, 5 + 11 + 11 + 100));
}

TEST(Recording, OfWhatThrowsLeavesTheStreamAsItWas) {
  cw::stream s(test_device());
  const cw::buffer<int> x(test_device(), std::vector<int>(1, 1));
  EXPECT_THROW(
      cw::recording(s, [&] { cw::launch(s, {.blocks = 0}, add_to_each{}, x.data(), 1, 1); }),
      cw::error);
  cw::launch(s, {}, add_to_each{}, x.data(), 1, 1);
  s.sync();
  EXPECT_EQ(x.read().front(), 2);
}

TEST(Memory, CopiesBytesOfEveryAlignmentAndNoMore) {
  cw::stream s(test_device());
  constexpr std::size_t room = 300'000;
  std::vector<char> values(room);
  for (std::size_t i = 0; i < room; ++i) values[i] = static_cast<char>(i * 131 + i / 251 + 1);
  cw::buffer<char> from(s.device(), std::span<const char>(values));
  for (const std::size_t bytes : {0UL, 1UL, 3UL, 15UL, 16UL, 17UL, 127UL, 4099UL, 290'000UL}) {
    for (const std::size_t shift : {0UL, 1UL, 4UL, 7UL, 8UL}) {
      for (const std::size_t other : {0UL, 1UL, 4UL, 8UL}) {
        cw::buffer<char> to(s.device(), room);
        cw::launch(s, {.blocks = 2, .threads = 96}, copy_parts{}, to.data() + other,
                   from.data() + shift, bytes);
        s.sync();
        const auto got = to.read();
        for (std::size_t i = 0; i < room; ++i) {
          const bool inside = i >= other && i < other + bytes;
          ASSERT_EQ(got[i], inside ? values[i - other + shift] : 0)
              << bytes << " bytes, " << shift << " to " << other << ", at " << i;
        }
      }
    }
  }
}

TEST(Device, NamesParse) {
  EXPECT_EQ(cw::device_ref::parse("cpu"), cw::device_ref::cpu());
  EXPECT_EQ(cw::device_ref::parse("cuda:3"), cw::device_ref::cuda(3));
  for (const char* bad : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cpu:0"}) {
    EXPECT_THROW(cw::device_ref::parse(bad), cw::error) << bad;
  }
}

}  // namespace
