// Failures: the right syndrome, on the right endpoint, while others go on.
#include <chrono>
#include <functional>
#include <thread>

#include "conformance/rdma_common.hpp"

namespace {

class RdmaErrors : public RdmaPairs {
 protected:
  /// Adapters agree on who is to blame, and not always on what for: rxe says less of its own memory
  /// than mlx5 does.
  static bool says(syndrome got, syndrome want) {
    if (over_soft() || got == want) return got == want;
    if (want == syndrome::local_protection) return got == syndrome::local_qp_operation;
    return want == syndrome::remote_invalid_request && got == syndrome::remote_operation;
  }
  /// Has `fail` do something wrong on a pair; then that pair has failed, and another one works.
  void expect_failure(syndrome why, status outcome,
                      const std::function<completion(side&, side&)>& f,
                      rdma::access allowed = rdma::access::all) {
    const auto d = open();
    auto o = options(16);
    if (over_soft()) o.retry_after = std::chrono::microseconds(200);
    o.not_ready_after = std::chrono::microseconds(200);
    side a(d, o, allowed);
    side b(far_of(d), o, allowed);
    side c(d, o);
    side e(far_of(d), o);
    connect(a, b);
    connect(c, e);
    EXPECT_EQ(perform_one(c, write_of(c, e, 8)).outcome, status::ok);
    const completion got = f(a, b);
    EXPECT_TRUE(says(got.why, why)) << to_string(got.why) << " instead of " << to_string(why);
    EXPECT_EQ(got.outcome, outcome) << to_string(got.outcome);
    EXPECT_EQ(a.ep.state(), rdma::endpoint_state::failed);
    // Neither does what follows hang, nor is it carried out.
    EXPECT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::aborted);
    EXPECT_EQ(c.ep.state(), rdma::endpoint_state::ready);
    EXPECT_EQ(perform_one(c, write_of(c, e, 8)).outcome, status::ok) << "others go on";
  }
};
INSTANTIATE_TEST_SUITE_P(, RdmaErrors, testing::Bool(), kind_name);

TEST_P(RdmaErrors, ALocalKeyThatIsNone) {
  expect_failure(syndrome::local_protection, status::invalid, [](side& a, side& b) {
    request r = write_of(a, b, 8);
    r.local.lkey += 1;
    return perform_one(a, r);
  });
}

TEST_P(RdmaErrors, ARemoteKeyThatIsNone) {
  expect_failure(syndrome::remote_access, status::invalid,
                 [](side& a, side& b) { return perform_one(a, refused_write_of(a, b)); });
}

TEST_P(RdmaErrors, AKeyWhoseMemoryIsGone) {
  expect_failure(syndrome::remote_access, status::invalid, [this](side& a, side& b) {
    request r = write_of(a, b, 8);
    {
      const auto gone = far_of(open()).register_memory(b.memory.data(), 64, rdma::access::all);
      r.remote = gone.device().remote();
    }
    const auto other = far_of(open()).register_memory(b.memory.data(), 64, rdma::access::all);
    EXPECT_NE(other.device().rkey, r.remote.rkey) << "the same place, another key";
    return perform_one(a, r);
  });
}

TEST_P(RdmaErrors, OneByteTooFar) {
  const auto last = [](const side& a, const side& b) {
    request r = write_of(a, b, 16);
    r.remote = b.remote(4096 - 16);
    return r;
  };
  expect_failure(syndrome::remote_access, status::invalid, [&](side& a, side& b) {
    request r = last(a, b);
    EXPECT_EQ(perform_one(a, r).outcome, status::ok) << "up to the last byte";
    r.remote.address += 1;
    const completion c = perform_one(a, r);
    EXPECT_EQ(b.memory.read(), std::vector<std::uint8_t>(4096)) << "nothing was written";
    return c;
  });
  expect_failure(syndrome::remote_access, status::invalid, [&](side& a, side& b) {
    request r = last(a, b);
    r.remote.address = b.remote().address - 1;
    return perform_one(a, r);
  });
  expect_failure(syndrome::local_protection, status::invalid, [&](side& a, side& b) {
    request r = last(a, b);
    r.local = a.local(4096 - 15);
    return perform_one(a, r);
  });
  expect_failure(syndrome::remote_access, status::invalid, [&](side& a, side& b) {
    request r = last(a, b);
    r.remote.address = ~std::uint64_t{0} - 7;  // goes round
    return perform_one(a, r);
  });
}

