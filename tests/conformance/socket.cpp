// What sockets in kernels must do, against Linux's own TCP with a scripted peer.
#include "crosswarp/socket.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <optional>

#include "support/peer.hpp"
#include "support/socket_caller.hpp"

using namespace calls;

namespace {

/// Each test ends with as many descriptors and rings as it began with.
class Socket : public testing::Test {
 protected:
  /// What a device opens when it is used first stays open.
  static void SetUpTestSuite() { const cw::socket::service first(test_device(), small()); }
  void SetUp() override { descriptors_ = open_descriptors(); }
  void TearDownService() { net_.reset(); }
  void TearDown() override {
    TearDownService();
    EXPECT_EQ(open_descriptors(), descriptors_);
  }
  cw::socket::service& net(const cw::socket::service_options& o = small()) {
    if (!net_) net_.emplace(test_device(), o);
    return *net_;
  }
  static cw::socket::service_options small() {
    cw::socket::service_options o;
    o.sockets = 16;
    o.ring_bytes = 4096;
    o.most_ring_bytes = 4096;
    o.ring_budget = 1 << 20;
    return o;
  }
  /// Waits until the service has `n` sockets.
  void settle(int n) {
    EXPECT_TRUE(eventually([&] { return net().stats().sockets == n; })) << net().stats().sockets;
  }

