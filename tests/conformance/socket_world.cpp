// Sockets of a world: ends of one world go around TCP, and what kernels see stays the same.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iostream>

#include "crosswarp/world.hpp"
#include "support/peer.hpp"
#include "support/socket_caller.hpp"
#include "support/worlds.hpp"

using namespace calls;

namespace {

constexpr std::size_t lane_bytes = 4096;

cw::socket::service_options small() {
  cw::socket::service_options o;
  o.sockets = 16;
  o.ring_bytes = 4096;
  o.most_ring_bytes = 4096;
  o.ring_budget = 1 << 20;
  o.lanes = 8;
  o.lane_bytes = lane_bytes;
  o.threads = socket_threads();
  return o;
}

/// Both ends of a connection are in one service, that of the only rank.
struct both_ends {
  explicit both_ends(cw::world& w, const cw::socket::service_options& o = small())
      : net(w, o), k(net) {
    l = k.listen();
    EXPECT_TRUE(l) << l.error();
  }
  /// A connection whose ends have met in lanes.
  void meet() {
    const std::uint64_t before = net.stats().around;
    c = k.connect(k.own_name(l));
    EXPECT_TRUE(c) << c.error();
    s = k.accept(l);
    EXPECT_TRUE(s) << s.error();
    EXPECT_TRUE(eventually([&] { return net.stats().around == before + 2; }));
  }
  cw::socket::service net;
  caller<> k;
  handle l;
  handle c;
  handle s;
};

void on_one_rank(const std::function<void(cw::world&)>& f) {
  cw::run_local(1, test_options(), f);
}

void with_lanes(const std::function<void(both_ends&)>& f) {
  on_one_rank([&](cw::world& w) {
    both_ends e(w);
    e.meet();
    f(e);
  });
}

// ---- bytes

template <class By>
void go_around() {
  SCOPED_TRACE(threads_of<By>());
  with_lanes([](both_ends& e) {
    caller<By> k(e.net);
    EXPECT_EQ(k.send(e.c, "to the server"), 13);
    EXPECT_EQ(k.recv_all(e.s, 13), "to the server");
    EXPECT_EQ(k.send(e.s, "and back"), 8);
    EXPECT_EQ(k.recv_all(e.c, 8), "and back");
    // Round the ring's end, several times.
    for (unsigned i = 0; i < 8; ++i) {
      const std::string text = pattern(3000, i);
      EXPECT_EQ(k.send(e.c, text), 3000);
      EXPECT_EQ(k.recv_all(e.s, 3000), text);
    }
    EXPECT_EQ(e.net.stats().sent_bytes, 0U) << "nothing went by TCP";
  });
}

TEST(SocketLanes, BytesGoAroundTcp) {
  go_around<by_thread>();
  go_around<by_warp>();
  go_around<by_block>();
}

TEST(SocketLanes, WhatWasSentBeforeComesFirst) {
  on_one_rank([](cw::world& w) {
    auto o = small();
    o.per_listener = 1;
    both_ends e(w, o);
    e.meet();
    // The next one waits in Linux's backlog, and is connected all the same: by TCP alone.
    const handle c = e.k.connect(e.k.own_name(e.l));
    EXPECT_EQ(e.k.send(c, pattern(5000)), 5000);
    EXPECT_EQ(e.k.close(e.c), 0);
    EXPECT_EQ(e.k.close(e.s), 0);
    const handle s = e.k.accept(e.l);
    ASSERT_TRUE(s) << s.error();
    ASSERT_TRUE(eventually([&] { return e.net.stats().around == 4; }));
    EXPECT_EQ(e.k.send(c, pattern(3000, 2)), 3000);
    EXPECT_EQ(e.k.send(c, pattern(1000, 3)), 1000);
    EXPECT_EQ(e.net.stats().sent_bytes, 5000U);
    EXPECT_EQ(e.k.shutdown(c, sock::half::send), 0);
    EXPECT_EQ(e.k.recv_all(s, 10'000), pattern(5000) + pattern(3000, 2) + pattern(1000, 3));
    EXPECT_EQ(e.k.recv_result(s), 0);
  });
}

TEST(SocketLanes, PiecesOfTheRingItself) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, pattern(3000)), 3000);
    EXPECT_EQ(e.k.recv_all(e.s, 3000), pattern(3000));
    const std::string text = pattern(2000, 5);
    e.k.put(text);
    EXPECT_EQ(e.k({.what = op::reserve, .s = e.c, .n = 2000}), static_cast<int>(lane_bytes));
    EXPECT_EQ(e.k.last.first, lane_bytes - 3000);
    EXPECT_EQ(e.k({.what = op::commit, .s = e.c, .n = lane_bytes + 1}), -EINVAL);
    EXPECT_EQ(e.k({.what = op::commit, .s = e.c, .n = 2000}), 2000);
    EXPECT_EQ(e.k({.what = op::view, .s = e.s}), 2000);
    EXPECT_EQ(e.k.last.first, lane_bytes - 3000);
    EXPECT_EQ(e.k.text(2000), text);
    EXPECT_EQ(e.k({.what = op::consume, .s = e.s, .n = 2001}), -EINVAL);
    EXPECT_EQ(e.k({.what = op::consume, .s = e.s, .n = 2000}), 2000);
    EXPECT_EQ(e.k({.what = op::reserve, .s = e.c, .n = lane_bytes + 1}), -EMSGSIZE);
  });
}

