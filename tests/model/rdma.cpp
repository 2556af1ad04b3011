// Several producers on one endpoint under chosen interleavings. The adapter is a kernel thread, so
// that it, too, may look at any moment: nothing it finds in the queues may be half done.
#include "crosswarp/device/rdma.hpp"

#include <gtest/gtest.h>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/rdma_shared.hpp"
#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace mlx5 = crosswarp::device::mlx5;
using cw::status;
using dev::rdma::completion;
using context = dev::kernel_context;
using view = dev::rdma::endpoint;
using shared_view = dev::rdma::shared_receive_queue;

constexpr std::uint32_t depth = 4;
constexpr std::uint32_t qpn = 0x77;
constexpr int most_producers = 3;
constexpr std::uint32_t receive_bytes = 24;
constexpr std::uint32_t few = 2;  // places for completions of receives: fewer than receives

struct report {
  status outcome[most_producers];
  status adapter;
  int wrong;                 ///< the first thing that was, by number
  int seen[most_producers];  ///< entries, in order
  int finished;              ///< producers
};

/// How the adapter behaves.
struct habits {
  bool by_record = false;  ///< looks at the doorbell record and needs no doorbell
  int fail_at = -1;        ///< the entry that fails, and with it all behind it
};

/// What an adapter does, as far as threads can see it.
class model_adapter {
 public:
  CW_FN model_adapter(const view& ep, habits h, report* r) noexcept
      : p_(ep.made_of()), h_(h), r_(r) {}

  /// Until all producers have ended, and everything is carried out.
  CW_FN status run(int producers) noexcept {
    status s = status::ok;
    bool last = false;
    while (s == status::ok && !last) {
      std::uint64_t target = head_;
      s = dev::poll_until(
          [&] {
            // Before the look at the doorbell: then nothing can come after it.
            last = dev::device_atomic<int>(r_->finished).load(dev::order::acquire) == producers;
            target = h_.by_record ? recorded() : rung();
            take_receives();
            return target != head_ || last;
          },
          dev::wait_limits{});
      for (; head_ != target && r_->wrong == 0; ++head_) carry_out();
    }
    return s;
  }

  /// A message used a shared receive; false when there is no place to say so.
  CW_FN bool deliver(std::uint64_t index) noexcept {
    if (!has_room(p_.queues.received, received_)) return false;
    complete(p_.queues.received, received_++, index % depth, mlx5::cqe_opcode::responder_send_imm,
             static_cast<std::uint32_t>(index));
    return true;
  }

