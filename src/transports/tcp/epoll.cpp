// The engine that is always there: system calls when epoll says that they will succeed.
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "crosswarp/error.hpp"
#include "socket/engine.hpp"
#include "transports/tcp/address.hpp"

namespace crosswarp::socket_impl {

namespace {

class epoll_engine final : public engine {
 public:
  epoll_engine() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) throw error::from_errno(errno, "epoll_create1");
  }
  ~epoll_engine() override { close(epoll_); }

  int add(std::uint32_t token, int fd) override {
    if (token >= all_.size()) all_.resize(token + 1);
    watched& w = all_[token];
    w = {.fd = fd, .life = w.life + 1};
    epoll_event e{};
    // Told once for each change: what nobody asks for now is remembered, and costs nothing.
    e.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    e.data.u64 = std::uint64_t{w.life} << 32U | token;
    return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
  }

  bool remove(std::uint32_t token) override {
    watched& w = all_[token];
    epoll_ctl(epoll_, EPOLL_CTL_DEL, w.fd, nullptr);
    ++w.life;  // events that were fetched already are another one's
    w.fd = -1;
    return false;  // what nobody asked for is with Linux
  }

  int receive(std::uint32_t token, std::span<iovec> to) override {
    watched& w = all_[token];
    return attempt(w.readable, [&] {
      const ssize_t n = readv(w.fd, to.data(), static_cast<int>(to.size()));
      // Less than there was room for: nothing is left, unless the end is, or a mark stopped it.
      if (n > 0 && !w.ends && static_cast<std::size_t>(n) < bytes_of(to)) w.readable = false;
      return n;
    });
  }

  int send(std::uint32_t token, std::span<iovec> from) override {
    watched& w = all_[token];
    return attempt(w.writable, [&] {
      msghdr m{};
      m.msg_iov = from.data();
      m.msg_iovlen = from.size();
      return sendmsg(w.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
  }

  int accept(std::uint32_t token, sockaddr_storage& peer, socklen_t& bytes) override {
    watched& w = all_[token];
    return attempt(w.readable, [&] {
      bytes = sizeof(peer);
      return accept4(w.fd, reinterpret_cast<sockaddr*>(&peer), &bytes,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
  }

  int connect(std::uint32_t token, const sockaddr_storage& where, socklen_t bytes) override {
    watched& w = all_[token];
    const int failed =
        ::connect(w.fd, reinterpret_cast<const sockaddr*>(&where), bytes) == 0 ? 0 : errno;
    w.connecting = failed == EINPROGRESS;
    w.knocking = failed == EAGAIN;
    return w.connecting ? in_progress : -failed;
  }

  void look(std::vector<completion>& done) override {
    std::array<epoll_event, 256> events;
    const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < n; ++i) note(events[static_cast<std::size_t>(i)], done);
  }
  [[nodiscard]] bool gathers() const noexcept override { return false; }
  [[nodiscard]] int descriptor() const noexcept override { return epoll_; }

 private:
  struct watched {
    int fd = -1;
    std::uint32_t life = 0;
    bool readable = true;  ///< or not known
    bool writable = true;
    /// The peer has ended, or it failed: to be read until that is seen. Or it has sent urgent data,
    /// whose mark ends a read though more is there.
    bool ends = false;
    bool connecting = false;
    bool knocking = false;  ///< connect() is to be tried again
  };

  static std::size_t bytes_of(std::span<iovec> all) {
    std::size_t n = 0;
    for (const iovec& v : all) n += v.iov_len;
    return n;
  }

  /// `call` if it may succeed.
  template <class F>
  static int attempt(bool& ready, F&& call) {
    while (ready) {
      const auto n = call();
      if (n >= 0) return static_cast<int>(n);
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return -errno;
      ready = false;
    }
    return in_progress;
  }

  void note(const epoll_event& e, std::vector<completion>& done) {
    const auto token = static_cast<std::uint32_t>(e.data.u64);
    watched& w = all_[token];
    // What is not connected hangs up, which says nothing of what it will be.
    if (w.life != e.data.u64 >> 32U || w.knocking) return;
    const bool over = (e.events & (EPOLLERR | EPOLLHUP)) != 0;
    if (w.connecting) {
      if (!over && (e.events & EPOLLOUT) == 0) return;
      w.connecting = false;
      done.push_back({token, direction::output, -tcp::pending_error(w.fd)});
      return;
    }
    if (over || (e.events & (EPOLLRDHUP | EPOLLPRI)) != 0) w.ends = true;
    if (over || (e.events & (EPOLLIN | EPOLLPRI | EPOLLRDHUP)) != 0) {
      w.readable = true;
      done.push_back({token, direction::input, -EAGAIN});
    }
    if (over || (e.events & EPOLLOUT) != 0) {
      w.writable = true;
      done.push_back({token, direction::output, -EAGAIN});
    }
    if (over) done.push_back({token, direction::end, 0});
  }

  int epoll_;
  std::vector<watched> all_;
};

}  // namespace

std::unique_ptr<engine> make_epoll_engine() {
  return std::make_unique<epoll_engine>();
}

}  // namespace crosswarp::socket_impl
