// Many entries, and several who post them; also where the network is hostile.
#include <algorithm>
#include <memory>

#include "conformance/rdma_common.hpp"

namespace {

class RdmaMany : public RdmaPairs {};
INSTANTIATE_TEST_SUITE_P(, RdmaMany, testing::Bool(), kind_name);

// ---- batches, and entries that are not signalled

template <class By>
struct write_words {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, std::uint32_t count, std::uint32_t at_a_time,
                        bool signalled, completion* out) const {
    const auto g = By{}(ctx);
    completion c;
    for (std::uint32_t first = 0; first < count && c.outcome == status::ok; first += at_a_time) {
      const dev::rdma::posted p = ep.post_batch(g, at_a_time, [&](std::uint32_t i) {
        request r;
        r.op = operation::write;
        r.signalled = signalled;
        r.bytes = 8;
        r.local = mine.local((first + i) * 8);
        r.remote = theirs.remote((first + i) * 8);
        return r;
      });
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = ep.submit(g, p.end);
    }
    if (c.outcome == status::ok) c = ep.quiet(g);
    if (g.rank() == 0) *out = c;
  }
};

template <class By>
void check_batches(const rdma::device_context& d, const rdma::endpoint_options& o,
                   std::uint32_t at_a_time, bool signalled) {
  SCOPED_TRACE(at_a_time);
  constexpr std::uint32_t count = 240;
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  a.fill(11);
  cw::buffer<completion> out(test_device(), 1);
  start<By>(write_words<By>{}, a.ep.device(), a.region.device(), b.region.device(), count,
            at_a_time, signalled, out.data());
  EXPECT_EQ(out.read()[0].outcome, status::ok);
  const auto sent = a.memory.read();
  const auto got = b.memory.read();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + count * 8, sent.begin()));
}

TEST_P(RdmaMany, BatchesSignalledAndNot) {
  for (const bool signalled : {true, false}) {
    for (const std::uint32_t n : {1U, 3U, 8U}) {
      check_batches<by_thread>(open(), options(16), n, signalled);
      check_batches<by_warp>(open(), options(16), n, signalled);
      check_batches<by_block>(open(), options(16), n, signalled);
      check_batches<by_sole>(open(), options(16), n, signalled);
    }
    check_batches<by_block>(open(), options(128), 60, signalled);
  }
}

/// Nobody asks how they end, and the last one is bad.
struct bad_one_last {
  CW_FN void operator()(const context& ctx, const view& ep, request good, request bad,
                        std::uint32_t count, completion* out) const {
    const auto me = ctx.thread();
    good.signalled = false;
    bad.signalled = false;
    const auto p =
        ep.post_batch(me, count, [&](std::uint32_t i) { return i + 1 < count ? good : bad; });
    if (p.outcome != status::ok || ep.submit(me, p.end) != status::ok) return;
    for (std::uint32_t i = 0; i < count; ++i) {
      out[i] = ep.wait(me, {status::ok, p.index + i, p.index + i + 1});
    }
  }
};

// Nothing is flushed behind it, so that a collapsed queue tells as much as a ring.
TEST_P(RdmaMany, AllBeforeAFailureAreDone) {
  constexpr std::uint32_t count = 8;  // too few for one of them to be signalled in any case
  const auto d = open();
  side a(d, options(64));
  side b(far_of(d), options(64));
  connect(a, b);
  cw::buffer<completion> out(test_device(), count);
  start<by_thread>(bad_one_last{}, a.ep.device(), write_of(a, b, 8), refused_write_of(a, b), count,
                   out.data());
  const auto all = out.read();
  for (std::uint32_t i = 0; i + 1 < count; ++i) EXPECT_EQ(all[i].outcome, status::ok) << i;
  EXPECT_EQ(all.back().why, syndrome::remote_access);
  EXPECT_EQ(all.back().index, count - 1);
}

// ---- counters that wrap

