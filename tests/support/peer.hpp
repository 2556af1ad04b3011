// The other end of a connection, scripted: plain system calls that block, with a deadline.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "crosswarp/buffer.hpp"
#include "transports/tcp/address.hpp"

/// Until `f()`, for some seconds.
template <class F>
bool eventually(F&& f) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!f()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// How many threads serve sockets, where a test does not care.
inline int socket_threads() {
  const char* const asked = std::getenv("CROSSWARP_TEST_SOCKET_THREADS");
  return asked == nullptr ? 1 : std::atoi(asked);
}

/// Where their rings are, where a test does not care: CROSSWARP_TEST_SOCKET_RINGS=device.
inline crosswarp::memory_kind socket_rings() {
  const char* const asked = std::getenv("CROSSWARP_TEST_SOCKET_RINGS");
  return asked != nullptr && std::string(asked) == "device" ? crosswarp::memory_kind::device
                                                            : crosswarp::memory_kind::pinned;
}

class peer {
 public:
  explicit peer(int fd) noexcept : fd_(fd) {}
  explicit peer(const crosswarp::device::socket::address& a) {
    const auto where = crosswarp::tcp::to_system(a);
    fd_ = socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int r = connect(fd_, reinterpret_cast<const sockaddr*>(&where.storage), where.bytes);
    EXPECT_EQ(r, 0) << errno;
  }
  peer(peer&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  peer& operator=(peer&&) = delete;
  ~peer() { close(); }

  [[nodiscard]] crosswarp::device::socket::address peer_name() const {
    return crosswarp::tcp::peer_name(fd_);
  }
  [[nodiscard]] int descriptor() const noexcept { return fd_; }

  /// Number of bytes that were taken; less when the other end does not read.
  std::size_t write(const std::string& text, int patience_ms = patience) const {
    std::size_t done = 0;
    while (done < text.size() && wait_for(POLLOUT, patience_ms)) {
      const ssize_t n =
          ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }
  /// At most `n` bytes: fewer when the stream ends or fails, see `error`.
  std::string read(std::size_t n) {
    std::string all(n, '\0');
    std::size_t done = 0;
    while (done < n) {
      EXPECT_TRUE(wait_for(POLLIN, patience)) << "nothing came";
      const ssize_t got = ::recv(fd_, all.data() + done, n - done, MSG_DONTWAIT);
      if (got <= 0) {
        error = got < 0 ? errno : 0;
        break;
      }
      done += static_cast<std::size_t>(got);
    }
    all.resize(done);
    return all;
  }
  std::string read_to_end() {
    std::string all;
    for (std::string some = read(1); !some.empty(); some = read(1)) all += some;
    return all;
  }
  /// Sends no more.
  void end() const { shutdown(fd_, SHUT_WR); }
  void close() noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() noexcept {
    crosswarp::tcp::reset_on_close(fd_);
    close();
  }

  int error = 0;  ///< of the last read()

 private:
  static constexpr int patience = 20'000;
  [[nodiscard]] bool wait_for(short what, int ms) const {
    pollfd p{fd_, what, 0};
    return poll(&p, 1, ms) == 1;
  }
  int fd_ = -1;
};

class listening_peer {
 public:
  explicit listening_peer(
      const crosswarp::device::socket::address& a = crosswarp::device::socket::address::loopback(0),
      int backlog = 16)
      : fd_(crosswarp::tcp::make_listener(crosswarp::tcp::to_system(a), backlog)) {
    EXPECT_GE(fd_, 0);
  }
  listening_peer(const listening_peer&) = delete;
  listening_peer& operator=(const listening_peer&) = delete;
  ~listening_peer() { ::close(fd_); }
  [[nodiscard]] crosswarp::device::socket::address name() const {
    return crosswarp::tcp::own_name(fd_);
  }
  [[nodiscard]] peer accept() const {
    pollfd p{fd_, POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 20'000), 1) << "nobody connects";
    return peer(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  int fd_;
};
