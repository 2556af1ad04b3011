// What comes to a soft NIC from other processes: frames that make no sense, and processes that die.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <random>
#include <thread>

#include "crosswarp/error.hpp"
#include "crosswarp/rdma.hpp"
#include "support/process.hpp"
#include "transports/verbs/carrier.hpp"
#include "transports/verbs/frames.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace mlx5 = crosswarp::device::mlx5;
namespace rdma = crosswarp::rdma;
namespace verbs = crosswarp::verbs;
using cw::status;
using dev::rdma::completion;
using dev::rdma::operation;
using dev::rdma::syndrome;

// ---- frames

using bytes = std::vector<std::byte>;

verbs::request a_write(std::span<const verbs::piece> payload, std::uint32_t length) {
  verbs::request r;
  r.from = {1, 2, 0x1001};
  r.to = {3, 4, 0x2001};
  r.psn = 0xfffffffe;
  r.op = mlx5::opcode::rdma_write_imm;
  r.last = false;
  r.imm = 0x01020304;
  r.address = 0x123456789abcdef0;
  r.rkey = 0x55;
  r.offset = 70'000;
  r.bytes = length;
  r.payload = payload;
  return r;
}

TEST(RdmaFrames, ARequestIsReadAsItWasWritten) {
  const std::string text = "some data";
  const verbs::piece p = verbs::own_piece(text.data(), text.size());
  const auto written = verbs::request_frame(a_write(std::span(&p, 1), 9));
  ASSERT_TRUE(written);
  verbs::frame f;
  ASSERT_TRUE(f.read(*written));
  EXPECT_EQ(f.what, verbs::frame::kind::request);
  EXPECT_EQ(f.asked.from.qpn, 0x1001U);
  EXPECT_EQ(f.asked.from.fabric, 0U) << "the line says who it is";
  EXPECT_EQ(f.asked.to.qpn, 0x2001U);
  EXPECT_EQ(f.asked.psn, 0xfffffffeU);
  EXPECT_EQ(f.asked.op, mlx5::opcode::rdma_write_imm);
  EXPECT_FALSE(f.asked.last);
  EXPECT_EQ(f.asked.imm, 0x01020304U);
  EXPECT_EQ(f.asked.address, 0x123456789abcdef0U);
  EXPECT_EQ(f.asked.rkey, 0x55U);
  EXPECT_EQ(f.asked.offset, 70'000U);
  ASSERT_EQ(f.asked.payload.size(), 1U);
  EXPECT_EQ(std::memcmp(f.asked.payload[0].at, text.data(), text.size()), 0);
}

TEST(RdmaFrames, AnAtomicAndAnAnswer) {
  verbs::request r;
  r.op = mlx5::opcode::atomic_masked_cs;
  r.word = {true, 4, 1, 2, 3, 4};
  verbs::frame f;
  ASSERT_TRUE(f.read(*verbs::request_frame(r)));
  EXPECT_TRUE(f.asked.word.swaps);
  EXPECT_EQ(f.asked.word.width, 4);
  EXPECT_EQ(f.asked.word.compare_mask, 4U);
  ASSERT_TRUE(f.read(*verbs::answer_frame({.to = {0, 0, 7},
                                           .psn = 9,
                                           .what = verbs::answer::kind::refused,
                                           .why = syndrome::remote_access,
                                           .word = 11})));
  EXPECT_EQ(f.what, verbs::frame::kind::answer);
  EXPECT_EQ(f.said.to.qpn, 7U);
  EXPECT_EQ(f.said.psn, 9U);
  EXPECT_EQ(f.said.why, syndrome::remote_access);
  EXPECT_EQ(f.said.word, 11U);
}

TEST(RdmaFrames, NonsenseIsRefused) {
  verbs::frame f;
  const auto reads = [&](const bytes& b) { return f.read(b); };
  const bytes hello = verbs::hello_frame({1, 2, 0});
  ASSERT_TRUE(reads(hello));
  EXPECT_FALSE(reads({}));
  EXPECT_FALSE(reads(bytes(hello.begin(), hello.end() - 1))) << "too short";
  bytes longer = hello;
  longer.emplace_back();
  EXPECT_FALSE(reads(longer)) << "data where none belongs";
  bytes other = hello;
  other[0] = std::byte{0};
  EXPECT_FALSE(reads(other)) << "of another format";
  // The data is not as long as is said.
  EXPECT_FALSE(reads(*verbs::request_frame(a_write({}, 9))));
  // An opcode, a width and an outcome that there are none of.
  verbs::request r = a_write({}, 0);
  ASSERT_TRUE(reads(*verbs::request_frame(r)));
  r.op = static_cast<mlx5::opcode>(0x33);
  EXPECT_FALSE(reads(*verbs::request_frame(r)));
  r.op = mlx5::opcode::nop;
  EXPECT_FALSE(reads(*verbs::request_frame(r)));
  r.op = mlx5::opcode::atomic_fa;
  r.last = true;
  r.word.width = 3;
  EXPECT_FALSE(reads(*verbs::request_frame(r)));
  r.op = mlx5::opcode::rdma_read;
  r.bytes = verbs::most_frame_data + 1;
  EXPECT_FALSE(reads(*verbs::request_frame(r))) << "an answer that would be too long";
  EXPECT_FALSE(reads(*verbs::answer_frame({.what = static_cast<verbs::answer::kind>(9)})));
  EXPECT_FALSE(reads(*verbs::answer_frame({.what = verbs::answer::kind::refused})))
      << "refused for no reason would be a success";
}

TEST(RdmaFrames, AnyBytesAreReadOrRefused) {
  std::mt19937 random(5);
  const std::string text = "data";
  const verbs::piece p = verbs::own_piece(text.data(), text.size());
  const bytes model = *verbs::request_frame(a_write(std::span(&p, 1), 4));
  verbs::frame f;
  for (int i = 0; i < 20'000; ++i) {
    bytes b = model;
    for (int k = 0; k < 3; ++k) b[4 + random() % (b.size() - 4)] = std::byte(random() & 0xffU);
    b.resize(random() % (b.size() + 8));
    if (!f.read(b)) continue;
    if (f.what != verbs::frame::kind::request) continue;
    EXPECT_LE(f.asked.bytes, verbs::most_frame_data);
    for (const verbs::piece& d : f.asked.payload) EXPECT_LE(d.bytes, b.size());
  }
}

// ---- connections

/// An endpoint with memory, driven by this thread: on a CPU a kernel's code is the host's, too.
struct side {
  explicit side(const rdma::endpoint_options& o = {})
      : region(d.register_memory(memory.data(), memory.size(), rdma::access::all)),
        ep(d.make_endpoint(o)) {}
  [[nodiscard]] completion perform(const dev::rdma::request& r) const {
    return ep.device().perform(dev::thread_group{}, r);
  }
  [[nodiscard]] completion write(const dev::rdma::region& to, std::uint32_t length) const {
    return perform({.op = operation::write,
                    .bytes = length,
                    .local = region.device().local(),
                    .remote = to.remote()});
  }

  rdma::context all;
  rdma::device_context d = all.devices().at(0).open();
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(1U << 20U);
  rdma::memory_region region;
  rdma::endpoint ep;
};

/// A connection to the socket that an address names.
int dial(const rdma::endpoint_address& to) {
  std::uint64_t name = 0;
  std::memcpy(&name, to.route.data() + to.route_bytes - sizeof(name), sizeof(name));
  const std::string text = "crosswarp-rdma-" + std::to_string(name);
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + 1, text.data(), text.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&a), length), 0);
  return fd;
}