 private:
  std::size_t descriptors_ = 0;
  std::optional<cw::socket::service> net_;
};

// ---- a connection from its begin to its end, by each kind of group

template <class By>
void talk(cw::socket::service& net) {
  SCOPED_TRACE(threads_of<By>());
  caller<By> k(net);
  const handle l = k.listen();
  ASSERT_TRUE(l) << l.error();
  peer p(k.own_name(l));
  const handle s = k.accept(l);
  ASSERT_TRUE(s) << s.error();
  EXPECT_EQ(k.send(s, "hello"), 5);
  EXPECT_EQ(p.read(5), "hello");
  p.write("good morning");
  EXPECT_EQ(k.recv_all(s, 12), "good morning");
  p.write("bye");
  p.end();
  EXPECT_EQ(k.recv_all(s, 100), "bye");
  EXPECT_EQ(k.recv_result(s), 0);
  EXPECT_EQ(k.close(s), 0);
  EXPECT_EQ(p.read_to_end(), "");
  EXPECT_EQ(k.close(l), 0);
}

TEST_F(Socket, ThreadsWarpsAndBlocksAcceptAndTalk) {
  talk<by_thread>(net());
  talk<by_warp>(net());
  talk<by_block>(net());
  settle(0);
}

TEST_F(Socket, ConnectsToAPeer) {
  listening_peer there;
  caller<by_warp> k(net());
  const handle s = k.connect(there.name());
  ASSERT_TRUE(s) << s.error();
  peer p = there.accept();
  EXPECT_EQ(k.send(s, "ping"), 4);
  EXPECT_EQ(p.read(4), "ping");
  p.write("pong");
  EXPECT_EQ(k.recv_all(s, 4), "pong");
  EXPECT_EQ(k({.what = op::peer_name, .s = s}), 0);
  EXPECT_EQ(cw::socket::to_string(k.last.name), cw::socket::to_string(there.name()));
  EXPECT_EQ(cw::socket::to_string(k.own_name(s)), cw::socket::to_string(p.peer_name()));
  EXPECT_EQ(k.close(s), 0);
  EXPECT_EQ(p.read_to_end(), "");
  EXPECT_EQ(net().stats().connected, 1U);
}

// ---- every kind of address

template <class Make>
void meets(cw::socket::service& net, const address& a, Make&& name) {
  caller<> k(net);
  const handle l = k.listen(a);
  ASSERT_TRUE(l) << l.error();
  peer p(name(k.own_name(l)));
  const handle s = k.accept(l);
  ASSERT_TRUE(s) << s.error();
  p.write("x");
  EXPECT_EQ(k.recv(s, 10), "x");
  EXPECT_EQ(k({.what = op::peer_name, .s = s}), 0);
  EXPECT_EQ(k.last.name.family, a.family);
  // A kernel's own end connects there, too.
  const handle c = k.connect(k.own_name(l));
  ASSERT_TRUE(c) << c.error();
  const handle d = k.accept(l);
  EXPECT_EQ(k.send(c, "within"), 6);
  EXPECT_EQ(k.recv_all(d, 6), "within");
  for (const handle h : {s, c, d, l}) EXPECT_EQ(k.close(h), 0);
}

TEST_F(Socket, IPv4AndIPv6AndUnixDomain) {
  const auto same = [](const address& a) { return a; };
  meets(net(), cw::socket::parse_address("127.0.0.1:0"), same);
  meets(net(), cw::socket::parse_address("[::1]:0"), same);
  const std::string name = "crosswarp-test-" + std::to_string(getpid());
  meets(net(), cw::socket::parse_address("unix:@" + name), same);
  const auto path = std::filesystem::temp_directory_path() / name;
  meets(net(), cw::socket::parse_address("unix:" + path.string()), same);
  settle(0);
  EXPECT_FALSE(exists(path)) << "a listener's path goes with it";
}

TEST_F(Socket, APathThatNobodyListensAtIsTakenOver) {
  const auto path =
      std::filesystem::temp_directory_path() / ("crosswarp-test-left-" + std::to_string(getpid()));
  const address a = cw::socket::parse_address("unix:" + path.string());
  { const listening_peer died(a); }
  ASSERT_TRUE(exists(path));
  caller<> k(net());
  const handle l = k.listen(a);
  EXPECT_TRUE(l) << l.error();
  EXPECT_EQ(k.listen(a).error(), -EADDRINUSE) << "this one listens";
}

TEST(SocketAddress, IsReadAndWritten) {
  for (const char* text : {"127.0.0.1:80", "[::1]:443", "[fe80::1:2]:7", "unix:/a/b", "unix:@c"}) {
    EXPECT_EQ(cw::socket::to_string(cw::socket::parse_address(text)), text);
  }
  EXPECT_EQ(cw::socket::to_string(cw::socket::parse_address(":80")), "0.0.0.0:80");
  for (const char* text : {"", "80", "localhost:80", "1.2.3.4:65536", "1.2.3.4:", "[::1:80",
                           "::1:80", "unix:", "1.2.3.4:8x"}) {
    EXPECT_THROW((void)cw::socket::parse_address(text), cw::error) << text;
  }
  EXPECT_THROW((void)cw::socket::parse_address("unix:" + std::string(200, 'x')), cw::error);
}

// ---- ends of streams

class SocketPair : public Socket {
 protected:
  void open(const cw::socket::service_options& o = small()) {
    k.emplace(net(o));
    listener = k->listen();
    there.emplace(k->own_name(listener));
    s = k->accept(listener);
    ASSERT_TRUE(s) << s.error();
  }
  void TearDown() override {
    k.reset();
    there.reset();
    Socket::TearDown();
  }
  std::optional<caller<>> k;
  std::optional<peer> there;
  handle listener;
  handle s;
};

TEST_F(SocketPair, AfterThePeersHalfCloseSendingGoesOn) {
  open();
  there->write("last words");
  there->end();
  EXPECT_EQ(k->recv_all(s, 100), "last words");
  EXPECT_EQ(k->recv_result(s), 0);
  EXPECT_EQ(k->recv_result(s), 0) << "an end stays";
  EXPECT_EQ(k->send(s, "still here"), 10);
  EXPECT_EQ(there->read(10), "still here");
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ(there->read_to_end(), "");
  EXPECT_EQ(there->error, 0);
}

TEST_F(SocketPair, AfterTheKernelsHalfCloseReceivingGoesOn) {
  open();
  EXPECT_EQ(k->send(s, "my last words"), 13);
  EXPECT_EQ(k->shutdown(s, sock::half::send), 0);
  EXPECT_EQ(there->read_to_end(), "my last words");
  EXPECT_EQ(k->send(s, "more"), -EPIPE);
  there->write("an answer");
  EXPECT_EQ(k->recv_all(s, 9), "an answer");
  EXPECT_EQ(k->shutdown(s, sock::half::send), 0) << "twice is once";
}

TEST_F(SocketPair, AfterShutdownOfReceivingWhatIsThereIsReadThenTheEnd) {
  open();
  there->write("there");
  ASSERT_TRUE(k->ready(s, sock::event::readable));
  EXPECT_EQ(k->shutdown(s, sock::half::receive), 0);
  EXPECT_EQ(k->recv(s, 100), "there");
  EXPECT_EQ(k->recv_result(s), 0);
  EXPECT_EQ(k->send(s, "this half lives"), 15);
  EXPECT_EQ(there->read(15), "this half lives");
}

TEST_F(SocketPair, BytesBeforeAResetAreDeliveredThenTheErrorOnce) {
  open();
  there->write("before");
  there->reset();
  EXPECT_EQ(k->recv_all(s, 6), "before");
  EXPECT_EQ(k->recv_result(s), -ECONNRESET);
  EXPECT_EQ(k->recv_result(s), 0);
  EXPECT_EQ(k->send(s, "x"), -EPIPE);
  EXPECT_EQ(k->close(s), 0);
}

TEST_F(SocketPair, MoreBytesThanTheRingHoldsBeforeAResetAreDelivered) {
  open();
  const std::string sent = pattern(30'000);
  ASSERT_EQ(there->write(sent), sent.size());
  there->reset();
  EXPECT_EQ(k->recv_all(s, sent.size()), sent);
  EXPECT_EQ(k->recv_result(s), -ECONNRESET);
  EXPECT_EQ(k->recv_result(s), 0);
}

TEST_F(SocketPair, ASenderIsToldOfAResetOnce) {
  open();
  there->reset();
  ASSERT_TRUE(k->ready(s, 0) & sock::event::error);
  EXPECT_EQ(k->send(s, "x"), -ECONNRESET);
  EXPECT_EQ(k->send(s, "x"), -EPIPE);
  EXPECT_EQ(k->recv_result(s), 0);
}

TEST_F(SocketPair, SendAfterThePeersCloseSucceedsAndThenIsEpipe) {
  open();
  there->close();
  EXPECT_EQ(k->recv_result(s), 0);
  EXPECT_EQ(k->send(s, "into the void"), 13);
  // The peer's machine answers with a reset.
  ASSERT_TRUE(eventually([&] { return k->send(s, "y", at_once) < 0; }));
  EXPECT_EQ(k->last.result, -EPIPE);
  EXPECT_EQ(k->send(s, "z"), -EPIPE);
}

TEST_F(SocketPair, CloseDeliversWhatWasSent) {
  open();
  const std::string sent = pattern(4000);
  EXPECT_EQ(k->send(s, sent), 4000);
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ(there->read_to_end(), sent);
  EXPECT_EQ(there->error, 0);
}

TEST_F(SocketPair, TheEndOfTheServiceDeliversWhatWasSent) {
  open();
  const std::string sent = pattern(4000);
  EXPECT_EQ(k->send(s, sent), 4000);
  k.reset();
  std::thread ends([&] { Socket::TearDownService(); });
  EXPECT_EQ(there->read_to_end(), sent);
  EXPECT_EQ(there->error, 0);
  ends.join();
}

TEST_F(SocketPair, CloseWithUnreadBytesResets) {
  open();
  there->write("never read");
  ASSERT_TRUE(k->ready(s, sock::event::readable));
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ(there->read_to_end(), "");
  EXPECT_EQ(there->error, ECONNRESET);
}

TEST_F(SocketPair, AbortResets) {
  open();
  EXPECT_EQ(k->abort(s), 0);
  EXPECT_EQ(there->read_to_end(), "");
  EXPECT_EQ(there->error, ECONNRESET);
}

// ---- handles

TEST_F(SocketPair, AHandleThatWasClosedIsNoOthers) {
  cw::socket::service_options o = small();
  o.sockets = 2;  // the next connection gets the same place
  open(o);
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ(k->close(s), -EBADF);
  peer next(k->own_name(listener));
  const handle t = k->accept(listener);
  ASSERT_TRUE(t) << t.error();
  ASSERT_EQ(t.index(), s.index());
  EXPECT_NE(t, s);
  next.write("for the new one");
  for (const op what : {op::send, op::recv, op::recv_all, op::view, op::consume, op::reserve,
                        op::commit, op::shutdown, op::close, op::abort, op::set_option,
                        op::get_option, op::peer_name, op::own_name, op::accept}) {
    EXPECT_EQ((*k)({.what = what, .s = s, .n = 1}), -EBADF) << static_cast<int>(what);
  }
  EXPECT_EQ(k->ready(s, 0), sock::event::invalid);
  EXPECT_EQ(k->recv_all(t, 15), "for the new one");
}

TEST_F(SocketPair, WhatIsNoHandleIsEbadf) {
  open();
  for (const handle h : {handle(-1), handle(0), handle(9999, 1), handle(s.index(), 77),
                         handle(std::int64_t{1} << 62)}) {
    EXPECT_EQ(k->recv_result(h, at_once), -EBADF);
    EXPECT_EQ(k->send(h, "x", at_once), -EBADF);
    EXPECT_EQ(k->close(h), -EBADF);
  }
}

TEST_F(SocketPair, AListenerIsNoConnectionAndTheReverse) {
  open();
  EXPECT_EQ(k->send(listener, "x"), -ENOTCONN);
  EXPECT_EQ(k->recv_result(listener), -ENOTCONN);
  EXPECT_EQ(k->shutdown(listener, sock::half::both), -ENOTCONN);
  EXPECT_EQ((*k)({.what = op::peer_name, .s = listener}), -ENOTCONN);
  EXPECT_EQ(k->accept(s).error(), -EINVAL);
}

// ---- connecting

TEST_F(Socket, ConnectIsRefused) {
  address nobody;
  {
    const listening_peer gone;
    nobody = gone.name();
  }
  caller<> k(net());
  EXPECT_EQ(k.connect(nobody).error(), -ECONNREFUSED);
  EXPECT_EQ(k.connect(cw::socket::parse_address("unix:@crosswarp-nobody")).error(), -ECONNREFUSED);
  EXPECT_EQ(k.connect(cw::socket::parse_address("unix:/nowhere/to/be")).error(), -ENOENT);
  settle(0);
}

TEST_F(Socket, ConnectToWhereNothingLeadsIsUnreachable) {
  caller<> k(net());
  // TCP speaks to one machine, not to all of them.
  EXPECT_EQ(k.connect(address::v4(255, 255, 255, 255, 9)).error(), -ENETUNREACH);
  settle(0);
}

TEST_F(Socket, ConnectEndsWithItsPatience) {
  // The backlog of 1 is full, so that nobody answers.
  listening_peer there(address::loopback(0), 0);
  std::vector<peer> full;
  full.emplace_back(there.name());
  caller<> k(net());
  int e = 0;
  for (int i = 0; i < 4 && e == 0; ++i) e = k.connect(there.name(), soon).error();
  EXPECT_EQ(e, -ETIMEDOUT);
}

TEST_F(Socket, ConnectOfWhatIsNoAddressIsEinval) {
  caller<> k(net());
  address a;
  EXPECT_EQ(k.connect(a).error(), -EINVAL);
  a.family = static_cast<address::kind>(77);
  EXPECT_EQ(k.connect(a).error(), -EINVAL);
  EXPECT_EQ(k.listen(a).error(), -EINVAL);
  a.family = address::local;
  std::fill(std::begin(a.path), std::end(a.path), 'x');  // has no end
  EXPECT_EQ(k.connect(a).error(), -EINVAL);
  settle(0);
}

TEST_F(Socket, StartedConnectsShowByPoll) {
  listening_peer there;
  address nobody;
  {
    const listening_peer gone;
    nobody = gone.name();
  }
  caller<> k(net());
  const handle good(k({.what = op::start_connect, .where = there.name()}));
  const handle bad(k({.what = op::start_connect, .where = nobody}));
  ASSERT_TRUE(good) << good.error();
  ASSERT_TRUE(bad) << bad.error();
  peer p = there.accept();
  EXPECT_EQ(k.ready(good, sock::event::writable), sock::event::writable);
  EXPECT_TRUE(k.ready(bad, sock::event::writable) & sock::event::error);
  EXPECT_EQ(k.send(bad, "x"), -ECONNREFUSED);
  EXPECT_EQ(k.send(bad, "x"), -EPIPE);
  EXPECT_EQ(k.recv_result(bad), 0);
  EXPECT_EQ(k({.what = op::peer_name, .s = bad}), -ENOTCONN);
  EXPECT_EQ(k.close(bad), 0);
  EXPECT_EQ(k.close(good), 0);
  settle(0);
}

// ---- waiting

TEST_F(SocketPair, WhatIsNotToWaitIsEagain) {
  open();
  EXPECT_EQ(k->recv_result(s, at_once), -EAGAIN);
  EXPECT_EQ(k->accept(listener, at_once).error(), -EAGAIN);
  EXPECT_EQ(k->ready(s, sock::event::readable, at_once), 0U);
  EXPECT_EQ(k->recv_result(s, soon), -ETIMEDOUT);
  EXPECT_EQ(k->accept(listener, soon).error(), -ETIMEDOUT);
  EXPECT_EQ(k->ready(s, sock::event::readable, soon), 0U);
}

TEST_F(SocketPair, SendEndsWithItsPatienceWhenThePeerDoesNotRead) {
  open();
  // Until not a byte finds room for a while, whatever Linux buffers.
  constexpr patience a_while{300'000'000};
  const std::string much = pattern(1 << 19);
  std::string sent;
  std::int64_t n = 0;
  while ((n = k->send(s, much, a_while)) > 0) sent += much.substr(0, static_cast<std::size_t>(n));
  EXPECT_EQ(n, -ETIMEDOUT);
  EXPECT_EQ(k->send(s, "x", soon), -ETIMEDOUT);
  EXPECT_EQ(k->send(s, "x", at_once), -EAGAIN);
  EXPECT_EQ(k->ready(s, sock::event::writable, at_once), 0U);
  // Once the peer reads all of it comes, and there is room again.
  EXPECT_TRUE(there->read(sent.size()) == sent);
  EXPECT_EQ(k->ready(s, sock::event::writable), sock::event::writable);
}

TEST_F(SocketPair, WhatTheKernelDoesNotReadStopsThePeer) {
  open();
  // The peer is stopped by TCP's window, whatever Linux buffers.
  const std::string much = pattern(1 << 20);
  std::size_t sent = 0;
  std::size_t n = much.size();
  for (int i = 0; i < 100 && n == much.size(); ++i) {
    n = there->write(much, 100);
    sent += n;
  }
  ASSERT_LT(n, much.size()) << "nobody stops the peer";
  EXPECT_LE(net().stats().received_bytes, 4096U) << "the ring holds no more";
  std::thread ends([&] { there->end(); });
  std::size_t got = 0;
  for (;;) {
    const std::string some = k->recv_all(s, much.size());
    if (some.empty()) break;
    ASSERT_EQ(some, much.substr(0, some.size()));
    got += some.size();
  }
  ends.join();
  EXPECT_EQ(got, sent);
}

TEST_F(Socket, StopEndsAKernelsWait) {
  caller<> k(net());
  const handle l = k.listen();
  peer p(k.own_name(l));
  const handle s = k.accept(l);
  std::thread stops([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    net().stop();
  });
  EXPECT_EQ(k.accept(l).error(), -ESHUTDOWN);
  stops.join();
  EXPECT_EQ(k.recv_result(s), -ESHUTDOWN);
  EXPECT_EQ(k.recv_result(s), 0);
  EXPECT_EQ(k.send(s, "x"), -EPIPE);
  EXPECT_EQ(k.connect(address::loopback(1)).error(), -ESHUTDOWN);
  EXPECT_EQ(k.close(s), 0);
  EXPECT_EQ(p.read_to_end(), "");
}

// ---- rings

TEST_F(SocketPair, AStreamGoesRoundASmallRing) {
  open();
  // Odd lengths: every alignment, and every way to lie across the ring's end.
  std::size_t at = 0;
  for (std::size_t n = 1; n < 600; n += 13) {
    const std::string out = pattern(n * 9 % 3001 + 1, static_cast<unsigned>(n));
    ASSERT_EQ(there->write(out), out.size());
    ASSERT_EQ(k->recv_all(s, out.size()), out) << at;
    ASSERT_EQ(k->send(s, out), static_cast<std::int64_t>(out.size()));
    ASSERT_EQ(there->read(out.size()), out) << at;
    at += out.size();
  }
  EXPECT_GT(at, 10U * 4096U);
}

TEST_F(SocketPair, SegmentsOfOneByte) {
  open();
  const std::string all = pattern(300);
  std::thread writes([&] {
    for (const char c : all) there->write(std::string(1, c));
  });
  EXPECT_EQ(k->recv_all(s, all.size()), all);
  writes.join();
  for (const char c : all) ASSERT_EQ(k->send(s, std::string(1, c)), 1);
  EXPECT_EQ(there->read(all.size()), all);
}

TEST_F(SocketPair, RingsGrowAndKeepTheOrder) {
  cw::socket::service_options o = small();
  o.most_ring_bytes = 64 * 1024;
  open(o);
  const auto before = net().stats().ring_bytes;
  const std::string much = pattern(500'000);
  for (int round = 0; round < 3; ++round) {
    std::thread writes([&] { EXPECT_EQ(there->write(much), much.size()); });
    EXPECT_EQ(k->recv_all(s, much.size()), much);
    writes.join();
    std::string got;
    std::thread reads([&] { got = there->read(much.size()); });
    EXPECT_EQ(k->send(s, much), static_cast<std::int64_t>(much.size()));
    reads.join();
    EXPECT_EQ(got, much);
  }
  EXPECT_TRUE(eventually([&] { return net().stats().ring_bytes > before + 8192; }));
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ(k->close(listener), 0);
  EXPECT_TRUE(eventually([&] { return net().stats().ring_bytes == 0; })) << "all rings came back";
}

TEST_F(SocketPair, ANewConnectionFindsNothingOfTheOneBefore) {
  cw::socket::service_options o = small();
  o.ring_budget = 3 * 4096;  // the next connection gets the same rings
  open(o);
  there->write(std::string(4000, 'S'));
  EXPECT_EQ(k->recv_all(s, 4000), std::string(4000, 'S'));
  EXPECT_EQ(k->send(s, std::string(4000, 'S')), 4000);
  EXPECT_EQ(there->read(4000), std::string(4000, 'S'));
  EXPECT_EQ(k->close(s), 0);
  settle(1);
  peer next(k->own_name(listener));
  const handle t = k->accept(listener);
  ASSERT_TRUE(t) << t.error();
  // All of the send ring, as it is found.
  k->put(std::string(4096, '\0'));
  EXPECT_EQ((*k)({.what = op::peek_ring, .s = t}), 4096);
  EXPECT_EQ(k->text(4096), std::string(4096, '\0'));
}

// ---- without copies

TEST_F(SocketPair, AViewShowsWhatIsThereUntilItIsConsumed) {
  open();
  there->write("0123456789");
  ASSERT_TRUE(eventually([&] { return (*k)({.what = op::view, .s = s}) == 10; }));
  EXPECT_EQ(k->text(10), "0123456789");
  EXPECT_EQ((*k)({.what = op::consume, .s = s, .n = 4}), 4);
  EXPECT_EQ((*k)({.what = op::view, .s = s}), 6);
  EXPECT_EQ(k->text(6), "456789");
  EXPECT_EQ((*k)({.what = op::consume, .s = s, .n = 7}), -EINVAL);
  EXPECT_EQ((*k)({.what = op::consume, .s = s, .n = 6}), 6);
  EXPECT_EQ((*k)({.what = op::view, .s = s, .wait = at_once}), -EAGAIN);
}

TEST_F(SocketPair, AViewHasTwoPiecesWhereTheRingEnds) {
  open();
  const std::string first = pattern(4000);
  there->write(first);
  EXPECT_EQ(k->recv_all(s, 4000), first);
  const std::string second = pattern(200, 3);
  there->write(second);
  ASSERT_TRUE(eventually([&] { return (*k)({.what = op::view, .s = s}) == 200; }));
  EXPECT_EQ(k->last.first, 96U);
  EXPECT_EQ(k->last.second, 104U);
  EXPECT_EQ(k->text(200), second);
}

TEST_F(SocketPair, ReservedRoomIsSentWhenItIsCommitted) {
  open();
  k->put("reserved");
  EXPECT_EQ((*k)({.what = op::reserve, .s = s, .n = 8}), 4096);
  EXPECT_EQ((*k)({.what = op::commit, .s = s, .n = 5000}), -EINVAL);
  EXPECT_EQ((*k)({.what = op::commit, .s = s, .n = 5}), 5);
  EXPECT_EQ(there->read(5), "reser");
  EXPECT_EQ((*k)({.what = op::reserve, .s = s, .n = 4097}), -EMSGSIZE);
  ASSERT_TRUE(eventually([&] { return (*k)({.what = op::reserve, .s = s, .n = 4096}) == 4096; }));
  EXPECT_EQ(k->last.first, 4091U);
  EXPECT_EQ(k->last.second, 5U);
}

// ---- many at once

TEST_F(Socket, PollFindsThoseThatAreReady) {
  cw::socket::service_options o = small();
  o.sockets = 256;
  o.ring_budget = 4 << 20;
  caller<> one(net(o));
  caller<by_block> k(net());
  const handle l = one.listen(address::loopback(0), 128);
  std::vector<peer> peers;
  std::vector<sock::poll_item> items;
  for (int i = 0; i < 100; ++i) {
    peers.emplace_back(one.own_name(l));
    items.push_back({one.accept(l), sock::event::readable, 0});
    ASSERT_TRUE(items.back().socket);
  }
  EXPECT_EQ(k.poll(items, at_once), 0);
  peers[3].write("x");
  peers[71].end();
  peers[98].reset();
  ASSERT_TRUE(eventually([&] { return k.poll(items) == 3; }));
  EXPECT_EQ(items[3].ready, sock::event::readable);
  EXPECT_EQ(items[71].ready, sock::event::readable);
  EXPECT_EQ(items[98].ready, sock::event::readable | sock::event::error | sock::event::hang_up);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 3 && i != 71 && i != 98) {
      EXPECT_EQ(items[i].ready, 0) << i;
    }
  }
  items = {{l, sock::event::readable, 0}};
  EXPECT_EQ(k.poll(items, at_once), 0);
  peers.emplace_back(one.own_name(l));
  EXPECT_EQ(k.poll(items), 1) << "a connection waits";
}

TEST_F(SocketPair, PollTellsOfAHangUpWhenBothHalvesHaveEnded) {
  open();
  there->end();
  EXPECT_EQ(k->recv_result(s), 0);
  EXPECT_EQ(k->ready(s, sock::event::writable), sock::event::writable);
  EXPECT_EQ(k->shutdown(s, sock::half::send), 0);
  EXPECT_TRUE(k->ready(s, 0) & sock::event::hang_up);
}

/// Each block accepts connections and echoes until they end.
struct echo {
  CW_FN void operator()(const context& ctx, const sock::service& net, handle l, int each,
                        std::byte* memory, int* served) const {
    const auto g = ctx.block();
    std::byte* const mine = memory + ctx.block_index() * 1000;
    for (int i = 0; i < each; ++i) {
      const handle s = net.accept(g, l, long_enough);
      if (!s) return;
      for (;;) {
        const std::int64_t n = net.recv(g, s, mine, 1000, long_enough);
        if (n <= 0 || net.send(g, s, mine, static_cast<std::uint64_t>(n), long_enough) != n) break;
      }
      net.close(g, s);
      if (g.rank() == 0) served[ctx.block_index()]++;
    }
  }
};

TEST_F(Socket, BlocksShareAListener) {
  constexpr int blocks = 3;
  constexpr int each = 8;
  caller<> k(net());
  const handle l = k.listen();
  const address where = k.own_name(l);
  cw::buffer<std::byte> memory(test_device(), blocks * 1000);
  cw::buffer<int> served(test_device(), blocks);
  cw::stream stream(test_device());
  cw::launch(stream, {.blocks = blocks, .threads = 4}, echo{}, net().device(), l, each,
             memory.data(), served.data());
  std::vector<std::thread> clients;
  for (int c = 0; c < blocks; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < each; ++i) {
        peer p(where);
        const std::string text = pattern(5000, static_cast<unsigned>(c * 100 + i));
        std::thread writes([&] {
          EXPECT_EQ(p.write(text), text.size());
          p.end();
        });
        EXPECT_EQ(p.read_to_end(), text);
        writes.join();
      }
    });
  }
  for (auto& c : clients) c.join();
  stream.sync();
  for (const int n : served.read()) EXPECT_EQ(n, each);
  EXPECT_EQ(k.close(l), 0);
  settle(0);
}