// ---- waiting

TEST(SocketLanes, AFullLaneHoldsTheSenderBack) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, pattern(lane_bytes + 100), soon), static_cast<int>(lane_bytes));
    EXPECT_EQ(e.k.send(e.c, "x", at_once), -EAGAIN);
    EXPECT_EQ(e.k.send(e.c, "x", soon), -ETIMEDOUT);
    EXPECT_EQ(e.k.ready(e.c, sock::event::writable, at_once), 0U);
    EXPECT_EQ(e.k.recv(e.s, 100), pattern(lane_bytes).substr(0, 100));
    EXPECT_EQ(e.k.ready(e.c, sock::event::writable), sock::event::writable);
    EXPECT_EQ(e.k.send(e.c, pattern(200), soon), 100);
  });
}

TEST(SocketLanes, DeadlinesHold) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, "x"), 1);
    EXPECT_EQ(e.k.recv(e.s, 10), "x");
    EXPECT_EQ(e.k.recv_result(e.s, at_once), -EAGAIN);
    EXPECT_EQ(e.k.recv_result(e.s, soon), -ETIMEDOUT);
    EXPECT_EQ(e.k.ready(e.s, sock::event::readable, soon), 0U);
  });
}

/// Sends when the other thread polls already.
struct send_late {
  CW_FN void operator()(const context& ctx, const sock::service& net, handle from, handle to,
                        std::int64_t* out) const {
    const auto g = ctx.thread();
    if (ctx.block_index() == 0) {
      sock::poll_item item{to, sock::event::readable, 0};
      *out = net.poll(g, &item, 1) == 1 ? item.ready : -1;
    } else {
      const std::uint64_t began = dev::now_ns();
      (void)dev::poll_until([&] { return dev::now_ns() - began > 5'000'000; }, dev::wait_limits{});
      (void)net.send(g, from, "x", 1);
    }
  }
};

TEST(SocketLanes, PollSeesWhatNoHostDoes) {
  with_lanes([](both_ends& e) {
    cw::stream stream(test_device());
    cw::buffer<std::int64_t> out(test_device(), 1);
    cw::launch(stream, {.blocks = 2}, send_late{}, e.net.device(), e.c, e.s, out.data());
    stream.sync();
    EXPECT_EQ(out.read()[0], sock::event::readable);
    EXPECT_EQ(e.net.stats().sent_bytes, 0U);
  });
}

// ---- ends

