// Worklists: every item is done once, whatever the sizes, routes, priorities and delays.
#include "crosswarp/worklist.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crosswarp/world_launch.hpp"
#include "protocols/worklist.hpp"
#include "support/worlds.hpp"

namespace {

using namespace protocols;
using cw::worklist_options;
using testing::ElementsAre;
using testing::HasSubstr;

// What takes seconds elsewhere takes minutes there.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || CROSSWARP_CHECKED
constexpr bool is_slow = true;
#else
constexpr bool is_slow = false;
#endif
/// Fewer between processes, three of which share two cores where this is tested, and fewer still
/// where each packet is a command.
std::uint64_t many(const cw::world& w) {
  for (int r = 0; r < w.size(); ++r) {
    if (r != w.rank() && !w.is_mapped(r)) return 5'000;
  }
  return is_slow || cw::launched() ? 100'000 : 10'000'000;
}

struct tree_case {
  std::uint64_t items = 5000;
  std::uint64_t urgency = 0;
  std::uint64_t delay = 0;  ///< of the last rank, or with `seed` of an eighth of all ranks' items
  int blocks = 1;
  int threads = 1;
  std::uint64_t seed = 0;
};

struct summary {
  std::uint64_t made = 0;
  std::uint64_t done = 0;
  std::uint64_t spilled = 0;
  std::uint64_t stolen = 0;
  std::uint64_t parked = 0;
  std::uint64_t forwarded = 0;
  std::uint64_t epochs = 0;
};

summary sum_up(cw::world& w, const dev::worklist_counts& mine) {
  summary s;
  for (const auto& c : w.allgather(mine)) {
    s.made += c.made;
    s.done += c.done;
    s.spilled += c.spilled;
    s.stolen += c.stolen;
    s.parked += c.parked;
    s.forwarded += c.forwarded;
    s.epochs += c.epochs;
  }
  return s;
}

/// Runs the tree once, and checks that each item was done once and where it belongs.
template <class Route>
summary run_tree(cw::world& w, cw::worklist<std::uint64_t>& list, const tree_case& c,
                 const Route& route) {
  const auto device = w.options().device;
  cw::buffer<std::uint32_t> visits(device, c.items + 1);
  cw::buffer<std::uint64_t> delay(device, 1);
  const bool takes_time = c.seed != 0 || w.rank() + 1 == w.size();
  delay.write(std::vector<std::uint64_t>{takes_time ? c.delay : 0});
  cw::buffer<status> out(device, static_cast<std::size_t>(c.blocks));
  const tree_work program{w.rank(),  w.size(),      c.items,
                          c.urgency, visits.data(), c.delay == 0 ? nullptr : delay.data(),
                          c.seed};
  list.reset();
  cw::launch(w, {.blocks = c.blocks, .threads = c.threads}, run_worklist{}, list.device(), program,
             route, out.data());
  w.stream().sync();
  for (const status s : out.read()) EXPECT_EQ(s, status::ok) << to_string(s);
  const auto seen = visits.read();
  std::uint64_t wrong = 0;
  for (std::uint64_t n = 0; n < c.items; ++n) {
    wrong += seen[n] == (program.owner(n) == w.rank() ? 1U : 0U) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U) << "items of rank " << w.rank() << " were not done once";
  const summary s = sum_up(w, list.counts());
  EXPECT_EQ(s.made, c.items);
  EXPECT_EQ(s.done, c.items);
  return s;
}

template <class Route = dev::direct_route>
summary run_tree(cw::world& w, worklist_options o, const tree_case& c, const Route& route = {}) {
  o.workers = c.blocks * ((c.threads + 31) / 32);
  cw::worklist<std::uint64_t> list(w, o);
  return run_tree(w, list, c, route);
}

TEST(Worklist, EveryItemIsDoneOnceByItsOwner) {
  for (const int ranks : {1, 2, 3}) {
    on_ranks(ranks, [](cw::world& w) {
      run_tree(w, {}, {});
      run_tree(w, {}, {.items = 1});
      const summary none = run_tree(w, {}, {.items = 0});
      EXPECT_EQ(none.spilled, 0U);
    });
  }
}

TEST(Worklist, AWarpWorksTogether) {
  on_ranks(2, [](cw::world& w) {
    run_tree(w, {}, {.items = 500, .threads = 3});
    run_tree(w, {.queue = 4}, {.items = 500, .blocks = 2, .threads = 33});
  });
}

TEST(Worklist, BlocksTakeWorkFromEachOther) {
  on_ranks(2, [](cw::world& w) {
    // The first item's children go to the queue of one worker; the others have what they steal.
    const summary s = run_tree(w, {}, {.items = 20000, .blocks = 3});
    EXPECT_GT(s.stolen, 0U);
  });
}

TEST(Worklist, AQueueOfOnePlaceIsEnough) {
  on_ranks(3, [](cw::world& w) {
    const summary s = run_tree(w, {.queue = 1, .spill = 5000}, {.items = 3000});
    EXPECT_GT(s.spilled, 0U);
    run_tree(w, {.queue = 1, .spill = 5000}, {.items = 3000, .blocks = 2});
  });
}

// A chain of families: each item makes two, of which one is the last of its line. So few live at a
// time, and all of them pass through the same few places.
struct chain_work {
  using item = std::uint64_t;
  int rank;
  int ranks;
  std::uint64_t items;
  std::uint64_t* done;