TEST_F(Socket, ManyConnectionsComeAndGo) {
  caller<> k(net());
  const handle l = k.listen();
  const address where = k.own_name(l);
  cw::buffer<std::byte> memory(test_device(), 1000);
  cw::buffer<int> served(test_device(), 1);
  cw::stream stream(test_device());
  constexpr int count = 600;  // the table's places are used again and again
  cw::launch(stream, {}, echo{}, net().device(), l, count, memory.data(), served.data());
  for (int i = 0; i < count; ++i) {
    peer p(where);
    if (i % 3 == 0) continue;           // ends without a byte
    if (i % 3 == 1) p.write("unread");  // resets
    if (i % 3 == 2) {
      p.write("x");
      ASSERT_EQ(p.read(1), "x");
    }
  }
  stream.sync();
  EXPECT_EQ(served.read()[0], count);
  EXPECT_EQ(net().stats().accepted, static_cast<std::uint64_t>(count));
  EXPECT_EQ(k.close(l), 0);
  settle(0);
}

// ---- limits

TEST_F(Socket, WhenTheTableIsFullPeersWait) {
  cw::socket::service_options o = small();
  o.sockets = 3;
  caller<> k(net(o));
  const handle l = k.listen();
  peer a(k.own_name(l));
  peer b(k.own_name(l));
  peer c(k.own_name(l));  // in Linux's backlog
  const handle first = k.accept(l);
  const handle second = k.accept(l);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(k.accept(l, soon).error(), -ETIMEDOUT);
  EXPECT_EQ(k.connect(k.own_name(l)).error(), -EMFILE);
  EXPECT_EQ(k.listen().error(), -EMFILE);
  EXPECT_EQ(k.close(first), 0);
  const handle third = k.accept(l);
  ASSERT_TRUE(third) << third.error();
  c.write("at last");
  EXPECT_EQ(k.recv_all(third, 7), "at last");
}

