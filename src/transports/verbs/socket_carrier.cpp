// Frames between processes of one machine: Unix-domain sockets, by which a process's end is noticed
// at once.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <random>

#include "core/machine.hpp"
#include "crosswarp/error.hpp"
#include "transports/verbs/carrier.hpp"

namespace crosswarp::verbs {
namespace {

/// What an address says of such a carrier.
struct socket_route {
  char kind[8] = {'s', 'o', 'c', 'k', 'e', 't', 0, 0};
  char machine[64] = {};
  std::uint64_t name = 0;
};

socket_route route_here() {
  socket_route r;
  const std::string here = machine_name();
  std::memcpy(r.machine, here.data(), std::min(here.size(), sizeof(r.machine)));
  std::random_device random;
  r.name = static_cast<std::uint64_t>(random()) << 32U | random();
  return r;
}

/// In the abstract namespace: nothing is left behind when a process dies.
struct socket_name {
  explicit socket_name(std::uint64_t name) {
    address.sun_family = AF_UNIX;
    const std::string text = "crosswarp-rdma-" + std::to_string(name);
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }
  sockaddr_un address{};
  socklen_t length = 0;
};

class owned_descriptor {
 public:
  explicit owned_descriptor(int fd) noexcept : fd_(fd) {}
  ~owned_descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  owned_descriptor(const owned_descriptor&) = delete;
  owned_descriptor& operator=(const owned_descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

int new_socket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/// Who is at the other end runs for the same user: nobody else has a say in this memory.
bool is_same_user(int fd) {
  ucred other{};
  socklen_t length = sizeof(other);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

class socket_carrier final : public carrier {
 public:
  socket_carrier()
      : here_(route_here()), listener_(new_socket()), poll_(epoll_create1(EPOLL_CLOEXEC)) {
    const socket_name name(here_.name);
    if (listener_.get() < 0 || poll_.get() < 0 ||
        bind(listener_.get(), name.data(), name.length) != 0 ||
        listen(listener_.get(), SOMAXCONN) != 0 ||
        !watch(EPOLL_CTL_ADD, listener_.get(), 0, EPOLLIN)) {
      throw error::from_errno(errno, "rdma", "a socket for other processes of this machine");
    }
    route_.resize(sizeof(here_));
    std::memcpy(route_.data(), &here_, sizeof(here_));
  }

  [[nodiscard]] const std::vector<std::byte>& route() const noexcept override { return route_; }

  [[nodiscard]] std::string why_not(std::span<const std::byte> route) const override {
    socket_route there;
    if (!read_route(route, there))
      return "its process does not use sockets; see CROSSWARP_RDMA_WIRE";
    if (std::memcmp(there.machine, here_.machine, sizeof(there.machine)) != 0) {
      return "it is on another machine, which only UCX reaches: CROSSWARP_RDMA_WIRE=ucx";
    }
    const owned_descriptor probe(new_socket());
    const socket_name name(there.name);
    if (connect(probe.get(), name.data(), name.length) == 0 || errno == EAGAIN) return {};
    return "its process has ended, or its context";
  }

  line open(std::span<const std::byte> route) override {
    socket_route there;
    if (!read_route(route, there)) return 0;
    const int fd = new_socket();
    if (fd < 0) return 0;
    const socket_name name(there.name);
    // Never waits: who listens has room for it, or has not.
    if (connect(fd, name.data(), name.length) != 0 || !is_same_user(fd)) {
      close(fd);
      return 0;
    }
    return add(fd, true);
  }

  void send(line to, std::vector<std::byte> frame) override {
    const auto it = lines_.find(to);
    if (it == lines_.end() || it->second.broken) return;
    connection& c = it->second;
    c.queued += frame.size();
    c.out.push_back(std::move(frame));
    if (!c.blocked) flush(to, c);
  }

  bool progress(user& u) override {
    // Nobody is connected most of the time.
    constexpr int rarely = 64;
    if (lines_.empty() && ++looks_ % rarely != 0) return false;
    epoll_event events[32];
    const int n = epoll_wait(poll_.get(), events, std::size(events), 0);
    bool moved = false;
    for (int i = 0; i < n; ++i) {
      const line which = events[i].data.u64;
      if (which == 0) {
        accept_all();
        continue;
      }
      const auto it = lines_.find(which);
      if (it == lines_.end()) continue;
      if ((events[i].events & EPOLLOUT) != 0) flush(which, it->second);
      if ((events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0)
        hear(which, it->second, u);
      moved = true;
    }
    while (!broken_.empty()) {
      const line which = broken_.back();
      broken_.pop_back();
      lines_.erase(which);
      u.lost(which);
      moved = true;
    }
    return moved;
  }

  [[nodiscard]] int descriptor() const noexcept override { return poll_.get(); }

 private:
  struct connection {
    connection(int f, bool opened) : fd(f), opened_here(opened) {}
    ~connection() { close(fd); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    int fd;
    bool opened_here;
    bool broken = false;
    bool blocked = false;       ///< waits until there is room
    std::vector<std::byte> in;  ///< of a frame that is not whole
    std::deque<std::vector<std::byte>> out;
    std::size_t sent = 0;  ///< of the first of them
    std::size_t queued = 0;
  };

  static bool read_route(std::span<const std::byte> route, socket_route& r) {
    const socket_route model;
    if (route.size() != sizeof(r)) return false;
    std::memcpy(&r, route.data(), sizeof(r));
    return std::memcmp(r.kind, model.kind, sizeof(r.kind)) == 0;
  }

  bool watch(int how, int fd, line which, std::uint32_t events) {
    epoll_event e{};
    e.events = events;
    e.data.u64 = which;
    return epoll_ctl(poll_.get(), how, fd, &e) == 0;
  }

  line add(int fd, bool opened_here) {
    const line which = ++last_;
    if (!watch(EPOLL_CTL_ADD, fd, which, EPOLLIN | EPOLLRDHUP)) {
      close(fd);
      return 0;
    }
    lines_.try_emplace(which, fd, opened_here);
    return which;
  }

  void accept_all() {
    for (;;) {
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      if (is_same_user(fd)) {
        add(fd, false);
      } else {
        close(fd);
      }
    }
  }

  void give_up(line which, connection& c) {
    if (!c.broken) broken_.push_back(which);
    c.broken = true;
  }

  /// As much as there is room for.
  void flush(line which, connection& c) {
    bool full = false;
    while (!c.out.empty() && !full && !c.broken) {
      std::vector<std::byte>& first = c.out.front();
      auto bytes = static_cast<std::uint32_t>(first.size());
      const std::size_t of_length = std::min(c.sent, sizeof(bytes));
      const std::size_t of_frame = c.sent - of_length;
      iovec parts[2] = {
          {reinterpret_cast<std::byte*>(&bytes) + of_length, sizeof(bytes) - of_length},
          {first.data() + of_frame, first.size() - of_frame}};
      msghdr m{};
      m.msg_iov = parts;
      m.msg_iovlen = std::size(parts);
      const ssize_t n = sendmsg(c.fd, &m, MSG_NOSIGNAL);
      if (n < 0) {
        full = errno == EAGAIN;
        if (!full && errno != EINTR) give_up(which, c);
        continue;
      }
      c.sent += static_cast<std::size_t>(n);
      if (c.sent < sizeof(bytes) + first.size()) continue;
      c.queued -= first.size();
      c.out.pop_front();
      c.sent = 0;
    }
    // Who asks for more than any NIC does, and takes none of it, is none.
    constexpr std::size_t most_queued = std::size_t{256} << 20U;
    if (c.queued > most_queued) give_up(which, c);
    if (full == c.blocked) return;
    c.blocked = full;
    watch(EPOLL_CTL_MOD, c.fd, which, EPOLLIN | EPOLLRDHUP | (full ? EPOLLOUT : 0U));
  }

  void hear(line which, connection& c, user& u) {
    // Some at a time: the NIC has other things to do.
    constexpr int reads = 8;
    for (int i = 0; i < reads && !c.broken; ++i) {
      const ssize_t n = recv(c.fd, scratch_.data(), scratch_.size(), 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) give_up(which, c);
      if (n <= 0) return;
      const std::span<const std::byte> fresh(scratch_.data(), static_cast<std::size_t>(n));
      if (c.in.empty()) {
        const std::size_t taken = take_frames(which, c, u, fresh);
        c.in.assign(fresh.begin() + static_cast<std::ptrdiff_t>(taken), fresh.end());
      } else {
        c.in.insert(c.in.end(), fresh.begin(), fresh.end());
        const std::size_t taken = take_frames(which, c, u, c.in);
        c.in.erase(c.in.begin(), c.in.begin() + static_cast<std::ptrdiff_t>(taken));
      }
      if (fresh.size() < scratch_.size()) return;
    }
  }

  /// The bytes of whole frames, which `u` has got.
  std::size_t take_frames(line which, connection& c, user& u, std::span<const std::byte> from) {
    std::uint32_t bytes = 0;
    std::size_t at = 0;
    while (!c.broken && from.size() - at >= sizeof(bytes)) {
      std::memcpy(&bytes, from.data() + at, sizeof(bytes));
      if (bytes <= most_frame_bytes && from.size() - at - sizeof(bytes) < bytes) break;
      at += sizeof(bytes);
      if (bytes > most_frame_bytes || !u.take(which, c.opened_here, from.subspan(at, bytes))) {
        give_up(which, c);
        return at;
      }
      at += bytes;
    }
    return at;
  }

  const socket_route here_;
  std::vector<std::byte> route_;
  const owned_descriptor listener_;
  const owned_descriptor poll_;
  std::map<line, connection> lines_;
  std::vector<line> broken_;  ///< of them, not told yet
  std::vector<std::byte> scratch_ = std::vector<std::byte>(std::size_t{128} * 1024);
  line last_ = 0;
  int looks_ = 0;
};

}  // namespace

std::unique_ptr<carrier> make_socket_carrier() {
  return std::make_unique<socket_carrier>();
}

}  // namespace crosswarp::verbs