  CW_FN int owner(item n) const noexcept {
    return static_cast<int>(n % static_cast<std::uint64_t>(ranks));
  }
  CW_FN std::uint64_t priority(item /*n*/) const noexcept { return 0; }
  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    out.push(g, rank == 0 && worker == 0 && g.rank() == 0, 0);
  }
  template <class G, class Out>
  CW_FN void work(const G& g, item n, Out& out) const noexcept {
    const bool first = g.rank() == 0;
    if (first) dev::device_atomic<std::uint64_t>(*done).fetch_add(n, dev::order::relaxed);
    // Even items go on, odd ones end.
    const bool on = first && n % 2 == 0;
    out.push(g, on && n + 1 < items, n + 1);
    out.push(g, on && n + 2 < items, n + 2);
  }
};

TEST(Worklist, MillionsGoThroughSixteenPlaces) {
  on_ranks(2, [](cw::world& w) {
    const auto device = w.options().device;
    const std::uint64_t items = many(w);
    cw::worklist<std::uint64_t> list(w, {.queue = 16, .spill = 64});
    cw::buffer<std::uint64_t> done(device, 1);
    cw::buffer<status> out(device, 1);
    list.reset();
    cw::launch(w, {}, run_worklist{}, list.device(),
               chain_work{w.rank(), w.size(), items, done.data()}, dev::direct_route{}, out.data());
    w.stream().sync();
    EXPECT_EQ(out.read()[0], status::ok);
    std::uint64_t all = 0;
    for (const std::uint64_t part : w.allgather(done.read()[0])) all += part;
    EXPECT_EQ(all, items * (items - 1) / 2);
    EXPECT_EQ(sum_up(w, list.counts()).done, items);
  });
}

TEST(Worklist, ItEndsNeitherEarlyNorNeverWhenARankIsSlow) {
  on_ranks(3, [](cw::world& w) {
    cw::worklist<std::uint64_t> list(w, {.workers = 1, .queue = 8});
    for (const std::uint64_t delay : {1, 100, 3000, 20000}) {
      run_tree(w, list, {.items = 300, .delay = delay}, dev::direct_route{});
    }
  });
}

TEST(Worklist, ItEndsNeitherEarlyNorNeverWhoeverIsSlowAndWhenever) {
  on_ranks(3, [](cw::world& w) {
    cw::worklist<std::uint64_t> list(w, {.workers = 2, .queue = 8, .step = 3, .threshold = 3});
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(seed);
      run_tree(w, list,
               {.items = 300,
                .urgency = seed % 2 == 0 ? 20U : 0U,
                .delay = 3000 * seed,
                .blocks = 2,
                .seed = seed},
               dev::direct_route{});
    }
  });
}

