// A reset() that throws, over devices that can be told to make no queue pair.
#include <chrono>
#include <memory>
#include <thread>

#include "conformance/rdma_common.hpp"
#include "crosswarp/error.hpp"
#include "transports/verbs/backend.hpp"

namespace {

namespace verbs = crosswarp::verbs;

/// Another adapter, but for queue pairs that it does not make.
class refusing_adapter final : public verbs::adapter {
 public:
  explicit refusing_adapter(std::shared_ptr<verbs::adapter> a) : behind_(std::move(a)) {}
  [[nodiscard]] const std::string& name() const noexcept override { return behind_->name(); }
  [[nodiscard]] int ports() const noexcept override { return behind_->ports(); }
  [[nodiscard]] bool is_active(int port) override { return behind_->is_active(port); }
  std::unique_ptr<verbs::registered> register_memory(const verbs::memory_range& m,
                                                     rdma::access allowed) override {
    return behind_->register_memory(m, allowed);
  }
  std::unique_ptr<verbs::queue_pair> make_queue_pair(const verbs::qp_setup& s) override {
    if (refuses > 0) {
      --refuses;
      throw cw::error(cw::errc::out_of_memory, "rdma endpoint", "the test wants it so");
    }
    return behind_->make_queue_pair(s);
  }
  std::unique_ptr<verbs::shared_receives> make_shared_receives(
      const verbs::shared_setup& s) override {
    return behind_->make_shared_receives(s);
  }
  void set_link(bool up) override { behind_->set_link(up); }

  int refuses = 0;  ///< so many, next

 private:
  std::shared_ptr<verbs::adapter> behind_;
};

struct refusing_fabric final : verbs::fabric {
  std::vector<std::shared_ptr<verbs::adapter>> adapters() override { return {only}; }

  std::shared_ptr<verbs::fabric> behind = verbs::soft_fabric({});
  std::shared_ptr<refusing_adapter> only =
      std::make_shared<refusing_adapter>(behind->adapters().at(0));
};

class RdmaReset : public testing::Test {
 protected:
  void SetUp() override {
    if (!over_soft()) GTEST_SKIP() << "about the host's half, which is the same for all backends";
  }
  void refuse(int queue_pairs) const { fabric_->only->refuses = queue_pairs; }
  [[nodiscard]] rdma::device_context open() const {
    return verbs::context_over(fabric_).devices().at(0).open(test_device());
  }

 private:
  std::shared_ptr<refusing_fabric> fabric_ = std::make_shared<refusing_fabric>();
};

/// What it throws; ok: nothing.
template <class F>
cw::errc thrown_by(F&& f) {
  try {
    f();
  } catch (const cw::error& e) {
    return e.code();
  }
  return {};
}

// Whoever asked for its state, or connected it, went by a null pointer; and its kernels rang the
// doorbell of whoever had got its place.
TEST_F(RdmaReset, ThatThrowsLeavesAFailedEndpointThatMayBeResetAgain) {
  const auto d = open();
  side a(d, {});
  side b(d, {});
  connect(a, b);
  ASSERT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::ok);
  for (int i = 0; i < 2; ++i) {
    refuse(1);
    EXPECT_EQ(thrown_by([&] { a.ep.reset(); }), cw::errc::out_of_memory);
    EXPECT_EQ(a.ep.state(), rdma::endpoint_state::failed);
    EXPECT_EQ(thrown_by([&] { a.ep.connect(b.ep.address()); }), cw::errc::invalid_argument);
    const completion c = perform_one(a, write_of(a, b, 8), soon());
    EXPECT_EQ(c.outcome, status::aborted) << to_string(c.outcome);
    EXPECT_EQ(received(a, 1, soon())[0].outcome, status::aborted);
  }
  a.ep.reset();
  EXPECT_EQ(a.ep.state(), rdma::endpoint_state::made);
  b.ep.reset();
  connect(a, b);
  a.fill(1);
  ASSERT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::ok);
  EXPECT_EQ(b.get<std::uint64_t>(0), a.get<std::uint64_t>(0));
}

/// In all ways, whatever the post said, as the example in device/rdma.hpp does.
struct ring_all_the_same {
  CW_FN void operator()(const context& ctx, const view& ep, request r, status* out) const {
    const auto me = ctx.thread();
    const dev::rdma::posted p = ep.post(me, r);
    (void)ep.update_send_dbr_record(me);
    (void)ep.ring_doorbell(me);
    (void)ep.submit(me, p.end);
    (void)ep.submit(dev::rdma::sole_producer{}, p.end);
    *out = p.outcome;
  }
};

status ring_all(const side& a, const request& r) {
  cw::buffer<status> out(test_device(), 1);
  start<by_thread>(ring_all_the_same{}, a.ep.device(soon()), r, out.data());
  return out.read()[0];
}

TEST_F(RdmaReset, ThatThrowsLeavesOthersTheirDoorbells) {
  const auto d = open();
  side a(d, {});
  const auto before = a.ep.device().made_of().queues.doorbell;
  refuse(1);
  EXPECT_EQ(thrown_by([&] { a.ep.reset(); }), cw::errc::out_of_memory);
  // Nobody hears it, and who comes next would: it is not its own, so it failed.
  EXPECT_EQ(ring_all(a, write_of(a, a, 8)), status::aborted);
  side b(d, {});  // in the place of the one that is gone
  side c(d, {});
  ASSERT_EQ(b.ep.device().made_of().queues.doorbell, before);
  connect(b, c);
  EXPECT_EQ(ring_all(a, write_of(a, c, 8)), status::aborted);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the NIC looks everywhere meanwhile
  EXPECT_EQ(b.ep.state(), rdma::endpoint_state::ready);
  EXPECT_EQ(perform_one(a, write_of(a, c, 8), soon()).outcome, status::aborted);
  EXPECT_EQ(perform_one(b, write_of(b, c, 8)).outcome, status::ok);
}

TEST_F(RdmaReset, ThatThrowsGivesSharedReceivesBack) {
  constexpr int depth = 4;
  const auto d = open();
  const auto queue = d.make_shared_receive_queue({.depth = depth});
  rdma::endpoint_options o;
  o.receives = &queue;
  side from(d, {});
  const auto post_all = [&](const side& to) {
    cw::buffer<dev::rdma::posted> out(test_device(), 1);
    start<by_thread>(post_shared<by_thread>{}, queue.device(soon()), to.local(), 64U, depth,
                     out.data());
    return out.read()[0].outcome;
  };
  const auto send = [&] {
    return perform_one(from, {.op = operation::send, .bytes = 8, .local = from.local()}).outcome;
  };
  side to(d, o);
  connect(from, to);
  ASSERT_EQ(post_all(to), status::ok);
  for (int i = 0; i < depth; ++i) ASSERT_EQ(send(), status::ok);
  refuse(1);
  EXPECT_EQ(thrown_by([&] { to.ep.reset(); }), cw::errc::out_of_memory);
  // Nobody read the completions, so all places are free again.
  ASSERT_EQ(post_all(to), status::ok);
  // The one that failed has none to give back, and those that were posted since stay.
  to.ep.reset();
  from.ep.reset();
  connect(from, to);
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(send(), status::ok);
    EXPECT_EQ(received(to, 1)[0].index, static_cast<std::uint64_t>(depth + i));
  }
}

}  // namespace
