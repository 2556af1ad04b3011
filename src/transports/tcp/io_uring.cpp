// The engine of completions: operations are given to Linux many at a time and complete by
// themselves, so that a turn of the worker costs one system call, and one with nothing to do none.
//
// Any thread of those who work in turn may give them. An operation completes on the thread that
// gave it; when that has ended, Linux cancels it, and it is given again by another.
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>

#include "crosswarp/error.hpp"
#include "socket/engine.hpp"
#include "transports/tcp/address.hpp"

namespace crosswarp::socket_impl {

namespace {

class uring_engine final : public engine {
 public:
  uring_engine() {
    constexpr unsigned given_at_once = 256;
    io_uring_params p{};
    p.flags = IORING_SETUP_CQSIZE;
    p.cq_entries = 4096;
    const int failed = io_uring_queue_init_params(given_at_once, &ring_, &p);
    if (failed < 0) throw error::from_errno(-failed, "io_uring_setup");
    // The last one came with Linux 5.13, and so did polls that stay.
    constexpr unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE |
                                IORING_FEAT_EXT_ARG | IORING_FEAT_RSRC_TAGS;
    if ((p.features & needed) == needed) return;
    io_uring_queue_exit(&ring_);
    throw error(errc::not_supported, "io_uring", "Linux is older than 5.13");
  }
  ~uring_engine() override { io_uring_queue_exit(&ring_); }

  int add(std::uint32_t token, int fd) override {
    if (token >= all_.size()) all_.resize(token + 1);
    all_[token].fd = fd;
    return 0;
  }

  bool remove(std::uint32_t token) override {
    watched& w = all_[token];
    w.leaves = true;
    for (unsigned k = 0; k < kinds; ++k) {
      if (w.is_busy(kind{k}))
        give(token, kind::cancel,
             [&](io_uring_sqe* s) { io_uring_prep_cancel64(s, tag(token, kind{k}), 0); });
    }
    // Linux may be writing to its memory until all of it has completed.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (w.busy != 0) {
      submit_and_wait();
      collect();
      if (w.busy != 0 && std::chrono::steady_clock::now() > limit) {
        throw error(errc::timeout, "io_uring", "an operation was cancelled and does not end");
      }
    }
    w.fd = -1;
    w.leaves = false;
    const bool unread = std::any_of(ready_.begin(), ready_.end(), [&](const completion& c) {
      return c.token == token && c.which == direction::input && c.result > 0;
    });
    std::erase_if(ready_, [&](const completion& c) { return c.token == token; });
    return unread;
  }

  int receive(std::uint32_t token, std::span<iovec> to) override {
    watched& w = all_[token];
    give(token, kind::receive, [&](io_uring_sqe* s) {
      if (to.size() == 1) {
        io_uring_prep_recv(s, w.fd, to[0].iov_base, to[0].iov_len, 0);
      } else {
        io_uring_prep_recvmsg(s, w.fd, w.input.hold(to), 0);
      }
    });
    return in_progress;
  }

  int send(std::uint32_t token, std::span<iovec> from) override {
    watched& w = all_[token];
    give(token, kind::send, [&](io_uring_sqe* s) {
      if (from.size() == 1) {
        io_uring_prep_send(s, w.fd, from[0].iov_base, from[0].iov_len, MSG_NOSIGNAL);
      } else {
        io_uring_prep_sendmsg(s, w.fd, w.output.hold(from), MSG_NOSIGNAL);
      }
    });
    return in_progress;
  }

  /// Not given to Linux: it would accept before there is a place, and after one was taken.
  int accept(std::uint32_t token, sockaddr_storage& peer, socklen_t& bytes) override {
    watched& w = all_[token];
    for (;;) {
      bytes = sizeof(peer);
      // It blocks, which is what makes operations wait.
      const int fd = accept4(w.fd, reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_CLOEXEC);
      if (fd >= 0) return fd;
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return -errno;
      give(token, kind::acceptable,
           [&](io_uring_sqe* s) { io_uring_prep_poll_add(s, w.fd, POLLIN); });
      return in_progress;
    }
  }

  int connect(std::uint32_t token, const sockaddr_storage& where, socklen_t bytes) override {
    watched& w = all_[token];
    if (::connect(w.fd, reinterpret_cast<const sockaddr*>(&where), bytes) == 0) {
      return let_block(w.fd);
    }
    if (errno != EINPROGRESS) return -errno;
    give(token, kind::connected,
         [&](io_uring_sqe* s) { io_uring_prep_poll_add(s, w.fd, POLLOUT); });
    return in_progress;
  }