TEST(SocketLanes, EachHalfEndsByItself) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, "last words"), 10);
    EXPECT_EQ(e.k.shutdown(e.c, sock::half::send), 0);
    EXPECT_EQ(e.k.send(e.c, "more"), -EPIPE);
    EXPECT_EQ(e.k.recv_all(e.s, 100), "last words");
    EXPECT_EQ(e.k.recv_result(e.s), 0);
    EXPECT_EQ(e.k.send(e.s, "still here"), 10);
    EXPECT_EQ(e.k.recv_all(e.c, 10), "still here");
    EXPECT_EQ(e.k.close(e.s), 0);
    EXPECT_EQ(e.k.recv_result(e.c), 0);
    EXPECT_EQ(e.k.close(e.c), 0);
  });
}

TEST(SocketLanes, AnEndWithoutAByteIsAnEnd) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.close(e.c), 0);
    EXPECT_EQ(e.k.recv_result(e.s), 0);
  });
}

TEST(SocketLanes, BytesBeforeAResetAreDelivered) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, "bytes"), 5);
    EXPECT_EQ(e.k.abort(e.c), 0);
    ASSERT_TRUE(eventually(
        [&] { return (e.k.ready(e.s, sock::event::readable) & sock::event::error) != 0; }));
    EXPECT_EQ(e.k.recv_all(e.s, 5), "bytes");
    EXPECT_EQ(e.k.recv_result(e.s), -ECONNRESET);
    EXPECT_EQ(e.k.recv_result(e.s), 0);
    EXPECT_EQ(e.k.send(e.s, "x"), -EPIPE);
  });
}

TEST(SocketLanes, WhoClosesWithoutHavingReadResets) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, "unread"), 6);
    EXPECT_EQ(e.k.close(e.s), 0);
    EXPECT_EQ(e.k.recv_result(e.c), -ECONNRESET);
    EXPECT_EQ(e.k.send(e.c, "x"), -EPIPE);
  });
}

TEST(SocketLanes, SendAfterThePeersCloseSucceedsOnce) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, "x"), 1);
    EXPECT_EQ(e.k.recv(e.s, 1), "x");
    EXPECT_EQ(e.k.close(e.s), 0);
    EXPECT_EQ(e.k.recv_result(e.c), 0);
    EXPECT_EQ(e.k.send(e.c, "one"), 3);
    EXPECT_EQ(e.k.send(e.c, "two"), -EPIPE);
  });
}

TEST(SocketLanes, StopEndsWhatKernelsWaitFor) {
  with_lanes([](both_ends& e) {
    EXPECT_EQ(e.k.send(e.c, "x"), 1);
    EXPECT_EQ(e.k.recv(e.s, 1), "x");
    e.net.stop();
    EXPECT_EQ(e.k.recv_result(e.s), -ESHUTDOWN);
    // This end may be another thread's, which has not heard of it yet.
    EXPECT_TRUE(eventually([&] { return e.k.send(e.c, "x") == -ESHUTDOWN; }));
  });
}

// ---- which connections

TEST(SocketLanes, AreUsedAgainAndNobodyFindsWhatAnotherHad) {
  on_one_rank([](cw::world& w) {
    auto o = small();
    o.lanes = 2;
    both_ends e(w, o);
    for (int i = 0; i < 10; ++i) {
      e.meet();
      EXPECT_EQ(e.k({.what = op::peek_ring, .s = e.c}), static_cast<int>(lane_bytes));
      EXPECT_EQ(e.k.text(lane_bytes), std::string(lane_bytes, '\0'));
      EXPECT_EQ(e.k.send(e.c, pattern(lane_bytes)), static_cast<int>(lane_bytes));
      EXPECT_EQ(e.k.recv_all(e.s, lane_bytes), pattern(lane_bytes));
      EXPECT_EQ(e.k.close(e.c), 0);
      EXPECT_EQ(e.k.close(e.s), 0);
      EXPECT_TRUE(eventually([&] { return e.net.stats().sockets == 1; }));
    }
    EXPECT_EQ(e.net.stats().sent_bytes, 0U);
    // No lane is left for a second one at the same time.
    e.meet();
    const handle c = e.k.connect(e.k.own_name(e.l));
    const handle s = e.k.accept(e.l);
    EXPECT_EQ(e.k.send(c, "by TCP"), 6);
    EXPECT_EQ(e.k.recv_all(s, 6), "by TCP");
    EXPECT_EQ(e.net.stats().sent_bytes, 6U);
  });
}

