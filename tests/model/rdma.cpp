// Several producers on one endpoint under chosen interleavings. The adapter is a kernel thread, so
// that it, too, may look at any moment: nothing it finds in the queues may be half done.
#include "crosswarp/device/rdma.hpp"

#include <gtest/gtest.h>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/rdma_shared.hpp"
#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"
#include "model/rdma_adapter.hpp"

namespace {

using namespace rdma_model;

/// Block 0 is the adapter, the others work.
template <class Work>
struct beside_the_adapter {
  CW_FN void operator()(const context& ctx, const view& ep, habits h, int rounds,
                        report* out) const {
    const int producers = ctx.block_count() - 1;
    if (ctx.block_index() == 0) {
      out->adapter = model_adapter(ep, h, out).run(producers);
      return;
    }
    const int who = ctx.block_index() - 1;
    if constexpr (requires { Work::tells; }) {
      out->outcome[who] = Work{}(ctx, ep, who, rounds, out);
    } else {
      out->outcome[who] = Work{}(ctx, ep, who, rounds);
    }
    dev::device_atomic<int>(out->finished).fetch_add(1, dev::order::release);
  }
};

/// An entry of one block, or of two.
template <class G>
CW_FN dev::rdma::posted post_own(const G& me, const view& ep, int who, int i, bool signalled,
                                 bool is_long = false) {
  std::uint32_t data[long_words] = {};
  const std::uint32_t words = is_long ? long_words : 2;
  for (const std::uint32_t at : {0U, words - 2}) {
    data[at] = static_cast<std::uint32_t>(who);
    data[at + 1] = static_cast<std::uint32_t>(i);
  }
  return ep.post_write_inline(me, data, {}, words * 4, signalled);
}

/// Every other entry is waited for.
struct posting {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds) const {
    return post_all(ctx.thread(), ep, who, rounds);
  }
  template <class G>
  CW_FN static status post_all(const G& me, const view& ep, int who, int rounds,
                               bool with_long = false) {
    for (int i = 0; i < rounds; ++i) {
      const bool waits = i % (with_long ? 4 : 2) == 0;
      const dev::rdma::posted p = post_own(me, ep, who, i, waits, with_long && i % 3 != 1);
      if (p.outcome != status::ok) return p.outcome;
      // Both ways, beside each other.
      const status s = (i + who) % 2 == 0 ? ep.submit(me, p) : ep.submit(me, p.end);
      if (s != status::ok) return s;
      if (!waits) continue;
      if (const completion c = ep.wait(me, p); c.outcome != status::ok) return c.outcome;
    }
    return ep.quiet(me).outcome;
  }
};

/// Of two blocks, two of three.
struct posting_long {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds) const {
    return posting::post_all(ctx.thread(), ep, who, rounds, true);
  }
};

/// Waits for each entry only after the last post, or the first that failed.
struct waiting_afterwards {
  static constexpr bool tells = true;
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds,
                          report* out) const {
    const auto me = ctx.thread();
    status s = status::ok;
    int& count = out->waited[who];
    for (int i = 0; i < rounds && s == status::ok; ++i) {
      const dev::rdma::posted p = post_own(me, ep, who, i, i % 2 == 0);
      s = ep.submit(me, p);
      if (p.outcome == status::ok) out->waits[who][count++].index = p.index;
    }
    for (int i = 0; i < count; ++i) {
      ended& it = out->waits[who][i];
      const completion c = ep.wait(me, {status::ok, it.index, it.index + 1});
      it.outcome = c.outcome;
      it.why = c.why;
    }
    return s;
  }
};