  void look(std::vector<completion>& done) override {
    // What Linux does not take now stays, and is given again with the next look.
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
    if (io_uring_cq_has_overflow(&ring_)) io_uring_get_events(&ring_);
    collect();
    done.insert(done.end(), ready_.begin(), ready_.end());
    ready_.clear();
  }
  [[nodiscard]] bool gathers() const noexcept override { return true; }
  [[nodiscard]] int descriptor() const noexcept override { return ring_.ring_fd; }

 private:
  enum class kind : unsigned { receive, send, acceptable, connected, end, cancel };
  static constexpr unsigned kinds = 5;  // without `cancel`, which nobody waits for

  /// What Linux reads when the operation is given.
  struct message {
    msghdr header{};
    std::array<iovec, 2> pieces{};
    msghdr* hold(std::span<iovec> all) {
      std::copy(all.begin(), all.end(), pieces.begin());
      header.msg_iov = pieces.data();
      header.msg_iovlen = all.size();
      return &header;
    }
  };
  struct watched {
    int fd = -1;
    unsigned busy = 0;    ///< kinds of operations that Linux has
    bool leaves = false;  ///< and is to have no more of
    message input;
    message output;
    [[nodiscard]] bool is_busy(kind k) const noexcept { return (busy >> bit(k) & 1U) != 0; }
  };

  static unsigned bit(kind k) noexcept { return static_cast<unsigned>(k); }
  static std::uint64_t tag(std::uint32_t token, kind k) noexcept {
    return std::uint64_t{bit(k)} << 32U | token;
  }

  template <class F>
  void give(std::uint32_t token, kind k, F&& prepare) {
    io_uring_sqe* s = io_uring_get_sqe(&ring_);
    if (s == nullptr) {
      io_uring_submit(&ring_);
      s = io_uring_get_sqe(&ring_);
    }
    if (s == nullptr) throw error(errc::system, "io_uring", "Linux takes no more operations");
    prepare(s);
    io_uring_sqe_set_data64(s, tag(token, k));
    if (k != kind::cancel) all_[token].busy |= 1U << bit(k);
  }

  void submit_and_wait() {
    io_uring_cqe* first = nullptr;
    __kernel_timespec limit{0, 10'000'000};
    io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
  }

  void collect() {
    unsigned head = 0;
    unsigned seen = 0;
    const io_uring_cqe* c = nullptr;
    io_uring_for_each_cqe(&ring_, head, c) {
      note(*c);
      ++seen;
    }
    io_uring_cq_advance(&ring_, seen);
  }

  void note(const io_uring_cqe& c) {
    const auto token = static_cast<std::uint32_t>(c.user_data);
    const kind k{static_cast<unsigned>(c.user_data >> 32U)};
    if (k == kind::cancel) return;
    watched& w = all_[token];
    if ((c.flags & IORING_CQE_F_MORE) == 0) w.busy &= ~(1U << bit(k));
    const bool again = c.res == -ECANCELED || c.res == -EINTR || c.res == -EAGAIN;
    const int result = again ? -EAGAIN : c.res;
    switch (k) {
      case kind::receive:
        if (result == 0 && !w.leaves) watch_end(token);
        ready_.push_back({token, direction::input, result});
        break;
      case kind::send:
        ready_.push_back({token, direction::output, result});
        break;
      case kind::acceptable:
        ready_.push_back({token, direction::input, -EAGAIN});
        break;
      case kind::connected:
        if (!w.leaves) note_connected(token, again);
        break;
      case kind::end:
        if (result > 0 && (result & (POLLERR | POLLHUP)) != 0) {
          ready_.push_back({token, direction::end, 0});
        }
        break;
      case kind::cancel:
        break;
    }
  }

  void note_connected(std::uint32_t token, bool again) {
    watched& w = all_[token];
    if (again) {
      give(token, kind::connected,
           [&](io_uring_sqe* s) { io_uring_prep_poll_add(s, w.fd, POLLOUT); });
      return;
    }
    const int failed = tcp::pending_error(w.fd);
    ready_.push_back({token, direction::output, failed != 0 ? -failed : let_block(w.fd)});
  }

  /// After the end of the stream nobody receives, who would learn of a reset. A poll that stays,
  /// because one that does not would end at once, with POLLRDHUP.
  void watch_end(std::uint32_t token) {
    watched& w = all_[token];
    give(token, kind::end, [&](io_uring_sqe* s) { io_uring_prep_poll_multishot(s, w.fd, 0); });
  }

  /// Operations on what does not block would not wait either.
  static int let_block(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 ? 0 : -errno;
  }

  io_uring ring_{};
  std::deque<watched> all_;  // stays where it is when it grows: operations point to it
  std::vector<completion> ready_;
};

}  // namespace

std::unique_ptr<engine> make_uring_engine() {
  return std::make_unique<uring_engine>();
}

}  // namespace crosswarp::socket_impl
