// What adapters are told when queues are made and connected: the commands of mlx5, byte by byte, by
// a control path that records them; and times in adapters' codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "transports/verbs/mlx5_qp.hpp"
#include "transports/verbs/patience.hpp"

namespace cw = crosswarp;
namespace rdma = crosswarp::rdma;
namespace verbs = crosswarp::verbs;
namespace command = crosswarp::verbs::mlx5_command;
using namespace std::chrono_literals;

namespace {

/// Words of 32 bits that are not 0, by place.
using words = std::map<std::size_t, std::uint32_t>;

words words_of(const command::bits& c) {
  words all;
  for (std::size_t i = 0; i < c.bytes().size() / 4; ++i) {
    const auto w = static_cast<std::uint32_t>(c.get(32 * i, 32));
    if (w != 0) all[i] = w;
  }
  return all;
}

/// An adapter that does nothing but to write down what it is asked.
class recorded_control final : public verbs::mlx5_control {
 public:
  std::vector<command::bits> commands;
  std::vector<std::string> calls;
  int fails_at = -1;  ///< the command that the adapter refuses
  bool ethernet = true;
  command::state state = command::state::init;

  [[nodiscard]] doorbell_page doorbells() const override { return {0x777, nullptr, 0x800}; }
  [[nodiscard]] std::uint32_t domain() const override { return 0x55; }
  [[nodiscard]] std::uint32_t event_queue() const override { return 0x1d; }
  memory add_memory(void* /*p*/, std::size_t bytes) override {
    const handle it = next_memory_++;
    calls.push_back("memory " + std::to_string(bytes));
    return {it, static_cast<std::uint32_t>(it)};
  }
  void remove_memory(handle m) noexcept override {
    calls.push_back("no memory " + std::to_string(m - 0x100));
  }
  handle create(const command::bits& in, command::bits& out) override {
    note("create", in, out);
    const handle it = next_object_++;
    out.set(0x48, 24, it);
    return it;
  }
  void modify(handle /*it*/, const command::bits& in, command::bits& out) override {
    note("modify", in, out);
    if (command::status(out) != 0) return;
    if (in.get(0, 16) == 0x503) state = command::state::receives;
    if (in.get(0, 16) == 0x504) state = command::state::sends;
  }
  void query(handle /*it*/, const command::bits& in, command::bits& out) override {
    EXPECT_EQ(words_of(in), (words{{0x0, 0x050b0000}, {0x2, 0x203}}));
    out.set(0xc0, 4, static_cast<std::uint64_t>(state));
  }
  void destroy(handle it) noexcept override {
    calls.push_back("end " + std::to_string(it - 0x200));
  }

  [[nodiscard]] port_facts port(int /*number*/) const override { return {ethernet, 100}; }
  [[nodiscard]] verbs::endpoint_address address(std::uint32_t qpn,
                                                const rdma::endpoint_options& o) const override {
    EXPECT_EQ(o.gid_index, 3) << "the one that was chosen";
    verbs::endpoint_address a;
    a.fabric = verbs::adapters_id;
    a.qpn = qpn;
    a.first_number = 0x654321;
    a.mtu = 5;
    return a;
  }
  [[nodiscard]] int gid_index(int /*port*/, int wish) const override { return wish < 0 ? 3 : wish; }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_of(
      const verbs::endpoint_address& /*peer*/, const rdma::endpoint_options& /*o*/) const override {
    return {2, 4, 6, 8, 10, 12};
  }
  [[nodiscard]] std::uint64_t* map_doorbell(cw::device_ref /*d*/) override { return &bell_; }