TEST_P(RdmaErrors, AccessThatWasNotAllowed) {
  using rdma::access;
  const auto try_it = [](request r) {
    return [r](side& a, side& b) mutable {
      r.local = a.local();
      r.remote = b.remote();
      return perform_one(a, r);
    };
  };
  const auto denied = syndrome::remote_access;
  const request write = {.op = operation::write, .bytes = 8};
  const request read = {.op = operation::read, .bytes = 8};
  const request add = {.op = operation::fetch_add};
  using access::local_write;
  expect_failure(denied, status::invalid, try_it(write), access::remote_read | local_write);
  expect_failure(denied, status::invalid, try_it(read), access::remote_write | local_write);
  expect_failure(denied, status::invalid, try_it(add), access::remote_write | local_write);
  expect_failure(syndrome::local_protection, status::invalid, try_it(read), access::remote_read);
}

TEST_P(RdmaErrors, AnAtomicAtAnOddAddress) {
  expect_failure(syndrome::remote_invalid_request, status::invalid, [](side& a, side& b) {
    return perform_one(a, {.op = operation::fetch_add, .local = a.local(), .remote = b.remote(4)});
  });
}

TEST_P(RdmaErrors, AtomicsThatVerbsDoNotHaveAreRefused) {
  if (has_masks()) GTEST_SKIP() << "this backend has them";
  const request masked = {.op = operation::fetch_add, .masked = true, .operand = 1, .mask = 0x8000};
  request narrow = {.op = operation::compare_swap, .operand = 1};
  narrow.width = 4;
  for (const request& r : {masked, narrow}) {
    expect_failure(syndrome::local_qp_operation, status::invalid, [&](side& a, side& b) {
      request it = r;
      it.local = a.local();
      it.remote = b.remote();
      const completion c = perform_one(a, it);
      EXPECT_EQ(b.get<std::uint64_t>(0), 0U) << "nothing was done";
      return c;
    });
  }
}

struct with_other_number {
  CW_FN void operator()(const context& ctx, const view& ep, request r, completion* out) const {
    auto parts = ep.made_of();
    parts.queues.qpn ^= 1;  // of entries; the doorbell is rung with the right one
    const auto p = view(parts).post(ctx.thread(), r);
    out->outcome = p.outcome;
    if (p.outcome == status::ok) out->outcome = ep.submit(ctx.thread(), p.end);
    if (out->outcome == status::ok) *out = ep.wait(ctx.thread(), p);
  }
};

TEST_P(RdmaErrors, AQueuePairsNumberThatIsNotItsOwn) {
  expect_failure(syndrome::local_qp_operation, status::invalid, [](side& a, side& b) {
    cw::buffer<completion> out(test_device(), 1);
    start<by_thread>(with_other_number{}, a.ep.device(), write_of(a, b, 8), out.data());
    return out.read()[0];
  });
}

/// Rings by hand: how far the record says, how far the doorbell does, and for whom.
struct ring_by_hand {
  CW_FN void operator()(const context& ctx, const view& ep, request r, int recorded, int rung,
                        std::uint32_t other, completion* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post(me, r);
    auto q = ep.made_of().queues;
    dev::rdma::mlx5_provider::write_send_record(q, p.index + static_cast<std::uint64_t>(recorded));
    q.qpn ^= other;
    dev::rdma::mlx5_provider::ring(q, p.index + static_cast<std::uint64_t>(rung));
    *out = ep.wait(me, p);
  }
};

TEST_P(RdmaErrors, DoorbellsThatMakeNoSense) {
  struct sample {
    int recorded;
    int rung;
    std::uint32_t other;
  };
  // The record is behind; more than the queue holds; of another queue pair.
  for (const sample s : {sample{0, 1, 0}, sample{40, 40, 0}, sample{1, 1, 1}}) {
    expect_failure(syndrome::local_qp_operation, status::invalid, [&](side& a, side& b) {
      cw::buffer<completion> out(test_device(), 1);
      start<by_thread>(ring_by_hand{}, a.ep.device(), write_of(a, b, 8), s.recorded, s.rung,
                       s.other, out.data());
      return out.read()[0];
    });
  }
}

