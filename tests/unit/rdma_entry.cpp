// The soft NIC's reading of entries: what kernels write is read back, and nonsense is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "crosswarp/device/rdma.hpp"
#include "transports/verbs/entry.hpp"

namespace {

namespace dev = crosswarp::device;
namespace mlx5 = crosswarp::device::mlx5;
namespace verbs = crosswarp::verbs;
using dev::rdma::operation;
using dev::rdma::request;
using provider = dev::rdma::mlx5_provider;

constexpr std::uint32_t depth = 16;
constexpr std::uint32_t qpn = 0x123456;

struct queue {
  alignas(64) std::byte bytes[depth * mlx5::block_bytes] = {};

  void write(std::uint64_t index, const request& r, bool signalled = true) {
    provider::queues q;
    q.send = bytes;
    q.qpn = qpn;
    provider::write_entry(q, depth, index, r, signalled);
  }
  [[nodiscard]] bool read(std::uint64_t index, verbs::entry& e, std::uint64_t available = depth) {
    return verbs::read_entry(bytes, depth, index, available, qpn, e);
  }
};

TEST(RdmaEntry, IsReadAsItWasWritten) {
  queue q;
  verbs::entry e;
  q.write(0x1fffe, {.op = operation::write_imm,
                    .bytes = 77,
                    .imm = 0x01020304,
                    .local = {0x1111, 5},
                    .remote = {0x2222, 6}});
  ASSERT_TRUE(q.read(0x1fffe, e));
  EXPECT_EQ(e.op, mlx5::opcode::rdma_write_imm);
  EXPECT_TRUE(e.signalled);
  EXPECT_EQ(e.blocks, 1U);
  EXPECT_EQ(mlx5::swapped(e.imm), 0x01020304U);
  EXPECT_EQ(e.remote, 0x2222U);
  EXPECT_EQ(e.rkey, 6U);
  ASSERT_EQ(e.segments, 1U);
  EXPECT_EQ(e.data[0].address, 0x1111U);
  EXPECT_EQ(e.data[0].key, 5U);
  EXPECT_EQ(e.bytes, 77U);
  EXPECT_FALSE(e.inlined);
}

// A piece of length 0 is one of 2 GiB to an adapter.
TEST(RdmaEntry, NoBytesAreNoPiece) {
  queue q;
  verbs::entry e;
  q.write(0, {.op = operation::write, .local = {1, 2}, .remote = {3, 4}});
  ASSERT_TRUE(q.read(0, e));
  EXPECT_EQ(e.segments, 0U);
  EXPECT_EQ(e.bytes, 0U);
  q.write(0, {.op = operation::write, .bytes = 8, .local = {1, 2}, .remote = {3, 4}});
  const mlx5::data_segment empty = mlx5::make_data(0, 2, 1);
  std::memcpy(q.bytes + 2 * sizeof(mlx5::data_segment), &empty, sizeof(empty));
  EXPECT_FALSE(q.read(0, e));
}

// From 2 GiB on the length's top bit made of a piece an entry whose data is its own key and
// address, or nothing at all, and both succeeded.
TEST(RdmaEntry, LengthsThatNoPieceCanHaveAreNone) {
  for (const std::uint32_t bytes : {0x80000000U, 0x80000008U, 0xffffffffU}) {
    const dev::rdma::segment pieces[] = {{{1, 2}, 8}, {{3, 4}, bytes}};
    EXPECT_FALSE(provider::is_piece(bytes));
    EXPECT_EQ(provider::units({.op = operation::write, .list = {pieces, 2}}), 0U);
  }
  EXPECT_TRUE(provider::is_piece(0x7fffffffU));
  EXPECT_EQ(provider::units({.op = operation::write}), 2U) << "nothing is no piece";
}

TEST(RdmaEntry, InlineDataGoesRoundTheEndOfTheQueue) {
  std::vector<std::uint8_t> data(300);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 7 + 1);
  for (std::uint32_t bytes = 0; bytes <= 300; ++bytes) {
    queue q;
    verbs::entry e;
    q.write(depth - 1,
            {.op = operation::write, .bytes = bytes, .inline_data = data.data(), .remote = {1, 2}},
            false);
    ASSERT_TRUE(q.read(depth - 1, e)) << bytes;
    EXPECT_FALSE(e.signalled);
    ASSERT_TRUE(e.inlined);
    ASSERT_EQ(e.bytes, bytes);
    EXPECT_EQ(std::memcmp(e.inline_data.data(), data.data(), bytes), 0) << bytes;
    EXPECT_EQ(e.blocks, (32 + 4 + bytes + 63) / 64);
  }
}

