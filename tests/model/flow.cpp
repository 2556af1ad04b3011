// Device-side links under chosen interleavings.
#include <gtest/gtest.h>

#include "crosswarp/flow_link.hpp"
#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"
#include "protocols/flow_stream.hpp"

namespace {

using namespace protocols;

class FlowModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
};

/// A world that is made anew for each execution, so with little in it.
cw::world_options small(cw::device_ref device) {
  cw::world_options o;
  o.device = device;
  o.heap_bytes = 1U << 16U;
  o.self_test = false;
  return o;
}

template <class Who>
void explore(cw::schedule s, int ranks, int threads, int buffers, int packets) {
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(ranks, small(device), [&](cw::world& w) {
      std::vector<std::unique_ptr<cw::flow::device_link>> links;
      for (int r = 0; r + 1 < ranks; ++r) {
        links.push_back(
            std::make_unique<cw::flow::device_link>(w, r, r + 1, 5 * sizeof(int), buffers));
      }
      const auto at = [&](int i) {
        const bool is = i >= 0 && i + 1 < ranks;
        return is ? links[static_cast<std::size_t>(i)]->device() : flow::link{};
      };
      cw::buffer<outcome> out(device, 1);
      cw::launch(w, {.threads = threads}, flow_chain<Who>{}, w.device(), at(w.rank() - 1),
                 at(w.rank()), packets, out.data());
      const outcome got = out.read()[0];
      ASSERT_EQ(got.waits, status::ok) << to_string(got.waits) << ", " << s.describe();
      ASSERT_EQ(got.wrong, 0) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

TEST_F(FlowModel, ALinkUnderEveryInterleaving) {
  explore<by_thread>(cw::schedule::exhaustive(1, 3000), 2, 1, 1, 2);
  explore<by_thread>(cw::schedule::exhaustive(1, 3000), 2, 1, 2, 3);
}

TEST_F(FlowModel, AChainOfLinksUnderMany) {
  explore<by_thread>(cw::schedule::random(20261116, 150), 3, 1, 2, 5);
  explore<by_block>(cw::schedule::random(20261116, 150), 3, 2, 1, 4);
}

TEST_F(FlowModel, TwoSendersAndOneWhoTakesFromBoth) {
  using fan_in = flow_fan_in<by_thread>;
  auto s = cw::schedule::random(20261116, 150);
  cw::explore(s, [&](cw::device_ref device) {
    cw::run_local(3, small(device), [&](cw::world& w) {
      const cw::flow::device_link a(w, 1, 0, 5 * sizeof(int), 1);
      const cw::flow::device_link b(w, 2, 0, 5 * sizeof(int), 2);
      cw::buffer<outcome> out(device, 1);
      cw::launch(w, {}, fan_in{}, w.device(), fan_in::links{{{}, a.device(), b.device(), {}}}, 3,
                 out.data());
      const outcome got = out.read()[0];
      ASSERT_EQ(got.waits, status::ok) << to_string(got.waits) << ", " << s.describe();
      ASSERT_EQ(got.wrong, 0) << s.describe();
    });
    if (testing::Test::HasFatalFailure()) FAIL() << s.describe();
  });
  EXPECT_GT(s.executions(), 1U);
}

}  // namespace
