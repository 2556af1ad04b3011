#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/socket.hpp"
#include "lanes.hpp"
#include "workers.hpp"

namespace crosswarp::socket {

namespace words = device::socket;

// ---- addresses

namespace {

[[noreturn]] void refuse_address(std::string_view text, const std::string& why) {
  throw error(errc::invalid_argument, "socket address", "'" + std::string(text) + "': " + why);
}

std::uint16_t parse_port(std::string_view text, std::string_view all) {
  std::uint16_t port = 0;
  const auto [end, bad] = std::from_chars(text.begin(), text.end(), port);
  if (bad != std::errc{} || end != text.end()) {
    refuse_address(all, "the port is a number from 0 to 65535");
  }
  return port;
}

address parse_local(std::string_view path, std::string_view all) {
  address a;
  a.family = address::local;
  if (path.empty() || path.size() >= sizeof(a.path)) {
    refuse_address(all, "a path of 1 to " + std::to_string(sizeof(a.path) - 1) + " bytes");
  }
  std::memcpy(a.path, path.data(), path.size());
  return a;
}

}  // namespace

address parse_address(std::string_view text) {
  constexpr std::string_view local = "unix:";
  if (text.starts_with(local)) return parse_local(text.substr(local.size()), text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse_address(text, "HOST:PORT, [HOST]:PORT or unix:PATH");
  std::string host(text.substr(0, colon));
  address a;
  a.port = parse_port(text.substr(colon + 1), text);
  a.family = address::ipv4;
  if (host.empty()) return a;
  if (host.front() == '[' && host.back() == ']') {
    a.family = address::ipv6;
    host = host.substr(1, host.size() - 2);
  }
  if (inet_pton(a.family == address::ipv6 ? AF_INET6 : AF_INET, host.c_str(), a.host) != 1) {
    refuse_address(text, "the host is an address such as 127.0.0.1 or [::1], not a name");
  }
  return a;
}

std::string to_string(const address& a) {
  if (a.family == address::none) return "none";
  if (a.family == address::local) return "unix:" + std::string(a.path);
  char host[INET6_ADDRSTRLEN] = {};
  const bool is_v6 = a.family == address::ipv6;
  inet_ntop(is_v6 ? AF_INET6 : AF_INET, a.host, host, sizeof(host));
  const std::string port = ":" + std::to_string(a.port);
  return is_v6 ? "[" + std::string(host) + "]" + port : host + port;
}

// ---- services

namespace {

constexpr std::size_t most_sockets = 65536;
constexpr std::size_t calls_at_once = 64;
constexpr int most_lanes = 65536;

void check_ring(const char* what, std::size_t bytes) {
  using socket_impl::ring_pool;
  if (!std::has_single_bit(bytes) || bytes < std::size_t{1} << ring_pool::least_log2 ||
      bytes > std::size_t{1} << 30U) {
    throw error(
        errc::invalid_argument, "socket service",
        std::string(what) + " " + std::to_string(bytes) + ": a power of two from 4 KiB to 1 GiB");
  }
}

service_options checked(const service_options& o) {
  if (o.sockets < 1 || static_cast<std::size_t>(o.sockets) > most_sockets) {
    throw error(errc::invalid_argument, "socket service",
                "sockets " + std::to_string(o.sockets) + ": from 1 to 65536");
  }
  if (o.threads < 1 || o.threads > std::min(o.sockets, socket_impl::workers::most)) {
    throw error(
        errc::invalid_argument, "socket service",
        "threads " + std::to_string(o.threads) + ": from 1 to 64, and not more than sockets");
  }
  check_ring("ring_bytes", o.ring_bytes);
  check_ring("most_ring_bytes", o.most_ring_bytes);
  if (o.most_ring_bytes < o.ring_bytes || o.ring_budget < 2 * o.ring_bytes) {
    throw error(errc::invalid_argument, "socket service",
                "most_ring_bytes is at least ring_bytes, and ring_budget twice that");
  }
  if (o.per_listener < 0 || o.per_peer < 0 || o.first_byte.count() < 0 || o.idle.count() < 0 ||
      o.linger.count() < 0) {
    throw error(errc::invalid_argument, "socket service", "a limit is negative; 0 is none");
  }
  check_ring("lane_bytes", o.lane_bytes);
  if (o.lanes < 0 || o.lanes > most_lanes) {
    throw error(errc::invalid_argument, "socket service",
                "lanes " + std::to_string(o.lanes) + ": from 0 to 65536");
  }
  return o;
}

}  // namespace

/// What both sides write is in host memory that kernels reach, what kernels share among themselves
/// in the device's own.
struct service::state_type {
  state_type(device_ref d, const service_options& o, world* w)
      : limits(w == nullptr ? device::wait_limits{} : w->device().limits),
        around(w == nullptr ? nullptr
                            : std::make_unique<socket_impl::lanes>(*w, o.lanes, o.lane_bytes)),
        news(d, static_cast<std::size_t>(o.sockets), memory_kind::pinned),
        called(d, news.size(), memory_kind::pinned),
        bells(d, news.size(), memory_kind::pinned),
        drained(d, news.size(), memory_kind::pinned),
        moved(d, news.size(), memory_kind::pinned),
        activity(d, 1, memory_kind::pinned),
        replies(d, calls_at_once, memory_kind::pinned),
        call_bells(d, calls_at_once, memory_kind::pinned),
        requests(d, calls_at_once, memory_kind::pinned),
        rings(d, o.ring_budget, memory_kind::pinned),
        staged(o.ring_memory == memory_kind::pinned
                   ? nullptr
                   : std::make_unique<socket_impl::stager>(d, rings.data(), rings.size())),
        own(d, news.size()),
        places(d, calls_at_once),
        pool(rings.data(), rings.size(), staged.get()),
        work(view(), pool, o, make_engines(o), d.kind() != device_kind::cpu,
             o.lanes == 0 ? nullptr : around.get(),
             w == nullptr ? nullptr : w->state().recorder()) {}

  [[nodiscard]] std::vector<std::unique_ptr<socket_impl::engine>> make_engines(
      const service_options& o) {
    auto made = socket_impl::make_engines(o.engine, o.threads);
    engine = made.name;
    return std::move(made.all);
  }

  [[nodiscard]] words::memory view() const noexcept {
    words::memory m;
    m.sockets = static_cast<std::uint32_t>(news.size());
    m.calls = static_cast<std::uint32_t>(replies.size());
    m.state = news.data();
    m.called = called.data();
    m.replies = replies.data();
    m.activity = activity.data();
    m.bells = bells.data();
    m.drained = drained.data();
    m.moved = moved.data();
    m.call_bells = call_bells.data();
    m.requests = requests.data();
    m.rings = staged ? staged->rings() : rings.data();
    m.own = own.data();
    m.places = places.data();
    if (around) around->show(m);
    return m;
  }

  const device::wait_limits limits;            // when the user has none
  std::unique_ptr<socket_impl::lanes> around;  // null unless it is a world's
  buffer<words::news> news;
  buffer<words::names> called;
  buffer<std::uint64_t> bells;
  buffer<std::uint64_t> drained;
  buffer<std::uint64_t> moved;
  buffer<std::uint64_t> activity;
  buffer<words::call_reply> replies;
  buffer<std::uint64_t> call_bells;
  buffer<words::call_request> requests;
  buffer<std::byte> rings;                      // or their image, when they are
  std::unique_ptr<socket_impl::stager> staged;  // elsewhere
  buffer<words::own_state> own;
  buffer<words::call_place> places;
  socket_impl::ring_pool pool;
  std::string engine;
  socket_impl::workers work;  // last: ends before the memory does
};

service::service(device_ref d, const service_options& options)
    : state_(std::make_unique<state_type>(d, checked(options), nullptr)) {}
service::service(world& w, const service_options& options)
    : state_(std::make_unique<state_type>(w.options().device, checked(options), &w)) {}
service::~service() = default;
service::service(service&&) noexcept = default;

device::socket::service service::device() const noexcept {
  return device(state_->limits);
}
device::socket::service service::device(const device::wait_limits& limits) const noexcept {
  words::memory m = state_->view();
  if (state_->news.device().kind() == device_kind::cpu) m.host = &state_->work;
  return {m, limits};
}
void service::stop() {
  state_->work.stop();
}
service_stats service::stats() const {
  service_stats s = state_->work.stats();
  s.engine = state_->engine;
  return s;
}

}  // namespace crosswarp::socket
