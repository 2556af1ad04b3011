// What links and routers promise between ranks: the promises of flow.cpp, over every path of a
// world. Rank 0 sends, the last rank receives; of one rank both are the same.
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <thread>

#include "crosswarp/world.hpp"
#include "flow/core.hpp"
#include "flow/station.hpp"
#include "flow/world_core.hpp"
#include "flow/world_router.hpp"
#include "support/flow_gate.hpp"
#include "support/flow_graphs.hpp"
#include "support/worlds.hpp"

namespace {

using namespace flow_test;
constexpr std::size_t four = 4 * sizeof(int);
const auto bad = cw::errc::invalid_argument;

/// A graph of one link, and who is at its ends.
struct one_way {
  explicit one_way(cw::world& world, int buffers = 1)
      : w(world),
        sends(w.rank() == 0),
        receives(w.rank() == w.size() - 1),
        ctx(w),
        link(ctx.link(ctx.devices().front(), ctx.devices().back(), four, buffers)) {}
  cw::world& w;
  bool sends;
  bool receives;
  flow::context ctx;
  flow::link link;
};

TEST(FlowWorld, MovesOnlyIntoPostedBuffersAndSplitsToThem) {
  on_ranks(2, [](cw::world& w) {
    const auto source = numbers(10);
    one_way g(w);
    std::optional<flow::future<flow::completion>> sent;
    std::optional<flow::pending_segment> first;
    if (g.sends) sent = g.link.send(all_of(source, 77));
    if (g.receives) {
      first = g.link.receive().get();
      EXPECT_EQ(read(*first), range(0, 4));
      EXPECT_EQ(first->tag(), 77U);
      EXPECT_EQ(first->source(), 0);
    }
    w.barrier();
    if (g.sends) {
      EXPECT_FALSE(sent->ready()) << "the one buffer is held";
    }
    if (g.receives) {
      const auto second = g.link.receive();
      EXPECT_FALSE(second.ready());
      EXPECT_EQ(g.link.bytes_moved(), four);
      w.barrier();
      g.link.release(*first);
      EXPECT_EQ(read(second.get()), range(4, 8));
      EXPECT_EQ(second.get().offset(), four);
      g.link.release(second.get());
      EXPECT_EQ(take(g.link), range(8, 10));
      EXPECT_EQ(g.link.bytes_moved(), 10 * sizeof(int));
    } else {
      w.barrier();
    }
    if (g.sends) sent->get().sync();
  });
}

TEST(FlowWorld, ASendIsQueuedAndWaitsForItsSourceOnTheCopyStream) {
  on_ranks(2, [](cw::world& w) {
    auto source = numbers(4);
    gate held;
    one_way g(w);
    std::optional<flow::future<flow::completion>> sent;
    if (g.sends) {
      sent = g.link.send(all_of(source), held.close());
      EXPECT_FALSE(sent->get().ready()) << "its copies are queued, and wait";
    }
    std::optional<flow::future<flow::pending_segment>> received;
    if (g.receives) received = g.link.receive();
    w.barrier();
    if (g.receives) {
      EXPECT_FALSE(received->ready());
    }
    w.barrier();
    if (g.sends) {
      source.write(range(40, 44));  // what the held stream would have computed
      held.open();
    }
    if (g.receives) {
      EXPECT_EQ(read(received->get()), range(40, 44));
    }
    if (g.sends) sent->get().sync();
  });
}

TEST(FlowWorld, ABufferThatIsStillUsedIsOverwrittenOnlyAfterItsEvent) {
  on_ranks(2, [](cw::world& w) {
    const auto source = numbers(8);
    gate held;
    one_way g(w);
    if (g.sends) (void)g.link.send(all_of(source));
    if (g.receives) {
      const auto first = g.link.receive().get();
      EXPECT_EQ(read(first), range(0, 4));
      g.link.release(first, held.close());
      const auto next = g.link.receive();
      EXPECT_FALSE(next.ready());
      EXPECT_EQ(read(first), range(0, 4));
      held.open();
      EXPECT_EQ(read(next.get()), range(4, 8));
    }
  });
}

TEST(FlowWorld, AnEmptySendIsDoneAtOnceAndOneAfterShutdownIsAnError) {
  on_ranks(2, [](cw::world& w) {
    const auto source = numbers(4);
    one_way g(w);
    if (g.sends) {
      const auto sent = g.link.send(flow::segment{});
      ASSERT_TRUE(sent.ready());
      EXPECT_TRUE(sent.get().ready());
      g.link.shutdown();
      g.link.shutdown();  // changes nothing
      expect_error([&] { (void)g.link.send(all_of(source)); }, bad, "has shut down");
      expect_error([&] { (void)g.link.send(flow::segment{}); }, bad, "has shut down");
    }
    if (g.receives) {
      EXPECT_TRUE(g.link.receive().get().empty()) << "nobody heard of nothing";
      EXPECT_TRUE(g.link.receive().get().empty()) << "and every later one";
    }
  });
}

TEST(FlowWorld, KeepsOrderAndWhatWasSentBeforeShutdownArrives) {
  on_ranks(2, [](cw::world& w) {
    const auto first = numbers(30);
    const auto second = numbers(31, 30);
    one_way g(w, 3);
    std::vector<flow::future<flow::completion>> sent;
    if (g.sends) {
      sent.push_back(g.link.send(all_of(first)));
      sent.push_back(g.link.send(all_of(second)));
      g.link.shutdown();
    }
    if (g.receives) {
      EXPECT_EQ(drain(g.link), range(0, 61));
    }
    for (const auto& s : sent) s.get().sync();
  });
}

TEST(FlowWorld, OwnBuffersAreFilledOnAStreamAndUsedAgain) {
  on_ranks(2, [](cw::world& w) {
    const auto source = numbers(24);
    cw::stream s(test_device());
    one_way g(w, 2);
    for (int i = 0; g.sends && i < 6; ++i) {
      const auto mine = g.link.send_buffer(s);
      s.copy(mine.data(), source.data() + 4 * i, four);
      (void)g.link.send({mine.data(), four}, s);
      if (g.receives) {
        EXPECT_EQ(take(g.link), range(4 * i, 4 * i + 4));
      }
    }
    for (int i = 0; g.receives && !g.sends && i < 6; ++i) {
      EXPECT_EQ(take(g.link), range(4 * i, 4 * i + 4));
    }
    w.barrier();
  });
}

TEST(FlowWorld, SendersAreCountedAcrossRanks) {
  on_ranks(3, [](cw::world& w) {
    const auto source = numbers(10, 100 * w.rank());
    flow::context ctx(w);
    auto r = ctx.router(w.size(), 1, flow::gather());
    std::vector<flow::link> in;
    for (const auto d : ctx.devices()) in.push_back(ctx.link(d, r, four, 1));
    auto out = ctx.link(r, flow::host_of(w.size() - 1), four, 2);
    auto& mine = in[static_cast<std::size_t>(w.rank())];
    const auto sent = mine.send(all_of(source));
    if (w.rank() != 0) mine.shutdown();
    std::vector<std::vector<int>> got(static_cast<std::size_t>(w.size()));
    if (w.rank() == w.size() - 1) {
      for (int left = 10 * w.size(); left > 0;) {
        const auto s = out.receive().get();
        const auto part = read(s);
        auto& of = got.at(static_cast<std::size_t>(s.source()));
        EXPECT_EQ(s.offset(), of.size() * sizeof(int)) << "in the order of each sender";
        of.insert(of.end(), part.begin(), part.end());
        left -= static_cast<int>(part.size());
        out.release(s);
      }
      for (int i = 0; i < w.size(); ++i) {
        EXPECT_EQ(got[static_cast<std::size_t>(i)], range(100 * i, 100 * i + 10));
      }
      const auto last = out.receive();
      EXPECT_FALSE(last.ready()) << "rank 0 may still send";
      w.barrier();
      if (w.rank() == 0) mine.shutdown();
      EXPECT_TRUE(last.get().empty());
    } else {
      w.barrier();
      if (w.rank() == 0) mine.shutdown();
    }
    sent.get().sync();
  });
}

TEST(FlowWorld, ARouterServesAllRanks) {
  on_ranks(3, [](cw::world& w) {
    flow::context ctx(w);
    const auto source = numbers(11, 100 * w.rank());
    auto r = ctx.router(w.size(), w.size(), flow::ring());
    auto leaves = ctx.router(w.size(), w.size(), flow::tree_reduction());
    std::vector<flow::link> to;
    std::vector<flow::link> from;
    for (const auto d : ctx.devices()) to.push_back(ctx.link(d, r, four, 1));
    for (const auto d : ctx.devices()) from.push_back(ctx.link(r, d, four, 2));
    for (const auto d : ctx.devices()) (void)ctx.link(d, leaves, four, 1);
    std::vector<flow::link> down;
    for (const auto d : ctx.devices()) down.push_back(ctx.link(leaves, d, four, 1));
    const auto me = static_cast<std::size_t>(w.rank());
    const auto sent = to[me].send(all_of(source));
    to[me].shutdown();
    const int left = (w.rank() + w.size() - 1) % w.size();
    EXPECT_EQ(drain(from[me]), range(100 * left, 100 * left + 11));
    sent.get().sync();
    if (w.rank() % 2 == 1) {
      EXPECT_TRUE(down[me].receive().get().empty()) << "nobody reaches it";
    }
    EXPECT_NE(from[me].explain(left).find("rank " + std::to_string(left) + " copies to rank"),
              std::string::npos)
        << from[me].explain(left);
  });
}

TEST(FlowWorld, SaysWhatIsWrong) {
  on_ranks(2, [](cw::world& w) {
    const auto source = numbers(8);
    std::optional<flow::link> kept;
    {
      one_way g(w, 2);
      kept = g.link;
      if (!g.sends) {
        expect_error([&] { (void)g.link.send(all_of(source)); }, bad, "is rank 0's to use");
        expect_error([&] { g.link.shutdown(); }, bad, "is rank 0's to use");
      }
      if (!g.receives) {
        expect_error([&] { (void)g.link.receive(); }, bad,
                     "this is rank " + std::to_string(w.rank()));
      }
      expect_error(
          [&] {
            (void)g.ctx.link(flow::host, flow::host, four, 1, {.how = flow::transport::direct});
          },
          bad, "leave the transport automatic");
      expect_error([&] { (void)g.ctx.link(flow::host_of(w.size()), flow::host, four, 1); }, bad,
                   "is none of this context");
      expect_error([&] { (void)g.ctx.router(1, 1000, flow::any_available()); },
                   cw::errc::not_supported, "1000 outputs");
      auto r = g.ctx.router(1, 2, flow::any_available());
      auto in = g.ctx.link(flow::host, r, four, 1);
      if (g.sends) {
        expect_error([&] { (void)in.send(all_of(source)); }, bad, "0 of 2 outputs");
        (void)g.link.send(all_of(source));
        g.link.shutdown();
      }
      if (g.receives) {
        const auto s = g.link.receive().get();
        g.link.release(s);
        expect_error([&] { g.link.release(s); }, bad, "given back before");
        expect_error([&] { g.link.release({}); }, bad, "empty");
        EXPECT_EQ(drain(g.link), range(4, 8));
      }
    }
    if (w.rank() == 0) {
      expect_error([&] { (void)kept->send(all_of(source)); }, bad,
                   "context of this link has ended");
    }
  });
}

TEST(FlowWorld, RanksThatMakeDifferentGraphsAreAllToldTheFirstDifference) {
  on_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    flow::context ctx(w);
    (void)ctx.router(1, 1, flow::ring());
    const int inputs = w.rank() == 0 ? 1 : 2;
    expect_error([&] { (void)ctx.router(inputs, 2, flow::ring()); }, cw::errc::asymmetric,
                 "as number 1 of the graph rank " + std::to_string(w.rank()) +
                     " makes a router of " + std::to_string(inputs) + " inputs");
    if (w.rank() != 0) {
      w.barrier();
      return;
    }
    expect_error([&] { (void)ctx.router(1, 1, flow::ring()); }, cw::errc::asymmetric,
                 "rank 1 makes none");
  });
}