TEST(SocketLanes, StrangersStayWithTcpAndGiveTheirLaneBack) {
  on_one_rank([](cw::world& w) {
    auto o = small();
    o.lanes = 2;
    both_ends e(w, o);
    peer p(e.k.own_name(e.l));
    const handle s = e.k.accept(e.l);
    p.write("from outside");
    EXPECT_EQ(e.k.recv_all(s, 12), "from outside");
    EXPECT_EQ(e.k.send(s, "hello"), 5);
    EXPECT_EQ(p.read(5), "hello");
    EXPECT_EQ(e.net.stats().around, 0U);
    // It goes on living; others meet as soon as it counts as a stranger.
    EXPECT_TRUE(eventually([&] {
      e.c = e.k.connect(e.k.own_name(e.l));
      e.s = e.k.accept(e.l);
      EXPECT_EQ(e.k.close(e.c), 0);
      EXPECT_EQ(e.k.close(e.s), 0);
      return e.net.stats().around == 2;
    }));
  });
}

// ---- the trace

/// What CROSSWARP_TRACE writes while `f` runs on one rank.
std::string trace_of(const std::function<void(cw::world&)>& f) {
  std::string folder = std::filesystem::temp_directory_path() / "test-of-sockets-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
  setenv("CROSSWARP_TRACE", (folder + "/trace.json").c_str(), 1);
  on_one_rank(f);
  unsetenv("CROSSWARP_TRACE");
  std::string all;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path());
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  std::filesystem::remove_all(folder);
  return all;
}

int count_of(const std::string& all, const std::string& part) {
  int n = 0;
  for (auto at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) ++n;
  return n;
}

