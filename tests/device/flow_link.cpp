// Links on which kernels send and receive themselves.
#include "crosswarp/flow_link.hpp"

#include <gtest/gtest.h>

#include "crosswarp/world_launch.hpp"
#include "protocols/flow_stream.hpp"
#include "support/flow_graphs.hpp"
#include "support/worlds.hpp"

namespace {

using namespace protocols;
using cw::flow::device_link;
constexpr std::size_t packet = 5 * sizeof(int);

/// From each rank to the next.
std::vector<std::unique_ptr<device_link>> chain(cw::world& w, std::size_t bytes, int buffers) {
  std::vector<std::unique_ptr<device_link>> all;
  for (int r = 0; r + 1 < w.size(); ++r) {
    all.push_back(std::make_unique<device_link>(w, r, r + 1, bytes, buffers));
  }
  return all;
}

template <class Who>
void check_chain(int ranks, int threads, int buffers, int packets) {
  on_ranks(ranks, [&](cw::world& w) {
    if (w.size() == 1) return;
    const auto links = chain(w, packet, buffers);
    const auto at = [&](int i) {
      const bool is = i >= 0 && i + 1 < w.size();
      return is ? links[static_cast<std::size_t>(i)]->device() : flow::link{};
    };
    cw::buffer<outcome> out(w.options().device, 1);
    cw::launch(w, {.threads = threads}, flow_chain<Who>{}, w.device(), at(w.rank() - 1),
               at(w.rank()), packets, out.data());
    w.stream().sync();
    const outcome o = out.read()[0];
    EXPECT_EQ(o.waits, status::ok) << to_string(o.waits) << " on rank " << w.rank();
    EXPECT_EQ(o.wrong, 0) << "on rank " << w.rank();
    w.barrier();
  });
}

TEST(FlowLink, PacketsArriveInOrderThroughAChain) {
  check_chain<by_thread>(3, 1, 2, 200);
  check_chain<by_warp>(3, 32, 1, 50);
  check_chain<by_block>(3, 48, 3, 50);
  check_chain<by_block>(2, 48, 4, 3);
  check_chain<by_thread>(2, 1, 2, 0);
}

TEST(FlowLink, AKernelTakesFromWhoeverHasSomething) {
  on_ranks(3, [](cw::world& w) {
    using fan_in = flow_fan_in<by_thread>;
    if (w.size() > fan_in::max_ranks) return;
    std::vector<std::unique_ptr<device_link>> made;
    fan_in::links links;
    for (int pe = 1; pe < w.size(); ++pe) {
      made.push_back(std::make_unique<device_link>(w, pe, 0, packet, pe));
      links.from[pe] = made.back()->device();
    }
    cw::buffer<outcome> out(w.options().device, 1);
    cw::launch(w, {}, fan_in{}, w.device(), links, 40, out.data());
    w.stream().sync();
    const outcome o = out.read()[0];
    EXPECT_EQ(o.waits, status::ok) << to_string(o.waits) << " on rank " << w.rank();
    EXPECT_EQ(o.wrong, 0) << "on rank " << w.rank();
    w.barrier();
  });
}

struct send_some {
  CW_FN void operator()(const dev::kernel_context& ctx, const flow::link& l, const int* values,
                        std::size_t count, bool last, status* out) const {
    const auto g = ctx.block();
    auto to = flow::sender::open(g, l);
    status s = to.send(g, values, count * sizeof(int), 7);
    if (s == status::ok && last) s = to.shutdown(g);
    if (s == status::ok && last) {
      s = to.shutdown(g);  // changes nothing
      if (to.send(g, values, sizeof(int)) != status::invalid) s = status::unsupported;
      if (to.reserve(g) != status::invalid) s = status::unsupported;
    }
    if (g.rank() == 0) *out = s;
  }
};

/// A later kernel goes on where the one before ended; and what is longer than a packet is split.
TEST(FlowLink, GoesFromKernelsToTheHost) {
  device_link l(test_device(), packet, 2);
  const auto values = flow_test::numbers(23);
  cw::buffer<status> out(test_device(), 1, cw::memory_kind::pinned);
  cw::stream s(test_device());
  const int* from = values.data();
  cw::launch(s, {.threads = 40}, send_some{}, l.device(), from, std::size_t{11}, false, out.data());
  cw::launch(s, {.threads = 40}, send_some{}, l.device(), from + 11, std::size_t{12}, true,
             out.data());
  const dev::thread_group me;
  auto in = flow::receiver::open(me, l.device());
  std::vector<int> got;
  flow::packet p;
  status outcome = in.receive(me, p);
  for (; outcome == status::ok; outcome = in.receive(me, p)) {
    EXPECT_LE(p.bytes, packet);
    EXPECT_EQ(p.tag, 7U);
    const auto* data = reinterpret_cast<const int*>(p.data);
    got.insert(got.end(), data, data + p.bytes / sizeof(int));
    ASSERT_EQ(in.release(me), status::ok);
  }
  EXPECT_EQ(outcome, status::closed);
  EXPECT_EQ(got, flow_test::range(0, 23));
  s.sync();
  EXPECT_EQ(out.read()[0], status::ok) << to_string(out.read()[0]);
}

struct sum_all {
  CW_FN void operator()(const dev::kernel_context& ctx, const flow::link& l, long* sum,
                        status* out) const {
    const auto g = ctx.thread();
    auto in = flow::receiver::open(g, l);
    flow::packet p;
    status s = in.receive(g, p);
    for (; s == status::ok; s = in.receive(g, p)) {
      for (std::size_t i = 0; i < p.bytes / sizeof(int); ++i) {
        *sum += reinterpret_cast<const int*>(p.data)[i];
      }
      if (in.release(g) != status::ok) break;
    }
    *out = s;
  }
};

TEST(FlowLink, GoesFromTheHostToAKernel) {
  device_link l(test_device(), packet, 1);
  cw::buffer<long> sum(test_device(), 1);
  cw::buffer<status> out(test_device(), 1);
  cw::stream s(test_device());
  cw::launch(s, {}, sum_all{}, l.device(), sum.data(), out.data());
  const dev::thread_group me;
  auto to = flow::sender::open(me, l.device());
  const auto values = flow_test::range(0, 100);
  ASSERT_EQ(to.send(me, values.data(), values.size() * sizeof(int)), status::ok);
  ASSERT_EQ(to.send(me, values.data(), 0), status::ok) << "nothing, and nobody hears of it";
  ASSERT_EQ(to.shutdown(me), status::ok);
  s.sync();
  EXPECT_EQ(out.read()[0], status::closed);
  EXPECT_EQ(sum.read()[0], 4950);
}

/// Sends until there is no room, or takes one packet.
struct fill_or_take {
  CW_FN void operator()(const dev::kernel_context& ctx, const flow::link& l, int value,
                        int* count) const {
    const auto g = ctx.thread();
    if (l.sends) {
      auto to = flow::sender::open(g, l);
      for (; to.reserve(g, l.limits.within(0)) == status::ok; ++*count) {
        if (to.send(g, &value, sizeof(int)) != status::ok) return;
      }
    } else {
      auto from = flow::receiver::open(g, l);
      flow::packet p;
      if (from.receive(g, p) != status::ok || p.bytes != sizeof(int)) return;
      *count = *reinterpret_cast<const int*>(p.data);
      if (from.release(g) != status::ok) *count = -1;
    }
  }
};

/// Over the world's path: only into free packets, the end behind all that was sent, and no send
/// after it.
TEST(FlowLink, BetweenRanksPushesBackAndEnds) {
  on_ranks(2, [](cw::world& w) {
    const int last = w.size() - 1;
    if (last == 0) return;
    const device_link l(w, 0, last, packet, 3);
    const auto values = flow_test::numbers(12, 100);
    cw::buffer<int> count(w.options().device, 1);
    cw::buffer<long> sum(w.options().device, 1);
    cw::buffer<status> out(w.options().device, 1);
    if (w.rank() == 0) {
      cw::launch(w.stream(), {}, fill_or_take{}, l.device(), 7, count.data());
      w.stream().sync();
      EXPECT_EQ(count.read()[0], 3) << "there are three packets";
    }
    w.barrier();
    const int* from = values.data();
    if (w.rank() == 0) {
      cw::launch(w.stream(), {.threads = 4}, send_some{}, l.device(), from, std::size_t{12}, true,
                 out.data());
    }
    if (w.rank() == last) {
      cw::launch(w.stream(), {}, fill_or_take{}, l.device(), 0, count.data());
      cw::launch(w.stream(), {}, sum_all{}, l.device(), sum.data(), out.data());
    }
    w.stream().sync();
    if (w.rank() == 0) {
      EXPECT_EQ(out.read()[0], status::ok) << to_string(out.read()[0]);
    }
    if (w.rank() == last) {
      EXPECT_EQ(out.read()[0], status::closed) << to_string(out.read()[0]);
      EXPECT_EQ(count.read()[0], 7);
      EXPECT_EQ(sum.read()[0], 2 * 7 + 12 * 100 + 66);
    }
    w.barrier();
  });
}

/// Ends its side of a link behind a put that is refused, which only quiet() tells of.
struct end_behind_a_refused_put {
  CW_FN void operator()(const dev::kernel_context& ctx, const flow::link& l, status* out) const {
    const auto g = ctx.thread();
    const dev::remote_address nowhere{std::uint64_t{1} << 40U, l.memory.region};
    *out = l.proxy.queue(0).put_value(g, l.peer, nowhere, 1, 8);
    if (*out != status::ok) return;
    if (l.sends) {
      auto to = flow::sender::open(g, l);
      *out = to.shutdown(g);
    } else {
      auto from = flow::receiver::open(g, l);
      flow::packet p;
      *out = from.receive(g, p);
    }
  }
};

/// What a link had under way would fall into what is allocated where it was. So behind the proxy
/// both sides are quiet at its end: they hear what became of all that they asked for.
TEST(FlowLink, BetweenRanksLeavesNothingUnderWayWhenItHasEnded) {
  on_ranks(2, [](cw::world& w) {
    const int last = w.size() - 1;
    // Entries for an adapter are refused at once, and not by quiet().
    const int by_proxy = w.path_to(last).rfind("proxy", 0) == 0 ? 1 : 0;
    if (w.allgather(by_proxy).front() == 0) return;
    const device_link l(w, 0, last, packet, 3);
    cw::buffer<status> out(w.options().device, 1);
    if (w.rank() == 0 || w.rank() == last) {
      cw::launch(w.stream(), {}, end_behind_a_refused_put{}, l.device(), out.data());
      w.stream().sync();
      EXPECT_EQ(out.read()[0], status::invalid) << to_string(out.read()[0]);
    }
    w.barrier();
  });
}

TEST(FlowLink, AFullLinkPushesBackUntilTheDeadline) {
  device_link l(test_device(), packet, 2, std::chrono::milliseconds(20));
  const dev::thread_group me;
  auto to = flow::sender::open(me, l.device());
  const auto values = flow_test::range(0, 15);
  EXPECT_EQ(to.send(me, values.data(), 15 * sizeof(int)), status::timeout);
  EXPECT_EQ(to.shutdown(me), status::timeout) << "there is no packet to say it in";
  auto in = flow::receiver::open(me, l.device());
  flow::packet p;
  ASSERT_EQ(in.receive(me, p), status::ok);
  EXPECT_EQ(reinterpret_cast<const int*>(p.data)[4], 4);
  ASSERT_EQ(in.release(me), status::ok);
  EXPECT_EQ(to.shutdown(me), status::ok);
  ASSERT_EQ(in.receive(me, p), status::ok) << "what was sent before the end";
  EXPECT_EQ(reinterpret_cast<const int*>(p.data)[0], 5);
  ASSERT_EQ(in.release(me), status::ok);
  EXPECT_EQ(in.receive(me, p), status::closed);
}

TEST(FlowLink, AnEmptyLinkIsWaitedForUntilTheDeadline) {
  device_link l(test_device(), packet, 2, std::chrono::milliseconds(20));
  const dev::thread_group me;
  auto in = flow::receiver::open(me, l.device());
  flow::packet p;
  EXPECT_EQ(in.receive(me, p), status::timeout);
}

TEST(FlowLink, SaysWhatIsWrong) {
  const auto bad = cw::errc::invalid_argument;
  flow_test::expect_error([] { device_link l(test_device(), 0, 1); }, bad, "at least 1 buffer");
  flow_test::expect_error([] { device_link l(test_device(), 8, 0); }, bad, "at least 1 buffer");
  flow_test::expect_error([] { device_link l(test_device(), std::size_t{1} << 63U, 2); },
                          cw::errc::out_of_memory, "2 buffers");
  device_link l(test_device(), packet, 1);
  const dev::thread_group me;
  auto to = flow::sender::open(me, l.device());
  EXPECT_EQ(to.send(me, packet + 1), status::invalid) << "more than a packet holds";
  flow::link nobody;
  flow::packet p;
  EXPECT_EQ(flow::sender::open(me, nobody).reserve(me), status::invalid);
  EXPECT_EQ(flow::sender::open(me, nobody).shutdown(me), status::invalid);
  EXPECT_EQ(flow::receiver::open(me, nobody).receive(me, p), status::invalid);
  EXPECT_EQ(flow::receiver::open(me, nobody).release(me), status::invalid);
  on_ranks(2, [&](cw::world& w) {
    flow_test::expect_error([&] { device_link none(w, 0, w.size(), packet, 1); }, bad,
                            "is none of");
  });
}

}  // namespace