TEST(FlowWorld, HostsSayWhichMachineTheyAreOn) {
  on_ranks(2, [](cw::world& w) {
    const flow::context ctx(w);
    const auto& spots = ctx.host_spots();
    ASSERT_EQ(spots.size(), static_cast<std::size_t>(w.size()));
    for (int r = 0; r < w.size(); ++r) {
      EXPECT_EQ(spots[static_cast<std::size_t>(r)].machine, w.node_of(r));
    }
  });
}

TEST(FlowWorld, WaysBetweenRanksAreMeasured) {
  on_ranks(2, [](cw::world& w) {
    const auto t = flow::measure_bandwidth(w, 1U << 12U);
    ASSERT_EQ(t.size(), static_cast<std::size_t>(w.size()));
    for (std::size_t a = 0; a < t.size(); ++a) {
      for (std::size_t b = 0; b < t.size(); ++b) EXPECT_EQ(t[a][b] > 0, a != b);
    }
    const flow::context ctx(w);
    EXPECT_NE(flow::by_topology(t, ctx.host_spots()).explain().find("GB/s"), std::string::npos);
    expect_error([&] { (void)flow::measure_bandwidth(w, 0); }, bad, "measure nothing");
  });
}

TEST(FlowWorld, ASendThatWasWaitedForInVainIsWithdrawn) {
  if (cw::launched()) GTEST_SKIP() << "the deadline is the launcher's";
  auto o = test_options();
  o.timeout = std::chrono::seconds(1);
  std::promise<void> withdrawn;  // a barrier has the deadline, too
  cw::run_local(2, o, [&](cw::world& w) {
    const auto other = numbers(3, 8);
    std::optional<cw::buffer<int>> source(numbers(8));
    one_way g(w);
    std::optional<flow::pending_segment> first;
    if (g.receives) first = g.link.receive().get();
    if (g.sends) {
      const auto sent = g.link.send(all_of(*source));
      expect_error([&] { (void)sent.get(); }, cw::errc::timeout, "1000 ms");
      source.reset();
      withdrawn.set_value();
    } else {
      withdrawn.get_future().wait();
    }
    std::optional<flow::future<flow::completion>> next;
    if (g.sends) {
      next = g.link.send(all_of(other));
      g.link.shutdown();
    }
    if (g.receives) {
      EXPECT_EQ(read(*first), range(0, 4));
      g.link.release(*first);
      EXPECT_EQ(drain(g.link), range(8, 11));
    }
    if (next) next->get().sync();
  });
}

