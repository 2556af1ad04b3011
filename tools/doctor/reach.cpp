#include "reach.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>

#include "crosswarp/error.hpp"
#include "world/socket.hpp"

namespace crosswarp::tool::doctor_impl {
namespace {

using world_impl::after;
using world_impl::descriptor;
using world_impl::time_point;
using clock = std::chrono::steady_clock;

constexpr auto moment = std::chrono::seconds(2);  // for another doctor's next word
constexpr auto way_back = std::chrono::seconds(3);
constexpr int pings = 31;

// ---- words: 64 bytes each, filled up with zeros

const std::string greeting = "crosswarp doctor 1";
using word = std::array<char, 64>;

void say(int fd, const std::string& text) {
  word w{};
  std::copy_n(text.begin(), std::min(text.size(), w.size() - 1), w.begin());
  world_impl::send_all(fd, std::as_bytes(std::span(w)), after(moment));
}

std::string hear(int fd, time_point deadline) {
  word w{};
  world_impl::receive_all(fd, std::as_writable_bytes(std::span(w)), deadline);
  return {w.begin(), std::find(w.begin(), w.end(), '\0')};
}

// ---- connecting

struct attempt {
  descriptor socket;
  passage how = passage::failed;
  std::string why;
};

passage passage_of(int code) {
  switch (code) {
    case 0:
      return passage::open;
    case ECONNREFUSED:
      return passage::refused;
    case ETIMEDOUT:
      return passage::timed_out;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EACCES:
    case EPERM:
      return passage::unreachable;
    default:
      return passage::failed;
  }
}

/// Waits for the end of a connect() that goes on; returns its errno.
int finish_connect(int fd, time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now()).count();
  pollfd p{fd, POLLOUT, 0};
  if (poll(&p, 1, static_cast<int>(std::clamp<long>(left, 0, 600'000))) == 0) return ETIMEDOUT;
  int code = 0;
  socklen_t length = sizeof(code);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno;
}

attempt connect_once(const sockaddr* to, socklen_t length, time_point deadline) {
  attempt a;
  a.socket = descriptor(socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int code = a.socket.open() ? 0 : errno;
  if (code == 0 && connect(a.socket.get(), to, length) != 0) {
    code = errno == EINPROGRESS ? finish_connect(a.socket.get(), deadline) : errno;
  }
  a.how = passage_of(code);
  a.why = code == 0 ? "" : std::strerror(code);
  const int on = 1;
  if (code == 0) setsockopt(a.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return a;
}

attempt connect_to_host(const std::string& host, const std::string& port, time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int bad = getaddrinfo(host.c_str(), port.c_str(), &hints, &found)) {
    return {descriptor(), passage::unknown_host, gai_strerror(bad)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  attempt last;
  for (const addrinfo* a = found; a != nullptr && last.how != passage::open; a = a->ai_next) {
    last = connect_once(a->ai_addr, a->ai_addrlen, deadline);
  }
  return last;
}

struct host_port {
  std::string host;
  std::string port;
};

host_port split(const std::string& where) {
  const std::size_t colon = where.rfind(':');
  host_port h;
  unsigned number = 0;
  if (colon != std::string::npos && colon > 0) {
    h = {where.substr(0, colon), where.substr(colon + 1)};
    const char* end = h.port.data() + h.port.size();
    const auto [stop, bad] = std::from_chars(h.port.data(), end, number);
    if (bad != std::errc{} || stop != end) number = 0;
  }
  if (number < 1 || number > 65535) {
    throw error(errc::invalid_argument, "--reach", "'" + where + "' is not HOST:PORT");
  }
  if (h.host.front() == '[' && h.host.back() == ']') h.host = h.host.substr(1, h.host.size() - 2);
  return h;
}

std::string port_of(const world_impl::listener& l) {
  return l.address.substr(l.address.rfind(':') + 1);
}

double median_round_trip(int fd) {
  std::array<double, pings> took{};
  for (double& t : took) {
    const auto begin = clock::now();
    say(fd, "ping");
    (void)hear(fd, after(moment));
    t = std::chrono::duration<double, std::micro>(clock::now() - begin).count();
  }
  std::nth_element(took.begin(), took.begin() + pings / 2, took.end());
  return took[pings / 2];
}

/// "back 2 No route to host"
void read_verdict(const std::string& text, reach_facts& f) {
  std::istringstream words(text);
  std::string back;
  int how = -1;
  words >> back >> how >> std::ws;
  std::getline(words, f.back_why);
  const bool good = back == "back" && how >= 0 && how <= static_cast<int>(passage::not_tried);
  f.back = good ? static_cast<passage>(how) : passage::failed;
}

}  // namespace

reach_facts reach(const std::string& where, std::chrono::seconds timeout) {
  const auto [host, port] = split(where);
  reach_facts f;
  f.where = where;
  const auto begin = clock::now();
  const attempt a = connect_to_host(host, port, after(timeout));
  f.there = a.how;
  f.there_why = a.why;
  f.microseconds = std::chrono::duration<double, std::micro>(clock::now() - begin).count();
  if (f.there != passage::open) return f;
  try {
    const auto mine = world_impl::listen_tcp("0.0.0.0", 0, "");
    say(a.socket.get(), greeting + " " + port_of(mine));
    f.answered = hear(a.socket.get(), after(moment)) == greeting;
    if (!f.answered) return f;
    f.microseconds = median_round_trip(a.socket.get());
    say(a.socket.get(), "back");
    read_verdict(hear(a.socket.get(), after(way_back + moment)), f);
  } catch (const error& e) {
    if (f.answered) f.back = passage::failed;
    f.back_why = e.what();
  }
  return f;
}

namespace {

struct visitor {
  descriptor socket;
  sockaddr_in from{};
  [[nodiscard]] std::string name() const {
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &from.sin_addr, text, sizeof(text));
    return text;
  }
};

/// Does what a doctor asks for; false when the visitor is none. Throws when it goes away.
bool serve(visitor& v, reach_facts& f) {
  const std::string first = hear(v.socket.get(), after(moment));
  if (!first.starts_with(greeting + " ")) return false;
  const int port = std::atoi(first.c_str() + greeting.size());
  if (port < 1 || port > 65535) return false;
  f.answered = true;
  f.where = v.name();
  f.there = passage::open;
  say(v.socket.get(), greeting);
  for (int i = 0; i < 2 * pings; ++i) {
    const std::string next = hear(v.socket.get(), after(moment));
    if (next == "back") break;
    say(v.socket.get(), next);
  }
  // To the address it came from, and to no other.
  sockaddr_in back = v.from;
  back.sin_port = htons(static_cast<std::uint16_t>(port));
  const attempt a =
      connect_once(reinterpret_cast<const sockaddr*>(&back), sizeof(back), after(way_back));
  f.back = a.how;
  f.back_why = a.why;
  say(v.socket.get(), "back " + std::to_string(static_cast<int>(a.how)) + " " + a.why);
  return true;
}

std::optional<visitor> next_visitor(int listening, time_point end) {
  while (clock::now() < end) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - clock::now()).count();
    pollfd p{listening, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(std::clamp<long>(left, 0, 600'000))) <= 0) continue;
    visitor v;
    socklen_t length = sizeof(v.from);
    v.socket =
        descriptor(accept4(listening, reinterpret_cast<sockaddr*>(&v.from), &length, SOCK_CLOEXEC));
    const int on = 1;
    if (!v.socket.open()) continue;
    setsockopt(v.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return v;
  }
  return std::nullopt;
}

}  // namespace

reach_facts answer_reach(int port, std::chrono::seconds timeout,
                         const std::function<void(const std::string& address)>& ready) {
  const auto here = world_impl::listen_tcp("0.0.0.0", port, world_impl::advertised_host());
  const std::string address = here.address.substr(std::strlen("tcp:"));
  ready(address);
  const auto end = after(timeout);
  for (auto v = next_visitor(here.socket.get(), end); v; v = next_visitor(here.socket.get(), end)) {
    reach_facts f;
    try {
      if (serve(*v, f)) return f;
    } catch (const error& e) {
      if (!f.answered) continue;  // not one of ours
      f.back = passage::failed;
      f.back_why = e.what();
      return f;
    }
  }
  reach_facts nobody;
  nobody.where = address;
  nobody.there = passage::timed_out;
  return nobody;
}

}  // namespace crosswarp::tool::doctor_impl
