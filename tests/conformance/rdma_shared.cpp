// Several endpoints that take from one receive queue.
#include <chrono>
#include <memory>

#include "conformance/rdma_common.hpp"

namespace {

class RdmaShared : public RdmaPairs {
 protected:
  /// `pairs` senders, each with a receiver of its own; those share receives.
  struct setting {
    setting(const rdma::device_context& d, rdma::endpoint_options o, int depth, int pairs)
        : queue(far_of(d).make_shared_receive_queue({depth})),
          memory(test_device(), 4096),
          region(far_of(d).register_memory(memory.data(), 4096, rdma::access::all)) {
      o.not_ready_after = std::chrono::microseconds(200);
      auto with = o;
      with.receives = &queue;
      for (int i = 0; i < pairs; ++i) {
        from.push_back(std::make_unique<side>(d, o));
        to.push_back(std::make_unique<side>(far_of(d), with));
        connect(*from.back(), *to.back());
        from.back()->fill(i);
      }
    }
    template <class By = by_thread>
    dev::rdma::posted post(std::uint64_t at, std::uint32_t bytes, int count,
                           const dev::wait_limits& limits = {}) {
      cw::buffer<dev::rdma::posted> out(test_device(), 1);
      start<By>(post_shared<By>{}, queue.device(limits), region.device().local(at), bytes, count,
                out.data());
      return out.read()[0];
    }
    [[nodiscard]] completion send(std::size_t which, std::uint32_t bytes) const {
      const side& a = *from[which];
      return perform_one(a, {.op = operation::send, .bytes = bytes, .local = a.local()});
    }

    rdma::shared_receive_queue queue;
    cw::buffer<std::uint8_t> memory;
    rdma::memory_region region;
    std::vector<std::unique_ptr<side>> from;
    std::vector<std::unique_ptr<side>> to;
  };
};
INSTANTIATE_TEST_SUITE_P(, RdmaShared, testing::Bool(), kind_name);

TEST_P(RdmaShared, WhoeverAMessageComesToTakesTheNextReceive) {
  setting t(open(), options(16), 8, 3);
  EXPECT_EQ(t.post(0, 64, 3).index, 2U);
  EXPECT_EQ(t.post<by_block>(192, 64, 3).index, 5U);
  const std::vector<std::size_t> order = {2, 0, 2, 1, 1};
  for (const std::size_t i : order) EXPECT_EQ(t.send(i, 50).outcome, status::ok);
  side& with_imm = *t.from[0];
  EXPECT_EQ(perform_one(with_imm, {.op = operation::write_imm,
                                   .bytes = 8,
                                   .imm = 77,
                                   .local = with_imm.local(),
                                   .remote = t.to[0]->remote()})
                .outcome,
            status::ok);
  std::vector<std::vector<completion>> in;
  for (std::size_t i = 0; i < 3; ++i) in.push_back(received<by_warp>(*t.to[i], 2));
  EXPECT_EQ(in[2][0].index, 0U);
  EXPECT_EQ(in[0][0].index, 1U);
  EXPECT_EQ(in[2][1].index, 2U);
  EXPECT_EQ(in[1][0].index, 3U);
  EXPECT_EQ(in[1][1].index, 4U);
  EXPECT_EQ(in[0][1].index, 5U);
  EXPECT_EQ(in[0][1].imm, 77U);
  const auto got = t.memory.read();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto sent = t.from[order[i]]->memory.read();
    EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 50,
                           got.begin() + static_cast<std::ptrdiff_t>(64 * i)))
        << i;
    EXPECT_EQ(got[64 * i + 50], 0);
  }
}