void say(int fd, const bytes& frame) {
  const auto length = static_cast<std::uint32_t>(frame.size());
  bytes all(sizeof(length));
  std::memcpy(all.data(), &length, sizeof(length));
  all.insert(all.end(), frame.begin(), frame.end());
  EXPECT_EQ(send(fd, all.data(), all.size(), MSG_NOSIGNAL), static_cast<ssize_t>(all.size()));
}

/// Whether the other end has closed it; reads whatever comes before.
bool is_closed(int fd) {
  char text[4096];
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, 5000) != 1) return false;
    if (recv(fd, text, sizeof(text), 0) <= 0) return true;
  }
}

TEST(RdmaConnections, WhatMakesNoSenseClosesThatOneAlone) {
  const side a;
  const side b;
  const auto pass = [&](const std::vector<bytes>& frames) {
    const int fd = dial(a.ep.address());
    for (const bytes& f : frames) say(fd, f);
    const bool closed = is_closed(fd);
    close(fd);
    return closed;
  };
  const bytes hello = verbs::hello_frame({9, 9, 0});
  EXPECT_TRUE(pass({bytes(3)}));
  EXPECT_TRUE(pass({hello, hello})) << "twice";
  EXPECT_TRUE(pass({*verbs::request_frame(a_write({}, 0))})) << "without a hello";
  EXPECT_TRUE(pass({hello, *verbs::answer_frame({})})) << "an answer to nothing";
  const int fd = dial(a.ep.address());
  const std::uint32_t huge = 0xfffffff0;
  EXPECT_EQ(send(fd, &huge, sizeof(huge), MSG_NOSIGNAL), 4);
  EXPECT_TRUE(is_closed(fd)) << "longer than any frame";
  close(fd);
  EXPECT_EQ(a.ep.state(), rdma::endpoint_state::made);
}