TEST_F(Socket, WhenThereIsNoMemoryForRingsConnectFails) {
  cw::socket::service_options o = small();
  o.ring_budget = 2 * 4096;
  listening_peer there;
  caller<> k(net(o));
  const handle s = k.connect(there.name());
  ASSERT_TRUE(s) << s.error();
  EXPECT_EQ(k.connect(there.name()).error(), -EMFILE);
  EXPECT_EQ(k.close(s), 0);
  settle(0);
  EXPECT_TRUE(k.connect(there.name()));
}

TEST_F(Socket, NotMoreFromOneAddressThanAllowed) {
  cw::socket::service_options o = small();
  o.per_peer = 2;
  caller<> k(net(o));
  const handle l = k.listen();
  peer a(k.own_name(l));
  peer b(k.own_name(l));
  peer c(k.own_name(l));
  EXPECT_EQ(c.read_to_end(), "");
  EXPECT_EQ(c.error, ECONNRESET);
  EXPECT_EQ(net().stats().refused, 1U);
  const handle s = k.accept(l);
  EXPECT_EQ(k.close(s), 0);
  settle(2);
  peer d(k.own_name(l));
  EXPECT_TRUE(k.accept(l));
  EXPECT_TRUE(k.accept(l)) << "one has gone, so one may come";
}

