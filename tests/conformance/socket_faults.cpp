// What goes wrong behind a socket: no descriptor, no room, no time, an error that is nobody's.
#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>

#include "support/socket_fixture.hpp"

using namespace calls;

namespace {

/// The service's descriptor of the connection to `p`: both are in this process.
int other_end_of(const peer& p) {
  const std::string wanted = cw::socket::to_string(cw::tcp::own_name(p.descriptor()));
  for (int fd = 0; fd < 1024; ++fd) {
    if (cw::socket::to_string(cw::tcp::peer_name(fd)) == wanted) return fd;
  }
  return -1;
}

/// Until Linux takes no more for it.
std::size_t fill(int fd) {
  const std::string some = pattern(4096);
  std::size_t all = 0;
  for (;;) {
    const ssize_t n = ::send(fd, some.data(), some.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return all;
    all += static_cast<std::size_t>(n);
  }
}

// ---- paths

TEST_F(Socket, AFileIsNoSocketThatWasLeftBehind) {
  const auto path =
      std::filesystem::temp_directory_path() / ("crosswarp-notes-" + std::to_string(getpid()));
  std::ofstream(path) << "not to be lost";
  const address a = cw::socket::parse_address("unix:" + path.string());
  caller<> k(net());
  EXPECT_EQ(k.listen(a).error(), -EADDRINUSE);
  EXPECT_TRUE(is_regular_file(path)) << "it was removed";
  std::filesystem::remove(path);
  // What stands at the path when the listener goes is somebody else's.
  const handle l = k.listen(a);
  ASSERT_TRUE(l) << l.error();
  std::filesystem::remove(path);
  std::ofstream(path) << "came later";
  EXPECT_EQ(k.close(l), 0);
  settle(0);
  EXPECT_TRUE(is_regular_file(path));
  std::filesystem::remove(path);
}

TEST_F(Socket, WhoConnectsToAFullBacklogWaitsForRoom) {
  const listening_peer there(
      cw::socket::parse_address("unix:@crosswarp-full-" + std::to_string(getpid())), 1);
  caller<> k(net());
  handle last;
  for (int i = 0; i < 5 && last.error() != -ETIMEDOUT; ++i) {
    last = k.connect(there.name(), soon);
    ASSERT_TRUE(last || last.error() == -ETIMEDOUT) << last.error();
  }
  ASSERT_FALSE(last) << "the backlog has no end";
  std::vector<peer> accepted;
  std::thread accepts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    accepted.push_back(there.accept());
  });
  EXPECT_TRUE(k.connect(there.name()));
  accepts.join();
}

// ---- descriptors

constexpr int few = 16;

/// Takes the lowest numbers, so that descriptors that are opened meanwhile have higher ones.
class low_numbers {
 public:
  low_numbers() {
    int fd = 0;
    while ((fd = dup(STDERR_FILENO)) < few) taken_.push_back(fd);
    close(fd);
  }
  ~low_numbers() {
    for (const int fd : taken_) close(fd);
  }
  low_numbers(const low_numbers&) = delete;
  low_numbers& operator=(const low_numbers&) = delete;

 private:
  std::vector<int> taken_;
};

/// While it lives nothing can be opened with a number that is not low.
class no_descriptors {
 public:
  no_descriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = few;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~no_descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  no_descriptors(const no_descriptors&) = delete;
  no_descriptors& operator=(const no_descriptors&) = delete;

 private:
  rlimit before_{};
};

/// Connects a descriptor that is there already.
peer connected(int fd, const address& a) {
  const auto to = cw::tcp::to_system(a);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to.storage), to.bytes), 0) << errno;
  return peer(fd);
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

TEST_F(Socket, WithoutASpareDescriptorAListenerWaitsAndThenEndsWithItsClose) {
  const low_numbers taken;
  caller<> k(net());
  const handle l = k.listen();
  const address where = k.own_name(l);
  const int mine = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::optional<peer> waits;
  {
    const no_descriptors now;
    waits.emplace(connected(mine, where));
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_LT(cpu_seconds() - before, 0.2) << "tries all the time";
    EXPECT_EQ(net().stats().refused, 0U);
  }
  const handle s = k.accept(l);
  ASSERT_TRUE(s) << s.error();
  waits->write("at last");
  EXPECT_EQ(k.recv_all(s, 7), "at last");
  // A copy of the listener's descriptor would go on listening.
  EXPECT_EQ(k.close(l), 0);
  settle(1);
  EXPECT_EQ(k.connect(where).error(), -ECONNREFUSED);
}

TEST_F(Socket, AfterAPeerWasRefusedForWantOfDescriptorsThePortEndsWithItsListener) {
  caller<> k(net());
  const handle l = k.listen();
  const address where = k.own_name(l);
  const int mine = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit lower = before;
  lower.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &lower);
  std::vector<int> all;
  for (int fd = dup(mine); fd >= 0; fd = dup(mine)) all.push_back(fd);
  const auto to = cw::tcp::to_system(where);
  // The reset may be there before it returns.
  (void)connect(mine, reinterpret_cast<const sockaddr*>(&to.storage), to.bytes);
  EXPECT_TRUE(eventually([&] { return net().stats().refused == 1; }));
  for (const int fd : all) close(fd);
  close(mine);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(k.close(l), 0);
  settle(0);
  EXPECT_EQ(k.connect(where).error(), -ECONNREFUSED);
  EXPECT_TRUE(k.listen(where)) << "the address is free";
}

