// Calls of sockets that a test makes as a kernel, one at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/socket.hpp"
#include "protocols/common.hpp"
#include "support/device.hpp"

namespace calls {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace sock = crosswarp::device::socket;
using context = dev::kernel_context;
using protocols::by_block;
using protocols::by_thread;
using protocols::by_warp;
using sock::address;
using sock::at_once;
using sock::handle;
using sock::patience;

inline constexpr patience soon{50'000'000};
inline constexpr patience long_enough{20'000'000'000};

// ---- one call from a kernel

/// What a kernel is to do, and what came of it.
enum class op : int {
  listen,
  accept,
  connect,
  start_connect,
  send,
  recv,
  recv_all,
  view,
  consume,
  reserve,
  commit,
  shutdown,
  close,
  abort,
  poll,
  set_option,
  get_option,
  peer_name,
  own_name,
  peek_ring,
};

struct order {
  op what = op::close;
  handle s = {};
  address where = {};
  std::uint64_t n = 0;
  std::int64_t value = 0;
  sock::option which = sock::option::no_delay;
  sock::half half = sock::half::both;
  patience wait = long_enough;
};

struct outcome {
  std::int64_t result = 0;
  address name;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  int disagree = 0;  ///< threads of the group that got something else
};

template <class By>
constexpr int threads_of() {
  return std::is_same_v<By, by_thread> ? 1 : std::is_same_v<By, by_warp> ? 32 : 48;
}

/// Makes calls as a kernel, each in a launch of its own.
template <class By = by_thread>
class caller {
 public:
  explicit caller(const cw::socket::service& net) : caller(net.device()) {}
  caller(const cw::socket::service& net, const dev::wait_limits& limits)
      : caller(net.device(limits)) {}
  explicit caller(const sock::service& net)
      : net_(net),
        stream_(test_device()),
        order_(test_device(), 1),
        bytes_(test_device(), room),
        items_(test_device(), most_items),
        out_(test_device(), 1) {}

  std::int64_t operator()(const order& o);

  handle listen(const address& a = address::loopback(0), int backlog = 16) {
    return handle((*this)({.what = op::listen, .where = a, .n = static_cast<unsigned>(backlog)}));
  }
  handle accept(handle l, patience p = long_enough) {
    return handle((*this)({.what = op::accept, .s = l, .wait = p}));
  }
  handle connect(const address& a, patience p = long_enough) {
    return handle((*this)({.what = op::connect, .where = a, .wait = p}));
  }
  std::int64_t send(handle s, const std::string& text, patience p = long_enough) {
    put(text);
    return (*this)({.what = op::send, .s = s, .n = text.size(), .wait = p});
  }
  std::string recv(handle s, std::size_t n, patience p = long_enough) {
    const std::int64_t got = (*this)({.what = op::recv, .s = s, .n = n, .wait = p});
    return got > 0 ? text(static_cast<std::size_t>(got)) : "";
  }
  std::string recv_all(handle s, std::size_t n, patience p = long_enough) {
    const std::int64_t got = (*this)({.what = op::recv_all, .s = s, .n = n, .wait = p});
    return got > 0 ? text(static_cast<std::size_t>(got)) : "";
  }
  std::int64_t recv_result(handle s, patience p = long_enough) {
    return (*this)({.what = op::recv, .s = s, .n = 100, .wait = p});
  }
  std::int64_t shutdown(handle s, sock::half h) {
    return (*this)({.what = op::shutdown, .s = s, .half = h});
  }
  std::int64_t close(handle s) { return (*this)({.what = op::close, .s = s}); }
  std::int64_t abort(handle s) { return (*this)({.what = op::abort, .s = s}); }
  address own_name(handle s) {
    EXPECT_EQ((*this)({.what = op::own_name, .s = s}), 0);
    return last.name;
  }
  std::int64_t poll(std::vector<sock::poll_item>& items, patience p = long_enough) {
    items_.write(items);
    const std::int64_t n = (*this)({.what = op::poll, .n = items.size(), .wait = p});
    const auto all = items_.read();
    std::copy_n(all.begin(), items.size(), items.begin());
    return n;
  }
  unsigned ready(handle s, unsigned wanted, patience p = long_enough) {
    std::vector<sock::poll_item> one{{s, static_cast<std::uint16_t>(wanted), 0}};
    const std::int64_t n = poll(one, p);
    EXPECT_EQ(n, one[0].ready != 0 ? 1 : 0);
    return one[0].ready;
  }

  void put(const std::string& text) {
    const auto* const p = reinterpret_cast<const std::byte*>(text.data());
    bytes_.write(std::span(p, text.size()));
  }
  [[nodiscard]] std::string text(std::size_t n) const {
    const auto all = bytes_.read();
    return {reinterpret_cast<const char*>(all.data()), n};
  }

  static constexpr std::size_t room = 1U << 20U;
  static constexpr std::size_t most_items = 512;
  outcome last;

 private:
  sock::service net_;
  cw::stream stream_;
  cw::buffer<order> order_;
  cw::buffer<std::byte> bytes_;
  cw::buffer<sock::poll_item> items_;
  cw::buffer<outcome> out_;
};

extern template std::int64_t caller<by_thread>::operator()(const order& o);
extern template std::int64_t caller<by_warp>::operator()(const order& o);
extern template std::int64_t caller<by_block>::operator()(const order& o);

inline std::string pattern(std::size_t n, unsigned seed = 1) {
  std::string s(n, '\0');
  for (std::size_t i = 0; i < n; ++i) s[i] = static_cast<char>((i * 31 + seed * 7) % 251);
  return s;
}

}  // namespace calls
