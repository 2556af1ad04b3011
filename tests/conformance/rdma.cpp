// What every backend of rdma must do; support/rdma_ends.hpp says over what it runs. Here: every
// operation, by one who posts.
#include "conformance/rdma_common.hpp"

namespace {

constexpr std::size_t room = 1U << 21U;

class Rdma : public RdmaPairs {};
INSTANTIATE_TEST_SUITE_P(, Rdma, testing::Bool(), kind_name);

// ---- every operation

template <class By>
void check_operations(const rdma::device_context& d, const rdma::endpoint_options& o) {
  SCOPED_TRACE(threads_of<By>());
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  a.fill(1);
  const auto sent = a.memory.read();

  EXPECT_EQ(perform_one<By>(a, write_of(a, b, 1000)).outcome, status::ok);
  const auto got = b.memory.read();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 1000, sent.begin()));
  EXPECT_EQ(got[1000], 0) << "beyond its end";

  request read = {
      .op = operation::read, .bytes = 600, .local = a.local(2048), .remote = b.remote(100)};
  EXPECT_EQ(perform_one<By>(a, read).outcome, status::ok);
  const auto back = a.memory.read();
  EXPECT_TRUE(std::equal(back.begin() + 2048, back.begin() + 2648, sent.begin() + 100));

  post_recv<By>(b, 3000, 100, 3);
  const auto outcomes = perform_all<By>(
      a, {{.op = operation::send, .bytes = 50, .local = a.local(10)},
          {.op = operation::send_imm, .bytes = 7, .imm = 0x01020304, .local = a.local(20)},
          {.op = operation::write_imm,
           .bytes = 30,
           .imm = 0xfffffffe,
           .local = a.local(40),
           .remote = b.remote(3500)}});
  for (const completion& c : outcomes) EXPECT_EQ(c.outcome, status::ok);
  const auto in = received<By>(b, 3);
  EXPECT_EQ(in[0].outcome, status::ok);
  EXPECT_EQ(in[0].bytes, 50U);
  EXPECT_FALSE(in[0].has_imm);
  EXPECT_EQ(in[1].bytes, 7U);
  EXPECT_TRUE(in[1].has_imm);
  EXPECT_EQ(in[1].imm, 0x01020304U);
  EXPECT_EQ(in[2].bytes, 30U);
  EXPECT_EQ(in[2].imm, 0xfffffffeU);
  const auto after = b.memory.read();
  EXPECT_TRUE(std::equal(after.begin() + 3000, after.begin() + 3050, sent.begin() + 10));
  EXPECT_TRUE(std::equal(after.begin() + 3100, after.begin() + 3107, sent.begin() + 20));
  EXPECT_TRUE(std::equal(after.begin() + 3500, after.begin() + 3530, sent.begin() + 40));
}

TEST_P(Rdma, EveryOperationByThreadWarpAndBlock) {
  check_operations<by_thread>(open(), options());
  check_operations<by_warp>(open(), options());
  check_operations<by_block>(open(), options());
  check_operations<by_sole>(open(), options());
}

/// The calls that have names, and what they fetch.
template <class By>
struct named_calls {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, const std::uint64_t* memory, bool narrow_too,
                        completion* out, std::uint64_t* old) const {
    const auto g = By{}(ctx);
    const auto keep = [&](int i, const completion& c) {
      if (g.rank() == 0) out[i] = c;
    };
    const auto* narrow = reinterpret_cast<const std::uint32_t*>(memory);
    keep(0, ep.write(g, mine.local(64), theirs.remote(64), 32));
    keep(1, ep.read(g, mine.local(128), theirs.remote(64), 32));
    keep(2, ep.fetch_add(g, mine.local(), theirs.remote(), 5));
    if (g.rank() == 0) old[0] = view::fetched(memory);
    keep(3, ep.compare_swap(g, mine.local(), theirs.remote(), 105, 7));
    if (g.rank() == 0) old[1] = view::fetched(memory);
    keep(4, ep.compare_swap(g, mine.local(), theirs.remote(), 105, 8));
    if (g.rank() == 0) old[2] = view::fetched(memory);
    if (!narrow_too) return;
    keep(5, ep.fetch_add(g, mine.local(), theirs.remote(8), ~std::uint64_t{0}, 4));
    if (g.rank() == 0) old[3] = view::fetched(narrow);
    keep(6, ep.compare_swap(g, mine.local(), theirs.remote(8), 0xffffffff, 0x01020304, 4));
    if (g.rank() == 0) old[4] = view::fetched(narrow);
  }
};

