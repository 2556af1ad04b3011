// Tests of sockets in kernels: a service that is looked after, and one connection of it.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "crosswarp/socket.hpp"
#include "support/peer.hpp"
#include "support/socket_caller.hpp"

namespace calls {

/// Each test ends with as many descriptors and rings as it began with.
class Socket : public testing::Test {
 protected:
  /// What a device opens when it is used first stays open.
  static void SetUpTestSuite() { const cw::socket::service first(test_device(), small()); }
  void SetUp() override { descriptors_ = open_descriptors(); }
  void TearDownService() { net_.reset(); }
  void TearDown() override {
    TearDownService();
    EXPECT_EQ(open_descriptors(), descriptors_);
  }
  cw::socket::service& net(const cw::socket::service_options& o = small()) {
    if (!net_) net_.emplace(test_device(), o);
    return *net_;
  }
  static cw::socket::service_options small() {
    cw::socket::service_options o;
    o.sockets = 16;
    o.ring_bytes = 4096;
    o.most_ring_bytes = 4096;
    o.ring_budget = 1 << 20;
    o.threads = socket_threads();
    o.ring_memory = socket_rings();
    return o;
  }
  /// Waits until the service has `n` sockets.
  void settle(int n) {
    EXPECT_TRUE(eventually([&] { return net().stats().sockets == n; })) << net().stats().sockets;
  }

 private:
  std::size_t descriptors_ = 0;
  std::optional<cw::socket::service> net_;
};

/// A connection of a kernel's to a peer.
class SocketPair : public Socket {
 protected:
  void open(const cw::socket::service_options& o = small()) {
    k.emplace(net(o));
    listener = k->listen();
    there.emplace(k->own_name(listener));
    s = k->accept(listener);
    ASSERT_TRUE(s) << s.error();
  }
  void TearDown() override {
    k.reset();
    there.reset();
    Socket::TearDown();
  }
  std::optional<caller<>> k;
  std::optional<peer> there;
  handle listener;
  handle s;
};

}  // namespace calls
