// Several producers on one endpoint under chosen interleavings. The adapter is a kernel thread, so
// that it, too, may look at any moment: nothing it finds in the queues may be half done.
#include "crosswarp/device/rdma.hpp"

#include <gtest/gtest.h>

#include "crosswarp/buffer.hpp"
#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace mlx5 = crosswarp::device::mlx5;
using cw::status;
using dev::rdma::completion;
using dev::rdma::operation;
using context = dev::kernel_context;
using view = dev::rdma::endpoint;

constexpr std::uint32_t depth = 4;
constexpr std::uint32_t qpn = 0x77;
constexpr int most_producers = 3;

struct report {
  status outcome[most_producers];
  status adapter;
  int wrong;                 ///< the first thing that was, by number
  int seen[most_producers];  ///< entries, in order
  int finished;              ///< producers
};

/// What an adapter does, as far as threads can see it.
class model_adapter {
 public:
  CW_FN model_adapter(const view& ep, report* r) noexcept : p_(ep.made_of()), r_(r) {}

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
            target = rung();
            return target != head_ || last;
          },
          dev::wait_limits{});
      for (; head_ != target && r_->wrong == 0; ++head_) carry_out();
    }
    return s;
  }

 private:
  [[nodiscard]] CW_FN std::uint64_t rung() noexcept {
    const std::uint64_t bell =
        dev::system_atomic<std::uint64_t>(*p_.queues.doorbell).load(dev::order::acquire);
    if (bell == 0) return head_;
    const std::uint64_t target = mlx5::extended(mlx5::doorbell_index(bell), head_);
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::send])
            .load(dev::order::acquire);
    const auto recorded = mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), head_);
    if (mlx5::doorbell_qpn(bell) != qpn) note(1);
    if (target - head_ > depth || recorded - head_ > depth) note(2);
    if (recorded < target) note(3);
    return r_->wrong == 0 ? target : head_;
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
    if ((head.fm_ce_se & mlx5::ctrl_cq_update) != 0) complete();
  }

  CW_FN void complete() noexcept {
    const auto& q = p_.queues.sent;
    const auto read = mlx5::swapped(
        dev::system_atomic<std::uint32_t>(q.record->counter[0]).load(dev::order::acquire));
    if (!q.collapsed && written_ - read >= q.depth) note(7);
    mlx5::cqe64& place = q.entries[q.collapsed ? 0 : written_ % q.depth];
    const std::uint64_t owner = !q.collapsed && (written_ & q.depth) != 0 ? 1 : 0;
    const std::uint64_t counter = mlx5::swapped(static_cast<std::uint16_t>(head_));
    dev::system_atomic<std::uint64_t>(place.words[7])
        .store(counter << 32U | owner << 56U, dev::order::release);
    ++written_;
  }

  CW_FN void note(int what) noexcept {
    if (r_->wrong == 0) r_->wrong = what;
  }

  view::parts p_;
  report* r_;
  std::uint64_t head_ = 0;
  std::uint64_t written_ = 0;
};

/// Block 0 is the adapter, the others post; every other entry is waited for.
struct post_from_all {
  CW_FN void operator()(const context& ctx, const view& ep, int rounds, report* out) const {
    const int producers = ctx.block_count() - 1;
    if (ctx.block_index() == 0) {
      out->adapter = model_adapter(ep, out).run(producers);
      return;
    }
    const int who = ctx.block_index() - 1;
    out->outcome[who] = post(ctx, ep, who, rounds);
    dev::device_atomic<int>(out->finished).fetch_add(1, dev::order::release);
  }

 private:
  CW_FN static status post(const context& ctx, const view& ep, int who, int rounds) {
    const auto me = ctx.thread();
    for (int i = 0; i < rounds; ++i) {
      const std::uint32_t data[2] = {static_cast<std::uint32_t>(who),
                                     static_cast<std::uint32_t>(i)};
      const bool waits = i % 2 == 0;
      const dev::rdma::posted p = ep.post_write_inline(me, data, {}, sizeof(data), waits);
      if (p.outcome != status::ok) return p.outcome;
      if (const status s = ep.submit(me, p.end); s != status::ok) return s;
      if (!waits) continue;
      if (const completion c = ep.wait(me, p); c.outcome != status::ok) return c.outcome;
    }
    return ep.quiet(me).outcome;
  }
};

/// An endpoint's memory, made anew for each execution.
struct endpoint_memory {
  endpoint_memory(cw::device_ref d, bool is_collapsed)
      : send(d, depth * mlx5::block_bytes),
        record(d, 1),
        doorbell(d, 1),
        sent(d, 2 * std::size_t{depth}),
        cq_record(d, 1),
        state(d, 1),
        reader(d, 1),
        ends(d, depth),
        event(d, 1),
        collapsed(is_collapsed) {
    const std::vector<mlx5::cqe64> unused(sent.size(), mlx5::cqe64{{0, 0, 0, 0, 0, 0, 0, ~0ULL}});
    sent.write(unused);
  }
  [[nodiscard]] view device() const {
    view::parts p;
    p.queues.send = send.data();
    p.queues.record = record.data();
    p.queues.doorbell = doorbell.data();
    p.queues.sent = {sent.data(), cq_record.data(), 2 * depth, collapsed};
    p.queues.qpn = qpn;
    p.send = {state.data(), ends.data(), depth};
    p.sent = reader.data();
    p.event = event.data();
    p.inline_bytes = 16;
    return view(p);
  }

  cw::buffer<std::byte> send;
  cw::buffer<mlx5::qp_record> record;
  cw::buffer<std::uint64_t> doorbell;
  cw::buffer<mlx5::cqe64> sent;
  cw::buffer<mlx5::cq_record> cq_record;
  cw::buffer<dev::rdma::queue_state> state;
  cw::buffer<dev::rdma::cq_state> reader;
  cw::buffer<std::uint64_t> ends;
  cw::buffer<std::uint64_t> event;
  bool collapsed;
};

class RdmaModel : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
  static void explore(cw::schedule s, int producers, int rounds) {
    cw::explore(s, [&](cw::device_ref device) {
      cw::world_options o;
      o.device = device;
      o.heap_bytes = 1U << 16U;
      o.self_test = false;
      cw::run_local(1, o, [&](cw::world& w) {
        const endpoint_memory memory(device, GetParam());
        cw::buffer<report> out(device, 1);
        cw::launch(w, {.blocks = producers + 1}, post_from_all{}, memory.device(), rounds,
                   out.data());
        w.stream().sync();
        const report r = out.read()[0];
        ASSERT_EQ(r.wrong, 0) << s.describe();
        ASSERT_EQ(r.adapter, status::ok) << s.describe();
        for (int i = 0; i < producers; ++i) {
          ASSERT_EQ(r.outcome[i], status::ok) << s.describe();
          ASSERT_EQ(r.seen[i], rounds) << s.describe();
        }
      });
      if (HasFatalFailure()) FAIL() << s.describe();
    });
    EXPECT_GT(s.executions(), 1U);
  }
};
INSTANTIATE_TEST_SUITE_P(, RdmaModel, testing::Bool(),
                         [](const auto& i) { return std::string(i.param ? "collapsed" : "ring"); });

TEST_P(RdmaModel, SeveralProducersOnASmallQueue) {
  explore(cw::schedule::exhaustive(1, 1000), 2, 1);
  explore(cw::schedule::random(20261116, 100), 2, 7);
  explore(cw::schedule::random(20261117, 60), 3, 5);
}

}  // namespace