/// Whoever asks in the name of no peer gets no answer but that there is nobody.
TEST(RdmaConnections, AStrangerReachesNoMemory) {
  side a;
  side b;
  a.ep.connect(b.ep.address());
  b.ep.connect(a.ep.address());
  const int fd = dial(b.ep.address());
  say(fd, verbs::hello_frame({a.ep.address().fabric + 1, 0, 0}));
  const std::uint64_t value = 7;
  const verbs::piece p = verbs::own_piece(&value, sizeof(value));
  verbs::request r;
  r.from.qpn = a.ep.qpn();
  r.to.qpn = b.ep.qpn();
  r.op = mlx5::opcode::rdma_write;
  r.address = b.region.device().address;
  r.rkey = b.region.device().rkey;
  r.bytes = sizeof(value);
  r.payload = std::span(&p, 1);
  say(fd, *verbs::request_frame(r));
  std::uint32_t length = 0;
  ASSERT_EQ(recv(fd, &length, sizeof(length), MSG_WAITALL), 4);
  bytes reply(length);
  ASSERT_EQ(recv(fd, reply.data(), reply.size(), MSG_WAITALL), static_cast<ssize_t>(length));
  verbs::frame f;
  ASSERT_TRUE(f.read(reply));
  EXPECT_EQ(f.said.what, verbs::answer::kind::none);
  close(fd);
  EXPECT_EQ(b.memory[0], 0);
  EXPECT_EQ(a.write(b.region.device(), 8).outcome, status::ok) << "who may still does";
}

TEST(RdmaConnections, AnAddressThatLeadsNowhereIsRefused) {
  side a;
  rdma::endpoint_address address;
  {
    side b;
    address = b.ep.address();
  }
  address.fabric += 1;
  EXPECT_NO_THROW(a.ep.connect(address)) << "somebody listens there";
  EXPECT_EQ(a.write(a.region.device(), 8).why, syndrome::retries_exceeded);
  side c;
  address.route[address.route_bytes - 1] ^= std::byte{1};
  EXPECT_THROW(c.ep.connect(address), cw::error);
  address.route_bytes = 100'000;
  EXPECT_THROW(c.ep.connect(address), cw::error);
  address.route[0] = std::byte{'x'};
  address.route_bytes = 80;
  EXPECT_THROW(c.ep.connect(address), cw::error);
}

// ---- another process