/// Two that complete, and one for which there is no place to say so, after as many looks that it is
/// the next one that hears of events.
struct looking_for_events {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int /*rounds*/) const {
    const auto me = ctx.thread();
    completion c;
    for (int i = 1; i < 32; ++i) (void)ep.poll_cq(me, c);
    dev::rdma::posted p[3];
    for (int i = 0; i < 3; ++i) p[i] = post_own(me, ep, who, i, true);
    status s = ep.submit(me, p[2]);
    (void)ep.poll_cq(me, c);
    for (int i = 0; i < 2 && s == status::ok; ++i) s = ep.wait(me, p[i]).outcome;
    if (s != status::ok) return s;
    const auto hears = [&] {
      for (int i = 0; i < 32; ++i) (void)ep.poll_cq(me, c);
      return ep.first_failure().index == p[2].index;
    };
    return dev::poll_until(hears, ep.limits());
  }
};

/// Posts, rings and waits in one call; beside others that leave a gap for a while, which are rung
/// for with it.
struct calling {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds) const {
    const auto me = ctx.thread();
    for (int i = 0; i < rounds; ++i) {
      const std::uint32_t data[2] = {static_cast<std::uint32_t>(who),
                                     static_cast<std::uint32_t>(i)};
      if ((i + who) % 3 == 2) {
        const dev::rdma::posted p = post_own(me, ep, who, i, false);
        if (p.outcome != status::ok) return p.outcome;
        if (const status s = ep.submit(me, p); s != status::ok) return s;
        continue;
      }
      const completion c = ep.perform(
          me, {.op = dev::rdma::operation::write, .bytes = sizeof(data), .inline_data = data});
      if (c.outcome != status::ok) return c.outcome;
      if (!ep.is_complete(c.index + 1)) return status::invalid;
    }
    return ep.quiet(me).outcome;
  }
};

/// One posts and nobody else does; all wait for each of its entries.
struct posting_alone {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds) const {
    if (who == 0) return posting::post_all(dev::rdma::sole_producer{}, ep, who, rounds);
    for (int i = 0; i < rounds; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const completion c = ep.wait(ctx.thread(), {status::ok, at, at + 1});
      if (c.outcome != status::ok) return c.outcome;
    }
    return status::ok;
  }
};

/// Posts a receive, takes one, its own or another's.
struct receiving {
  CW_FN status operator()(const context& ctx, const view& ep, int /*who*/, int rounds) const {
    const auto me = ctx.thread();
    for (int i = 0; i < rounds; ++i) {
      const dev::rdma::posted p = ep.post_recv(me, {}, receive_bytes);
      if (p.outcome != status::ok) return p.outcome;
      if (const status s = ep.update_recv_dbr_record(me); s != status::ok) return s;
      const completion c = ep.wait_recv(me);
      if (c.outcome != status::ok) return c.outcome;
      if (c.imm != static_cast<std::uint32_t>(c.index)) return status::invalid;
    }
    return status::ok;
  }
};

/// Block 0 is the adapter: messages come to two endpoints in turn, and of each two the second ends
/// first. The other blocks have an endpoint each, post two receives and take two.
struct sharing {
  CW_FN void operator()(const context& ctx, const view* ends, const shared_view& q, int rounds,
                        report* out) const {
    if (ctx.block_index() == 0) {
      out->adapter = adapt(ends, q.made_of(), out);
      return;
    }
    const int who = ctx.block_index() - 1;
    out->outcome[who] = work(ctx, ends[who], q, who, rounds);
    dev::device_atomic<int>(out->finished).fetch_add(1, dev::order::release);
  }