TEST(Worklist, ItemsBehindTheThresholdWaitForIt) {
  on_ranks(2, [](cw::world& w) {
    const summary s =
        run_tree(w, {.step = 1, .threshold = 0}, {.items = 4000, .urgency = 100, .blocks = 2});
    EXPECT_GT(s.parked, 0U);
    EXPECT_GT(s.epochs, 5U) << "40 priorities, two at a time";
    // What cannot be parked is done early instead.
    const summary none =
        run_tree(w, {.park = 0, .step = 1, .threshold = 0}, {.items = 4000, .urgency = 100});
    EXPECT_EQ(none.parked, 0U);
    run_tree(w, {.queue = 1, .spill = 5000, .park = 3, .step = 1, .threshold = 0},
             {.items = 1000, .urgency = 10});
  });
}

TEST(Worklist, ThresholdsSkipPrioritiesThatNobodyHas) {
  on_ranks(2, [](cw::world& w) {
    // One epoch for each of 8 levels of the tree at most, though priorities are far apart.
    const summary s = run_tree(w, {.step = 0, .threshold = 0}, {.items = 8, .urgency = 1});
    EXPECT_LE(s.epochs, 8U);
    EXPECT_GE(s.epochs, 3U);
  });
}

TEST(Worklist, ItemsMayGoAnyWay) {
  on_ranks(3, [](cw::world& w) {
    // As if the first two were on one machine.
    std::vector<int> nodes(static_cast<std::size_t>(w.size()), 1);
    for (int r = 0; r < std::min(2, w.size()); ++r) nodes[static_cast<std::size_t>(r)] = 0;
    for (const cw::routing how : {cw::routing::direct, cw::routing::ring, cw::routing::nodes}) {
      const cw::worklist_route route(w, hops_of(how, nodes, w.rank()));
      const summary s = run_tree(w, {}, {.items = 3000}, route.device());
      EXPECT_EQ(s.forwarded > 0, how != cw::routing::direct && w.size() > 2);
      run_tree(w, {.queue = 1, .spill = 5000}, {.items = 300, .blocks = 2}, route.device());
      run_tree(w, {}, {.items = 100}, cw::worklist_route(w, how).device());
    }
    EXPECT_EQ(run_tree(w, {}, {.items = 3000}, dev::ring_route{}).forwarded > 0, w.size() > 2);
    EXPECT_THROW(cw::worklist_route(w, std::vector<int>{}), cw::error);
    EXPECT_THROW(cw::worklist_route(w, std::vector<int>(nodes.size(), w.size())), cw::error);
  });
}

TEST(Worklist, OneRankOfAMachineGathersForTheOthers) {
  const std::vector<int> nodes = {0, 0, 1, 1, 0};
  const auto hops = [&](int at) { return hops_of(cw::routing::nodes, nodes, at); };
  EXPECT_THAT(hops(0), ElementsAre(0, 1, 2, 2, 4));
  EXPECT_THAT(hops(1), ElementsAre(0, 1, 0, 0, 4));
  EXPECT_THAT(hops(2), ElementsAre(0, 0, 2, 3, 0));
  EXPECT_THAT(hops(3), ElementsAre(2, 2, 2, 3, 2));
  EXPECT_THAT(hops_of(cw::routing::ring, nodes, 4), ElementsAre(0, 0, 0, 0, 4));
}

TEST(Worklist, OneListServesManyRuns) {
  on_ranks(2, [](cw::world& w) {
    cw::worklist<std::uint64_t> list(w, {.workers = 2, .queue = 4, .step = 3, .threshold = 3});
    for (int i = 0; i < 20; ++i) {
      run_tree(w, list, {.items = 200, .urgency = 7, .blocks = 2}, dev::direct_route{});
    }
  });
}

// Each rank makes more for the other one than that has places for and the maker can keep, at the
// same time: each waits for the other's queue, which is full of what it made itself.
struct crossing_work {
  using item = std::uint64_t;  // its last bit is its owner
  int rank;
  std::uint64_t leaves;
  std::uint64_t* done;