TEST(FlowWorld, WaitsEndAtTheDeadlineAndWhenTheContextIsAborted) {
  if (cw::launched()) GTEST_SKIP() << "the launcher ends jobs; see multiproc.lost_ranks";
  auto o = test_options();
  o.timeout = std::chrono::milliseconds(500);
  std::promise<void> passed;  // a barrier has the deadline, too
  const auto rank_main = [&](cw::world& w) {
    const auto source = numbers(8);
    one_way g(w);
    if (g.receives) {
      expect_error([&] { (void)g.link.receive().get(); }, cw::errc::timeout, "500 ms");
      passed.set_value();
      expect_error([&] { (void)g.link.receive().get(); }, cw::errc::aborted, "receive");
    } else {
      passed.get_future().wait();
      g.ctx.abort("the input is broken");
      expect_error([&] { (void)g.link.send(all_of(source)); }, cw::errc::aborted,
                   "the input is broken");
    }
  };
  try {
    cw::run_local(2, o, rank_main);
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::aborted) << e.what();
  }
}

/// Who hears of an abort leaves, and takes what it sent along. The world hears of one a moment
/// later; here it does not, as if that moment were long.
TEST(FlowWorld, AfterAnAbortNothingIsReadOfWhatWasSent) {
  on_ranks(2, [](cw::world& w) {
    const int last = w.size() - 1;
    if (last == 0) return;
    std::optional<cw::buffer<int>> source(numbers(8));
    const auto core = flow::impl::make_world_core(w);
    using kind = flow::endpoint::kind;
    const auto l = core->link({kind::device, 0}, {kind::device, last}, four, 1, {});
    if (w.rank() == 0) (void)l->send(all_of(*source), {});
    const auto& at = l->receiver;
    std::optional<flow::pending_segment> first;
    if (w.rank() == last) {
      first = at.of->receive(at.index).get();
      EXPECT_EQ(read(*first), range(0, 4));
    }
    w.barrier();
    if (w.rank() == 0) {
      core->abort("enough");
      source.reset();
    }
    w.barrier();
    if (w.rank() == last) {
      at.of->release(at.index, *first, {});  // now there is room for more
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(l->bytes_moved(), four);
    }
    w.barrier();
  });
}