 private:
  CW_FN static status adapt(const view* ends, const shared_view::parts& q, report* out) {
    model_adapter to[2] = {{ends[0], {}, out}, {ends[1], {}, out}};
    std::uint64_t next = 0;
    bool second_ended = false;
    std::uint64_t address = 0;
    const auto posted_to = [&](std::uint64_t i) { return q.queue.receive_at(i % depth)->addr; };
    return dev::poll_until(
        [&] {
          const bool last = dev::device_atomic<int>(out->finished).load(dev::order::acquire) == 2;
          const auto record = dev::system_atomic<std::uint32_t>(q.queue.record->counter[0])
                                  .load(dev::order::acquire);
          const auto posted =
              mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), next);
          if (posted - next > depth) out->wrong = 1;
          if (posted - next < 2 || out->wrong != 0) return last || out->wrong != 0;
          if (!second_ended) {
            address = posted_to(next);
            second_ended = to[1].deliver(next + 1);
          }
          // Its place is in use, whoever posts meanwhile.
          if (second_ended && posted_to(next) != address) out->wrong = 2;
          if (second_ended && to[0].deliver(next)) {
            next += 2;
            second_ended = false;
          }
          return false;
        },
        dev::wait_limits{});
  }

  CW_FN static status work(const context& ctx, const view& ep, const shared_view& q, int who,
                           int rounds) {
    const auto me = ctx.thread();
    for (int i = 0; i < 2 * rounds; ++i) {
      const auto name = static_cast<std::uint64_t>(1 + who) << 32U | static_cast<unsigned>(i);
      const dev::rdma::posted p = q.post_recv(me, {name, 0}, receive_bytes);
      if (p.outcome != status::ok) return p.outcome;
      if (const status s = q.update_dbr_record(me); s != status::ok) return s;
      if (i % 2 == 0) continue;
      for (int k = 0; k < 2; ++k) {
        const completion c = ep.wait_recv(me);
        if (c.outcome != status::ok) return c.outcome;
        if (c.imm != static_cast<std::uint32_t>(c.index)) return status::invalid;
      }
    }
    return status::ok;
  }
};

struct shared_memory {
  explicit shared_memory(cw::device_ref d)
      : entries(d, 2 * std::size_t{depth}),
        record(d, 1),
        taken(d, depth),
        state(d, 1),
        ends(d, depth) {}
  [[nodiscard]] shared_view device() const {
    shared_view::parts p;
    p.queue = {entries.data(), record.data()};
    p.posts = {state.data(), ends.data(), depth};
    p.taken = taken.data();
    return shared_view(p);
  }
  [[nodiscard]] view taker(const view& ep) const {
    view::parts p = ep.made_of();
    p.shared = {state.data(), taken.data(), depth};
    return view(p);
  }

  cw::buffer<mlx5::next_segment> entries;
  cw::buffer<mlx5::qp_record> record;
  cw::buffer<std::uint64_t> taken;
  cw::buffer<dev::rdma::queue_state> state;
  cw::buffer<std::uint64_t> ends;
};

/// An endpoint's memory, made anew for each execution.
struct endpoint_memory {
  endpoint_memory(cw::device_ref d, bool is_collapsed, std::uint32_t send_places = depth)
      : send(d, std::size_t{send_places} * mlx5::block_bytes),
        receive(d, depth),
        record(d, 1),
        doorbell(d, 1),
        sent(d, 2 * std::size_t{send_places}),
        received(d, few),
        cq_records(d, 2),
        states(d, 2),
        readers(d, 2),
        ends(d, std::size_t{send_places} + depth),
        events(d, 1),
        places(send_places),
        collapsed(is_collapsed) {
    const std::vector<mlx5::cqe64> unused(sent.size(), mlx5::cqe64{{0, 0, 0, 0, 0, 0, 0, ~0ULL}});
    sent.write(unused);
    received.write(std::span(unused).first(received.size()));
  }
  [[nodiscard]] view device() const {
    view::parts p;
    p.queues.send = send.data();
    p.queues.receive = receive.data();
    p.queues.record = record.data();
    p.queues.doorbell = doorbell.data();
    p.queues.sent = {sent.data(), cq_records.data(), 2 * places, collapsed};
    p.queues.received = {received.data(), cq_records.data() + 1, few, false};
    p.queues.qpn = qpn;
    p.send = {states.data(), ends.data(), places};
    p.receive = {states.data() + 1, ends.data() + places, depth};
    p.sent = readers.data();
    p.received = readers.data() + 1;
    p.events = events.data();
    p.inline_bytes = long_words * 4;
    return view(p);
  }