 private:
  void note(const char* what, const command::bits& in, command::bits& out) {
    calls.emplace_back(what);
    if (static_cast<int>(commands.size()) == fails_at) {
      out.set(0, 8, 3);
      out.set(0x20, 32, 0xbad);
    }
    commands.push_back(in);
  }
  handle next_memory_ = 0x101;
  handle next_object_ = 0x201;
  std::uint64_t bell_ = 0;
};

/// An endpoint of 16 blocks and 32 receives, with a collapsed queue of completions.
struct setting {
  setting() {
    s.send_depth = 16;
    s.receive_depth = 32;
    s.queues.receive = reinterpret_cast<cw::device::mlx5::data_segment*>(work.data());
    s.queues.record = records.data();
    s.queues.sent = {entries.data(), cq_records.data(), 32, true};
    s.queues.received = {entries.data() + 32, cq_records.data() + 1, 64, false};
    s.options.port = 2;
    s.options.retries = 5;
    s.options.retry_after = 67ms;
    s.options.not_ready_retries = 100;
    s.options.not_ready_after = 7us;
  }
  static cw::device_ref cpu() { return cw::device_ref::cpu(); }
  cw::buffer<std::byte> work{cpu(), 32 * 16 + 16 * 64};
  cw::buffer<cw::device::mlx5::cqe64> entries{cpu(), 96};
  cw::buffer<cw::device::mlx5::qp_record> records{cpu(), 1};
  cw::buffer<cw::device::mlx5::cq_record> cq_records{cpu(), 2};
  verbs::qp_setup s;
  std::shared_ptr<recorded_control> control = std::make_shared<recorded_control>();
};

verbs::endpoint_address peer() {
  verbs::endpoint_address a;
  a.fabric = verbs::adapters_id;
  a.qpn = 0xabcdef;
  a.first_number = 0x123456;
  a.lid = 0x4321;
  a.mtu = 3;
  a.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9};
  return a;
}

// What is expected was made from the layout in rdma-core's mlx5_ifc.h (of completion queues: from
// that of DPDK; of shared receives: from that of Linux) by another program, so that a wrong place
// shows.

TEST(Mlx5Commands, QueuesAreMadeOfRegisteredMemory) {
  setting t;
  const verbs::mlx5_pair p(t.control, t.s);
  EXPECT_EQ(p.qpn(), 0x203U);
  EXPECT_THAT(t.control->calls,
              testing::ElementsAre("memory 2048", "memory 8", "create", "memory 4096", "memory 8",
                                   "create", "memory 1536", "memory 8", "create", "modify"));
  const auto& c = t.control->commands;
  ASSERT_EQ(c.size(), 4U);
  for (const auto& it : c) EXPECT_EQ(it.bytes().size(), 272U);
  EXPECT_EQ(words_of(c[0]), (words{{0x0, 0x04000000},
                                   {0x4, 0x02120000},
                                   {0x5, 0x102},
                                   {0x7, 0x05000777},
                                   {0x9, 0x1d},
                                   {0x16, 0x101},
                                   {0x17, 0x80000000}}));
  EXPECT_EQ(words_of(c[1]), (words{{0x0, 0x04000000},
                                   {0x4, 0x02000000},
                                   {0x5, 0x104},
                                   {0x7, 0x06000777},
                                   {0x9, 0x1d},
                                   {0x16, 0x103},
                                   {0x17, 0x80000000}}));
  EXPECT_EQ(words_of(c[2]), (words{{0x0, 0x05000000},
                                   {0x6, 0x1800},
                                   {0x7, 0x55},
                                   {0x8, 0x00282000},
                                   {0x9, 0x777},
                                   {0x25, 0x201},
                                   {0x2d, 0x202},
                                   {0x3a, 0x10000000},
                                   {0x3f, 0x106},
                                   {0x42, 0x105},
                                   {0x43, 0x80000000}}));
  EXPECT_EQ(
      words_of(c[3]),
      (words{
          {0x0, 0x05020000}, {0x2, 0x203}, {0x6, 0x1800}, {0x15, 0x00020000}, {0x2a, 0x0003e000}}));
}

