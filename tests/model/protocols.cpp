// The five small protocols under chosen interleavings: all of the small cases, many of the larger.
#include <gtest/gtest.h>

#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"
#include "protocols/allreduce.hpp"
#include "protocols/byte_stream.hpp"
#include "protocols/link.hpp"
#include "protocols/put_signal.hpp"
#include "protocols/work_queue.hpp"

namespace {

using namespace protocols;

/// A world that is made anew for each execution, so with little in it.
cw::world_options small(cw::device_ref device) {
  cw::world_options o;
  o.device = device;
  o.heap_bytes = 1U << 16U;
  o.self_test = false;
  return o;
}

template <class Memory, class Kernel, class... Args>
void explore(cw::schedule s, int ranks, int threads, Kernel kernel, Args... args) {
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(ranks, small(device), [&](cw::world& w) {
      cw::symmetric_buffer<Memory> mem(w, 1);
      cw::buffer<outcome> out(device, 1);
      cw::launch(w, {.threads = threads}, kernel, w.device(), mem.device(), args..., out.data());
      const outcome got = out.read()[0];
      ASSERT_EQ(got.waits, status::ok) << to_string(got.waits) << ", " << s.describe();
      ASSERT_EQ(got.wrong, 0) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
  testing::Test::RecordProperty("executions", static_cast<int>(s.executions()));
  EXPECT_GT(s.executions(), 1U);
}

cw::schedule few() {
  return cw::schedule::exhaustive(1, 3000);
}
cw::schedule walks() {
  return cw::schedule::random(20261115, 150);
}

class Model : public testing::Test {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
};

TEST_F(Model, PutSignal) {
  explore<put_signal_memory>(few(), 2, 1, put_signal<by_thread>{}, std::uint64_t{0}, 3);
  explore<put_signal_memory>(walks(), 3, 1, put_signal<by_thread>{}, std::uint64_t{0}, 4);
  explore<put_signal_memory>(walks(), 3, 2, put_signal<by_block>{}, std::uint64_t{0}, 4);
}

TEST_F(Model, AddSignal) {
  explore<add_signal_memory>(few(), 2, 1, add_signal<by_thread>{});
  explore<add_signal_memory>(walks(), 3, 2, add_signal<by_block>{});
}

TEST_F(Model, WorkQueue) {
  explore<work_queue_memory>(few(), 2, 1, work_queue<by_thread>{}, 5);
  explore<work_queue_memory>(walks(), 2, 2, work_queue<by_block>{}, 10);
}

TEST_F(Model, ByteStream) {
  // The shortest streams: published and closed between a reader's look at the one and the other.
  explore<byte_stream_memory>(few(), 2, 1, byte_stream<by_thread>{}, std::uint64_t{1});
  explore<byte_stream_memory>(few(), 2, 1, byte_stream<by_thread>{}, std::uint64_t{3});
  explore<byte_stream_memory>(walks(), 2, 2, byte_stream<by_block>{}, std::uint64_t{70});
  explore<byte_stream_memory>(walks(), 2, 1, refused_stream{});
}

TEST_F(Model, Link) {
  explore<link_memory>(few(), 2, 1, buffered_link<by_thread>{}, 3);
  explore<link_memory>(walks(), 3, 2, buffered_link<by_block>{}, 6);
}

TEST_F(Model, Allreduce) {
  explore<allreduce_memory>(few(), 2, 1, allreduce<by_thread>{}, std::uint64_t{0}, 2);
  explore<allreduce_memory>(walks(), 3, 2, allreduce<by_block>{}, std::uint64_t{0}, 3);
}

// The scheduler itself: it finds what is wrong, and all of it.

struct lost_update {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world, dev::symmetric<int> cell,
                        int* out) const {
    const dev::block_atomic<int> v(*cell.local());
    const int seen = v.load(dev::order::relaxed);
    v.store(seen + 1, dev::order::relaxed);
    ctx.block().sync();
    if (ctx.thread_index() == 0) *out = v.load(dev::order::relaxed);
  }
};

TEST_F(Model, FindsBothOutcomesOfARace) {
  auto s = cw::schedule::exhaustive(2);
  bool kept = false;
  bool lost = false;
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(1, small(device), [&](cw::world& w) {
      cw::symmetric_buffer<int> cell(w, 1);
      cw::buffer<int> out(device, 1);
      cw::launch(w, {.threads = 2}, lost_update{}, w.device(), cell.device(), out.data());
      kept = kept || cell.read()[0] == 2;
      lost = lost || cell.read()[0] == 1;
    });
  });
  EXPECT_TRUE(kept);
  EXPECT_TRUE(lost);
  EXPECT_TRUE(s.complete());
}

struct wait_for_nobody {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<dev::signal_line> line, status* out) const {
    const status s = dev::wait(ctx.block(), dev::signal(*line.local()), 1, w.limits);
    if (ctx.thread_index() == 0) *out = s;
  }
};

TEST_F(Model, ADeadlockEndsByVirtualTime) {
  auto s = cw::schedule::random(1, 3);
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(2, small(device), [&](cw::world& w) {
      cw::symmetric_buffer<dev::signal_line> line(w, 1);
      cw::buffer<status> out(device, 1);
      cw::launch(w, {.threads = 3}, wait_for_nobody{}, w.device(), line.device(), out.data());
      EXPECT_EQ(out.read()[0], status::timeout);
      EXPECT_THROW(w.check(), cw::error) << "the deadline that passed in the kernel is reported";
    });
  });
}

struct narrow_scope {
  CW_FN void operator()(const dev::kernel_context&, dev::world w, dev::symmetric<int> cell) const {
    dev::device_atomic<int>(*cell.at(0)).fetch_add(w.rank, dev::order::relaxed);
  }
};
struct block_scope {
  CW_FN void operator()(const dev::kernel_context&, dev::world, dev::symmetric<int> cell) const {
    dev::block_atomic<int>(*cell.local()).fetch_add(1, dev::order::relaxed);
  }
};

TEST_F(Model, ScopesTooNarrowAreReported) {
  auto s = cw::schedule::random(1, 2);
  cw::explore(s, [&](cw::device_ref device) {
    const auto run = [&](int ranks, int blocks, auto kernel) {
      cw::run_local(ranks, small(device), [&](cw::world& w) {
        cw::symmetric_buffer<int> cell(w, 1);
        cw::launch(w, {.blocks = blocks}, kernel, w.device(), cell.device());
      });
    };
    EXPECT_THROW(run(2, 1, narrow_scope{}), cw::error) << "device scope between ranks";
    EXPECT_THROW(run(1, 2, block_scope{}), cw::error) << "block scope between blocks";
    EXPECT_NO_THROW(run(1, 2, narrow_scope{}));
    EXPECT_NO_THROW(run(2, 1, block_scope{}));
  });
}

}  // namespace