template <class By>
struct many_writes {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, std::uint64_t* value, int count, int signal_every,
                        int write_every, completion* out) const {
    const auto me = By{}(ctx);
    completion c;
    for (int i = 1; i <= count && c.outcome == status::ok; ++i) {
      *value = static_cast<std::uint64_t>(i);
      request r = {.signalled = i % signal_every == 0};
      if (i % write_every == 0 || i == count) {
        r.op = operation::write;
        r.bytes = 8;
        r.inline_data = value;
        r.remote = theirs.remote();
      }
      const dev::rdma::posted p = ep.post(me, r);
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = ep.submit(me, p);
    }
    if (c.outcome == status::ok) c = ep.quiet(me);
    if (c.outcome == status::ok) c = ep.read(me, mine.local(), theirs.remote(), 8);
    *out = c;
  }
};

TEST_P(RdmaMany, SixteenBitCountersAndOwnerBitsWrapManyTimes) {
  const auto d = open();
  const auto check = [&](auto by, int depth, int count, int signal_every, int write_every) {
    side a(d, options(depth));
    side b(far_of(d), options(depth));
    connect(a, b);
    cw::buffer<completion> out(test_device(), 1);
    start<by_thread>(many_writes<decltype(by)>{}, a.ep.device(), a.region.device(),
                     b.region.device(), reinterpret_cast<std::uint64_t*>(a.memory.data()) + 8,
                     count, signal_every, write_every, out.data());
    EXPECT_EQ(out.read()[0].outcome, status::ok) << to_string(out.read()[0].why);
    EXPECT_EQ(a.get<std::uint64_t>(0), static_cast<std::uint64_t>(count));
  };
  if (!over_soft()) {
    check(by_thread{}, 256, 70'000, 3, 500);
    return;
  }
  check(by_thread{}, 8, 70'000, 1, 1);
  check(by_thread{}, 8, 3 * 65'536 + 11, 7, 1);
  check(by_sole{}, 8, 70'000, 3, 1);
}

// ---- one who posts alone

/// Some entries by one who does, some by one who does not.
struct in_turn {
  CW_FN void operator()(const context& ctx, const view& ep, request add, request write, int count,
                        completion* out) const {
    completion c;
    const auto post = [&](const auto& g, const request& r) {
      const dev::rdma::posted p = ep.post(g, r);
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = ep.submit(g, p.end);
    };
    for (int i = 0; i < count && c.outcome == status::ok; ++i) {
      const request& r = i % 3 == 0 ? write : add;
      if (i / 5 % 2 == 0) {
        post(dev::rdma::sole_producer{}, r);
      } else {
        post(ctx.thread(), r);
      }
    }
    if (c.outcome == status::ok) c = ep.quiet(ctx.thread());
    *out = c;
  }
};

TEST_P(RdmaMany, WhoPostsAloneAndOthersTakeTurns) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  a.fill(4);
  const request add = {.op = operation::fetch_add,
                       .signalled = false,
                       .local = a.local(1024),
                       .remote = b.remote(),
                       .operand = 1};
  // Of two blocks: places do not always begin where they did a lap before.
  const request write = {.op = operation::write,
                         .signalled = false,
                         .bytes = 60,
                         .inline_data = a.memory.data() + 1,
                         .remote = b.remote(64)};
  cw::buffer<completion> out(test_device(), 1);
  start<by_thread>(in_turn{}, a.ep.device(), add, write, 300, out.data());
  EXPECT_EQ(out.read()[0].outcome, status::ok) << to_string(out.read()[0].why);
  EXPECT_EQ(b.get<std::uint64_t>(0), 200U);
  const auto sent = a.memory.read();
  const auto got = b.memory.read();
  EXPECT_TRUE(std::equal(got.begin() + 64, got.begin() + 124, sent.begin() + 1));
}

/// One posts, the other rings for it.
struct rung_by_the_other {
  CW_FN void operator()(const context& ctx, const view& ep, request r, completion* out) const {
    const auto me = ctx.thread();
    const dev::rdma::sole_producer alone;
    completion c;
    for (int i = 0; i < 20 && c.outcome == status::ok; ++i) {
      const bool by_me = i % 2 == 0;
      const dev::rdma::posted p = by_me ? ep.post(me, r) : ep.post(alone, r);
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = by_me ? ep.submit(alone, p.end) : ep.submit(me, p);
      if (c.outcome == status::ok) c = ep.wait(me, p);
    }
    *out = c;
  }
};

// One who posts alone rang for what it had posted itself: the wait ended at its deadline.
TEST_P(RdmaMany, OneWhoPostsAloneRingsForOthersToo) {
  const auto d = open();
  side a(d, options(8));
  side b(far_of(d), options(8));
  connect(a, b);
  cw::buffer<completion> out(test_device(), 1);
  start<by_thread>(rung_by_the_other{}, a.ep.device(soon()), write_of(a, b, 8), out.data());
  EXPECT_EQ(out.read()[0].outcome, status::ok);
}

/// The first block posts, all others wait for each entry.
struct wait_for_another {
  CW_FN void operator()(const context& ctx, const view& ep, request r, int count, int* out) const {
    const auto me = ctx.thread();
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      dev::rdma::posted p = {status::ok, at, at + 1};
      if (ctx.block_index() == 0) {
        p = ep.post(dev::rdma::sole_producer{}, r);
        if (p.outcome == status::ok) p.outcome = ep.submit(dev::rdma::sole_producer{}, p.end);
      }
      if (p.outcome != status::ok || ep.wait(me, p).outcome != status::ok) return;
      out[ctx.block_index()] = i + 1;
    }
  }
};

TEST_P(RdmaMany, OthersReadCompletionsOfOneWhoPostsAlone) {
  const auto d = open();
  side a(d, options(8));
  side b(far_of(d), options(8));
  connect(a, b);
  constexpr int blocks = 3;
  constexpr int count = 200;
  cw::buffer<int> out(test_device(), blocks);
  cw::stream s(test_device());
  cw::launch(s, {.blocks = blocks}, wait_for_another{}, a.ep.device(), write_of(a, b, 8), count,
             out.data());
  s.sync();
  EXPECT_EQ(out.read(), std::vector<int>(blocks, count));
}

/// Posts until it cannot, and never rings.
struct fill_up {
  CW_FN void operator()(const context& /*ctx*/, const view& ep, request r, int* count,
                        status* out) const {
    do {
      *out = ep.post(dev::rdma::sole_producer{}, r).outcome;
      *count += *out == status::ok ? 1 : 0;
    } while (*out == status::ok);
  }
};

struct ring_only {
  CW_FN void operator()(const context& /*ctx*/, const view& ep, completion* out) const {
    out->outcome = ep.submit(dev::rdma::sole_producer{}, 0);
  }
};

TEST_P(RdmaMany, OneWhoPostsAloneWaitsForRoomAndHearsOfFailures) {
  const auto d = open();
  side a(d, options(8));
  side b(far_of(d), options(8));
  connect(a, b);
  const auto fill = [&](const request& r, const dev::wait_limits& limits) {
    cw::buffer<int> count(test_device(), 1);
    cw::buffer<status> out(test_device(), 1);
    start<by_thread>(fill_up{}, a.ep.device(limits), r, count.data(), out.data());
    return std::pair(count.read()[0], out.read()[0]);
  };
  const auto brief = dev::wait_limits{}.within(2'000'000);
  EXPECT_EQ(fill(write_of(a, b, 8), brief), std::pair(8, status::timeout));
  EXPECT_EQ(perform_one<by_sole>(a, {.op = operation::nop}, brief).outcome, status::timeout)
      << "nobody rang";
  cw::buffer<completion> out(test_device(), 1);
  start<by_thread>(ring_only{}, a.ep.device(), out.data());
  EXPECT_EQ(perform_one<by_sole>(a, write_of(a, b, 8)).outcome, status::ok)
      << "there is room again";
  EXPECT_EQ(perform_one<by_sole>(a, refused_write_of(a, b)).why, syndrome::remote_access);
  EXPECT_EQ(fill(write_of(a, b, 8), {}), std::pair(0, status::aborted));
}

struct ping {
  CW_FN void operator()(const context& ctx, const view& to, const view& from,
                        dev::rdma::region mine, dev::rdma::region theirs, int count,
                        int* out) const {
    const auto me = ctx.thread();
    for (int i = 0; i < count; ++i) {
      status s = from.post_recv(me, theirs.local(), 8).outcome;
      if (s == status::ok) s = from.update_recv_dbr_record(me);
      if (s == status::ok) {
        s = to.perform(me, {.op = operation::send_imm,
                            .bytes = 8,
                            .imm = static_cast<std::uint32_t>(i),
                            .local = mine.local()})
                .outcome;
      }
      if (s != status::ok) return;
      const completion c = from.wait_recv(me);
      if (c.outcome != status::ok || c.imm != static_cast<std::uint32_t>(i)) return;
      *out = i + 1;
    }
  }
};

TEST_P(RdmaMany, ReceiveCountersWrapToo) {
  const auto d = open();
  side a(d, options(8));
  side b(far_of(d), options(4));
  connect(a, b);
  cw::buffer<int> out(test_device(), 1);
  const int count = rounds(70'000, 200);
  start<by_thread>(ping{}, a.ep.device(), b.ep.device(), a.region.device(), b.region.device(),
                   count, out.data());
  EXPECT_EQ(out.read()[0], count);
}

// ---- several producers

/// Each thread counts a shared counter up and keeps what it fetched; every third of its entries is
/// waited for, the others go on.
struct count_up {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, int each, completion* out) const {
    const auto me = ctx.thread();
    const int who = ctx.grid().rank();
    completion c;
    for (int i = 0; i < each && c.outcome == status::ok; ++i) {
      const auto at = static_cast<std::uint64_t>(who * each + i) * 8;
      request r;
      r.op = operation::fetch_add;
      r.operand = 1;
      r.local = mine.local(at);
      r.remote = theirs.remote();
      r.signalled = i % 3 == 0;
      const dev::rdma::posted p = ep.post_atomic(me, r);
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = ep.submit(me, p);
      if (c.outcome == status::ok && i % 3 == 0) c = ep.wait(me, p);
    }
    if (c.outcome == status::ok) c = ep.quiet(me);
    out[who] = c;
  }
};

void check_producers(const rdma::device_context& d, const rdma::endpoint_options& o, int blocks,
                     int threads, int each) {
  const int count = blocks * threads * each;
  side a(d, o, rdma::access::all, static_cast<std::size_t>(count) * 8);
  side b(far_of(d), o);
  connect(a, b);
  cw::buffer<completion> out(test_device(), static_cast<std::size_t>(blocks * threads));
  cw::stream s(test_device());
  cw::launch(s, {.blocks = blocks, .threads = threads}, count_up{}, a.ep.device(),
             a.region.device(), b.region.device(), each, out.data());
  s.sync();
  for (const completion& c : out.read()) {
    ASSERT_EQ(c.outcome, status::ok) << to_string(c.outcome) << ", " << to_string(c.why);
  }
  EXPECT_EQ(b.get<std::uint64_t>(0), static_cast<std::uint64_t>(count));
  const auto bytes = a.memory.read();
  std::vector<std::uint64_t> fetched(static_cast<std::size_t>(count));
  std::memcpy(fetched.data(), bytes.data(), bytes.size());
  std::sort(fetched.begin(), fetched.end());
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(fetched[static_cast<std::size_t>(i)], static_cast<std::uint64_t>(i));
  }
}

TEST_P(RdmaMany, SeveralProducersShareAnEndpoint) {
  check_producers(open(), options(8), 4, 1, rounds(3000, 50));
  check_producers(open(), options(64), 4, 3, rounds(500, 20));
  check_producers(open(), options(4), 2, 2, rounds(300, 20));
}

TEST_P(RdmaMany, ManyEndpointsAtOnce) {
  const auto d = open();
  const auto count = static_cast<std::size_t>(rounds(100, 20));
  std::vector<std::unique_ptr<side>> from(count);
  std::vector<std::unique_ptr<side>> to(count);
  for (std::size_t i = 0; i < count; ++i) {
    from[i] = std::make_unique<side>(d, options(8));
    to[i] = std::make_unique<side>(far_of(d), options(8));
    connect(*from[i], *to[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    from[i]->set<std::uint64_t>(0, 1000 + i);
    EXPECT_EQ(perform_one(*from[i], write_of(*from[i], *to[i], 8)).outcome, status::ok);
  }
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(to[i]->get<std::uint64_t>(0), 1000 + i);
}

/// One endpoint sends what finds no receive, and is tried again all the time; then another one is
/// filled by hand, and nobody is called.
struct by_hand_beside {
  CW_FN void operator()(const context& ctx, const view& busy, const view& quiet, request much,
                        request little, completion* out) const {
    const auto me = ctx.thread();
    const auto first = busy.post(me, much);
    out[0].outcome = first.outcome;
    if (first.outcome == status::ok) out[0].outcome = busy.submit(me, first.end);
    // After it has begun.
    (void)dev::poll_until([] { return false; }, dev::wait_limits{}.within(2'000'000));
    const auto p = quiet.post(me, little);
    const auto& q = quiet.made_of().queues;
    dev::rdma::mlx5_provider::write_send_record(q, p.end);
    dev::rdma::mlx5_provider::ring(q, p.end);
    out[1] = quiet.wait(me, p);
  }
};

// A look at all doorbells came only when nobody had anything to do.
TEST_P(RdmaMany, ADoorbellThatWasRungByHandIsHeardWhileOthersAreBusy) {
  const auto d = open();
  auto o = options(8);
  o.not_ready_retries = rounds(1'000'000'000, 7);
  o.not_ready_after = std::chrono::nanoseconds(0);
  side a(d, o);
  side b(far_of(d), o);
  // Doorbells are looked at in groups, and those of a busy group are heard.
  std::vector<rdma::endpoint> group;
  while (over_soft() && group.size() < 64) group.push_back(d.make_endpoint(options(4)));
  side c(d, options(8));
  side e(far_of(d), options(8));
  connect(a, b);
  connect(c, e);
  cw::buffer<completion> out(test_device(), 2);
  start<by_thread>(by_hand_beside{}, a.ep.device(),
                   c.ep.device(dev::wait_limits{}.within(5'000'000'000)),
                   request{.op = operation::send, .bytes = 8, .local = a.local()},
                   write_of(c, e, 8), out.data());
  EXPECT_EQ(out.read()[0].outcome, status::ok);
  EXPECT_EQ(out.read()[1].outcome, status::ok);
}

// ---- a hostile network

class Hostile : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Hostile, testing::Range(1, 5));

TEST_P(Hostile, LateLostAndInNoOrder) {
  if (!over_soft()) GTEST_SKIP() << "only soft devices are hostile on request";
  rdma::soft_options o;
  o.devices = 1 + GetParam() % 2;
  o.seed = static_cast<std::uint64_t>(GetParam());
  o.delay = std::chrono::microseconds(5);
  o.shuffle = true;
  o.lost = 100;
  o.not_ready = 100;
  rdma::context all(rdma::backend::soft, o);
  const auto d = all.devices().at(0).open(test_device());
  const auto e = all.devices().back().open(test_device());
  rdma::endpoint_options eo;
  eo.send_depth = 16;
  eo.retries = 50;
  eo.not_ready_retries = 50;
  eo.retry_after = std::chrono::microseconds(1);
  eo.not_ready_after = std::chrono::microseconds(1);
  eo.collapsed = GetParam() % 2 == 0;
  check_producers(d, eo, 4, 1, 100);
  side a(d, eo);
  side b(e, eo);
  connect(a, b);
  a.fill(GetParam());
  EXPECT_EQ(perform_one(a, write_of(a, b, 4096)).outcome, status::ok);
  EXPECT_EQ(a.memory.read(), b.memory.read());
  post_recv(b, 0, 8, 20);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(perform_one(a, {.op = operation::send, .bytes = 8, .local = a.local()}).outcome,
              status::ok);
  }
  for (const completion& c : received(b, 20)) EXPECT_EQ(c.bytes, 8U);
}

/// Sends on what a read brings: right only when it is fenced.
struct read_then_write {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, bool fenced, status* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post_batch(me, 2, [&](std::uint32_t i) {
      request r;
      r.op = i == 0 ? operation::read : operation::write;
      r.bytes = 8;
      r.local = mine.local();
      r.remote = theirs.remote(i == 0 ? 0 : 64);
      r.fenced = fenced && i == 1;
      return r;
    });
    *out = p.outcome == status::ok ? ep.submit(me, p.end) : p.outcome;
    if (*out == status::ok) *out = ep.wait(me, p).outcome;
  }
};

/// Whether it was another value, in one of so many tries.
bool is_stale(side& a, side& b, bool fenced, int tries) {
  bool wrong = false;
  for (int i = 0; i < tries && !wrong; ++i) {
    const auto value = 1000U + static_cast<std::uint64_t>(i);
    a.set<std::uint64_t>(0, 1);
    b.set<std::uint64_t>(0, value);
    cw::buffer<status> out(test_device(), 1);
    start<by_thread>(read_then_write{}, a.ep.device(), a.region.device(), b.region.device(), fenced,
                     out.data());
    EXPECT_EQ(out.read()[0], status::ok);
    wrong = b.get<std::uint64_t>(64) != value;
  }
  return wrong;
}

/// What a read brings comes late also from the same NIC: who leaves out a fence sees it in a test.
TEST(RdmaHostile, AMissingFenceShows) {
  if (!over_soft()) GTEST_SKIP() << "only soft devices are hostile on request";
  if (std::getenv("CROSSWARP_RDMA_WIRE") != nullptr)
    GTEST_SKIP() << "answers take their time there";
  rdma::soft_options o;
  o.delay = std::chrono::microseconds(100);
  o.seed = 11;
  rdma::context all(rdma::backend::soft, o);
  const auto d = all.devices().at(0).open(test_device());
  side a(d, {});
  side b(far_of(d), {});
  connect(a, b);
  EXPECT_TRUE(is_stale(a, b, false, 100));
  EXPECT_FALSE(is_stale(a, b, true, 10));
}

struct reuse {
  CW_FN void operator()(const context& ctx, const view& ep, request r, std::uint64_t* source,
                        status* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post(me, r);
    *out = p.outcome == status::ok ? ep.submit(me, p.end) : p.outcome;
    dev::system_atomic<std::uint64_t>(*source).store(2, dev::order::release);
    if (*out == status::ok) *out = ep.wait(me, p).outcome;
  }
};

/// The source is read late: who reuses it before the completion sends something else.
TEST(RdmaHostile, ASourceIsReadOnlyWhenItsTurnComes) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a race, which it reports";
#endif
  if (!over_soft()) GTEST_SKIP() << "only soft devices are hostile on request";
  if (test_device().kind() == cw::device_kind::cuda) GTEST_SKIP() << "copies take their time there";
  rdma::soft_options o;
  o.delay = std::chrono::milliseconds(20);
  o.seed = 7;
  rdma::context all(rdma::backend::soft, o);
  const auto d = all.devices().at(0).open();
  side a(d, {});
  side b(far_of(d), {});
  connect(a, b);
  bool seen = false;
  for (int i = 0; i < 10 && !seen; ++i) {
    a.set<std::uint64_t>(0, 1);
    cw::buffer<status> out(test_device(), 1);
    start<by_thread>(reuse{}, a.ep.device(), write_of(a, b, 8),
                     reinterpret_cast<std::uint64_t*>(a.memory.data()), out.data());
    EXPECT_EQ(out.read()[0], status::ok);
    seen = b.get<std::uint64_t>(0) == 2;
  }
  EXPECT_TRUE(seen);
}

}  // namespace