TEST_F(Socket, NotMoreOfOneListenerThanAllowed) {
  cw::socket::service_options o = small();
  o.per_listener = 1;
  caller<> k(net(o));
  const handle l = k.listen();
  const handle other = k.listen();
  peer a(k.own_name(l));
  peer b(k.own_name(l));
  peer c(k.own_name(other));
  const handle s = k.accept(l);
  ASSERT_TRUE(s);
  EXPECT_EQ(k.accept(l, soon).error(), -ETIMEDOUT);
  EXPECT_TRUE(k.accept(other)) << "the other has its own";
  EXPECT_EQ(k.close(s), 0);
  EXPECT_TRUE(k.accept(l));
}

TEST_F(Socket, ConnectionsThatNobodyAcceptedAreResetWithTheirListener) {
  caller<> k(net());
  const handle l = k.listen();
  peer a(k.own_name(l));
  peer b(k.own_name(l));
  const handle s = k.accept(l);
  ASSERT_TRUE(eventually([&] { return net().stats().sockets == 3; }));
  EXPECT_EQ(k.close(l), 0);
  EXPECT_EQ(k.accept(l).error(), -EBADF);
  EXPECT_EQ(b.read_to_end(), "");
  EXPECT_EQ(b.error, ECONNRESET);
  a.write("lives");
  EXPECT_EQ(k.recv_all(s, 5), "lives");
}

