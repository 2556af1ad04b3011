// The forwarder of ibverbs devices, over a device that is a few functions of this file: what real
// ones do only when they like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "transports/verbs/patience.hpp"
#include "transports/verbs/verbs_qp.hpp"

namespace cw = crosswarp;
namespace rdma = crosswarp::rdma;
namespace verbs = crosswarp::verbs;
namespace mlx5 = crosswarp::device::mlx5;
using provider = crosswarp::device::rdma::mlx5_provider;

namespace {

/// Takes what it is given and ends it when the test says so.
struct fake_device {
  ibv_context context{};
  ibv_pd domain{};
  ibv_mr region{};
  ibv_cq queues[2] = {};  ///< of sends, of receives
  int queues_made = 0;
  ibv_qp pair{};
  std::deque<std::uint64_t> under_way[2];
  std::deque<ibv_wc> ended[2];
  std::vector<int> states;  ///< that it was asked to go to
  int refuses_state = -1;
  int refuses_memory = 0;     ///< errno
  std::vector<int> accesses;  ///< of memory
  std::vector<void*> bases;

  /// The oldest sends.
  void end(int count) {
    for (int i = 0; i < count; ++i) end_one(0, IBV_WC_SUCCESS);
  }
  void end_one(int which, ibv_wc_status how) {
    ibv_wc w{};
    w.wr_id = under_way[which].front();
    w.status = how;
    under_way[which].pop_front();
    ended[which].push_back(w);
  }
};
fake_device* now = nullptr;

int take(int which, std::uint64_t id) {
  now->under_way[which].push_back(id);
  return 0;
}
int poll(ibv_cq* queue, int most, ibv_wc* to) {
  auto& all = now->ended[queue == now->queues ? 0 : 1];
  const auto n = std::min(all.size(), static_cast<std::size_t>(most));
  std::copy_n(all.begin(), n, to);
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
  return static_cast<int>(n);
}
int modify(ibv_qp* /*q*/, ibv_qp_attr* to, int /*mask*/) {
  now->states.push_back(to->qp_state);
  if (to->qp_state == static_cast<ibv_qp_state>(now->refuses_state)) return EINVAL;
  if (to->qp_state != IBV_QPS_ERR) return 0;
  for (const int which : {0, 1}) {
    while (!now->under_way[which].empty()) now->end_one(which, IBV_WC_WR_FLUSH_ERR);
  }
  return 0;
}
ibv_mr* register_at(ibv_pd* /*d*/, void* base, std::size_t /*bytes*/, int access) {
  now->bases.push_back(base);
  now->accesses.push_back(access);
  errno = now->refuses_memory;
  return now->refuses_memory == 0 ? &now->region : nullptr;
}

verbs::ibverbs library() {
  verbs::ibverbs l{};
  l.close_device = [](ibv_context*) { return 0; };
  l.alloc_pd = [](ibv_context*) { return &now->domain; };
  l.dealloc_pd = [](ibv_pd*) { return 0; };
  l.query_device = [](ibv_context*, ibv_device_attr* a) {
    a->max_qp_wr = 64;
    a->max_sge = 16;
    a->phys_port_cnt = 1;
    a->max_qp_rd_atom = 16;
    a->max_qp_init_rd_atom = 16;
    return 0;
  };
  l.query_port = [](ibv_context*, std::uint8_t, ibv_port_attr* p) {
    p->gid_tbl_len = 1;
    p->active_mtu = IBV_MTU_1024;
    return 0;
  };
  l.query_gid = [](ibv_context*, std::uint8_t, int, ibv_gid* g) {
    g->raw[15] = 1;
    return 0;
  };
  l.reg_mr = register_at;
  l.dereg_mr = [](ibv_mr*) { return 0; };
  l.create_cq = [](ibv_context*, int, void*, ibv_comp_channel*, int) {
    return &now->queues[now->queues_made++];
  };
  l.destroy_cq = [](ibv_cq*) { return 0; };
  l.create_qp = [](ibv_pd*, ibv_qp_init_attr*) { return &now->pair; };
  l.modify_qp = modify;
  l.destroy_qp = [](ibv_qp*) { return 0; };
  return l;
}

class RdmaForwarding : public testing::Test {
 protected:
  RdmaForwarding() {
    now = &device_;
    device_.context.ops.post_send = [](ibv_qp*, ibv_send_wr* r, ibv_send_wr**) {
      return take(0, r->wr_id);
    };
    device_.context.ops.post_recv = [](ibv_qp*, ibv_recv_wr* r, ibv_recv_wr**) {
      return take(1, r->wr_id);
    };
    device_.context.ops.poll_cq = poll;
    for (ibv_cq& q : device_.queues) q.context = &device_.context;
    device_.pair.context = &device_.context;
    device_.pair.qp_num = 0x77;
    context_ = std::make_shared<verbs::verbs_context>(library_, "fake", &device_.context);
    sent_.write(unused(sent_.size()));
    received_.write(unused(received_.size()));
    s_.send_depth = depth;
    s_.receive_depth = depth;
    s_.queues.send = work_.data();
    s_.queues.receive = receives_.data();
    s_.queues.record = record_.data();
    s_.queues.sent = {sent_.data(), cq_records_.data(), 4, false};
    s_.queues.received = {received_.data(), cq_records_.data() + 1, 2 * depth, false};
    s_.queues.qpn = device_.pair.qp_num;
    s_.events = events_.data();
    s_.options.gid_index = 0;
    s_.options.inline_bytes = 0;
  }
  static std::vector<mlx5::cqe64> unused(std::size_t n) {
    mlx5::cqe64 e{};
    for (auto& w : e.words) w = ~std::uint64_t{0};
    return std::vector<mlx5::cqe64>(n, e);
  }
  static verbs::endpoint_address peer() {
    verbs::endpoint_address a;
    a.fabric = verbs::adapters_id;
    a.qpn = 5;
    a.mtu = 3;
    return a;
  }
  verbs::verbs_qp make() { return {context_, s_, nullptr}; }
  void post(int count) {
    for (int i = 0; i < count; ++i, ++posted_) {
      provider::write_entry(s_.queues, depth, posted_,
                            {.op = crosswarp::device::rdma::operation::write,
                             .bytes = 8,
                             .local = {1, 2},
                             .remote = {3, 4}},
                            true);
    }
    provider::write_send_record(s_.queues, posted_);
  }
  void ring(const verbs::verbs_qp& q, std::uint64_t index) {
    s_.queues.doorbell = q.doorbell();
    provider::ring(s_.queues, index);
  }
  /// Until there is nothing to do; false when that does not end.
  static bool settle(verbs::verbs_qp& q) {
    for (int i = 0; i < 1000; ++i) {
      if (!q.step()) return true;
    }
    return false;
  }
  /// What kernels would find.
  static std::vector<mlx5::syndrome> told(const provider::completion_queue& q) {
    std::vector<mlx5::syndrome> all;
    provider::found f;
    for (std::uint64_t i = 0; i < q.depth && provider::look(q, i, 0, f); ++i) {
      all.push_back(provider::decode(f, 0).why);
    }
    return all;
  }

