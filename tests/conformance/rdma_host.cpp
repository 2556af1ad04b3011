// The host's half of rdma, and ranks that use it.
#include <dlfcn.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "conformance/rdma_common.hpp"
#include "crosswarp/world_launch.hpp"
#include "support/worlds.hpp"

namespace {

// ---- the host's half

TEST(RdmaHost, OptionsOutOfRangeAreRefused) {
  const auto d = near_end();
  const auto refuses = [&](auto change) {
    rdma::endpoint_options o;
    change(o);
    try {
      (void)d.make_endpoint(o);
    } catch (const cw::error& e) {
      return e.code() == cw::errc::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refuses([](auto& o) { o.send_depth = 3; }));
  EXPECT_TRUE(refuses([](auto& o) { o.send_depth = 65'536; }));
  EXPECT_TRUE(refuses([](auto& o) { o.receive_depth = 0; }));
  EXPECT_TRUE(refuses([](auto& o) { o.completions = 5; }));
  EXPECT_TRUE(refuses([](auto& o) { o.inline_bytes = 513; }));
  EXPECT_TRUE(refuses([](auto& o) { o.sge = 0; }));
  EXPECT_TRUE(refuses([](auto& o) { o.sge = 17; }));
  EXPECT_TRUE(refuses([](auto& o) { o.port = 2; }));
  EXPECT_TRUE(refuses([](auto& o) { o.retries = -1; }));
  EXPECT_THROW((void)d.register_memory(nullptr, 8, rdma::access::all), cw::error);
  int word = 0;
  EXPECT_THROW((void)d.register_memory(&word, 0, rdma::access::all), cw::error);
}

TEST(RdmaHost, AKeyOfAllMemoryIsThereOrRefused) {
  if (over_soft()) {
    EXPECT_NE(near_end().register_everything().device().lkey, 0U);
    return;
  }
  try {
    (void)near_end().register_everything();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::not_supported) << e.what();
  }
}

TEST(RdmaHost, SharedReceivesOutOfRangeOrOfAnotherDeviceAreRefused) {
  for (const int depth : {0, 3, 65'536}) {
    EXPECT_THROW((void)near_end().make_shared_receive_queue({depth}), cw::error) << depth;
  }
  for (const int sge : {0, 17}) {
    EXPECT_THROW((void)near_end().make_shared_receive_queue({.sge = sge}), cw::error) << sge;
  }
  if (!over_soft()) GTEST_SKIP() << "has not always two devices";
  rdma::soft_options two;
  two.devices = 2;
  const rdma::context all(rdma::backend::soft, two);
  const auto queue = all.devices()[0].open(test_device()).make_shared_receive_queue();
  rdma::endpoint_options o;
  o.receives = &queue;
  EXPECT_NO_THROW((void)all.devices()[0].open(test_device()).make_endpoint(o));
  EXPECT_THROW((void)all.devices()[1].open(test_device()).make_endpoint(o), cw::error);
}

TEST(RdmaHost, ConnectingWrongly) {
  const auto d = near_end();
  rdma::endpoint a = d.make_endpoint();
  rdma::endpoint b = d.make_endpoint();
  EXPECT_THROW(a.connect({}), cw::error);
  auto elsewhere = b.address();
  elsewhere.fabric += 1;
  elsewhere.route_bytes = 0;
  EXPECT_THROW(a.connect(elsewhere), cw::error);
  a.connect(b.address());
  EXPECT_THROW(a.connect(b.address()), cw::error) << "twice";
  EXPECT_EQ(a.state(), rdma::endpoint_state::ready);
}

TEST(RdmaHost, ContextsOfAProcessAgree) {
  if (!over_soft()) GTEST_SKIP() << "about the options of soft devices";
  rdma::context all;
  rdma::soft_options other;
  other.lost = 1;
  EXPECT_THROW(rdma::context(rdma::backend::soft, other), cw::error);
  other = {};
  other.devices = 0;
  EXPECT_THROW(rdma::context(rdma::backend::soft, other), cw::error);
}

TEST(RdmaHost, WithoutItsLibraryABackendSaysWhatToInstall) {
  if (void* const there = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL); there != nullptr) {
    dlclose(there);
    GTEST_SKIP() << "libibverbs is here";
  }
  try {
    rdma::context all(rdma::backend::verbs);
    ADD_FAILURE() << "made without it";
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::not_supported);
    EXPECT_NE(std::string(e.what()).find("install libibverbs"), std::string::npos) << e.what();
  }
}

TEST(RdmaHost, WhatAContextMadeMayOutliveIt) {
  auto all = std::make_unique<rdma::context>(rdma_backend());
  auto d = std::make_unique<rdma::device_context>(near_end());
  side a(*d, {});
  side b(*d, {});
  d.reset();
  all.reset();
  connect(a, b);
  EXPECT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::ok);
}

// ---- ranks

/// Every operation, to the rank on the right; and what the one on the left sends.
struct talk_to_right {
  CW_FN void operator()(const context& ctx, const dev::world& /*w*/, const view& right,
                        const view& left, dev::rdma::region mine, dev::rdma::region theirs,
                        completion* out) const {
    const auto me = ctx.thread();
    out[0] = right.write(me, mine.local(), theirs.remote(8), 8);
    out[1] = right.fetch_add(me, mine.local(16), theirs.remote(16), 5);
    out[2] = right.read(me, mine.local(24), theirs.remote(24), 8);
    out[3] = right.send(me, mine.local(), 8);
    out[4] = left.wait_recv(me);
  }
};

TEST(RdmaWorld, RanksExchangeAddressesAndTalk) {
  on_ranks(3, [](cw::world& w) {
    const auto d = near_end();
    side to_right(d, {});
    side from_left(d, {});
    const auto lefts = w.allgather(from_left.ep.address());
    const auto rights = w.allgather(to_right.ep.address());
    const auto memory = w.allgather(from_left.region.device());
    const auto right = static_cast<std::size_t>((w.rank() + 1) % w.size());
    const auto left = static_cast<std::size_t>((w.rank() + w.size() - 1) % w.size());
    to_right.ep.connect(lefts[right]);
    from_left.ep.connect(rights[left]);
    const auto me = static_cast<std::uint64_t>(w.rank());
    to_right.set<std::uint64_t>(0, 100 + me);
    from_left.set<std::uint64_t>(16, 40 + me);
    from_left.set<std::uint64_t>(24, 70 + me);
    post_recv(from_left, 32, 8);
    cw::buffer<completion> out(w.options().device, 5);
    w.barrier();
    cw::launch(w, {}, talk_to_right{}, w.device(), to_right.ep.device(w.device().limits),
               from_left.ep.device(w.device().limits), to_right.region.device(), memory[right],
               out.data());
    w.stream().sync();
    for (const completion& c : out.read()) EXPECT_EQ(c.outcome, status::ok) << to_string(c.why);
    w.barrier();
    EXPECT_EQ(from_left.get<std::uint64_t>(8), 100 + left);
    EXPECT_EQ(from_left.get<std::uint64_t>(16), 45 + me);
    EXPECT_EQ(from_left.get<std::uint64_t>(32), 100 + left);
    EXPECT_EQ(to_right.get<std::uint64_t>(16), 40 + right);
    EXPECT_EQ(to_right.get<std::uint64_t>(24), 70 + right);
    w.barrier();
  });
}

/// A process that ends without a word, while another one writes to it all the time.
TEST(RdmaLostPeer, IsToldToWhoWritesToIt) {
  if (!cw::launched() || over_soft()) GTEST_SKIP() << "needs two processes, and devices of verbs";
  const auto d = near_end();
  auto o = cw::world_options::from_environment();
  o.heap_bytes = 1U << 20U;
  cw::world w(o);
  rdma::endpoint_options eo;
  eo.retries = 2;
  side mine(d, eo);
  const auto addresses = w.allgather(mine.ep.address());
  const auto memory = w.allgather(mine.region.device());
  const auto other = static_cast<std::size_t>(1 - w.rank());
  mine.ep.connect(addresses[other]);
  w.barrier();
  if (w.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    _exit(0);
  }
  completion c;
  for (int i = 0; i < 10'000 && c.outcome == status::ok; ++i) {
    c = perform_one(mine, {.op = operation::write,
                           .bytes = 8,
                           .local = mine.local(),
                           .remote = memory[other].remote()});
  }
  EXPECT_EQ(c.outcome, status::unreachable) << to_string(c.why);
  EXPECT_EQ(mine.ep.state(), rdma::endpoint_state::failed);
}

}  // namespace