  cw::buffer<std::byte> send;
  cw::buffer<mlx5::data_segment> receive;
  cw::buffer<mlx5::qp_record> record;
  cw::buffer<std::uint64_t> doorbell;
  cw::buffer<mlx5::cqe64> sent;
  cw::buffer<mlx5::cqe64> received;
  cw::buffer<mlx5::cq_record> cq_records;
  cw::buffer<dev::rdma::queue_state> states;
  cw::buffer<dev::rdma::cq_state> readers;
  cw::buffer<std::uint64_t> ends;
  cw::buffer<dev::rdma::endpoint_events> events;
  std::uint32_t places;
  bool collapsed;
};

void judge_wait(const ended& w, int fail_at, bool collapsed) {
  const auto first = static_cast<std::uint64_t>(fail_at);
  ASSERT_NE(w.outcome, status::timeout);
  if (w.index >= first) {
    ASSERT_NE(w.outcome, status::ok);
  }
  if (collapsed) return;  // completions replace each other, so that no more is known
  const auto why = w.index < first    ? mlx5::syndrome::none
                   : w.index == first ? mlx5::syndrome::remote_access
                                      : mlx5::syndrome::flushed;
  ASSERT_EQ(w.why, why) << w.index;
  ASSERT_EQ(w.outcome, dev::rdma::status_of(why)) << w.index;
}

class RdmaModel : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
  /// Runs it on `producers` blocks and has `judge` look at each report.
  template <class Work, class Judge>
  static void explore(cw::schedule s, int producers, int rounds, habits h, Judge&& judge) {
    cw::explore(s, [&](cw::device_ref device) {
      cw::world_options o;
      o.device = device;
      o.heap_bytes = 1U << 16U;
      o.self_test = false;
      cw::run_local(1, o, [&](cw::world& w) {
        const endpoint_memory memory(device, GetParam(), h.places);
        cw::buffer<report> out(device, 1);
        cw::launch(w, {.blocks = producers + 1}, beside_the_adapter<Work>{}, memory.device(), h,
                   rounds, out.data());
        w.stream().sync();
        const report r = out.read()[0];
        ASSERT_EQ(r.wrong, 0) << s.describe();
        ASSERT_EQ(r.adapter, status::ok) << s.describe();
        for (int i = 0; i < producers; ++i) judge(r, i, s);
      });
      if (HasFatalFailure()) FAIL() << s.describe();
    });
    EXPECT_GT(s.executions(), 1U);
  }
  template <class Work = posting>
  static void expect_all(cw::schedule s, int producers, int rounds, habits h = {}) {
    explore<Work>(std::move(s), producers, rounds, h,
                  [rounds](const report& r, int i, const cw::schedule& at) {
                    ASSERT_EQ(r.outcome[i], status::ok) << at.describe();
                    ASSERT_EQ(r.seen[i], rounds) << at.describe();
                  });
  }
};
INSTANTIATE_TEST_SUITE_P(, RdmaModel, testing::Bool(),
                         [](const auto& i) { return std::string(i.param ? "collapsed" : "ring"); });

TEST_P(RdmaModel, SeveralProducersOnASmallQueue) {
  expect_all(cw::schedule::exhaustive(1, 1000), 2, 1);
  expect_all(cw::schedule::random(20261116, 100), 2, 7);
  expect_all(cw::schedule::random(20261117, 60), 3, 5);
}

TEST_P(RdmaModel, EntriesOfTwoBlocksThatAreNotAllSignalled) {
  expect_all<posting_long>(cw::schedule::random(20261125, 100), 2, 9, {.places = 8});
  expect_all<posting_long>(cw::schedule::random(20261126, 60), 3, 7, {.places = 8});
}