/// Each block has a pair of its own, and posts a receive for each message that it sends.
struct share_receives {
  CW_FN void operator()(const context& ctx, const view* from, const view* to, shared_view q,
                        const dev::rdma::region* sources, dev::rdma::region target, int each,
                        bool alone, int* out) const {
    const auto me = ctx.thread();
    const auto who = static_cast<std::uint32_t>(ctx.block_index());
    for (int i = 0; i < each; ++i) {
      const auto p = q.post_recv(me, target.local(8 * who), 8);
      if (p.outcome != status::ok || q.update_dbr_record(me) != status::ok) return;
      const std::uint32_t name = who << 24U | static_cast<std::uint32_t>(i);
      const request r = {
          .op = operation::send_imm, .bytes = 8, .imm = name, .local = sources[who].local()};
      if (from[who].perform(me, r).outcome != status::ok) return;
      const completion c = to[who].wait_recv(me);
      if (c.outcome != status::ok || c.imm != name || (alone && c.index != p.index)) return;
      out[who] = i + 1;
    }
  }
};

class RdmaSharing : public RdmaShared {
 protected:
  void check(int depth, int pairs, int each) {
    auto o = options(8);
    o.not_ready_retries = 10'000;
    setting t(open(), o, depth, pairs);
    std::vector<view> from;
    std::vector<view> to;
    std::vector<dev::rdma::region> sources;
    for (std::size_t i = 0; i < t.from.size(); ++i) {
      from.push_back(t.from[i]->ep.device());
      to.push_back(t.to[i]->ep.device());
      sources.push_back(t.from[i]->region.device());
    }
    const cw::buffer<view> froms(test_device(), std::span<const view>(from));
    const cw::buffer<view> tos(test_device(), std::span<const view>(to));
    const cw::buffer<dev::rdma::region> regions(test_device(),
                                                std::span<const dev::rdma::region>(sources));
    cw::buffer<int> out(test_device(), t.from.size());
    cw::stream s(test_device());
    cw::launch(s, {.blocks = pairs}, share_receives{}, froms.data(), tos.data(), t.queue.device(),
               regions.data(), t.region.device(), each, pairs == 1, out.data());
    s.sync();
    EXPECT_EQ(out.read(), std::vector<int>(t.from.size(), each));
  }
};
INSTANTIATE_TEST_SUITE_P(, RdmaSharing, testing::Bool(), kind_name);