TEST_F(Socket, WhoSaysNothingIsReset) {
  cw::socket::service_options o = small();
  o.first_byte = std::chrono::milliseconds(50);
  caller<> k(net(o));
  const handle l = k.listen();
  peer silent(k.own_name(l));
  const handle s = k.accept(l);
  EXPECT_EQ(k.recv_result(s), -ETIMEDOUT);
  EXPECT_EQ(k.last.result, -ETIMEDOUT);
  EXPECT_EQ(k.recv_result(s), 0);
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_EQ(silent.error, ECONNRESET);
  EXPECT_EQ(net().stats().timed_out, 1U);
}

TEST_F(Socket, WhoFallsSilentIsReset) {
  cw::socket::service_options o = small();
  o.idle = std::chrono::milliseconds(50);
  caller<> k(net(o));
  const handle l = k.listen();
  peer p(k.own_name(l));
  const handle s = k.accept(l);
  EXPECT_EQ(k.recv_result(s, patience{120'000'000}), -ETIMEDOUT) << "of the call";
  p.write("x");
  EXPECT_EQ(k.recv(s, 1), "x");
  EXPECT_EQ(p.read_to_end(), "");
  EXPECT_EQ(p.error, ECONNRESET);
  EXPECT_EQ(k.recv_result(s), -ETIMEDOUT);
  EXPECT_EQ(k.recv_result(s), 0);
}