/// Who hears from a barrier that the world is broken leaves, too. A letter of the router's home may
/// have come just before: the station is handed it here as if it had not looked yet.
TEST(FlowWorld, WhenTheWorldIsBrokenNothingIsReadOfWhatWasSent) {
  if (cw::launched()) GTEST_SKIP() << "the launcher ends jobs";
  using flow::impl::message;
  const auto rank_main = [](cw::world& w) {
    const auto source = numbers(8);
    const auto limits = std::make_shared<flow::impl::waits>(w.device().limits, nullptr, true);
    const auto at = std::make_shared<flow::impl::station>(w, limits);
    const auto r = flow::impl::world_router::make(at, limits, 0, {1, 1}, flow::any_available());
    r->add_output({four, 1, test_device(), 0, flow::transport::automatic});
    r->add_input(test_device(), 0);
    (void)r->send(0, all_of(source), {});
    const auto first = r->receive(0).get();
    EXPECT_EQ(read(first), range(0, 4));
    {
      const std::scoped_lock lock(at->mutex());
      w.abort("enough");
      message give;
      give.what = message::kind::give;
      give.source = give.output = give.slot = 0;
      give.offset = give.bytes = four;
      r->handle(give);
    }
    r->finish();
    EXPECT_EQ(read(first), range(0, 4));
  };
  try {
    cw::run_local(1, test_options(), rank_main);
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::aborted) << e.what();
  }
}

TEST(FlowWorld, WaitsEndWhenARankThrows) {
  if (cw::launched()) GTEST_SKIP() << "the launcher ends jobs; see multiproc.flow_faults";
  try {
    cw::run_local(2, test_options(), [](cw::world& w) {
      one_way g(w);
      if (g.sends) throw std::runtime_error("lost its way");
      expect_error([&] { (void)g.link.receive().get(); }, cw::errc::aborted, "receive");
    });
    FAIL() << "what the rank threw is thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("lost its way"), std::string::npos) << e.what();
  }
}

}  // namespace
