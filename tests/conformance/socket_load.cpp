// Many connections: that come and go, that come all at once, that say nothing. An echo server in a
// kernel, and what is left when they are gone.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <vector>

#include "examples/servers/echo.hpp"
#include "support/device.hpp"
#include "support/peer.hpp"

namespace {

namespace cw = crosswarp;
namespace sock = crosswarp::device::socket;

/// How many connections come and go; a longer run asks for more.
int connections_wanted() {
  const char* const asked = std::getenv("CROSSWARP_TEST_CONNECTIONS");
  return asked == nullptr ? 1000 : std::atoi(asked);
}

/// An echo server. Each test ends with as many descriptors as it began with, and no ring but the
/// listener's.
class SocketLoad : public testing::Test {
 protected:
  void TearDown() override {
    if (!net_) return;  // skipped
    EXPECT_TRUE(eventually([&] { return net_->stats().sockets == 1; })) << net_->stats().sockets;
    EXPECT_TRUE(eventually([&] { return net_->stats().ring_bytes == ring; }))
        << net_->stats().ring_bytes;
    net_->stop();
    on_->sync();
    net_.reset();
    EXPECT_EQ(open_descriptors(), descriptors_);
  }

  /// With places for `connections` at a time.
  void serve(int connections) {
    { const cw::socket::service first(test_device(), {.ring_budget = 1 << 20}); }
    descriptors_ = open_descriptors();
    net_.emplace(test_device(),
                 cw::socket::service_options{
                     .sockets = connections + 1,
                     .ring_bytes = ring,
                     .most_ring_bytes = ring,
                     .ring_budget = 4 * ring * static_cast<std::size_t>(connections + 1),
                     .threads = socket_threads()});
    on_.emplace(test_device());
    const sock::address any = sock::address::loopback(0);
    const cw::buffer<sock::address> asked(test_device(), std::span(&any, 1));
    const cw::buffer<sock::address> name(test_device(), 1);
    const cw::buffer<sock::handle> listener(test_device(), 1);
    cw::launch(*on_, {}, servers::open_listener{}, net_->device(), asked.data(), listener.data(),
               name.data());
    on_->sync();
    where_ = name.read()[0];
    const int blocks = (connections + servers::echo::places - 2) / (servers::echo::places - 1);
    items_.emplace(test_device(), static_cast<std::size_t>(blocks) * servers::echo::places);
    cw::launch(*on_, {.blocks = blocks, .resident = true}, servers::echo{}, net_->device(),
               listener.read()[0], items_->data());
  }

  static void talk(peer& p) {
    EXPECT_EQ(p.write("x"), 1U);
    EXPECT_EQ(p.read(1), "x");
  }

  static constexpr std::size_t ring = 4096;
  std::optional<cw::socket::service> net_;
  std::optional<cw::stream> on_;
  std::optional<cw::buffer<sock::poll_item>> items_;
  sock::address where_;
  std::size_t descriptors_ = 0;
};

TEST_F(SocketLoad, ConnectionsComeAndGo) {
  serve(8);
  const int count = connections_wanted();
  for (int i = 0; i < count; ++i) {
    peer p(where_);
    if (i % 8 != 0) talk(p);
    ASSERT_FALSE(HasFailure()) << "connection " << i;
  }
  EXPECT_TRUE(
      eventually([&] { return net_->stats().accepted == static_cast<std::uint64_t>(count); }));
  EXPECT_EQ(net_->stats().refused, 0U);
}

TEST_F(SocketLoad, AllComeAtOnceAndAllAreServed) {
  constexpr int threads = 8;
  constexpr int each = 40;
  serve(32);  // the others wait
  std::vector<std::thread> all;
  all.reserve(threads);
  std::atomic<int> answered{0};
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      std::vector<peer> mine;
      mine.reserve(each);
      for (int i = 0; i < each; ++i) mine.emplace_back(where_);
      for (const peer& p : mine) p.write("x");
      // The oldest first: those behind it have a place when it has gone.
      for (peer& p : mine) {
        answered += p.read(1) == "x" ? 1 : 0;
        p.close();
      }
    });
  }
  for (std::thread& t : all) t.join();
  EXPECT_EQ(answered, threads * each);
  EXPECT_EQ(net_->stats().refused, 0U);
}

TEST_F(SocketLoad, ThoseWhoSayNothingDisturbNobody) {
  constexpr int count = 1000;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2 * count + 100) GTEST_SKIP() << "ulimit -n is below 2100";
  serve(count + 1);
  std::vector<peer> idle;
  idle.reserve(count);
  for (int i = 0; i < count; ++i) idle.emplace_back(where_);
  peer active(where_);
  for (int i = 0; i < 100; ++i) talk(active);
  EXPECT_TRUE(eventually([&] { return net_->stats().sockets == count + 2; }));
  talk(idle.front());
  talk(idle.back());
}

}  // namespace
