#include "socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <thread>

namespace crosswarp::world_impl {

static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

void descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

// ---- addresses

namespace {

descriptor make_socket(int family, int flags = 0) {
  descriptor s(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!s.open()) throw error::from_errno(errno, "socket");
  return s;
}

struct unix_name {
  sockaddr_un address{};
  socklen_t length = 0;
  explicit unix_name(const std::string& name) {
    address.sun_family = AF_UNIX;
    if (name.size() + 1 >= sizeof(address.sun_path)) {
      throw error(errc::invalid_argument, "unix socket", "name too long: " + name);
    }
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
};

struct host_port {
  std::string host;
  std::string port;
};

host_port split(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (!address.starts_with("tcp:") || colon <= 4) {
    throw error(errc::invalid_argument, "bootstrap address",
                "'" + address + "' is neither tcp:HOST:PORT nor unix:@NAME");
  }
  return {address.substr(4, colon - 4), address.substr(colon + 1)};
}

descriptor try_unix(const std::string& name) {
  const unix_name where(name);
  descriptor s = make_socket(AF_UNIX);
  if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&where.address), where.length) == 0) {
    return s;
  }
  if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR && errno != ENOENT) {
    throw error::from_errno(errno, "connect", "unix:@" + name);
  }
  return descriptor();
}

descriptor try_tcp(const std::string& address) {
  const host_port where = split(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int bad = getaddrinfo(where.host.c_str(), where.port.c_str(), &hints, &found)) {
    throw error(errc::system, "connect", address + ": " + gai_strerror(bad));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    descriptor s = make_socket(a->ai_family);
    if (::connect(s.get(), a->ai_addr, a->ai_addrlen) == 0) {
      const int on = 1;
      setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return s;
    }
  }
  return descriptor();
}

}  // namespace

listener listen_tcp(const std::string& host, int port, const std::string& advertised) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &a.sin_addr) != 1) {
    throw error(errc::invalid_argument, "listen", host + " is not an IPv4 address");
  }
  descriptor s = make_socket(AF_INET, SOCK_NONBLOCK);
  const int on = 1;
  setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  socklen_t length = sizeof(a);
  if (::bind(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0 ||
      ::listen(s.get(), 1024) != 0 ||
      getsockname(s.get(), reinterpret_cast<sockaddr*>(&a), &length) != 0) {
    throw error::from_errno(errno, "listen", host + ":" + std::to_string(port));
  }
  return {std::move(s), "tcp:" + advertised + ":" + std::to_string(ntohs(a.sin_port))};
}

listener listen_unix(const std::string& name) {
  const unix_name where(name);
  descriptor s = make_socket(AF_UNIX, SOCK_NONBLOCK);
  if (::bind(s.get(), reinterpret_cast<const sockaddr*>(&where.address), where.length) != 0 ||
      ::listen(s.get(), 1024) != 0) {
    throw error::from_errno(errno, "listen", "unix:@" + name);
  }
  return {std::move(s), "unix:@" + name};
}

descriptor connect_to(const std::string& address, time_point deadline) {
  constexpr std::string_view unix_prefix = "unix:@";
  for (auto pause = std::chrono::milliseconds(1);;
       pause = std::min(pause * 2, decltype(pause)(50))) {
    descriptor s = address.starts_with(unix_prefix) ? try_unix(address.substr(unix_prefix.size()))
                                                    : try_tcp(address);
    if (s.open()) return s;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw error(errc::timeout, "connect", "nobody listens at " + address);
    }
    std::this_thread::sleep_for(pause);
  }
}

std::string advertised_host() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(found, freeifaddrs);
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
    const bool usable = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET &&
                        (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* a = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (inet_ntop(AF_INET, &a->sin_addr, text, sizeof(text)) != nullptr) return text;
  }
  return "127.0.0.1";
}

bool same_user(int fd) noexcept {
  ucred other{};
  socklen_t length = sizeof(other);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

// ---- packing

packer& packer::raw(const void* p, std::size_t n) {
  const auto* b = static_cast<const std::byte*>(p);
  data_.insert(data_.end(), b, b + n);
  return *this;
}
packer& packer::blob(std::span<const std::byte> b) {
  return u64(b.size()).raw(b.data(), b.size());
}
packer& packer::text(const std::string& s) {
  return blob(std::as_bytes(std::span(s)));
}

void unpacker::raw(void* p, std::size_t n) {
  if (n > data_.size()) throw error(errc::refused, "bootstrap", "a message is cut short");
  if (n > 0) std::memcpy(p, data_.data(), n);
  data_ = data_.subspan(n);
}
std::uint32_t unpacker::u32() {
  std::uint32_t v = 0;
  raw(&v, sizeof(v));
  return v;
}
std::uint64_t unpacker::u64() {
  std::uint64_t v = 0;
  raw(&v, sizeof(v));
  return v;
}
bytes unpacker::blob() {
  const std::uint64_t n = u64();
  if (n > data_.size()) throw error(errc::refused, "bootstrap", "a message is cut short");
  bytes b(n);
  raw(b.data(), n);
  return b;
}
std::string unpacker::text() {
  const bytes b = blob();
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// ---- frames

bytes encode(const frame& f) {
  packer p;
  p.u32(static_cast<std::uint32_t>(f.body.size())).u32(f.type).raw(f.body.data(), f.body.size());
  return p.take();
}

bool decode(bytes& in, frame& out, std::size_t limit) {
  if (in.size() < frame_header) return false;
  unpacker header(in);
  const std::size_t length = header.u32();
  out.type = header.u32();
  if (length > limit) throw error(errc::refused, "bootstrap", "a message is too long");
  if (in.size() < frame_header + length) return false;
  const auto body = in.begin() + static_cast<std::ptrdiff_t>(frame_header);
  const auto end = body + static_cast<std::ptrdiff_t>(length);
  out.body.assign(body, end);
  in.erase(in.begin(), end);
  return true;
}

namespace {

/// Waits until the socket is ready for `events`.
void await(int fd, short events, time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) throw error(errc::timeout, "bootstrap", "no answer in time");
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<long>(left.count() + 1, 60'000)));
    if (n > 0) return;
    if (n < 0 && errno != EINTR) throw error::from_errno(errno, "poll");
  }
}

[[noreturn]] void throw_closed() {
  throw error(errc::peer_lost, "bootstrap", "the connection was closed");
}

}  // namespace

void send_all(int fd, std::span<const std::byte> data, time_point deadline) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      data = data.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(fd, POLLOUT, deadline);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      throw_closed();
    } else if (errno != EINTR) {
      throw error::from_errno(errno, "send");
    }
  }
}