template <class By>
void check_named(const rdma::device_context& d, const rdma::endpoint_options& o) {
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  a.fill(3);
  b.set<std::uint64_t>(0, 100);
  b.set<std::uint64_t>(8, 0x5555555500000000);
  cw::buffer<completion> out(test_device(), 7);
  cw::buffer<std::uint64_t> old(test_device(), 5);
  start<By>(named_calls<By>{}, a.ep.device(), a.region.device(), b.region.device(),
            reinterpret_cast<const std::uint64_t*>(a.memory.data()), has_masks(), out.data(),
            old.data());
  for (const completion& c : out.read()) EXPECT_EQ(c.outcome, status::ok);
  auto expected = std::vector<std::uint64_t>{100, 105, 7, 0, 0xffffffff};
  if (!has_masks()) expected[4] = 0;
  EXPECT_EQ(old.read(), expected);
  EXPECT_EQ(b.get<std::uint64_t>(0), 7U);
  EXPECT_EQ(b.get<std::uint64_t>(8), has_masks() ? 0x5555555501020304U : 0x5555555500000000U)
      << "its neighbour is left alone";
  const auto mine = a.memory.read();
  EXPECT_TRUE(std::equal(mine.begin() + 64, mine.begin() + 96, mine.begin() + 128));
}

TEST_P(Rdma, CallsByNameAndAtomicsOfBothWidths) {
  check_named<by_thread>(open(), options());
  check_named<by_warp>(open(), options());
  check_named<by_block>(open(), options());
  check_named<by_sole>(open(), options());
}

TEST_P(Rdma, MaskedAtomics) {
  if (!has_masks()) GTEST_SKIP() << "verbs have none";
  const auto d = open();
  side a(d, options());
  side b(far_of(d), options());
  connect(a, b);
  const auto run = [&](request r, std::uint64_t before) {
    b.set(0, before);
    r.masked = true;
    r.local = a.local();
    r.remote = b.remote();
    EXPECT_EQ(perform_one(a, r).outcome, status::ok);
    return b.get<std::uint64_t>(0);
  };
  // Two fields of 32 bits: no carry from the lower.
  EXPECT_EQ(
      run({.op = operation::fetch_add, .operand = 0x0000000100000001, .mask = 0x8000000080000000},
          0x00000002ffffffff),
      0x0000000300000000U);
  // Compares the low byte, swaps the high one.
  const request swap = {.op = operation::compare_swap,
                        .operand = 0xabcdef0123456789,
                        .comparand = 0x42,
                        .mask = 0xff00000000000000,
                        .compare_mask = 0xff};
  EXPECT_EQ(run(swap, 0x1100000000000042), 0xab00000000000042U);
  EXPECT_EQ(a.get<std::uint64_t>(0), 0x1100000000000042U);
  EXPECT_EQ(run(swap, 0x1100000000000043), 0x1100000000000043U);
  request narrow = {.op = operation::fetch_add, .operand = 0x00010001, .mask = 0x80008000};
  narrow.width = 4;
  EXPECT_EQ(run(narrow, 0x770000000000ffff), 0x7700000000010000U);
  EXPECT_EQ(mlx5::swapped(a.get<std::uint32_t>(0)), 0xffffU);
  request narrow_swap = {.op = operation::compare_swap,
                         .operand = 0x12345678,
                         .comparand = 0,
                         .mask = 0x0000ffff,
                         .compare_mask = 0};
  narrow_swap.width = 4;
  EXPECT_EQ(run(narrow_swap, 0xffffffffaaaabbbb), 0xffffffffaaaa5678U);
}

