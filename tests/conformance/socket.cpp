// What one socket in a kernel must do, against Linux's own TCP with a scripted peer.
#include "support/socket_fixture.hpp"

using namespace calls;

namespace {

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

}  // namespace