TEST(Mlx5Commands, ConnectingOverEthernetAndInfiniBand) {
  const words common = {{0x0, 0x05030000},  {0x2, 0x203},       {0x8, 0x7e000000},
                        {0xb, 0xabcdef},    {0xe, 0x30040},     {0x12, 0xffff},
                        {0x13, 0x0a000009}, {0x2a, 0x00800000}, {0x2b, 0x07123456}};
  words ethernet = common;
  ethernet.insert({{0x14, 0xc000}, {0x15, 0x00020204}, {0x16, 0x06080a0c}});
  words infiniband = common;
  infiniband.insert({{0xd, 0x00804321}, {0x15, 0x00020000}});
  for (const bool over_ethernet : {true, false}) {
    setting t;
    t.control->ethernet = over_ethernet;
    verbs::mlx5_pair p(t.control, t.s);
    EXPECT_EQ(p.state(), rdma::endpoint_state::made);
    p.connect(peer());
    const auto& c = t.control->commands;
    ASSERT_EQ(c.size(), 6U);
    EXPECT_EQ(words_of(c[4]), over_ethernet ? ethernet : infiniband);
    EXPECT_EQ(words_of(c[5]), (words{{0x0, 0x05040000},
                                     {0x2, 0x203},
                                     {0xe, 0x70000000},
                                     {0x22, 0x0085c000},
                                     {0x24, 0x654321}}));
    EXPECT_EQ(p.state(), rdma::endpoint_state::ready);
    EXPECT_THROW(p.connect(peer()), cw::error) << "twice";
    t.control->state = command::state::error;
    EXPECT_EQ(p.state(), rdma::endpoint_state::failed);
  }
}

// It was said to be ready, and carried out nothing.
TEST(Mlx5Commands, AQueuePairThatConnectedHalfWayHasFailed) {
  setting t;
  verbs::mlx5_pair p(t.control, t.s);
  t.control->fails_at = 5;
  EXPECT_THROW(p.connect(peer()), cw::error);
  EXPECT_EQ(p.state(), rdma::endpoint_state::failed);
  EXPECT_THROW(p.connect(peer()), cw::error) << "no second time";
  EXPECT_EQ(t.control->commands.size(), 6U);
}

TEST(Mlx5Commands, ReceivesThatQueuePairsShare) {
  setting t;
  cw::buffer<cw::device::mlx5::next_segment> receives(setting::cpu(), 2 * 8);
  {
    verbs::mlx5_shared shared(t.control, {setting::cpu(), {receives.data(), t.records.data()}, 8});
    t.s.shared = &shared;
    t.s.receive_depth = 0;
    const verbs::mlx5_pair p(t.control, t.s);
    EXPECT_EQ(p.qpn(), 0x204U);
  }
  const auto& calls = t.control->calls;
  EXPECT_THAT(std::vector(calls.begin(), calls.begin() + 3),
              testing::ElementsAre("memory 256", "memory 8", "create"));
  EXPECT_THAT(calls, testing::Contains("memory 1024")) << "the send queue alone";
  EXPECT_THAT(std::vector(calls.end() - 3, calls.end()),
              testing::ElementsAre("end 1", "no memory 2", "no memory 1"))
      << "after the queue pair";
  const auto& c = t.control->commands;
  ASSERT_EQ(c.size(), 5U);
  EXPECT_EQ(c[0].bytes().size(), 272U);
  EXPECT_EQ(words_of(c[0]), (words{{0x0, 0x090c0000},
                                   {0x8, 0x00100000},
                                   {0x16, 0x55},
                                   {0x1c, 0x00050003},
                                   {0x1d, 0xc0000000},
                                   {0x1e, 0x102},
                                   {0x1f, 0x101}}));
  EXPECT_EQ(words_of(c[3]), (words{{0x0, 0x05000000},
                                   {0x6, 0x1800},
                                   {0x7, 0x55},
                                   {0x8, 0x00002000},
                                   {0x9, 0x777},
                                   {0x25, 0x202},
                                   {0x2d, 0x203},
                                   {0x31, 0x01000201},
                                   {0x3a, 0x10000000},
                                   {0x3f, 0x108},
                                   {0x42, 0x107},
                                   {0x43, 0x80000000}}));
}