TEST_P(Rdma, SizesFromMemoryAndInline) {
  const auto d = open();
  auto o = options(32);
  o.inline_bytes = 512;
  side a(d, o, rdma::access::all, room);
  side b(far_of(d), o, rdma::access::all, room);
  connect(a, b);
  a.fill(5);
  const auto source = a.memory.read();
  const std::vector<std::uint8_t> zeros(room);
  const auto check = [&](std::uint32_t bytes, bool inlined) {
    b.memory.write(zeros);
    request r = write_of(a, b, bytes);
    r.remote = b.remote(1);
    if (inlined) r.inline_data = a.memory.data();
    EXPECT_EQ(perform_one(a, r).outcome, status::ok) << bytes;
    const auto got = b.memory.read();
    EXPECT_EQ(got[0], 0);
    EXPECT_TRUE(std::equal(got.begin() + 1, got.begin() + 1 + bytes, source.begin()))
        << bytes << (inlined ? " inline" : "");
    EXPECT_EQ(got[1 + bytes], 0);
  };
  for (const std::uint32_t bytes : {0U, 1U, 7U, 8U, 100U, 4096U, 65'537U, 1U << 20U}) {
    check(bytes, false);
  }
  // Entries of 1 to 9 blocks, several times round the queue.
  for (const std::uint32_t bytes : {0U, 1U, 12U, 13U, 28U, 29U, 92U, 93U, 156U, 500U, 512U}) {
    check(bytes, true);
  }
}

TEST_P(Rdma, AMessageOfNoBytes) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  post_recv<by_thread>(b, 0, 0, 1);
  EXPECT_EQ(perform_one(a, {.op = operation::send_imm, .imm = 5}).outcome, status::ok);
  const completion in = received<by_thread>(b, 1)[0];
  EXPECT_EQ(in.outcome, status::ok) << to_string(in.why);
  EXPECT_EQ(in.bytes, 0U);
  EXPECT_EQ(in.imm, 5U);
}

// ---- step by step, as the seed of this module shows it

struct interchange {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, std::uint32_t bytes, int rounds,
                        completion* out) const {
    const auto me = ctx.thread();
    for (int i = 0; i < rounds; ++i) {
      completion c;
      const dev::rdma::posted p = ep.post_write(me, mine.local(), theirs.remote(), bytes);
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = ep.update_send_dbr_record(me);
      if (c.outcome == status::ok) c.outcome = ep.ring_doorbell(me);
      if (c.outcome == status::ok) {
        c.outcome = dev::poll_until([&] { return ep.poll_cq(me, c); }, dev::wait_limits{});
        ep.update_cq_dbr_record(me);
        if (c.index != p.index) c.outcome = status::invalid;
      }
      *out = c;
      if (c.outcome != status::ok) return;
    }
  }
};

TEST_P(Rdma, StepByStep) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  a.fill(9);
  cw::buffer<completion> out(test_device(), 1);
  start<by_thread>(interchange{}, a.ep.device(), a.region.device(), b.region.device(), 1024U, 100,
                   out.data());
  EXPECT_EQ(out.read()[0].outcome, status::ok);
  const auto sent = a.memory.read();
  const auto got = b.memory.read();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 1024, sent.begin()));
}

struct post_only {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, status* out) const {
    const auto me = ctx.thread();
    *out = ep.post_write(me, mine.local(), theirs.remote(), 8).outcome;
    if (*out == status::ok) *out = ep.update_send_dbr_record(me);
  }
};

