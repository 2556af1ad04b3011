#include "address.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

namespace crosswarp::tcp {

using device::socket::address;
using device::socket::option;

// ---- addresses

namespace {

template <class T>
system_address packed(const T& a, std::size_t bytes = sizeof(T)) noexcept {
  system_address s;
  std::memcpy(&s.storage, &a, sizeof(T));
  s.bytes = static_cast<socklen_t>(bytes);
  return s;
}

template <class T>
T unpacked(const system_address& s) noexcept {
  T a{};
  std::memcpy(&a, &s.storage, std::min(sizeof(T), std::size_t{s.bytes}));
  return a;
}

constexpr std::size_t path_begin = offsetof(sockaddr_un, sun_path);

system_address local_address(const address& a) noexcept {
  const std::size_t length = strnlen(a.path, sizeof(a.path));
  if (length == 0 || length == sizeof(a.path)) return {};
  sockaddr_un u{};
  u.sun_family = AF_UNIX;
  std::memcpy(u.sun_path, a.path, length);
  const bool is_abstract = a.path[0] == '@';
  if (is_abstract) u.sun_path[0] = '\0';
  return packed(u, path_begin + length + (is_abstract ? 0 : 1));
}

}  // namespace

system_address to_system(const address& a) noexcept {
  switch (a.family) {
    case address::ipv4: {
      sockaddr_in v{};
      v.sin_family = AF_INET;
      v.sin_port = htons(a.port);
      std::memcpy(&v.sin_addr, a.host, sizeof(v.sin_addr));
      return packed(v);
    }
    case address::ipv6: {
      sockaddr_in6 v{};
      v.sin6_family = AF_INET6;
      v.sin6_port = htons(a.port);
      v.sin6_scope_id = a.scope;
      std::memcpy(&v.sin6_addr, a.host, sizeof(v.sin6_addr));
      return packed(v);
    }
    case address::local:
      return local_address(a);
    case address::none:
      break;
  }
  return {};
}

address from_system(const system_address& s) noexcept {
  address a;
  if (s.bytes < sizeof(sa_family_t)) return a;
  if (s.storage.ss_family == AF_INET) {
    const auto v = unpacked<sockaddr_in>(s);
    a.family = address::ipv4;
    a.port = ntohs(v.sin_port);
    std::memcpy(a.host, &v.sin_addr, sizeof(v.sin_addr));
  } else if (s.storage.ss_family == AF_INET6) {
    const auto v = unpacked<sockaddr_in6>(s);
    a.family = address::ipv6;
    a.port = ntohs(v.sin6_port);
    a.scope = v.sin6_scope_id;
    std::memcpy(a.host, &v.sin6_addr, sizeof(v.sin6_addr));
  } else if (s.storage.ss_family == AF_UNIX) {
    const auto u = unpacked<sockaddr_un>(s);
    a.family = address::local;
    // A peer without a name has an empty path.
    const std::size_t length = s.bytes > path_begin ? s.bytes - path_begin : 0;
    std::memcpy(a.path, u.sun_path, std::min(length, sizeof(a.path) - 1));
    if (length > 1 && a.path[0] == '\0') a.path[0] = '@';
  }
  return a;
}

address own_name(int fd) noexcept {
  system_address s;
  s.bytes = sizeof(s.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&s.storage), &s.bytes) != 0) return {};
  return from_system(s);
}

address peer_name(int fd) noexcept {
  system_address s;
  s.bytes = sizeof(s.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&s.storage), &s.bytes) != 0) return {};
  return from_system(s);
}

// ---- sockets

int make_socket(const system_address& a) noexcept {
  if (a.bytes == 0) return -EINVAL;
  const int fd = socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  return fd >= 0 ? fd : -errno;
}

namespace {

bool is_path(const address& a) noexcept {
  return a.family == address::local && a.path[0] != '@' && a.path[0] != '\0';
}

/// No file, nor a link to a socket: these are somebody's, though nobody listens there.
bool is_socket_at(const char* path) noexcept {
  struct stat s {};
  return lstat(path, &s) == 0 && S_ISSOCK(s.st_mode);
}

/// A socket that is there though nobody listens at it was left by one who died.
bool is_left_behind(const system_address& a) noexcept {
  const address named = from_system(a);
  if (!is_path(named) || !is_socket_at(named.path)) return false;
  const int fd = make_socket(a);
  if (fd < 0) return false;
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&a.storage), a.bytes);
  const bool refused = result != 0 && errno == ECONNREFUSED;
  close(fd);
  return refused;
}

int bind_to(int fd, const system_address& a) noexcept {
  return bind(fd, reinterpret_cast<const sockaddr*>(&a.storage), a.bytes) == 0 ? 0 : -errno;
}

}  // namespace

int make_listener(const system_address& a, int backlog) noexcept {
  const int fd = make_socket(a);
  if (fd < 0) return fd;
  const int on = 1;
  if (a.storage.ss_family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  int result = bind_to(fd, a);
  if (result == -EADDRINUSE && is_left_behind(a)) {
    remove_path(from_system(a));
    result = bind_to(fd, a);
  }
  if (result == 0 && listen(fd, std::max(backlog, 1)) != 0) result = -errno;
  if (result == 0) return fd;
  close(fd);
  return result;
}

void remove_path(const address& a) noexcept {
  if (is_path(a) && is_socket_at(a.path)) unlink(a.path);
}

// ---- options

namespace {

struct option_name {
  int level = -1;
  int name = 0;
};

option_name name_of(option which) noexcept {
  switch (which) {
    case option::no_delay:
      return {IPPROTO_TCP, TCP_NODELAY};
    case option::keep_alive:
      return {SOL_SOCKET, SO_KEEPALIVE};
    case option::send_buffer:
      return {SOL_SOCKET, SO_SNDBUF};
    case option::receive_buffer:
      return {SOL_SOCKET, SO_RCVBUF};
  }
  return {};
}

}  // namespace

int set_option(int fd, option which, std::int64_t value) noexcept {
  const option_name o = name_of(which);
  if (o.level < 0) return -ENOPROTOOPT;
  if (value < 0 || value > std::numeric_limits<int>::max()) return -EINVAL;
  const int v = static_cast<int>(value);
  return setsockopt(fd, o.level, o.name, &v, sizeof(v)) == 0 ? 0 : -errno;
}

std::int64_t get_option(int fd, option which) noexcept {
  const option_name o = name_of(which);
  if (o.level < 0) return -ENOPROTOOPT;
  int v = 0;
  socklen_t bytes = sizeof(v);
  return getsockopt(fd, o.level, o.name, &v, &bytes) == 0 ? v : -errno;
}

int pending_error(int fd) noexcept {
  int e = 0;
  socklen_t bytes = sizeof(e);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &bytes) == 0 ? e : errno;
}

int open_spare() noexcept {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void reset_on_close(int fd) noexcept {
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

}  // namespace crosswarp::tcp