TEST(Mlx5Commands, ReceivesOfSeveralPieces) {
  setting t;
  t.s.queues.receive_pieces = 4;
  const verbs::mlx5_pair p(t.control, t.s);
  EXPECT_THAT(t.control->calls, testing::Contains("memory 3072")) << "32 * 4 * 16, 16 * 64";
  EXPECT_EQ(words_of(t.control->commands[2])[0x8], 0x002a2000U) << "2^2 times 16 bytes";
  cw::buffer<cw::device::mlx5::next_segment> receives(setting::cpu(), 8 * std::size_t{8});
  const verbs::mlx5_shared shared(t.control,
                                  {setting::cpu(), {receives.data(), t.records.data(), 7}, 8, 7});
  EXPECT_THAT(t.control->calls, testing::Contains("memory 1024"));
  EXPECT_EQ(words_of(t.control->commands[4])[0x1c], 0x00070003U) << "2^7 bytes";
}

TEST(Mlx5Commands, WhatWasMadeIsUndoneInReverse) {
  setting t;
  { const verbs::mlx5_pair p(t.control, t.s); }
  const auto& calls = t.control->calls;
  EXPECT_THAT(std::vector(calls.begin() + 10, calls.end()),
              testing::ElementsAre("end 3", "end 2", "end 1", "no memory 6", "no memory 5",
                                   "no memory 4", "no memory 3", "no memory 2", "no memory 1"));
}

TEST(Mlx5Commands, ARefusalIsToldAndLeavesNothingBehind) {
  for (const int refused : {0, 1, 2, 3}) {
    setting t;
    t.control->fails_at = refused;
    try {
      const verbs::mlx5_pair p(t.control, t.s);
      ADD_FAILURE() << refused;
    } catch (const cw::error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("status 3, syndrome 2989"));
    }
    int left = 0;
    for (const std::string& c : t.control->calls) {
      left += c.starts_with("memory") || c == "create" ? 1 : c == "modify" ? 0 : -1;
    }
    EXPECT_EQ(left, 0) << refused;
  }
}

TEST(Mlx5Commands, AddressesOfOtherBackendsAreRefused) {
  setting t;
  verbs::mlx5_pair p(t.control, t.s);
  EXPECT_THROW(p.connect({}), cw::error);
  auto soft = peer();
  soft.fabric = 7;
  EXPECT_THROW(p.connect(soft), cw::error);
}

TEST(Mlx5Commands, FieldsOfAnyWidthAtAnyBit) {
  command::bits b(16);
  b.set(3, 5, 0x15);
  b.set(8, 24, 0xabcdef);
  b.set(60, 64, 0x0123456789abcdef);
  EXPECT_EQ(b.get(3, 5), 0x15U);
  EXPECT_EQ(b.get(0, 32), 0x15abcdefU);
  EXPECT_EQ(b.get(60, 64), 0x0123456789abcdefU);
  b.set(8, 24, 1);
  EXPECT_EQ(b.get(0, 32), 0x15000001U) << "what was there is gone";
}

// ---- times

TEST(Patience, CodesAreAtLeastAsLongAsAskedFor) {
  EXPECT_EQ(verbs::timeout_code(0ns), 1) << "0 would be for ever";
  EXPECT_EQ(verbs::timeout_code(8192ns), 1);
  EXPECT_EQ(verbs::timeout_code(8193ns), 2);
  EXPECT_EQ(verbs::timeout_code(67ms), 14);
  EXPECT_EQ(verbs::timeout_code(1000h), 31);
  EXPECT_EQ(verbs::not_ready_code(0ns), 1);
  EXPECT_EQ(verbs::not_ready_code(10us), 1);
  EXPECT_EQ(verbs::not_ready_code(11us), 2);
  EXPECT_EQ(verbs::not_ready_code(491520us), 31);
  EXPECT_EQ(verbs::not_ready_code(491521us), 0);
}

TEST(Patience, MoreTriesThanAdaptersCountBecomeLongerOnes) {
  rdma::endpoint_options o;
  o.retries = 3;
  o.retry_after = 10us;
  o.not_ready_retries = 60;
  o.not_ready_after = 1ms;
  EXPECT_EQ(verbs::answer_patience(o).count, 3);
  EXPECT_EQ(verbs::answer_patience(o).each, 10us);
  EXPECT_EQ(verbs::receiver_patience(o).count, 6) << "7 would be for ever";
  EXPECT_EQ(verbs::receiver_patience(o).each, 10ms);
}

}  // namespace
