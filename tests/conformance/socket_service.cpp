// What a service of sockets in kernels must do: many at once, its limits and its options.
#include <sys/resource.h>

#include "support/socket_fixture.hpp"

using namespace calls;

namespace {

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

/// Block 0 polls a socket that stays quiet; block 1 makes news of others as long as it does.
struct poll_among_news {
  CW_FN void operator()(const context& ctx, const sock::service& net, std::uint64_t* activity,
                        sock::poll_item* item, patience p, int* done, std::int64_t* found,
                        cw::status* news) const {
    const dev::device_atomic<int> is_done(*done);
    if (ctx.block_index() == 0) {
      *found = net.poll(ctx.thread(), item, 1, p);
      is_done.store(1, dev::order::release);  // pairs with the load below
      return;
    }
    *news = dev::poll_until(
        [&] {
          dev::system_atomic<std::uint64_t>(*activity).fetch_add(1, dev::order::release);
          return is_done.load(dev::order::acquire) == 1;
        },
        dev::wait_limits{}.within(20'000'000'000));
  }
};

template <class T>
cw::buffer<T> one_of(const T& value) {
  return {test_device(), std::span<const T>(&value, 1)};
}

/// What polling one socket came to, without Linux; `fault`: of the world.
std::int64_t poll_among_news_for(patience p, cw::fault_word fault) {
  sock::own_state taken{};
  taken.shared.life = 1;
  const auto own = one_of(taken);
  const auto news = one_of(sock::news{});
  const auto activity = one_of(std::uint64_t{0});
  const auto word = one_of(fault);
  sock::memory m;
  m.sockets = 1;
  m.own = own.data();
  m.state = news.data();
  m.activity = activity.data();
  const auto item = one_of(sock::poll_item{handle(0, 1), sock::event::readable, 0});
  const auto done = one_of(0);
  const auto found = one_of(std::int64_t{0});
  const auto others = one_of(cw::status::ok);
  cw::stream stream(test_device());
  const dev::wait_limits limits{.fault = word.data()};
  cw::launch(stream, {.blocks = 2, .resident = true}, poll_among_news{}, sock::service(m, limits),
             activity.data(), item.data(), p, done.data(), found.data(), others.data());
  stream.sync();
  EXPECT_EQ(others.read()[0], cw::status::ok) << "it went on until the news ended";
  return found.read()[0];
}

// On a GPU each look was followed by news, so there was another one, and never one at the clock.
TEST(SocketPoll, EndsInTimeWhileOthersHaveNews) {
  EXPECT_EQ(poll_among_news_for(patience(20'000'000), 0), 0);
}
TEST(SocketPoll, EndsWithTheWorldWhileOthersHaveNews) {
  EXPECT_EQ(poll_among_news_for(long_enough, cw::make_fault(cw::status::aborted, 0)), -ECANCELED);
}

/// Polls one socket, and calls with the item when it is another's.
struct give_item_away {
  CW_FN void operator()(const context& ctx, const sock::service& net, sock::poll_item* item,
                        handle first, handle other, std::int64_t* out) const {
    const auto g = ctx.block();
    if (g.rank() == 0) *item = {first, sock::event::readable | sock::event::writable, 0};
    const std::int64_t found = net.poll(g, item, 1, long_enough);
    if (g.rank() == 0) item->socket = other;
    const auto room = net.send_reserve(g, *item, 1, at_once);
    const auto came = net.recv_view(g, *item, at_once);
    if (g.rank() != 0) return;
    out[0] = found;
    out[1] = room.result;
    out[2] = came.result;
  }
};

// What was seen of a socket that had come further was taken for room and for bytes of this one.
TEST_F(SocketPair, AnItemForgetsWhatItSawOfAnotherSocket) {
  open();
  peer elsewhere(k->own_name(listener));
  const handle other = k->accept(listener);
  ASSERT_TRUE(other);
  const std::string text = pattern(3000, 1);
  EXPECT_EQ(k->send(s, text), 3000);
  EXPECT_EQ(there->read(3000), text);
  there->write(pattern(100, 2));
  EXPECT_EQ(k->ready(s, sock::event::readable), sock::event::readable);
  const cw::buffer<sock::poll_item> item(test_device(), 1);
  const cw::buffer<std::int64_t> out(test_device(), 3);
  cw::stream stream(test_device());
  cw::launch(stream, {.threads = 4}, give_item_away{}, net().device(), item.data(), s, other,
             out.data());
  stream.sync();
  const auto got = out.read();
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 4096) << "all of the other's ring";
  EXPECT_EQ(got[2], -EAGAIN);
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

TEST_F(Socket, AListenerInThePlaceOfAnotherHasItsOwnConnections) {
  cw::socket::service_options o = small();
  o.sockets = 3;
  o.per_listener = 1;
  caller<> k(net(o));
  const handle first = k.listen();
  const peer a(k.own_name(first));
  const handle s = k.accept(first);
  ASSERT_TRUE(s) << s.error();
  EXPECT_EQ(k.close(first), 0);
  settle(1);
  // One of these is in the place of the first.
  for (int i = 0; i < 2; ++i) {
    const handle l = k.listen();
    const peer b(k.own_name(l));
    const handle t = k.accept(l);
    EXPECT_TRUE(t) << t.error();
    EXPECT_EQ(k.close(t), 0);
    EXPECT_EQ(k.close(l), 0);
    settle(1);
  }
}

TEST_F(Socket, ThreadsShareConnectionsEvenly) {
  cw::socket::service_options o = small();
  o.threads = 3;
  o.sockets = 12;
  caller<> k(net(o));
  const handle l = k.listen();
  std::vector<peer> there;
  std::vector<handle> here;
  for (int i = 0; i < 11; ++i) {
    there.emplace_back(k.own_name(l));
    here.push_back(k.accept(l));
    ASSERT_TRUE(here.back()) << here.back().error();
    there.back().write(pattern(100, static_cast<unsigned>(i)));
  }
  EXPECT_EQ(net().stats().sockets_of_thread, (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(k.connect(k.own_name(l)).error(), -EMFILE);
  for (unsigned i = 0; i < here.size(); ++i) {
    EXPECT_EQ(k.recv_all(here[i], 100), pattern(100, i));
    EXPECT_EQ(k.close(here[i]), 0);
  }
  settle(1);
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
  const int r = connect(mine, reinterpret_cast<const sockaddr*>(&target.storage), target.bytes);
  const int failed = r == 0 ? 0 : errno;
  {
    peer p(mine);
    if (failed == 0) {
      EXPECT_EQ(p.read_to_end(), "");
    }
    // The reset may be there before connect() returns.
    EXPECT_EQ(failed == 0 ? p.error : failed, ECONNRESET);
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
  EXPECT_TRUE(refused([](auto& o) { o.threads = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.threads = 65; }));
  EXPECT_TRUE(refused([](auto& o) { o.threads = 1 + (o.sockets = 3); }));
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