/// Two are rung for, one was written.
struct ring_for_two {
  CW_FN void operator()(const context& ctx, const view& ep, request r, completion* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post(me, r);
    const auto& q = ep.made_of().queues;
    dev::rdma::mlx5_provider::write_send_record(q, p.index + 2);
    dev::rdma::mlx5_provider::ring(q, p.index + 2);
    out[0] = ep.wait(me, p);
    out[1] = ep.wait(me, {status::ok, p.index + 1, p.index + 2});
  }
};

TEST_P(RdmaErrors, AnEntryThatWasNeverWritten) {
  expect_failure(syndrome::local_qp_operation, status::invalid, [](side& a, side& b) {
    cw::buffer<completion> out(test_device(), 2);
    start<by_thread>(ring_for_two{}, a.ep.device(), write_of(a, b, 8), out.data());
    EXPECT_EQ(out.read()[0].outcome, status::ok) << "the one before it";
    return out.read()[1];
  });
}

TEST_P(RdmaErrors, AnEndpointThatIsNotConnected) {
  const auto d = open();
  side a(d, options());
  side b(far_of(d), options());
  EXPECT_EQ(a.ep.state(), rdma::endpoint_state::made);
  const completion c = perform_one(a, write_of(a, b, 8));
  EXPECT_EQ(c.why, syndrome::local_qp_operation);
  EXPECT_EQ(a.ep.state(), rdma::endpoint_state::failed);
  EXPECT_EQ(b.get<std::uint64_t>(0), 0U);
}

TEST_P(RdmaErrors, NobodyPostedAReceive) {
  expect_failure(syndrome::receiver_not_ready, status::timeout, [](side& a, side& b) {
    post_recv(b, 0, 64);
    const request r = {.op = operation::send, .bytes = 8, .local = a.local()};
    EXPECT_EQ(perform_one(a, r).outcome, status::ok) << "one was";
    return perform_one(a, r);
  });
}

TEST_P(RdmaErrors, AReceiveThatComesLateIsInTime) {
  const auto d = open();
  auto o = options();
  o.not_ready_retries = rounds(100, 3000);
  o.not_ready_after = std::chrono::milliseconds(1);
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    post_recv(b, 0, 64);
  });
  const completion c = perform_one(a, {.op = operation::send, .bytes = 8, .local = a.local()});
  late.join();
  EXPECT_EQ(c.outcome, status::ok);
  EXPECT_EQ(received(b, 1)[0].bytes, 8U);
}

TEST_P(RdmaErrors, ASendThatIsTooLong) {
  expect_failure(syndrome::remote_invalid_request, status::invalid, [](side& a, side& b) {
    post_recv(b, 0, 8, 2);
    const completion c = perform_one(a, {.op = operation::send, .bytes = 9, .local = a.local()});
    const auto in = received(b, 3, soon());
    // The adapter's own words, which some devices borrow from the other end.
    if (over_soft()) {
      EXPECT_EQ(in[0].why, syndrome::local_length);
    }
    EXPECT_EQ(in[0].outcome, status::invalid);
    EXPECT_EQ(in[1].why, syndrome::flushed);
    EXPECT_EQ(in[2].outcome, status::aborted) << "and then none comes any more";
    EXPECT_EQ(b.ep.state(), rdma::endpoint_state::failed);
    return c;
  });
}

TEST_P(RdmaErrors, AReceiveWithoutMemory) {
  expect_failure(syndrome::remote_operation, status::invalid, [](side& a, side& b) {
    post_recv(b, 4096, 64);
    const completion c = perform_one(a, {.op = operation::send, .bytes = 1, .local = a.local()});
    const auto in = received(b, 1, soon());
    if (over_soft()) {
      EXPECT_EQ(in[0].why, syndrome::local_protection);
    }
    EXPECT_EQ(in[0].outcome, status::invalid);
    return c;
  });
}

TEST_P(RdmaErrors, WithTheCablePulled) {
  if (!over_soft()) GTEST_SKIP() << "cables are real";
  rdma::context all;
  const auto devices = all.devices();
  expect_failure(syndrome::retries_exceeded, status::unreachable, [&](side& a, side& b) {
    devices[0].set_link(false);
    EXPECT_TRUE(rdma::active_ports(devices).empty());
    const completion c = perform_one(a, write_of(a, b, 8));
    devices[0].set_link(true);
    EXPECT_EQ(rdma::active_ports(devices).size(), 1U);
    return c;
  });
}