TEST_F(Socket, WithoutADescriptorLeftAPeerIsResetAndTheListenerLives) {
  caller<> k(net());
  const handle l = k.listen();
  const address where = k.own_name(l);
  const auto target = cw::tcp::to_system(where);
  const int mine = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::vector<int> all;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &few);
  for (int fd = dup(mine); fd >= 0; fd = dup(mine)) all.push_back(fd);
  ASSERT_EQ(connect(mine, reinterpret_cast<const sockaddr*>(&target.storage), target.bytes), 0);
  {
    peer p(mine);
    EXPECT_EQ(p.read_to_end(), "");
    EXPECT_EQ(p.error, ECONNRESET);
  }
  for (const int fd : all) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(net().stats().refused, 1U);
  peer next(where);
  EXPECT_TRUE(k.accept(l));
}

// ---- options

TEST_F(SocketPair, OptionsAreThoseOfLinux) {
  open();
  const auto get = [&](sock::option w) {
    return (*k)({.what = op::get_option, .s = s, .which = w});
  };
  const auto set = [&](sock::option w, std::int64_t v) {
    return (*k)({.what = op::set_option, .s = s, .value = v, .which = w});
  };
  EXPECT_EQ(get(sock::option::no_delay), 1) << "from the beginning";
  EXPECT_EQ(set(sock::option::no_delay, 0), 0);
  EXPECT_EQ(get(sock::option::no_delay), 0);
  EXPECT_EQ(set(sock::option::keep_alive, 1), 0);
  EXPECT_EQ(get(sock::option::keep_alive), 1);
  const std::int64_t before = get(sock::option::send_buffer);
  EXPECT_EQ(set(sock::option::send_buffer, 8192), 0);
  EXPECT_NE(get(sock::option::send_buffer), before);
  EXPECT_EQ(set(sock::option::receive_buffer, 8192), 0);
  EXPECT_GT(get(sock::option::receive_buffer), 0);
  EXPECT_EQ(set(sock::option::receive_buffer, -1), -EINVAL);
  EXPECT_EQ(set(static_cast<sock::option>(99), 1), -ENOPROTOOPT);
  EXPECT_EQ(get(static_cast<sock::option>(99)), -ENOPROTOOPT);
}

