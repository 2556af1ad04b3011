// Worklists and their queues under chosen interleavings: all of the small cases, many of the
// larger.
#include "crosswarp/worklist.hpp"

#include <gtest/gtest.h>

#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"
#include "protocols/worklist.hpp"

namespace {

using namespace protocols;

cw::world_options small(cw::device_ref device) {
  cw::world_options o;
  o.device = device;
  o.heap_bytes = 1U << 16U;
  o.self_test = false;
  return o;
}

class WorklistModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
};

// ---- the queue: what is put in comes out once, and with what was written before it

struct queue_memory {
  dev::work_queue_ends ends;
  dev::work_slot<int> slots[4];
  int letters[8];  ///< by item, written before it is pushed
};

/// All ranks put two items into rank 0's queue and take two out, in any order.
struct exchange {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const dev::symmetric<queue_memory>& mem, std::uint64_t capacity,
                        outcome* out) const {
    const auto me = ctx.thread();
    queue_memory& m = *mem.at(0);
    const dev::work_queue<int> queue(m.ends, m.slots, capacity, mem.reach());
    int left = 2;
    int taken = 0;
    int sum = 0;
    const int items[2] = {2 * w.rank, 2 * w.rank + 1};
    for (const int i : items) m.letters[i] = 10 + i;
    const status s = dev::poll_until(
        [&] {
          if (left > 0) left -= queue.push(me, items + 2 - left, left);
          int got[2] = {};
          const int n = taken < 2 ? queue.pop(me, got, 2 - taken) : 0;
          for (int i = 0; i < n; ++i) sum += m.letters[got[i]];
          taken += n;
          return left == 0 && taken == 2;
        },
        w.limits);
    *out = {s, sum};
  }
};

void explore_queue(cw::schedule s, int ranks, std::uint64_t capacity) {
  cw::explore(s, [&](cw::device_ref device) {
    int sum = 0;
    cw::run_local(ranks, small(device), [&](cw::world& w) {
      cw::symmetric_buffer<queue_memory> mem(w, 1);
      cw::buffer<outcome> out(device, 1);
      cw::launch(w, {}, exchange{}, w.device(), mem.device(), capacity, out.data());
      const outcome got = out.read()[0];
      EXPECT_EQ(got.waits, status::ok) << to_string(got.waits) << ", " << s.describe();
      for (const int part : w.allgather(got.wrong)) sum += w.rank() == 0 ? part : 0;
    });
    const int items = 2 * ranks;
    EXPECT_EQ(sum, 10 * items + items * (items - 1) / 2) << s.describe();
    if (testing::Test::HasFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

TEST_F(WorklistModel, AQueueGivesEachItemOnce) {
  for (const std::uint64_t capacity : {1, 2, 4}) {
    explore_queue(cw::schedule::exhaustive(1, 1500), 2, capacity);
    explore_queue(cw::schedule::random(20261116, 100), 3, capacity);
  }
}

// ---- the list: each item is done once, and the end is seen by all

void explore_list(cw::schedule s, int ranks, cw::worklist_options o, std::uint64_t items,
                  std::uint64_t urgency, int blocks) {
  o.workers = blocks;
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(ranks, small(device), [&](cw::world& w) {
      cw::worklist<std::uint64_t> list(w, o);
      cw::buffer<std::uint32_t> visits(device, items);
      cw::buffer<status> out(device, static_cast<std::size_t>(blocks));
      const tree_work program{w.rank(), w.size(), items, urgency, visits.data(), nullptr};
      cw::launch(w, {.blocks = blocks}, run_worklist{}, list.device(), program, dev::direct_route{},
                 out.data());
      for (const status got : out.read()) {
        ASSERT_EQ(got, status::ok) << to_string(got) << ", " << s.describe();
      }
      const auto seen = visits.read();
      for (std::uint64_t n = 0; n < items; ++n) {
        ASSERT_EQ(seen[n], program.owner(n) == w.rank() ? 1U : 0U)
            << "item " << n << ", " << s.describe();
      }
    });
    if (testing::Test::HasFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

TEST_F(WorklistModel, AListEndsWhenAllIsDone) {
  const cw::worklist_options tiny{.queue = 1, .spill = 16, .park = 4};
  explore_list(cw::schedule::exhaustive(1, 600), 2, tiny, 3, 0, 1);
  explore_list(cw::schedule::random(1, 100), 3, tiny, 7, 0, 1);
  explore_list(cw::schedule::random(2, 100), 2, tiny, 7, 0, 2);
}

TEST_F(WorklistModel, AThresholdMovesWhenNothingElseIsLeft) {
  const cw::worklist_options tiny{.queue = 2, .spill = 16, .park = 4, .step = 0, .threshold = 0};
  explore_list(cw::schedule::exhaustive(1, 600), 2, tiny, 3, 1, 1);
  explore_list(cw::schedule::random(3, 100), 2, tiny, 7, 2, 2);
}

}  // namespace
