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

template <class Who>
void explore(cw::schedule s, int ranks, int threads, int buffers, int packets) {
  cw::explore(s, [&](cw::device_ref device) {
    cw::world_options o;
    o.device = device;
    o.heap_bytes = 1U << 16U;
    o.self_test = false;
    cw::run_local(ranks, o, [&](cw::world& w) {
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

}  // namespace