TEST(SocketTrace, TellsOfConnections) {
  const std::string all = trace_of([](cw::world& w) {
    auto o = small();
    o.lanes = 0;
    both_ends e(w, o);
    e.c = e.k.connect(e.k.own_name(e.l));
    e.s = e.k.accept(e.l);
    EXPECT_EQ(e.k.send(e.c, pattern(1234)), 1234);
    EXPECT_EQ(e.k.recv_all(e.s, 1234), pattern(1234));
    EXPECT_EQ(e.k.close(e.c), 0);
    EXPECT_EQ(e.k.connect(address::loopback(1)).error(), -ECONNREFUSED);
    // The service closes the other end.
  });
  const std::string of = R"("cat":"socket","name":")";
  EXPECT_EQ(count_of(all, of + R"(accept","args":{"status":"ok"})"), 1) << all;
  EXPECT_EQ(count_of(all, of + R"(connect","args":{"status":"ok"})"), 1);
  EXPECT_EQ(count_of(all, of + R"(connect","args":{"status":"unreachable"})"), 1);
  EXPECT_EQ(count_of(all, of + R"(first byte","args":{"status":"ok"})"), 1);
  EXPECT_EQ(count_of(all, of + R"(close","args":{"status":"ok","bytes":1234})"), 2);
}

TEST(SocketLanes, OptionsKeepAllWithTcp) {
  auto off = small();
  off.lanes = 0;
  auto timed = small();
  timed.idle = std::chrono::seconds(20);
  for (const auto& o : {off, timed}) {
    on_one_rank([&](cw::world& w) {
      both_ends e(w, o);
      e.c = e.k.connect(e.k.own_name(e.l));
      e.s = e.k.accept(e.l);
      EXPECT_EQ(e.k.send(e.c, "by TCP"), 6);
      EXPECT_EQ(e.k.recv_all(e.s, 6), "by TCP");
      EXPECT_EQ(e.net.stats().around, 0U);
      EXPECT_EQ(e.net.stats().sent_bytes, 6U);
    });
  }
}

TEST(SocketLanes, OptionsOutOfRangeAreRefused) {
  on_one_rank([](cw::world& w) {
    auto o = small();
    o.lanes = -1;
    EXPECT_THROW(cw::socket::service(w, o), cw::error);
    o = small();
    o.lane_bytes = 5000;
    EXPECT_THROW(cw::socket::service(w, o), cw::error);
  });
}

// ---- between ranks: threads, or processes under the launcher

/// Rank 0 listens, rank 1 connects; then `f` on both.
void on_two(
    const std::function<void(cw::world&, cw::socket::service&, caller<by_warp>&, handle)>& f) {
  on_ranks(2, [&](cw::world& w) {
    cw::socket::service net(w, small());
    caller<by_warp> k(net);
    const handle l = w.rank() == 0 ? k.listen() : handle();
    const auto names = w.allgather(w.rank() == 0 ? k.own_name(l) : address{});
    const handle s = w.rank() == 0 ? k.accept(l) : k.connect(names[0]);
    ASSERT_TRUE(s) << s.error();
    EXPECT_TRUE(eventually([&] { return net.stats().around == 1; }));
    w.barrier();
    f(w, net, k, s);
  });
}

TEST(SocketRanks, AStreamBetweenRanks) {
  on_two([](cw::world& w, cw::socket::service& net, caller<by_warp>& k, handle s) {
    const std::string text = pattern(100'000);
    if (w.rank() == 0) {
      EXPECT_EQ(k.send(s, text), 100'000);
      EXPECT_EQ(k.recv_all(s, 100'000), text);
    } else {
      EXPECT_EQ(k.recv_all(s, 100'000), text);
      EXPECT_EQ(k.send(s, text), 100'000);
    }
    EXPECT_EQ(net.stats().sent_bytes, 0U);
    w.barrier();
    EXPECT_EQ(k.close(s), 0);
  });
}

TEST(SocketRanks, AServiceThatEndsClosesWhatKernelsDidNot) {
  on_two([](cw::world& w, cw::socket::service& net, caller<by_warp>& k, handle s) {
    if (w.rank() == 0) {
      EXPECT_EQ(k.send(s, "last words"), 10);
    } else {
      // Rank 0 waits in the end of its service, which is collective.
      EXPECT_EQ(k.recv_all(s, 100), "last words");
      EXPECT_EQ(k.recv_result(s), 0);
      EXPECT_EQ(net.stats().sent_bytes, 0U);
    }
  });
}

/// In a job of its own, which the test says is to fail: a rank dies in it.
TEST(SocketLoss, TheDeathOfARankResets) {
  if (!cw::launched()) GTEST_SKIP() << "ranks are to be processes: crosswarp run -n 2";
  on_two([](cw::world& w, cw::socket::service& /*net*/, caller<by_warp>& k, handle s) {
    if (w.rank() == 1) {
      EXPECT_EQ(k.send(s, "last words"), 10);
      raise(SIGKILL);
    }
    EXPECT_EQ(k.recv_all(s, 10), "last words");
    EXPECT_EQ(k.recv_result(s), -ECONNRESET);
    EXPECT_EQ(k.recv_result(s), 0);
    EXPECT_TRUE(eventually([&] { return k.send(s, "x") == -EPIPE; }));
    if (!testing::Test::HasFailure()) std::cout << "the survivor saw a reset" << std::endl;
  });
}

TEST(SocketRanks, RanksAskForTheSameLanes) {
  on_ranks(2, [](cw::world& w) {
    auto o = small();
    o.lanes = 1 + w.rank();
    EXPECT_THROW(cw::socket::service(w, o), cw::error);
  });
}

}  // namespace