TEST(SocketService, RefusesOptionsOutOfRange) {
  const auto refused = [](auto change) {
    cw::socket::service_options o;
    change(o);
    try {
      const cw::socket::service s(test_device(), o);
    } catch (const cw::error& e) {
      return e.code() == cw::errc::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refused([](auto& o) { o.sockets = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.sockets = 65537; }));
  EXPECT_TRUE(refused([](auto& o) { o.ring_bytes = 5000; }));
  EXPECT_TRUE(refused([](auto& o) { o.ring_bytes = 2048; }));
  EXPECT_TRUE(refused([](auto& o) { o.most_ring_bytes = 8192; }));
  EXPECT_TRUE(refused([](auto& o) { o.ring_budget = 100; }));
  EXPECT_TRUE(refused([](auto& o) { o.per_peer = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.idle = std::chrono::nanoseconds(-1); }));
}

/// CROSSWARP_SOCKET_ENGINE while it lives.
class engine_variable {
 public:
  explicit engine_variable(const char* value) {
    if (const char* old = std::getenv(name)) before_ = old;
    setenv(name, value, 1);
  }
  ~engine_variable() { before_ ? setenv(name, before_->c_str(), 1) : unsetenv(name); }
  engine_variable(const engine_variable&) = delete;
  engine_variable& operator=(const engine_variable&) = delete;

 private:
  static constexpr const char* name = "CROSSWARP_SOCKET_ENGINE";
  std::optional<std::string> before_;
};

std::string engine_of(cw::socket::engine_kind wanted) {
  return cw::socket::service(test_device(), {.ring_budget = 1 << 20, .engine = wanted})
      .stats()
      .engine;
}

TEST(SocketService, HasTheEngineThatWasAskedFor) {
  using kind = cw::socket::engine_kind;
  // What it is where the build or Linux has none.
  const std::string completions = engine_of(kind::io_uring);
  EXPECT_TRUE(completions == "io_uring" || completions == "epoll") << completions;
  {
    const engine_variable v("epoll");
    EXPECT_EQ(engine_of(kind::automatic), "epoll");
    EXPECT_EQ(engine_of(kind::io_uring), completions);
  }
  const engine_variable v("io_uring");
  EXPECT_EQ(engine_of(kind::automatic), completions);
  EXPECT_EQ(engine_of(kind::epoll), "epoll");
}

TEST(SocketService, AnEngineThatDoesNotExistIsRefused) {
  const engine_variable v("kqueue");
  try {
    (void)engine_of(cw::socket::engine_kind::automatic);
    FAIL() << "was made";
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("auto, epoll or io_uring"), std::string::npos) << e.what();
  }
}

}  // namespace
