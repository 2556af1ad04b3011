// Sockets as the bootstrap needs them: frames, proofs of membership, descriptors.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap.hpp"

namespace crosswarp::world_impl {

/// A file descriptor that is closed once.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  ~descriptor() { reset(); }
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

using time_point = std::chrono::steady_clock::time_point;
inline time_point after(nanoseconds d) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(d);
}

/// "tcp:HOST:PORT" or "unix:@NAME" (an abstract name: nothing is left in any file system).
struct listener {
  descriptor socket;
  std::string address;  ///< what others connect to
};
/// `host` "127.0.0.1", or "0.0.0.0" for a job on several machines; port 0: any.
listener listen_tcp(const std::string& host, int port, const std::string& advertised);
listener listen_unix(const std::string& name);
/// Keeps trying until somebody listens there or the deadline passes.
descriptor connect_to(const std::string& address, time_point deadline);
/// This machine's address as others reach it.
std::string advertised_host();

/// True when the process at the other end of a Unix socket runs as the same user.
bool same_user(int fd) noexcept;

/// Bytes as they travel: integers little-endian, in order.
class packer {
 public:
  packer& u32(std::uint32_t v) { return raw(&v, sizeof(v)); }
  packer& u64(std::uint64_t v) { return raw(&v, sizeof(v)); }
  packer& raw(const void* p, std::size_t n);
  packer& blob(std::span<const std::byte> b);
  packer& text(const std::string& s);
  bytes take() { return std::move(data_); }

 private:
  bytes data_;
};

/// The reverse. Throws error(refused) when there is less than what is asked for.
class unpacker {
 public:
  explicit unpacker(std::span<const std::byte> data) : data_(data) {}
  std::uint32_t u32();
  std::uint64_t u64();
  void raw(void* p, std::size_t n);
  bytes blob();
  std::string text();

 private:
  std::span<const std::byte> data_;
};

struct frame {
  std::uint32_t type = 0;
  bytes body;
};
inline constexpr std::size_t frame_header = 8;
bytes encode(const frame& f);
/// Takes one frame off the front of `in` if a whole one is there. Throws error(refused) when it
/// announces more than `limit` bytes.
bool decode(bytes& in, frame& out, std::size_t limit);

/// Blocking, for clients. Throw error(timeout), error(peer_lost) on a closed connection.
void send_frame(int fd, const frame& f, time_point deadline);
frame receive_frame(int fd, std::size_t limit, time_point deadline);
void send_all(int fd, std::span<const std::byte> data, time_point deadline);
void receive_all(int fd, std::span<std::byte> data, time_point deadline);

/// Up to 200 descriptors with some bytes.
void send_descriptors(int fd, std::span<const int> fds, time_point deadline);
std::vector<descriptor> receive_descriptors(int fd, std::size_t count, time_point deadline);

/// A proof that its maker knows the secret, bound to what it says. SipHash-2-4 under two keys
/// derived from the secret: 128 bits, enough for a number that is good for one connection.
using proof = std::array<std::byte, 16>;
proof prove(const secret_key& s, std::span<const std::byte> statement);
bool equal(const proof& a, const proof& b) noexcept;

}  // namespace crosswarp::world_impl