// ---- time

class SocketEnd : public SocketPair {
 protected:
  static cw::socket::service_options wide(std::chrono::milliseconds linger) {
    cw::socket::service_options o = small();
    o.ring_bytes = o.most_ring_bytes = 1 << 16;
    o.linger = linger;
    return o;
  }
  static constexpr std::size_t bytes = 60'000;
};

TEST_F(SocketEnd, AtItsEndAServiceGivesTheWholeOfLingerToWhoWasSilentForLong) {
  open(wide(std::chrono::seconds(1)));
  const std::size_t buffered = fill(other_end_of(*there));
  const std::string sent = pattern(bytes);
  EXPECT_EQ(k->send(s, sent), static_cast<std::int64_t>(bytes));
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));  // no byte comes
  k.reset();
  std::thread ends([&] { Socket::TearDownService(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  (void)there->read(buffered);
  EXPECT_TRUE(there->read(sent.size()) == sent);
  EXPECT_EQ(there->read_to_end(), "");
  EXPECT_EQ(there->error, 0);
  ends.join();
}

TEST_F(SocketEnd, AStreamThatLingerCutsShortEndsWithAReset) {
  open(wide(std::chrono::milliseconds(50)));
  const std::size_t buffered = fill(other_end_of(*there));
  EXPECT_EQ(k->send(s, pattern(bytes)), static_cast<std::int64_t>(bytes));
  k.reset();
  Socket::TearDownService();
  EXPECT_LT(there->read(buffered + bytes).size(), buffered + bytes);
  EXPECT_EQ(there->error, ECONNRESET) << "cut short, and looks whole";
}

TEST_F(Socket, WhoseBytesWaitBehindAFullRingIsNotSilent) {
  cw::socket::service_options o = small();
  o.idle = std::chrono::milliseconds(50);
  caller<> k(net(o));
  const handle l = k.listen();
  peer p(k.own_name(l));
  const handle s = k.accept(l);
  const std::string sent = pattern(9000);  // more than twice what the ring holds
  EXPECT_EQ(p.write(sent), sent.size());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(net().stats().timed_out, 0U);
  EXPECT_EQ(k.recv_all(s, sent.size()), sent);
}

TEST_F(SocketPair, RecvAllWaitsNotLongerThanItsPatience) {
  open();
  // Each byte comes just before a patience of its own would end.
  std::atomic<bool> over{false};
  std::thread trickles([&] {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(540));
      there->write("x");
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  (void)k->recv_all(s, 1000, patience{600'000'000});
  const auto took = std::chrono::steady_clock::now() - begin;
  over = true;
  trickles.join();
  EXPECT_LT(took, std::chrono::milliseconds(1200));
}

// ---- errors

TEST_F(SocketPair, BytesBehindAMarkOfUrgentOnesAreDelivered) {
  open();
  // The ring is full meanwhile, so that all of it is there when the host reads on.
  there->write(pattern(4096));
  ASSERT_TRUE(eventually([&] { return net().stats().received_bytes == 4096; }));
  there->write("abc");
  ASSERT_EQ(::send(there->descriptor(), "d", 1, MSG_OOB), 1);
  there->write("efg");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the host has heard of all
  EXPECT_EQ(k->recv_all(s, 4096), pattern(4096));
  EXPECT_EQ(k->recv_all(s, 6), "abcefg");
}

TEST_F(SocketPair, AStreamThatCannotBeSentEndsWithAReset) {
  open();
  // Linux refuses the next send, though the connection is well: for want of memory, say.
  const int fd = other_end_of(*there);
  ASSERT_GE(fd, 0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  ASSERT_EQ(dup3(ends[1], fd, O_CLOEXEC), fd);
  EXPECT_EQ(k->send(s, "is not sent"), 11);
  std::int64_t n = 0;
  ASSERT_TRUE(eventually([&] { return (n = k->send(s, "x", at_once)) < 0; }));
  EXPECT_EQ(n, -ENOTSOCK);
  ASSERT_EQ(dup3(kept, fd, O_CLOEXEC), fd);
  for (const int e : {kept, ends[0], ends[1]}) ::close(e);
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ(there->read_to_end(), "");
  EXPECT_EQ(there->error, ECONNRESET) << "the stream stops short, and looks whole";
}

TEST_F(SocketPair, OptionsOfAConnectionThatFailedAreNotThoseOfNoSocket) {
  open();
  there->reset();
  EXPECT_EQ(k->recv_result(s), -ECONNRESET);
  EXPECT_EQ((*k)({.what = op::get_option, .s = s}), -ENOTCONN);
  EXPECT_EQ((*k)({.what = op::set_option, .s = s, .value = 1}), -ENOTCONN);
  EXPECT_EQ(k->close(s), 0);
  EXPECT_EQ((*k)({.what = op::get_option, .s = s}), -EBADF);
}

TEST_F(SocketPair, WhoHasALargerRingWaitingIsWritable) {
  cw::socket::service_options o = small();
  o.most_ring_bytes = 16 * 1024;
  open(o);
  for (int i = 0; i < 3; ++i) {  // also what the peer makes room for now
    (void)fill(other_end_of(*there));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(k->send(s, pattern(4096)), 4096);  // all that the first ring holds
  EXPECT_EQ(k->ready(s, sock::event::writable, long_enough), sock::event::writable);
  EXPECT_EQ(k->send(s, pattern(12 * 1024), at_once), 12 * 1024);
}

// ---- others

/// Block 0 receives, block 1 closes what it receives from.
struct close_under_receiver {
  CW_FN void operator()(const context& ctx, const sock::service& net, handle s,
                        std::int64_t* result) const {
    const auto g = ctx.thread();
    char c = 0;
    if (ctx.block_index() == 0) {
      *result = net.recv(g, s, &c, 1, long_enough);
    } else {
      sock::poll_item none{s, 0, 0};
      (void)net.poll(g, &none, 1, soon);
      net.close(g, s);
    }
  }
};

TEST_F(SocketPair, WhoWaitsForASocketThatSomebodyClosesIsToldSo) {
  open();
  const cw::buffer<std::int64_t> result(test_device(), 1);
  cw::stream stream(test_device());
  cw::launch(stream, {.blocks = 2, .resident = true}, close_under_receiver{}, net().device(), s,
             result.data());
  stream.sync();
  EXPECT_EQ(result.read()[0], -EBADF);
}

/// Each block accepts one connection and echoes until it ends.
struct echo_one {
  CW_FN void operator()(const context& ctx, const sock::service& net, handle l,
                        std::byte* memory) const {
    const auto g = ctx.block();
    std::byte* const mine = memory + ctx.block_index() * 1000;
    const handle s = net.accept(g, l, long_enough);
    if (!s) return;
    for (;;) {
      const std::int64_t n = net.recv(g, s, mine, 1000, long_enough);
      if (n <= 0 || net.send(g, s, mine, static_cast<std::uint64_t>(n), long_enough) != n) break;
    }
    net.close(g, s);
  }
};

TEST_F(Socket, AStreamThatNeverPausesLeavesOthersTheirTurn) {
  caller<> k(net());
  const handle l = k.listen();
  const cw::buffer<std::byte> memory(test_device(), 2 * 1000);
  cw::stream stream(test_device());
  cw::launch(stream, {.blocks = 2, .resident = true}, echo_one{}, net().device(), l, memory.data());
  {
    peer greedy(k.own_name(l));
    peer small_one(k.own_name(l));
    std::atomic<bool> over{false};
    std::atomic<std::size_t> back{0};
    const std::string much = pattern(1 << 16);
    std::thread writes([&] {
      while (!over) greedy.write(much);
      greedy.end();
    });
    std::thread reads([&] {
      for (std::string some = greedy.read(4096); !some.empty(); some = greedy.read(4096)) {
        back += some.size();
      }
    });
    EXPECT_TRUE(eventually([&] { return back > 1 << 18; })) << "the stream does not flow";
    for (int i = 0; i < 10; ++i) {
      small_one.write("x");
      EXPECT_EQ(small_one.read(1), "x") << "it waits until the stream pauses";
    }
    over = true;
    writes.join();
    reads.join();
  }
  stream.sync();
  EXPECT_EQ(k.close(l), 0);
  settle(0);
}

/// Accepts, and ends without a word: as one whose wait was ended by a fault.
struct leave_open {
  CW_FN void operator()(const context& ctx, const sock::service& net, handle l) const {
    const auto g = ctx.block();
    const handle s = net.accept(g, l, long_enough);
    (void)net.send(g, s, "half of it", 10);
  }
};

TEST_F(Socket, WhatAKernelLeavesOpenEndsWithItsServiceAndNoOther) {
  caller<> k(net());
  const handle other = k.listen();
  peer lives(k.own_name(other));
  const handle s = k.accept(other);
  ASSERT_TRUE(s) << s.error();

  std::optional<cw::socket::service> own(std::in_place, test_device(), small());
  std::optional<caller<>> there(std::in_place, *own);
  const handle l = there->listen();
  peer left(there->own_name(l));
  cw::stream stream(test_device());
  cw::launch(stream, {.threads = 4}, leave_open{}, own->device(), l);
  stream.sync();
  // The kernel has ended, its socket has not: another kernel may go on with it.
  EXPECT_EQ(left.read(10), "half of it");
  EXPECT_EQ(own->stats().sockets, 2);
  there.reset();
  own.reset();
  EXPECT_EQ(left.read_to_end(), "");
  EXPECT_EQ(left.error, 0) << "what was sent was delivered, so the end is one in order";
  lives.write("undisturbed");
  EXPECT_EQ(k.recv_all(s, 11), "undisturbed");
}

}  // namespace