 private:
  [[nodiscard]] CW_FN std::uint64_t recorded() const noexcept {
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::send])
            .load(dev::order::acquire);
    return mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), head_);
  }
  [[nodiscard]] CW_FN std::uint64_t rung() noexcept {
    const std::uint64_t bell =
        dev::system_atomic<std::uint64_t>(*p_.queues.doorbell).load(dev::order::acquire);
    if (bell == 0) return head_;
    const std::uint64_t target = mlx5::extended(mlx5::doorbell_index(bell), head_);
    // Relaxed: who sees the doorbell sees the record and the entries.
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::send])
            .load(dev::order::relaxed);
    const auto far = mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), head_);
    if (mlx5::doorbell_qpn(bell) != qpn) note(1);
    if (target - head_ > depth || far - head_ > depth) note(2);
    if (far < target) note(3);
    return r_->wrong == 0 ? target : head_;
  }

  /// Fills every receive that was posted, as far as there are places for completions.
  CW_FN void take_receives() noexcept {
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::receive])
            .load(dev::order::acquire);
    const auto posted =
        mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), next_receive_);
    if (posted - next_receive_ > depth) note(8);
    for (; next_receive_ != posted && has_room(p_.queues.received, received_) && r_->wrong == 0;
         ++next_receive_) {
      const mlx5::data_segment& s = p_.queues.receive[next_receive_ % depth];
      if (mlx5::swapped(s.byte_count) != receive_bytes) note(9);
      complete(p_.queues.received, received_++, next_receive_, mlx5::cqe_opcode::responder_send_imm,
               static_cast<std::uint32_t>(next_receive_));
    }
  }

  CW_FN void carry_out() noexcept {
    const std::byte* const at = p_.queues.send + (head_ % depth) * mlx5::block_bytes;
    const auto& head = *reinterpret_cast<const mlx5::ctrl_segment*>(at);
    const std::uint32_t first = mlx5::swapped(head.opmod_idx_opcode);
    if (((first >> 8U) & 0xffffU) != (head_ & 0xffffU)) note(4);
    if (mlx5::swapped(head.qpn_ds) >> 8U != qpn) note(5);
    if (static_cast<mlx5::opcode>(first & 0xffU) == mlx5::opcode::rdma_write) {
      // Who wrote it says so in the data: producer and number.
      const auto* data = reinterpret_cast<const std::uint32_t*>(at + 36);
      if (data[0] >= most_producers || static_cast<int>(data[1]) != r_->seen[data[0]]++) note(6);
    }
    const bool fails = h_.fail_at >= 0 && head_ >= static_cast<std::uint64_t>(h_.fail_at);
    if (fails) {
      complete(p_.queues.sent, sent_++, head_, mlx5::cqe_opcode::requester_error, 0);
    } else if ((head.fm_ce_se & mlx5::ctrl_cq_update) != 0) {
      complete(p_.queues.sent, sent_++, head_, mlx5::cqe_opcode::requester, 0);
    }
  }

  [[nodiscard]] CW_FN static bool has_room(const dev::rdma::mlx5_provider::completion_queue& q,
                                           std::uint64_t number) noexcept {
    const auto read = mlx5::swapped(
        dev::system_atomic<std::uint32_t>(q.record->counter[0]).load(dev::order::acquire));
    return q.collapsed || number - read < q.depth;
  }

  CW_FN void complete(const dev::rdma::mlx5_provider::completion_queue& q, std::uint64_t number,
                      std::uint64_t index, mlx5::cqe_opcode what, std::uint32_t imm) noexcept {
    if (!has_room(q, number)) note(7);
    mlx5::cqe64& place = q.entries[q.collapsed ? 0 : number % q.depth];
    const std::uint64_t owner = !q.collapsed && (number & q.depth) != 0 ? 1 : 0;
    const std::uint64_t counter = mlx5::swapped(static_cast<std::uint16_t>(index));
    if (what == mlx5::cqe_opcode::responder_send_imm) {
      place.words[4] = static_cast<std::uint64_t>(mlx5::swapped(imm)) << 32U;  // ordered by both
    } else if (what == mlx5::cqe_opcode::requester_error) {
      const bool first = index == static_cast<std::uint64_t>(h_.fail_at);
      const auto why = first ? mlx5::syndrome::remote_access : mlx5::syndrome::flushed;
      dev::system_atomic<std::uint64_t>(place.words[6])
          .store(static_cast<std::uint64_t>(why) << 56U, dev::order::relaxed);
    }
    const std::uint64_t own = static_cast<std::uint64_t>(what) << 4U | owner;
    dev::system_atomic<std::uint64_t>(place.words[7])
        .store(counter << 32U | own << 56U, dev::order::release);
  }

  CW_FN void note(int what) noexcept {
    if (r_->wrong == 0) r_->wrong = what;
  }

  view::parts p_;
  habits h_;
  report* r_;
  std::uint64_t head_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t next_receive_ = 0;
  std::uint64_t received_ = 0;
};

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
    out->outcome[who] = Work{}(ctx, ep, who, rounds);
    dev::device_atomic<int>(out->finished).fetch_add(1, dev::order::release);
  }
};

/// Every other entry is waited for.
struct posting {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds) const {
    return post_all(ctx.thread(), ep, who, rounds);
  }
  template <class G>
  CW_FN static status post_all(const G& me, const view& ep, int who, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const std::uint32_t data[2] = {static_cast<std::uint32_t>(who),
                                     static_cast<std::uint32_t>(i)};
      const bool waits = i % 2 == 0;
      const dev::rdma::posted p = ep.post_write_inline(me, data, {}, sizeof(data), waits);
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

/// Posts, rings and waits in one call; beside others that leave a gap for a while, which are rung
/// for with it.
struct calling {
  CW_FN status operator()(const context& ctx, const view& ep, int who, int rounds) const {
    const auto me = ctx.thread();
    for (int i = 0; i < rounds; ++i) {
      const std::uint32_t data[2] = {static_cast<std::uint32_t>(who),
                                     static_cast<std::uint32_t>(i)};
      if ((i + who) % 3 == 2) {
        const dev::rdma::posted p = ep.post_write_inline(me, data, {}, sizeof(data), false);
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
  endpoint_memory(cw::device_ref d, bool is_collapsed)
      : send(d, depth * mlx5::block_bytes),
        receive(d, depth),
        record(d, 1),
        doorbell(d, 1),
        sent(d, 2 * std::size_t{depth}),
        received(d, few),
        cq_records(d, 2),
        states(d, 2),
        readers(d, 2),
        ends(d, 2 * std::size_t{depth}),
        events(d, 1),
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
    p.queues.sent = {sent.data(), cq_records.data(), 2 * depth, collapsed};
    p.queues.received = {received.data(), cq_records.data() + 1, few, false};
    p.queues.qpn = qpn;
    p.send = {states.data(), ends.data(), depth};
    p.receive = {states.data() + 1, ends.data() + depth, depth};
    p.sent = readers.data();
    p.received = readers.data() + 1;
    p.events = events.data();
    p.inline_bytes = 16;
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
  bool collapsed;
};

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
        const endpoint_memory memory(device, GetParam());
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
  for (const int fail_at : {0, 3}) {
    explore<posting>(cw::schedule::random(20261119, 60), 2, 6, {.fail_at = fail_at},
                     [](const report& r, int i, const cw::schedule& at) {
                       ASSERT_NE(r.outcome[i], status::ok) << at.describe();
                       ASSERT_NE(r.outcome[i], status::timeout) << at.describe();
                     });
  }
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
