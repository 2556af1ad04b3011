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

/// Of executions: with ThreadSanitizer each takes long.
constexpr std::uint64_t share(std::uint64_t count) {
#if defined(__SANITIZE_THREAD__)
  return count / 4;
#else
  return count;
#endif
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

/// All ranks put two items into rank 0's queue and take two out, in any order. Reports the sum of
/// the letters that it took.
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
    cw::run_local(ranks, small(device), [&](cw::world& w) {
      cw::symmetric_buffer<queue_memory> mem(w, 1);
      cw::buffer<outcome> out(device, 1);
      cw::launch(w, {}, exchange{}, w.device(), mem.device(), capacity, out.data());
      const outcome got = out.read()[0];
      EXPECT_EQ(got.waits, status::ok) << to_string(got.waits) << ", " << s.describe();
      int sum = 0;
      for (const int part : w.allgather(got.wrong)) sum += part;
      const int items = 2 * w.size();
      EXPECT_EQ(sum, 10 * items + items * (items - 1) / 2) << s.describe();
    });
    if (testing::Test::HasFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

TEST_F(WorklistModel, AQueueGivesEachItemOnce) {
  for (const std::uint64_t capacity : {1, 2, 4}) {
    explore_queue(cw::schedule::exhaustive(1, share(400)), 2, capacity);
    explore_queue(cw::schedule::random(20261116, share(50)), 3, capacity);
  }
}

// ---- what workers did is visible to all when the list has ended

struct board {
  int seeded[2];   ///< by worker
  int letters[8];  ///< by item
};

/// A tree of work that leaves letters, plain ones, at its owners.
struct leave_letters : tree_work {
  dev::symmetric<board> boards;

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    boards.local()->seeded[worker] = 1;
    tree_work::seed(g, worker, out);
  }
  template <class G, class Out>
  CW_FN void work(const G& g, item n, Out& out) const noexcept {
    boards.local()->letters[n] = 1;
    tree_work::work(g, n, out);
  }
};

/// Each worker looks at everybody's board when its run has ended.
struct read_letters {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::worklist<std::uint64_t>& list,
                        const leave_letters& program, outcome* out) const {
    const status s = list.run(ctx, program);
    int missing = 0;
    for (int r = 0; s == status::ok && r < program.ranks; ++r) {
      const board& b = *program.boards.at(r);
      for (int w = 0; w < list.shape().workers; ++w) missing += 1 - b.seeded[w];
      for (std::uint64_t n = 0; n < program.items; ++n) {
        if (program.owner(n) == r) missing += 1 - b.letters[n];
      }
    }
    out[ctx.block_index()] = {s, missing};
  }
};

void explore_letters(cw::schedule s, int blocks, cw::worklist_options o, std::uint64_t urgency) {
  o.workers = blocks;
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(2, small(device), [&](cw::world& w) {
      cw::worklist<std::uint64_t> list(w, o);
      cw::symmetric_buffer<board> boards(w, 1);
      cw::buffer<std::uint32_t> visits(device, 8);
      cw::buffer<outcome> out(device, static_cast<std::size_t>(blocks));
      const leave_letters program{{w.rank(), w.size(), 5, urgency, visits.data(), nullptr},
                                  boards.device()};
      cw::launch(w, {.blocks = blocks}, read_letters{}, list.device(), program, out.data());
      for (const outcome& got : out.read()) {
        EXPECT_EQ(got.waits, status::ok) << to_string(got.waits) << ", " << s.describe();
        EXPECT_EQ(got.wrong, 0) << s.describe();
      }
    });
    if (testing::Test::HasFailure()) FAIL() << s.describe();
  });
}

TEST_F(WorklistModel, WhatWorkersDidIsVisibleAtTheEnd) {
  const cw::worklist_options tiny{.queue = 1, .spill = 16, .park = 4};
  explore_letters(cw::schedule::random(4, share(60)), 1, tiny, 0);
  explore_letters(cw::schedule::random(5, share(60)), 2, tiny, 0);
  const cw::worklist_options in_order{.queue = 2, .spill = 16, .park = 4, .threshold = 0};
  explore_letters(cw::schedule::random(6, share(60)), 2, in_order, 1);
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
  explore_list(cw::schedule::exhaustive(1, share(300)), 2, tiny, 3, 0, 1);
  explore_list(cw::schedule::random(1, share(50)), 3, tiny, 7, 0, 1);
  explore_list(cw::schedule::random(2, share(50)), 2, tiny, 7, 0, 2);
}

TEST_F(WorklistModel, AThresholdMovesWhenNothingElseIsLeft) {
  const cw::worklist_options tiny{.queue = 2, .spill = 16, .park = 4, .step = 0, .threshold = 0};
  explore_list(cw::schedule::exhaustive(1, share(300)), 2, tiny, 3, 1, 1);
  explore_list(cw::schedule::random(3, share(50)), 2, tiny, 7, 2, 2);
}

}  // namespace