  CW_FN int owner(item x) const noexcept { return static_cast<int>(x % 2); }
  CW_FN std::uint64_t priority(item /*x*/) const noexcept { return 0; }
  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    // Made by seeding, so that both ranks have filled the other's queue before they take anything.
    for (std::uint64_t i = 0; i < leaves; ++i) {
      out.push(g, worker == 0 && g.rank() == 0, 2 * i + static_cast<item>(1 - rank));
    }
  }
  template <class G, class Out>
  CW_FN void work(const G& g, item /*x*/, Out& /*out*/) const noexcept {
    if (g.rank() == 0) dev::device_atomic<std::uint64_t>(*done).fetch_add(1, dev::order::relaxed);
  }
};

TEST(Worklist, RanksThatWaitForEachOthersQueuesEmptyTheirOwn) {
  auto o = test_options();
  o.timeout = std::chrono::seconds(5);
  on_ranks(
      2,
      [](cw::world& w) {
        if (w.size() != 2) return;
        cw::worklist<std::uint64_t> list(w, {.queue = 4, .spill = 4});
        cw::buffer<std::uint64_t> done(w.options().device, 1);
        cw::buffer<status> out(w.options().device, 1);
        list.reset();
        // In the queue 4, spilled 4, and then 4 which only fit when the other one sets 4 aside.
        cw::launch(w, {}, run_worklist{}, list.device(), crossing_work{w.rank(), 12, done.data()},
                   dev::direct_route{}, out.data());
        w.stream().sync();
        EXPECT_EQ(out.read()[0], status::ok) << to_string(out.read()[0]);
        EXPECT_EQ(done.read()[0], 12U);
      },
      o);
}

// More live than there is room for anywhere: said when the first deadline passes, on all ranks at
// once, with what to enlarge, and the list is as good as new afterwards.
TEST(Worklist, NoRoomAnywhereIsAnErrorAndNoHang) {
  auto o = test_options();
  o.timeout = std::chrono::milliseconds(500);
  on_ranks(
      2,
      [](cw::world& w) {
        cw::worklist<std::uint64_t> list(w, {.queue = 1, .spill = 2});
        cw::buffer<std::uint32_t> visits(w.options().device, 1000);
        cw::buffer<status> out(w.options().device, 1);
        list.reset();
        cw::launch(w, {}, run_worklist{}, list.device(),
                   tree_work{w.rank(), w.size(), 1000, 0, visits.data(), nullptr},
                   dev::direct_route{}, out.data());
        EXPECT_THROW(w.stream().sync(), cw::error);
        EXPECT_EQ(out.read()[0], status::timeout) << to_string(out.read()[0]);
        std::uint64_t without_room = 0;
        for (const auto& c : w.allgather(list.counts())) without_room += c.no_room;
        EXPECT_GT(without_room, 0U);
        if (list.counts().no_room > 0) {
          EXPECT_THAT(list.complaint(),
                      HasSubstr("1 of 1 workers found no room for their items before the deadline, "
                                "neither in queues of 1 places nor among the 2"));
        } else {
          EXPECT_EQ(list.complaint(), "");
        }
        run_tree(w, list, {.items = 3}, dev::direct_route{});
        EXPECT_EQ(list.complaint(), "");
      },
      o);
}

TEST(Worklist, WhatCannotBeIsRefused) {
  on_ranks(1, [](cw::world& w) {
    const auto complaint = [&](const worklist_options& o) -> std::string {
      try {
        cw::worklist<std::uint64_t> list(w, o);
      } catch (const cw::error& e) {
        return e.what();
      }
      return "nothing";
    };
    EXPECT_THAT(complaint({.workers = 0}), HasSubstr("at least one"));
    EXPECT_THAT(complaint({.queue = 0}), HasSubstr("queue: 0 is no power of two"));
    EXPECT_THAT(complaint({.queue = 12}), HasSubstr("queue: 12 is no power of two"));
    EXPECT_THAT(complaint({.spill = 1ULL << 40U}), HasSubstr("at most 2^30"));
    if (w.size() > 1) return;
    // Another number of warps than workers.
    cw::worklist<std::uint64_t> list(w, {.workers = 2});
    cw::buffer<status> out(w.options().device, 1);
    cw::launch(w, {}, run_worklist{}, list.device(), tree_work{0, 1, 0, 0, nullptr, nullptr},
               dev::direct_route{}, out.data());
    w.stream().sync();
    EXPECT_EQ(out.read()[0], status::invalid);
  });
}

}  // namespace