TEST_P(RdmaModel, CallsThatDoItAllBesideOthers) {
  expect_all<calling>(cw::schedule::exhaustive(1, 1000), 2, 1);
  expect_all<calling>(cw::schedule::random(20261123, 100), 2, 7, {.by_record = true});
  expect_all<calling>(cw::schedule::random(20261124, 60), 3, 6);
}

TEST_P(RdmaModel, OneWhoPostsAloneAndOthersWhoWait) {
  explore<posting_alone>(cw::schedule::random(20261122, 100), 2, 7, {.by_record = true},
                         [](const report& r, int i, const cw::schedule& at) {
                           ASSERT_EQ(r.outcome[i], status::ok) << at.describe();
                           ASSERT_EQ(r.seen[i], i == 0 ? 7 : 0) << at.describe();
                         });
}

TEST_P(RdmaModel, AnAdapterThatLooksAtTheRecord) {
  expect_all(cw::schedule::random(20261118, 100), 2, 5, {.by_record = true});
}

TEST_P(RdmaModel, AFailureEndsEverybodysWaits) {
  const bool collapsed = GetParam();
  for (const int fail_at : {0, 3}) {
    explore<posting>(cw::schedule::random(20261119, 60), 2, 6, {.fail_at = fail_at},
                     [](const report& r, int i, const cw::schedule& at) {
                       ASSERT_NE(r.outcome[i], status::ok) << at.describe();
                       ASSERT_NE(r.outcome[i], status::timeout) << at.describe();
                     });
    const habits h = {.fail_at = fail_at, .places = 8};
    explore<waiting_afterwards>(cw::schedule::random(20261127, 60), 2, most_waits, h,
                                [&](const report& r, int i, const cw::schedule& at) {
                                  for (int k = 0; k < r.waited[i]; ++k) {
                                    SCOPED_TRACE(at.describe());
                                    judge_wait(r.waits[i][k], fail_at, collapsed);
                                  }
                                });
  }
}

// A look, then the adapter's last completions and its event, then a look at that: those waits ended
// with `invalid` and `aborted`.
TEST_P(RdmaModel, WhatCompletedBeforeAnOverrunWasSuccessful) {
  if (GetParam()) GTEST_SKIP() << "a collapsed one never is full";
  explore<looking_for_events>(cw::schedule::exhaustive(1, 3000), 1, 1, {.room = 2},
                              [](const report& r, int i, const cw::schedule& at) {
                                ASSERT_EQ(r.outcome[i], status::ok) << at.describe();
                              });
}

TEST_P(RdmaModel, ReceivesArePostedAndTakenBySeveral) {
  explore<receiving>(cw::schedule::random(20261120, 100), 3, 5, {},
                     [](const report& r, int i, const cw::schedule& at) {
                       ASSERT_EQ(r.outcome[i], status::ok) << at.describe();
                     });
}

TEST(RdmaSharedModel, PlacesAreGivenOutAgainWhenAllBeforeThemWereRead) {
  if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  cw::schedule s = cw::schedule::random(20261121, 150);
  cw::explore(s, [&](cw::device_ref device) {
    cw::world_options o;
    o.device = device;
    o.heap_bytes = 1U << 16U;
    o.self_test = false;
    cw::run_local(1, o, [&](cw::world& w) {
      const shared_memory shared(device);
      const endpoint_memory first(device, false);
      const endpoint_memory second(device, false);
      const view ends[] = {shared.taker(first.device()), shared.taker(second.device())};
      const cw::buffer<view> views(device, std::span<const view>(ends));
      cw::buffer<report> out(device, 1);
      cw::launch(w, {.blocks = 3}, sharing{}, views.data(), shared.device(), 4, out.data());
      w.stream().sync();
      const report r = out.read()[0];
      ASSERT_EQ(r.wrong, 0) << s.describe();
      ASSERT_EQ(r.adapter, status::ok) << s.describe();
      for (int i = 0; i < 2; ++i) ASSERT_EQ(r.outcome[i], status::ok) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
}

}  // namespace