TEST_P(RdmaSharing, CountersWrap) {
  check(4, 1, rounds(GetParam() ? 1000 : 70'000, 50));
}

TEST_P(RdmaSharing, SeveralPost) {
  check(4, 4, rounds(200, 30));
}

TEST_P(RdmaShared, PlacesAreFreeOnceTheOldestWasRead) {
  setting t(open(), options(16), 4, 2);
  EXPECT_EQ(t.post(0, 64, 4).outcome, status::ok);
  for (const std::size_t i : {0U, 1U, 0U, 1U}) EXPECT_EQ(t.send(i, 8).outcome, status::ok);
  const auto brief = dev::wait_limits{}.within(2'000'000);
  EXPECT_EQ(t.post(256, 64, 1, brief).outcome, status::timeout) << "none was read";
  EXPECT_EQ(received(*t.to[1], 2)[1].index, 3U);
  EXPECT_EQ(t.post(256, 64, 1, brief).outcome, status::timeout) << "not the oldest";
  EXPECT_EQ(received(*t.to[0], 1)[0].index, 0U);
  EXPECT_EQ(t.post(256, 64, 2).index, 5U) << "the second had been read before";
  EXPECT_EQ(t.post(384, 64, 1, brief).outcome, status::timeout);
}

TEST_P(RdmaShared, WhenItIsEmptyTheSenderIsTold) {
  setting t(open(), options(16), 4, 2);
  EXPECT_EQ(t.post(0, 64, 1).outcome, status::ok);
  EXPECT_EQ(t.send(0, 8).outcome, status::ok);
  const completion c = t.send(1, 8);
  EXPECT_EQ(c.why, syndrome::receiver_not_ready);
  EXPECT_EQ(c.outcome, status::timeout);
  EXPECT_EQ(t.post(64, 64, 1).outcome, status::ok);
  EXPECT_EQ(t.send(0, 8).outcome, status::ok) << "others go on";
  EXPECT_EQ(received(*t.to[0], 2)[1].index, 1U);
}

TEST_P(RdmaShared, AnEndpointThatFailedTakesNothingWithIt) {
  setting t(open(), options(16), 4, 2);
  EXPECT_EQ(t.post(0, 64, 4).outcome, status::ok);
  const request bad = refused_write_of(*t.from[0], *t.to[0]);
  EXPECT_EQ(perform_one(*t.from[0], bad).why, syndrome::remote_access);
  if (over_soft()) {  // others tell the end that refused of it when they like
    EXPECT_EQ(received(*t.to[0], 1)[0].outcome, status::aborted) << "told, and not waited for";
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(t.send(1, 8).outcome, status::ok) << i;
  EXPECT_EQ(received(*t.to[1], 4)[3].index, 3U);
}

TEST_P(RdmaShared, AMessageThatIsTooLongCostsOneReceive) {
  setting t(open(), options(16), 4, 2);
  EXPECT_EQ(t.post(0, 8, 2).outcome, status::ok);
  EXPECT_EQ(t.send(0, 9).outcome, status::invalid);
  const auto in = received(*t.to[0], 2, soon());
  EXPECT_EQ(in[0].outcome, status::invalid);
  EXPECT_EQ(in[0].index, 0U);
  EXPECT_EQ(in[1].outcome, status::aborted) << "and then none comes any more";
  EXPECT_EQ(t.send(1, 8).outcome, status::ok);
  EXPECT_EQ(received(*t.to[1], 1)[0].index, 1U);
}

TEST_P(RdmaShared, WhatNobodyReadComesBackWithTheEndpoint) {
  setting t(open(), options(16), 4, 3);
  EXPECT_EQ(t.post(0, 64, 4).outcome, status::ok);
  for (const std::size_t i : {0U, 1U, 0U, 1U}) EXPECT_EQ(t.send(i, 8).outcome, status::ok);
  t.to[0].reset();
  t.to[1]->ep.reset();
  EXPECT_EQ(t.post(0, 64, 4).index, 7U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(t.send(2, 8).outcome, status::ok);
  EXPECT_EQ(received(*t.to[2], 4)[3].index, 7U);
  // And it can be used again.
  t.from[1]->ep.reset();
  connect(*t.from[1], *t.to[1]);
  EXPECT_EQ(t.post(0, 64, 1).outcome, status::ok);
  EXPECT_EQ(t.send(1, 8).outcome, status::ok);
  EXPECT_EQ(received(*t.to[1], 1)[0].index, 8U);
}

struct claim_more {
  CW_FN void operator()(const context& /*ctx*/, shared_view q, std::uint64_t count) const {
    dev::rdma::mlx5_provider::write_shared_record(q.made_of().queue, count);
  }
};

TEST_P(RdmaShared, ARecordThatMakesNoSenseIsNotBelieved) {
  setting t(open(), options(16), 4, 1);
  start<by_thread>(claim_more{}, t.queue.device(), std::uint64_t{5});
  EXPECT_EQ(t.send(0, 8).why, syndrome::receiver_not_ready) << "more than it holds";
}

struct post_to_endpoint {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::local_memory to,
                        status* out) const {
    *out = ep.post_recv(ctx.thread(), to, 8).outcome;
  }
};

TEST_P(RdmaShared, AnEndpointThatSharesHasNoReceivesOfItsOwn) {
  setting t(open(), options(16), 4, 1);
  cw::buffer<status> out(test_device(), 1);
  start<by_thread>(post_to_endpoint{}, t.to[0]->ep.device(), t.to[0]->local(), out.data());
  EXPECT_EQ(out.read()[0], status::invalid);
}

TEST_P(RdmaShared, TheQueueMayEndBeforeItsEndpoints) {
  const auto d = open();
  auto o = options(16);
  auto queue = std::make_unique<rdma::shared_receive_queue>(d.make_shared_receive_queue());
  o.receives = queue.get();
  side b(d, o);
  queue.reset();
  b.ep.connect(b.ep.address());
  request r = write_of(b, b, 8);
  r.remote = b.remote(8);
  EXPECT_EQ(perform_one(b, r).outcome, status::ok);
}

}  // namespace