TEST_P(Rdma, NothingHappensBeforeTheDoorbell) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  a.fill(9);
  cw::buffer<status> out(test_device(), 1);
  start<by_thread>(post_only{}, a.ep.device(), a.region.device(), b.region.device(), out.data());
  EXPECT_EQ(out.read()[0], status::ok);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(b.get<std::uint64_t>(0), 0U);
  EXPECT_EQ(perform_one(a, {}).outcome, status::ok);  // rings for both
  EXPECT_EQ(b.get<std::uint64_t>(0), a.get<std::uint64_t>(0));
}

// ---- what is refused

struct bad_posts {
  CW_FN void operator()(const context& ctx, const view& ep, const void* data, status* out) const {
    const auto me = ctx.thread();
    request r;
    r.op = operation::write;
    r.inline_data = data;
    r.bytes = 61;
    out[0] = ep.post(me, r).outcome;
    r.op = operation::read;
    r.bytes = 8;
    out[1] = ep.post(me, r).outcome;
    request odd;
    odd.op = operation::fetch_add;
    odd.width = 2;
    out[2] = ep.post_atomic(me, odd).outcome;
    out[3] = ep.post_atomic(me, request{}).outcome;
    out[4] = ep.post_batch(me, 9, [](std::uint32_t) { return request{}; }).outcome;
    out[5] = ep.post_batch(me, 0, [](std::uint32_t) { return request{}; }).outcome;
    out[6] = ep.perform(me, request{}).outcome;
  }
};

TEST_P(Rdma, WhatCanNeverBePostedIsRefused) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  cw::buffer<status> out(test_device(), 7);
  start<by_thread>(bad_posts{}, a.ep.device(), a.memory.data(), out.data());
  const auto all = out.read();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], status::invalid) << i;
  EXPECT_EQ(all[6], status::ok) << "nothing of it was posted";
}

TEST_P(Rdma, AnEndpointMayBeConnectedToItself) {
  const auto d = open();
  side a(d, options());
  a.ep.connect(a.ep.address());
  a.set<std::uint64_t>(0, 42);
  request r = write_of(a, a, 8);
  r.remote = a.remote(8);
  EXPECT_EQ(perform_one(a, r).outcome, status::ok);
  EXPECT_EQ(a.get<std::uint64_t>(8), 42U);
  r.remote.rkey ^= 1;
  EXPECT_EQ(perform_one(a, r).why, syndrome::remote_access);
}

TEST(RdmaDevices, BetweenTwoDevices) {
  if (!over_soft()) GTEST_SKIP() << "CROSSWARP_TEST_RDMA_DEVICES names two";
  rdma::soft_options o;
  o.devices = 2;
  rdma::context all(rdma::backend::soft, o);
  ASSERT_EQ(all.devices().size(), 2U);
  check_operations<by_thread>(all.devices()[0].open(test_device()), {});
  const auto d = all.devices()[0].open(test_device());
  const auto e = all.devices()[1].open(test_device());
  side a(d, {});
  side b(e, {});
  connect(a, b);
  a.fill(1);
  EXPECT_EQ(perform_one(a, write_of(a, b, 4096)).outcome, status::ok);
  EXPECT_EQ(a.memory.read(), b.memory.read());
  b.fill(2);
  request r = write_of(a, b, 4096);
  r.op = operation::read;
  EXPECT_EQ(perform_one(a, r).outcome, status::ok);
  EXPECT_EQ(a.memory.read(), b.memory.read());
  b.set<std::uint64_t>(0, 41);
  EXPECT_EQ(
      perform_one(
          a, {.op = operation::fetch_add, .local = a.local(), .remote = b.remote(), .operand = 1})
          .outcome,
      status::ok);
  EXPECT_EQ(a.get<std::uint64_t>(0), 41U);
  EXPECT_EQ(b.get<std::uint64_t>(0), 42U);
  r.remote.rkey = 0;
  EXPECT_EQ(perform_one(a, r).why, syndrome::remote_access);
}

}  // namespace