TEST_P(RdmaErrors, ThePeerIsGone) {
  const auto d = open();
  side a(d, options());
  auto b = std::make_unique<side>(far_of(d), options());
  connect(a, *b);
  const request r = write_of(a, *b, 8);
  EXPECT_EQ(perform_one(a, r).outcome, status::ok);
  b.reset();
  const side another(far_of(d), options());  // may take its place, and is not it
  EXPECT_EQ(perform_one(a, r).why, syndrome::retries_exceeded);
}

TEST_P(RdmaErrors, AnEndpointThatFailedWorksAgainAfterReset) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  for (int i = 0; i < 3; ++i) {
    const std::vector<request> good(20, write_of(a, b, 8));
    EXPECT_EQ(perform_all(a, good).back().outcome, status::ok);
    EXPECT_EQ(perform_one(a, refused_write_of(a, b)).why, syndrome::remote_access);
    if (over_soft()) {  // others tell the end that refused of it when they like
      EXPECT_EQ(b.ep.state(), rdma::endpoint_state::failed);
    }
    const auto before = a.ep.qpn();
    a.ep.reset();
    b.ep.reset();
    EXPECT_NE(a.ep.qpn(), before) << "answers to the old one find nobody";
    EXPECT_EQ(a.ep.state(), rdma::endpoint_state::made);
    connect(a, b);
    post_recv(b, 0, 64);
    EXPECT_EQ(perform_one(a, {.op = operation::send, .bytes = 8, .local = a.local()}).outcome,
              status::ok);
    EXPECT_EQ(received(b, 1)[0].bytes, 8U);
  }
}

/// Entries behind one that fails, all under way at once.
struct one_bad_among {
  CW_FN void operator()(const context& ctx, const view& ep, request good, request bad, int count,
                        int which, completion* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post_batch(me, static_cast<std::uint32_t>(count), [&](std::uint32_t i) {
      return static_cast<int>(i) == which ? bad : good;
    });
    if (p.outcome != status::ok || ep.submit(me, p.end) != status::ok) return;
    for (int i = 0; i < count; ++i) {
      const auto at = p.index + static_cast<std::uint64_t>(i);
      out[i] = ep.wait(me, {status::ok, at, at + 1});
    }
  }
};

TEST_P(RdmaErrors, WhatFollowsAFailureIsFlushedAndWhatWasBeforeIsDone) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  const request bad = refused_write_of(a, b);
  cw::buffer<completion> out(test_device(), 8);
  start<by_thread>(one_bad_among{}, a.ep.device(), write_of(a, b, 8), bad, 8, 3, out.data());
  const auto all = out.read();
  if (GetParam()) {
    // Completions replace each other: what failed is known, not always how many came before it.
    for (std::size_t i = 3; i < 8; ++i) EXPECT_NE(all[i].outcome, status::ok) << i;
    return;
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].outcome, status::ok) << i;
  EXPECT_EQ(all[3].why, syndrome::remote_access);
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(all[i].why, syndrome::flushed) << i;
}

struct wait_for_batch {
  CW_FN void operator()(const context& ctx, const view& ep, request good, request bad,
                        completion* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post_batch(me, 8, [&](std::uint32_t i) { return i == 3 ? bad : good; });
    const auto behind = ep.post(me, good);
    if (behind.outcome != status::ok || ep.submit(me, behind.end) != status::ok) return;
    out[0] = ep.wait(me, p);
    out[1] = ep.wait(me, behind);
  }
};

// It said `flushed`, as if the failure were another's.
TEST_P(RdmaErrors, ABatchEndsWithWhatItsOwnEntryFailedWith) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  cw::buffer<completion> out(test_device(), 2);
  start<by_thread>(wait_for_batch{}, a.ep.device(), write_of(a, b, 8), refused_write_of(a, b),
                   out.data());
  const auto all = out.read();
  EXPECT_NE(all[0].outcome, status::ok);
  EXPECT_NE(all[1].outcome, status::ok);
  if (GetParam()) return;  // flushed entries behind it may hide it
  EXPECT_EQ(all[0].why, syndrome::remote_access);
  EXPECT_EQ(all[0].index, 3U);
  EXPECT_EQ(all[1].why, syndrome::flushed);
}

struct wait_for_nothing {
  CW_FN void operator()(const context& ctx, const view& ep, request bad, completion* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post(me, bad);
    out[0] = ep.wait(me, p);
    out[1] = ep.wait(me, {status::aborted, 0, 0});
  }
};