template <class T>
std::string hex(const T& value) {
  std::string text;
  const auto* b = reinterpret_cast<const unsigned char*>(&value);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    constexpr char digits[] = "0123456789abcdef";
    text += {digits[b[i] >> 4U], digits[b[i] & 15U]};
  }
  return text;
}
template <class T>
T from_hex(const std::string& text) {
  T value;
  auto* b = reinterpret_cast<unsigned char*>(&value);
  for (std::size_t i = 0; i < sizeof(T) && 2 * i + 1 < text.size(); ++i) {
    b[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return value;
}

/// The other process: an endpoint that is written to until somebody ends it.
TEST(RdmaPeer, DISABLED_Serves) {
  const char* peer = std::getenv("CROSSWARP_TEST_PEER");
  if (peer == nullptr) GTEST_SKIP() << "started by the tests below";
  side b;
  b.ep.connect(from_hex<rdma::endpoint_address>(peer));
  std::printf("address %s\nregion %s\nready\n", hex(b.ep.address()).c_str(),
              hex(b.region.device()).c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

class peer_process {
 public:
  explicit peer_process(const side& of) : runs_(command(), variables(of)) {
    EXPECT_TRUE(runs_.wait_for("ready")) << runs_.report();
    for (const std::string& line : runs_.lines()) {
      if (line.starts_with("address ")) address = from_hex<rdma::endpoint_address>(line.substr(8));
      if (line.starts_with("region ")) region = from_hex<dev::rdma::region>(line.substr(7));
    }
  }
  [[nodiscard]] bool stop() const { return runs_.stop(); }
  void kill() {
    runs_.kill(SIGKILL);
    runs_.wait(seconds(10));
  }

  rdma::endpoint_address address;
  dev::rdma::region region;

 private:
  static std::vector<std::string> command() {
    return {std::filesystem::read_symlink("/proc/self/exe"), "--gtest_filter=*DISABLED_Serves",
            "--gtest_also_run_disabled_tests"};
  }
  static environment variables(const side& of) {
    environment e{{"CROSSWARP_TEST_PEER", hex(of.ep.address())}};
    if (const char* wire = std::getenv("CROSSWARP_RDMA_WIRE")) e["CROSSWARP_RDMA_WIRE"] = wire;
    return e;
  }
  process runs_;
};

TEST(RdmaProcesses, EveryOperationReachesAnotherProcess) {
  side a;
  peer_process other(a);
  a.ep.connect(other.address);
  for (std::size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = static_cast<std::uint8_t>(i * 7);
  const std::vector<std::uint8_t> sent = a.memory;
  const auto size = static_cast<std::uint32_t>(sent.size());
  ASSERT_EQ(a.write(other.region, size).outcome, status::ok);  // several frames
  std::fill(a.memory.begin(), a.memory.end(), std::uint8_t{0});
  ASSERT_EQ(a.perform({.op = operation::read,
                       .bytes = size,
                       .local = a.region.device().local(),
                       .remote = other.region.remote()})
                .outcome,
            status::ok);
  EXPECT_EQ(a.memory, sent);
  std::uint64_t word = 0;
  std::memcpy(&word, sent.data(), sizeof(word));
  for (const std::uint64_t expected : {word, word + 5}) {
    ASSERT_EQ(a.perform({.op = operation::fetch_add,
                         .local = a.region.device().local(),
                         .remote = other.region.remote(),
                         .operand = 5})
                  .outcome,
              status::ok);
    std::memcpy(&word, a.memory.data(), sizeof(word));
    EXPECT_EQ(word, expected);
  }
}

TEST(RdmaProcesses, OneThatIsKilledWithWorkUnderWayEndsItsEndpointsAlone) {
  side a;
  side c;
  side e;
  c.ep.connect(e.ep.address());
  e.ep.connect(c.ep.address());
  peer_process other(a);
  a.ep.connect(other.address);
  ASSERT_EQ(a.write(other.region, 8).outcome, status::ok);
  ASSERT_TRUE(other.stop()) << "so that there is work under way";
  const auto ep = a.ep.device();
  const dev::thread_group me;
  const auto p = ep.post_batch(me, 64, [&](std::uint32_t) {
    return dev::rdma::request{.op = operation::write,
                              .bytes = 4096,
                              .local = a.region.device().local(),
                              .remote = other.region.remote()};
  });
  ASSERT_EQ(ep.submit(me, p.end), status::ok);
  EXPECT_EQ(c.write(e.region.device(), 8).outcome, status::ok);
  other.kill();
  const auto began = std::chrono::steady_clock::now();
  const completion first = ep.wait(me, {status::ok, p.index, p.index + 1});
  EXPECT_EQ(first.why, syndrome::retries_exceeded) << to_string(first.outcome);
  EXPECT_EQ(ep.quiet(me).outcome, status::unreachable);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(10));
  EXPECT_EQ(a.ep.state(), rdma::endpoint_state::failed);
  EXPECT_EQ(c.write(e.region.device(), 8).outcome, status::ok) << "others go on";
  side late;
  // By UCX this is known only when something is sent.
  if (const char* wire = std::getenv("CROSSWARP_RDMA_WIRE");
      wire == nullptr || wire != std::string("ucx")) {
    EXPECT_THROW(late.ep.connect(other.address), cw::error) << "nobody is there any more";
  }
}

}  // namespace