void receive_all(int fd, std::span<std::byte> data, time_point deadline) {
  while (!data.empty()) {
    const ssize_t n = ::recv(fd, data.data(), data.size(), MSG_DONTWAIT);
    if (n > 0) {
      data = data.subspan(static_cast<std::size_t>(n));
    } else if (n == 0 || errno == ECONNRESET) {
      throw_closed();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(fd, POLLIN, deadline);
    } else if (errno != EINTR) {
      throw error::from_errno(errno, "recv");
    }
  }
}

void send_frame(int fd, const frame& f, time_point deadline) {
  send_all(fd, encode(f), deadline);
}

frame receive_frame(int fd, std::size_t limit, time_point deadline) {
  bytes head(frame_header);
  receive_all(fd, head, deadline);
  unpacker u(head);
  const std::size_t length = u.u32();
  frame f{u.u32(), {}};
  if (length > limit) throw error(errc::refused, "bootstrap", "a message is too long");
  f.body.resize(length);
  receive_all(fd, f.body, deadline);
  return f;
}

// ---- descriptors

namespace {
constexpr std::size_t batch = 200;  // the kernel takes 253 in one message
}

void send_descriptors(int fd, std::span<const int> fds, time_point deadline) {
  for (std::size_t at = 0; at < fds.size(); at += batch) {
    const auto part = fds.subspan(at, std::min(batch, fds.size() - at));
    std::byte one{1};
    iovec io{&one, 1};
    bytes control(CMSG_SPACE(part.size_bytes()));
    msghdr m{};
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(part.size_bytes());
    std::memcpy(CMSG_DATA(c), part.data(), part.size_bytes());
    while (::sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (errno == EPIPE || errno == ECONNRESET) throw_closed();
      if (errno != EAGAIN && errno != EINTR) throw error::from_errno(errno, "sendmsg");
      await(fd, POLLOUT, deadline);
    }
  }
}

std::vector<descriptor> receive_descriptors(int fd, std::size_t count, time_point deadline) {
  std::vector<descriptor> all;
  while (all.size() < count) {
    await(fd, POLLIN, deadline);
    std::byte one{};
    iovec io{&one, 1};
    bytes control(CMSG_SPACE(batch * sizeof(int)));
    msghdr m{};
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n == 0) throw_closed();
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) throw error::from_errno(errno, "recvmsg");
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < got; ++i) {
        int value = -1;
        std::memcpy(&value, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        all.emplace_back(value);
      }
    }
    if ((m.msg_flags & MSG_CTRUNC) != 0) {
      throw error(errc::system, "recvmsg",
                  "descriptors were cut off: raise the limit of open files");
    }
  }
  return all;
}

// ---- proofs

namespace {

struct sip_state {
  std::uint64_t v0, v1, v2, v3;
  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13);
    v1 ^= v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16);
    v3 ^= v2;
    v0 += v3;
    v3 = std::rotl(v3, 21);
    v3 ^= v0;
    v2 += v1;
    v1 = std::rotl(v1, 17);
    v1 ^= v2;
    v2 = std::rotl(v2, 32);
  }
  void absorb(std::uint64_t m) {
    v3 ^= m;
    round();
    round();
    v0 ^= m;
  }
};

std::uint64_t siphash(std::uint64_t k0, std::uint64_t k1, std::span<const std::byte> data) {
  sip_state s{k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL, k0 ^ 0x6c7967656e657261ULL,
              k1 ^ 0x7465646279746573ULL};
  const std::uint64_t length = data.size();
  for (; data.size() >= 8; data = data.subspan(8)) {
    std::uint64_t m = 0;
    std::memcpy(&m, data.data(), 8);
    s.absorb(m);
  }
  std::uint64_t last = length << 56U;
  for (std::size_t i = 0; i < data.size(); ++i) {
    last |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  }
  s.absorb(last);
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) s.round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace

proof prove(const secret_key& s, std::span<const std::byte> statement) {
  std::uint64_t k[2];
  std::memcpy(k, s.data(), sizeof(k));
  const std::uint64_t halves[2] = {siphash(k[0], k[1], statement),
                                   siphash(~k[1], k[0] ^ 0xa5a5a5a5a5a5a5a5ULL, statement)};
  proof p{};
  std::memcpy(p.data(), halves, sizeof(halves));
  return p;
}

bool equal(const proof& a, const proof& b) noexcept {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace crosswarp::world_impl