  static constexpr std::uint32_t depth = 16;
  const verbs::ibverbs library_ = library();
  fake_device device_;
  std::shared_ptr<verbs::verbs_context> context_;
  cw::buffer<std::byte> work_{cw::device_ref::cpu(), depth* std::size_t{mlx5::block_bytes}};
  cw::buffer<mlx5::data_segment> receives_{cw::device_ref::cpu(), depth};
  cw::buffer<mlx5::qp_record> record_{cw::device_ref::cpu(), 1};
  cw::buffer<mlx5::cq_record> cq_records_{cw::device_ref::cpu(), 2};
  cw::buffer<mlx5::cqe64> sent_{cw::device_ref::cpu(), 4};
  cw::buffer<mlx5::cqe64> received_{cw::device_ref::cpu(), 2 * depth};
  cw::buffer<crosswarp::device::rdma::endpoint_events> events_{cw::device_ref::cpu(), 1};
  verbs::qp_setup s_;
  std::uint64_t posted_ = 0;
};

using mlx5::syndrome;
using testing::ElementsAre;

// It went on to flush 2^64 entries, with the lock of all others.
TEST_F(RdmaForwarding, ADoorbellThatGoesBackFailsTheQueuePairAndNothingElse) {
  verbs::verbs_qp q = make();
  q.connect(peer());
  post(3);
  ring(q, 3);
  ASSERT_TRUE(settle(q));
  EXPECT_EQ(device_.under_way[0].size(), 3U);
  ring(q, 2);
  ASSERT_TRUE(settle(q));
  EXPECT_EQ(q.state(), rdma::endpoint_state::ready) << "it is told in its turn";
  device_.end(3);
  ASSERT_TRUE(settle(q));
  EXPECT_EQ(q.state(), rdma::endpoint_state::failed);
  EXPECT_THAT(told(s_.queues.sent), ElementsAre(syndrome::none, syndrome::none, syndrome::none,
                                                syndrome::local_qp_operation));
}

TEST_F(RdmaForwarding, AQueueOfSendsThatIsFullKeepsNoReceiveFromBeingTold) {
  verbs::verbs_qp q = make();
  q.connect(peer());
  receives_.write(std::vector<mlx5::data_segment>(depth, mlx5::make_data(8, 2, 1)));
  provider::write_receive_record(s_.queues, 2);
  post(6);
  ring(q, 6);
  ASSERT_TRUE(settle(q));
  device_.end(6);
  ASSERT_TRUE(settle(q));
  EXPECT_EQ(q.state(), rdma::endpoint_state::failed);
  EXPECT_EQ(events_.read()[0].failed, static_cast<std::uint64_t>(syndrome::local_qp_operation));
  EXPECT_EQ(events_.read()[0].no_receives, 0U);
  EXPECT_EQ(told(s_.queues.sent).size(), 4U);
  EXPECT_THAT(told(s_.queues.received), ElementsAre(syndrome::flushed, syndrome::flushed));
}

TEST_F(RdmaForwarding, AQueuePairThatConnectedHalfWayHasFailed) {
  device_.refuses_state = IBV_QPS_RTR;
  verbs::verbs_qp q = make();
  EXPECT_THROW(q.connect(peer()), cw::error);
  EXPECT_EQ(q.state(), rdma::endpoint_state::made) << "nothing happened";
  device_.refuses_state = IBV_QPS_RTS;
  EXPECT_THROW(q.connect(peer()), cw::error);
  EXPECT_EQ(q.state(), rdma::endpoint_state::failed);
  device_.states.clear();
  device_.refuses_state = -1;
  EXPECT_THROW(q.connect(peer()), cw::error);
  EXPECT_TRUE(device_.states.empty()) << "no second time from where it is not";
}

// ---- memory

cw::errc refusal(const verbs::verbs_context& c, const verbs::memory_range& m) {
  try {
    (void)c.register_memory(m, rdma::access::local_write);
  } catch (const cw::error& e) {
    return e.code();
  }
  return {};
}

TEST_F(RdmaForwarding, MemoryOfAGpuWithoutDmaBufIsFoundByTheKernel) {
  std::byte there{};
  const verbs::memory_range m{&there, 1, cw::device_ref::cpu(), false};
  EXPECT_NO_THROW((void)context_->register_memory(m, rdma::access::local_write));
  EXPECT_THAT(device_.bases, ElementsAre(static_cast<void*>(&there)));
  device_.refuses_memory = EFAULT;
  EXPECT_EQ(refusal(*context_, m), cw::errc::not_supported);
}

TEST_F(RdmaForwarding, AllMemoryIsAskedForByItsOwnFlagOrRefused) {
  verbs::memory_range m{nullptr, ~std::size_t{0}};
  EXPECT_NO_THROW((void)context_->register_memory(m, rdma::access::local_write));
  EXPECT_THAT(device_.accesses, ElementsAre(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
  device_.refuses_memory = EOPNOTSUPP;
  EXPECT_EQ(refusal(*context_, m), cw::errc::not_supported);
  device_.refuses_memory = 0;
  m.on_host = false;
  EXPECT_EQ(refusal(*context_, m), cw::errc::not_supported);
  EXPECT_EQ(device_.accesses.size(), 2U) << "a GPU's is not paged";
}

}  // namespace