TEST(RdmaEntry, AtomicsOfEachShape) {
  struct sample {
    operation op;
    std::uint8_t width;
    bool masked;
    std::uint32_t blocks;
  };
  for (const sample s :
       {sample{operation::fetch_add, 8, false, 1}, sample{operation::fetch_add, 8, true, 1},
        sample{operation::fetch_add, 4, false, 1}, sample{operation::compare_swap, 8, false, 1},
        sample{operation::compare_swap, 8, true, 2}, sample{operation::compare_swap, 4, true, 1}}) {
    queue q;
    verbs::entry e;
    request r;
    r.op = s.op;
    r.width = s.width;
    r.masked = s.masked;
    r.operand = 0x11;
    r.comparand = 0x22;
    r.mask = 0x33;
    r.compare_mask = 0x44;
    q.write(depth - 1, r);
    ASSERT_TRUE(q.read(depth - 1, e));
    EXPECT_EQ(e.blocks, s.blocks);
    EXPECT_EQ(e.word.width, s.width);
    EXPECT_EQ(e.word.operand, 0x11U);
    EXPECT_EQ(e.word.swaps, s.op == operation::compare_swap);
    if (e.word.swaps) {
      EXPECT_EQ(e.word.comparand, 0x22U);
    }
    if (s.masked) {
      EXPECT_EQ(e.word.mask, 0x33U);
    }
    if (s.masked && e.word.swaps) {
      EXPECT_EQ(e.word.compare_mask, 0x44U);
    }
    if (!s.masked && !e.word.swaps) {
      EXPECT_EQ(e.word.mask, 0U) << "one field";
    }
  }
}

TEST(RdmaEntry, NonsenseIsRefused) {
  const request write = {.op = operation::write, .bytes = 8, .local = {1, 2}, .remote = {3, 4}};
  verbs::entry e;
  const auto refused = [&](auto change) {
    queue q;
    q.write(3, write);
    change(q);
    return !q.read(3, e);
  };
  const auto set_head = [](queue& q, const mlx5::ctrl_segment& c) {
    std::memcpy(q.bytes + 3 * mlx5::block_bytes, &c, sizeof(c));
  };
  using mlx5::make_ctrl;
  using mlx5::opcode;
  EXPECT_FALSE(refused([](queue&) {}));
  EXPECT_TRUE(refused([&](queue& q) {
    set_head(q, make_ctrl(4, opcode::rdma_write, 0, qpn, 0, 3));
  })) << "index";
  EXPECT_TRUE(refused([&](queue& q) {
    set_head(q, make_ctrl(3, opcode::rdma_write, 0, qpn + 1, 0, 3));
  })) << "number";
  EXPECT_TRUE(refused([&](queue& q) {
    set_head(q, make_ctrl(3, static_cast<opcode>(0x55), 0, qpn, 0, 3));
  })) << "opcode";
  for (const std::uint32_t units : {0U, 1U, 64U, 255U}) {
    EXPECT_TRUE(refused([&](queue& q) {
      set_head(q, make_ctrl(3, opcode::rdma_write, 0, qpn, 0, units));
    })) << units;
  }
  EXPECT_TRUE(refused([&](queue& q) { set_head(q, make_ctrl(3, opcode::nop, 0, qpn, 0, 2)); }));
  EXPECT_TRUE(
      refused([&](queue& q) { set_head(q, make_ctrl(3, opcode::atomic_fa, 0, qpn, 0, 3)); }));
  EXPECT_TRUE(refused([&](queue& q) {
    set_head(q, make_ctrl(3, opcode::rdma_write, 9, qpn, 0, 3));
  })) << "opmod";
  // Inline data that would be longer than the entry.
  EXPECT_TRUE(refused([&](queue& q) {
    const std::uint32_t head = mlx5::swapped(mlx5::inline_flag | 0x7fffffffU);
    std::memcpy(q.bytes + 3 * mlx5::block_bytes + 32, &head, sizeof(head));
  }));
  // More than was rung for.
  queue q;
  request masked = {.op = operation::compare_swap, .masked = true};
  q.write(0, masked);
  EXPECT_TRUE(q.read(0, e, 2));
  EXPECT_FALSE(q.read(0, e, 1));
}

/// Whatever bytes there are: what is said to be an entry fits into what was available.
TEST(RdmaEntry, AnyBytesAreReadWithoutHarm) {
  std::mt19937_64 random(20261116);
  const std::uint8_t known[] = {0x00, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x14, 0x15};
  int taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    queue q;
    for (auto& b : q.bytes) b = static_cast<std::byte>(random());
    const std::uint64_t index = random() % 65'536;
    const auto op = static_cast<mlx5::opcode>(known[random() % std::size(known)]);
    const auto head = mlx5::make_ctrl(
        static_cast<std::uint16_t>(index), op,
        static_cast<std::uint8_t>(random() % 4 == 0 ? 8 + random() % 2 : 0), qpn,
        static_cast<std::uint8_t>(random()), static_cast<std::uint32_t>(random() % 20));
    std::memcpy(q.bytes + (index % depth) * mlx5::block_bytes, &head, sizeof(head));
    const std::uint64_t available = 1 + random() % depth;
    verbs::entry e;
    if (!q.read(index, e, available)) continue;
    ++taken;
    ASSERT_LE(e.blocks, available);
    ASSERT_LE(e.segments, verbs::entry::most_segments);
    if (e.inlined) {
      ASSERT_LE(e.bytes, e.inline_data.size());
    }
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