// It said that all was well.
TEST_P(RdmaErrors, AWaitForAPostThatFailedSaysHow) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  cw::buffer<completion> out(test_device(), 2);
  request none = write_of(a, b, 8);
  none.width = 3;
  none.op = operation::fetch_add;
  start<by_thread>(wait_for_nothing{}, a.ep.device(), none, out.data());
  EXPECT_EQ(out.read()[0].outcome, status::invalid);
  EXPECT_EQ(out.read()[1].outcome, status::aborted);
  EXPECT_EQ(out.read()[1].why, syndrome::flushed);
}

/// Nothing is signalled, and one entry is bad.
struct quiet_after_failure {
  CW_FN void operator()(const context& ctx, const view& ep, request good, request bad,
                        completion* out) const {
    const auto me = ctx.thread();
    good.signalled = false;
    bad.signalled = false;
    const auto p = ep.post_batch(me, 4, [&](std::uint32_t i) { return i == 1 ? bad : good; });
    if (p.outcome != status::ok || ep.submit(me, p.end) != status::ok) return;
    out[0] = ep.quiet(me);
    out[1] = ep.quiet(me);
  }
};

TEST_P(RdmaErrors, QuietTellsOfTheFirstFailure) {
  const auto d = open();
  side a(d, options(64));
  side b(far_of(d), options(64));
  connect(a, b);
  const request bad = refused_write_of(a, b);
  cw::buffer<completion> out(test_device(), 2);
  start<by_thread>(quiet_after_failure{}, a.ep.device(), write_of(a, b, 8), bad, out.data());
  for (const completion& c : out.read()) {
    EXPECT_NE(c.outcome, status::ok);
    EXPECT_NE(c.outcome, status::timeout);
    if (GetParam()) continue;  // flushed entries behind it may hide it
    EXPECT_EQ(c.why, syndrome::remote_access);
    EXPECT_EQ(c.index, 1U);
  }
}

/// Reads no completions, then waits for one.
struct overrun {
  CW_FN void operator()(const context& ctx, const view& ep, request r, completion* out) const {
    const auto me = ctx.thread();
    const auto first = ep.post_batch(me, 8, [&](std::uint32_t) { return r; });
    status s = ep.submit(me, first.end);
    if (s != status::ok) return;
    // The NIC is given time to fill the queue.
    (void)dev::poll_until([] { return false; }, dev::wait_limits{}.within(50'000'000));
    *out = ep.quiet(me);
  }
};

TEST_P(RdmaErrors, ACompletionQueueThatIsNotRead) {
  if (GetParam()) GTEST_SKIP() << "a collapsed one never is full";
  const auto d = open();
  auto o = options(16);
  o.completions = 4;
  side c(d, o);
  side e(far_of(d), o);
  connect(c, e);
  for (const int receives : {0, 1}) {
    SCOPED_TRACE(receives);
    side a(d, o);
    side b(far_of(d), o);
    connect(a, b);
    if (receives > 0) post_recv(a, 0, 8, receives);
    cw::buffer<completion> out(test_device(), 1);
    start<by_thread>(overrun{}, a.ep.device(), write_of(a, b, 8), out.data());
    const completion got = out.read()[0];
    EXPECT_EQ(got.why, syndrome::local_qp_operation) << "it is told, and not waited for";
    EXPECT_EQ(got.outcome, status::invalid);
    EXPECT_EQ(a.ep.state(), rdma::endpoint_state::failed);
    // Who waits for messages hears of it, too: first what was posted, then that none comes.
    for (const completion& r : received(a, receives + 1)) {
      EXPECT_EQ(r.why, syndrome::flushed);
      EXPECT_EQ(r.outcome, status::aborted);
    }
    EXPECT_EQ(perform_one(c, write_of(c, e, 8)).outcome, status::ok) << "others go on";
  }
}

struct overrun_and_receive {
  CW_FN void operator()(const context& ctx, const view& ep, request r, completion* out) const {
    const auto me = ctx.thread();
    const auto p = ep.post_batch(me, 8, [&](std::uint32_t) { return r; });
    out->outcome = ep.submit(me, p.end);
    if (out->outcome == status::ok) *out = ep.wait_recv(me);
  }
};

// Nobody looks at the sends, and no receive is posted that could end: it waited for its deadline.
TEST_P(RdmaErrors, WhoWaitsForMessagesHearsOfAnOverrun) {
  if (GetParam()) GTEST_SKIP() << "a collapsed one never is full";
  const auto d = open();
  auto o = options(16);
  o.completions = 4;
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  cw::buffer<completion> out(test_device(), 1);
  start<by_thread>(overrun_and_receive{}, a.ep.device(), write_of(a, b, 8), out.data());
  EXPECT_EQ(out.read()[0].outcome, status::aborted);
}

struct all_wait {
  CW_FN void operator()(const context& ctx, const view& ep, request bad, completion* out) const {
    out[ctx.block_index()] = ep.perform(ctx.thread(), bad);
  }
};

TEST_P(RdmaErrors, AFailureWakesAllWhoWait) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  const request bad = refused_write_of(a, b);
  constexpr int blocks = 4;
  cw::buffer<completion> out(test_device(), blocks);
  cw::stream s(test_device());
  cw::launch(s, {.blocks = blocks}, all_wait{}, a.ep.device(), bad, out.data());
  s.sync();
  int refused = 0;
  for (const completion& c : out.read()) {
    EXPECT_NE(c.outcome, status::ok);
    EXPECT_NE(c.outcome, status::timeout);
    refused += c.why == syndrome::remote_access ? 1 : 0;
  }
  EXPECT_LE(refused, 1);
}

/// Waits for none of them.
struct leave_under_way {
  CW_FN void operator()(const context& ctx, const view& ep, request r, int count,
                        status* out) const {
    const auto me = ctx.thread();
    const auto p =
        ep.post_batch(me, static_cast<std::uint32_t>(count), [&](std::uint32_t) { return r; });
    *out = p.outcome == status::ok ? ep.submit(me, p.end) : p.outcome;
  }
};

void leave(const side& a, const request& r, int count) {
  cw::buffer<status> out(test_device(), 1);
  start<by_thread>(leave_under_way{}, a.ep.device(), r, count, out.data());
  EXPECT_EQ(out.read()[0], status::ok);
}

TEST_P(RdmaErrors, WhoAsksForTheStateHearsOfAFailureThatKernelsHaveNotSeen) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  leave(a, refused_write_of(a, b), 1);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (a.ep.state() != rdma::endpoint_state::failed) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::yield();
  }
}

TEST_P(RdmaErrors, AnEndpointMayEndOrBeResetWithWorkUnderWay) {
  const auto d = open();
  auto o = options(16);
  o.not_ready_retries = 10'000;  // so that what finds no receive is under way for long
  o.not_ready_after = std::chrono::milliseconds(1);
  side other(d, o);
  side b(far_of(d), o);
  side c(far_of(d), o);
  connect(other, c);
  for (const bool ends : {true, false}) {
    SCOPED_TRACE(ends ? "ends" : "is reset");
    auto a = std::make_unique<side>(d, o);
    connect(*a, b);
    post_recv(b, 0, 8, 2);
    leave(*a, write_of(*a, b, 8), 4);
    leave(*a, {.op = operation::send, .bytes = 8, .local = a->local()}, 8);
    leave(b, write_of(b, *a, 8), 4);
    if (ends) {
      a = std::make_unique<side>(d, o);
    } else {
      a->ep.reset();
    }
    EXPECT_EQ(perform_one(other, write_of(other, c, 8)).outcome, status::ok) << "others go on";
    b.ep.reset();
    connect(*a, b);
    EXPECT_EQ(perform_one(*a, write_of(*a, b, 8)).outcome, status::ok);
    post_recv(b, 0, 8);
    EXPECT_EQ(perform_one(*a, {.op = operation::send, .bytes = 8, .local = a->local()}).outcome,
              status::ok);
    EXPECT_EQ(received(b, 1)[0].index, 0U) << "what was posted before the reset is gone";
    b.ep.reset();
  }
}

struct wait_in_vain {
  CW_FN void operator()(const context& ctx, const view& ep, completion* out) const {
    out[0] = ep.wait_recv(ctx.thread());
  }
};

TEST_P(RdmaErrors, AWaitEndsAtItsDeadlineAndLeavesTheEndpointUsable) {
  const auto d = open();
  side a(d, options(16));
  side b(far_of(d), options(16));
  connect(a, b);
  cw::buffer<completion> out(test_device(), 1);
  start<by_thread>(wait_in_vain{}, a.ep.device(dev::wait_limits{}.within(1'000'000)), out.data());
  EXPECT_EQ(out.read()[0].outcome, status::timeout);
  EXPECT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::ok);
}

}  // namespace
