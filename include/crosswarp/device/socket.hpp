// Sockets inside kernels: byte streams to any TCP or Unix-domain peer. Linux keeps the protocol, a
// thread of the host moves bytes between its sockets and rings that kernels read and write.
//
//   const auto g = ctx.block();
//   const handle s = net.connect(g, socket::address::loopback(7000));
//   if (!s) return s.error();
//   net.send(g, s, "ping", 4);
//   const std::int64_t n = net.recv(g, s, buffer, sizeof(buffer));   // 0: the peer has ended
//   net.close(g, s);
//
// Each call is made by all threads of a group, with the same arguments, and returns the same to all
// of them. One group at a time sends to a socket, and one receives from it; they may be different
// ones. close(), abort() and shutdown() of the sending half are calls of the sender, and close()
// and abort() are made when nobody receives; who waits to receive nevertheless is told -EBADF.
// Several groups may accept from one listener.
//
// Results: a count >= 0, where 0 is the end of the stream; else -errno, with the meaning that it
// has on Linux. No call waits longer than its patience says, and none traps. A handle of a socket
// that was closed is -EBADF, also when its place is taken by another one.
#pragma once

#include <cerrno>

#include "crosswarp/device/group.hpp"
#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/socket_memory.hpp"

namespace crosswarp::device::socket {

/// A socket, or why there is none.
class handle {
 public:
  constexpr handle() noexcept = default;
  CW_FN constexpr explicit handle(std::int64_t value) noexcept : value_(value) {}
  CW_FN constexpr handle(std::uint32_t index, std::uint32_t generation) noexcept
      : value_(static_cast<std::int64_t>(std::uint64_t{generation} << 32U | index)) {}
  [[nodiscard]] CW_FN constexpr explicit operator bool() const noexcept { return value_ >= 0; }
  /// -errno when there is no socket.
  [[nodiscard]] CW_FN constexpr int error() const noexcept {
    return value_ < 0 ? static_cast<int>(value_) : 0;
  }
  [[nodiscard]] CW_FN constexpr std::int64_t value() const noexcept { return value_; }
  [[nodiscard]] CW_FN constexpr std::uint32_t index() const noexcept {
    return static_cast<std::uint32_t>(value_);
  }
  /// Which use of its place this is, from 1 on.
  [[nodiscard]] CW_FN constexpr std::uint32_t generation() const noexcept {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(value_) >> 32U);
  }
  friend constexpr bool operator==(handle, handle) = default;

 private:
  std::int64_t value_ = -EBADF;
};

/// How long a call may wait; by default as the service's limits say. A wait that ends without
/// having succeeded is -ETIMEDOUT, one of 0 ns -EAGAIN.
class patience {
 public:
  constexpr patience() noexcept = default;
  CW_FN constexpr explicit patience(std::uint64_t ns) noexcept : ns_(ns), own_(true) {}
  [[nodiscard]] CW_FN constexpr wait_limits within(const wait_limits& all) const noexcept {
    return own_ ? all.within(ns_) : all;
  }

 private:
  std::uint64_t ns_ = 0;
  bool own_ = false;
};
/// For calls that are not to wait.
inline constexpr patience at_once{0};

/// Bytes of a ring, in two pieces where they go round its end. `result`: how many they are, 0 at
/// the end of the stream, or -errno.
template <class Byte>
struct pieces {
  std::int64_t result = -EBADF;
  Byte* first = nullptr;
  std::uint64_t first_bytes = 0;
  Byte* second = nullptr;
  std::uint64_t second_bytes = 0;
};

enum class half : std::uint8_t { receive, send, both };

/// What poll() looks for and finds. The last three are found without being asked for.
namespace event {
inline constexpr std::uint16_t readable = 1;  ///< recv() or accept() would not wait
inline constexpr std::uint16_t writable = 2;  ///< send() would not wait
inline constexpr std::uint16_t error = 4;     ///< the next call returns it
inline constexpr std::uint16_t hang_up = 8;   ///< both halves have ended
inline constexpr std::uint16_t invalid = 16;  ///< there is no such socket
}  // namespace event

struct poll_item {
  handle socket = {};
  std::uint16_t wanted = 0;
  std::uint16_t ready = 0;
  /// What poll() saw, for calls that take the item in the socket's place: they look no further
  /// where that suffices, as each look is a way over a bus for a GPU.
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
  handle looked_at = {};  ///< whose marks these are

  /// `word`, one of the two, unless it is of a socket that was here before.
  [[nodiscard]] CW_FN mark seen(std::uint64_t word) const noexcept {
    return looked_at == socket ? mark::of(word) : mark{};
  }
};

/// The sockets of a service. A plain view, valid while the service lives.
class service {
 public:
  service() = default;
  service(const memory& m, const wait_limits& limits) noexcept : m_(m), limits_(limits) {}

  /// A socket that peers can connect to. Port 0: any, see own_name(). `backlog`: connections that
  /// wait to be accepted. Unix-domain: a socket that nobody listens at is taken over.
  /// Fails: -EADDRINUSE, -EACCES, -EMFILE when the table is full, ...
  template <group G>
  [[nodiscard]] CW_FN handle listen(const G& g, const address& where, int backlog = 128) const;
  /// The next connection.      Fails: -EAGAIN, -ETIMEDOUT, -EINVAL when it is no listener.
  template <group G>
  [[nodiscard]] CW_FN handle accept(const G& g, handle listener, patience p = {}) const;
  /// A connection.      Fails: -ECONNREFUSED, -ENETUNREACH, -ETIMEDOUT, -EMFILE, ...
  template <group G>
  [[nodiscard]] CW_FN handle connect(const G& g, const address& where, patience p = {}) const;
  /// Begins to connect. The socket is writable once it has; an error shows with the first call.
  template <group G>
  [[nodiscard]] CW_FN handle start_connect(const G& g, const address& where) const;

  /// Queues all `n` bytes for the peer; fewer when its patience or the connection ends before.
  /// Source: reusable on return.      Fails: -EPIPE, -ECONNRESET once, -EAGAIN, -ETIMEDOUT.
  template <group G>
  CW_FN std::int64_t send(const G& g, handle s, const void* from, std::uint64_t n,
                          patience p = {}) const;
  /// At least one byte and at most `n`. What came before an end or an error is delivered first.
  /// Visibility: the bytes at `to` are visible to all of `g`.
  /// Fails: -ECONNRESET and the like once, then 0; -EAGAIN, -ETIMEDOUT.
  template <group G>
  CW_FN std::int64_t recv(const G& g, handle s, void* to, std::uint64_t n, patience p = {}) const;
  /// All `n` bytes; fewer when the stream ends before, or the patience.
  template <group G>
  CW_FN std::int64_t recv_all(const G& g, handle s, void* to, std::uint64_t n,
                              patience p = {}) const;

  /// What can be read now, at least one byte, where it lies. It stays until it is consumed; the
  /// next view shows it again, and maybe more.      Fails: as recv().
  template <group G>
  [[nodiscard]] CW_FN pieces<const std::byte> recv_view(const G& g, handle s,
                                                        patience p = {}) const;
  /// Gives the first `n` bytes of the last view back.      Fails: -EINVAL beyond what came.
  template <group G>
  CW_FN std::int64_t consume(const G& g, handle s, std::uint64_t n) const;
  /// All the room for bytes to send, at least `at_least`.
  /// Fails: as send(); -EMSGSIZE when no ring of this socket holds so many.
  template <group G>
  [[nodiscard]] CW_FN pieces<std::byte> send_reserve(const G& g, handle s,
                                                     std::uint64_t at_least = 1,
                                                     patience p = {}) const;
  /// Sends the first `n` bytes of what was reserved last.      Fails: -EINVAL beyond that.
  /// Visibility: what any thread of `g` wrote there is sent.
  template <group G>
  CW_FN std::int64_t commit(const G& g, handle s, std::uint64_t n) const;

  /// Ends a half. After `send` the peer reads what was sent and then the end; after `receive`
  /// recv() delivers what is there and then 0.
  template <group G>
  CW_FN std::int64_t shutdown(const G& g, handle s, half which) const;
  /// Ends the socket and returns at once. What was sent is delivered, unless received bytes were
  /// not read: then the peer sees a reset, as with Linux.
  template <group G>
  CW_FN std::int64_t close(const G& g, handle s) const;
  /// Ends the socket; the peer sees a reset.
  template <group G>
  CW_FN std::int64_t abort(const G& g, handle s) const;

  /// Waits until one of `n` sockets is as wanted, and sets `ready` of all of them. `items` is in
  /// memory that all of `g` reach. Returns how many are ready, 0 when none was in time.
  template <group G>
  [[nodiscard]] CW_FN std::int64_t poll(const G& g, poll_item* items, int n, patience p = {}) const;

  // Of a socket that poll() has just looked at: the same calls, which begin with what it saw.
  template <group G>
  CW_FN std::int64_t send(const G& g, const poll_item& s, const void* from, std::uint64_t n,
                          patience p = {}) const;
  template <group G>
  CW_FN std::int64_t recv(const G& g, const poll_item& s, void* to, std::uint64_t n,
                          patience p = {}) const;
  template <group G>
  [[nodiscard]] CW_FN pieces<const std::byte> recv_view(const G& g, const poll_item& s,
                                                        patience p = {}) const;
  template <group G>
  [[nodiscard]] CW_FN pieces<std::byte> send_reserve(const G& g, const poll_item& s,
                                                     std::uint64_t at_least = 1,
                                                     patience p = {}) const;

  /// Fails: -ENOTCONN once the connection has failed, -ENOPROTOOPT, -EINVAL, ...
  template <group G>
  CW_FN std::int64_t set_option(const G& g, handle s, option which, std::int64_t value) const;
  /// Its value as Linux tells it.
  template <group G>
  [[nodiscard]] CW_FN std::int64_t get_option(const G& g, handle s, option which) const;
  /// Fails: -ENOTCONN while it is not connected.
  template <group G>
  CW_FN std::int64_t peer_name(const G& g, handle s, address* name) const;
  template <group G>
  CW_FN std::int64_t own_name(const G& g, handle s, address* name) const;

  /// The socket at a place of the table, for interfaces whose handles are small numbers.
  [[nodiscard]] CW_FN handle at(std::uint32_t index) const noexcept;
  /// How long a call waits that has no patience of its own.
  [[nodiscard]] CW_FN const wait_limits& limits() const noexcept { return limits_; }

 private:
  enum class role : std::uint8_t { none, stream, listener };
  [[nodiscard]] CW_FN role role_of(handle s) const noexcept;
  [[nodiscard]] CW_FN bool is_valid(handle s) const noexcept { return role_of(s) != role::none; }
  [[nodiscard]] CW_FN bool is_stream(handle s) const noexcept { return role_of(s) == role::stream; }
  CW_FN void adopt(handle s, bool listener) const noexcept;
  [[nodiscard]] CW_FN std::int64_t error_of(std::uint32_t i) const noexcept;
  [[nodiscard]] CW_FN std::int64_t tell_error(std::uint32_t i, std::int64_t error,
                                              std::int64_t afterwards) const noexcept;
  [[nodiscard]] CW_FN std::int64_t tell_outcome(std::uint32_t i, status s, const wait_limits& l,
                                                std::int64_t afterwards) const noexcept;
  template <class Predicate>
  [[nodiscard]] CW_FN status wait_for(Predicate&& ready, deadline& by,
                                      bool lends = true) const noexcept;
  CW_FN void ring_bell(handle s, unsigned flags) const noexcept;
  /// How far a stream has come.
  struct arrival {
    mark tcp;                ///< news::received
    std::uint64_t end = 0;   ///< what lies between the receiver's position and this can be read,
    lane_link way;           ///< in the lane; else in the ring
    bool over = false;       ///< no byte follows
    bool cut_short = false;  ///< the other end is gone without having said so
  };
  [[nodiscard]] CW_FN arrival look_received(std::uint32_t i) const noexcept;
  [[nodiscard]] CW_FN arrival arrived(std::uint32_t i, mark tcp) const noexcept;
  CW_FN void know_rings(std::uint32_t i, mark seen) const noexcept;
  [[nodiscard]] CW_FN pieces<const std::byte> view_of(std::uint32_t i,
                                                      const arrival& a) const noexcept;
  [[nodiscard]] CW_FN lane& own_lane(lane_link l) const noexcept {
    return m_.lanes.local()[l.own()];
  }
  [[nodiscard]] CW_FN lane& peer_lane(lane_link l) const noexcept {
    return m_.lanes.at(l.peer_rank())[l.peer()];
  }
  [[nodiscard]] CW_FN bool uses_lane(handle s) const noexcept;
  [[nodiscard]] CW_FN lane_link link_of(std::uint32_t i) const noexcept;
  CW_FN void leave_tcp(std::uint32_t i) const noexcept;
  CW_FN void publish(std::uint32_t i) const noexcept;
  [[nodiscard]] CW_FN mark read_by_peer(std::uint32_t i) const noexcept;
  [[nodiscard]] CW_FN unsigned end_lane(std::uint32_t i, unsigned how) const noexcept;
  [[nodiscard]] CW_FN pieces<const std::byte> wait_readable(handle s, mark seen,
                                                            deadline& by) const noexcept;
  template <group G>
  CW_FN std::int64_t recv_by(const G& g, handle s, mark seen, void* to, std::uint64_t n,
                             deadline& by) const;
  template <group G>
  CW_FN std::int64_t send_by(const G& g, handle s, mark seen, const void* from, std::uint64_t n,
                             deadline& by) const;
  [[nodiscard]] CW_FN bool is_new_ring(std::uint32_t i, mark sent) const noexcept;
  CW_FN void follow_ring(std::uint32_t i, mark sent) const noexcept;
  [[nodiscard]] CW_FN std::uint64_t room_of(std::uint32_t i, mark sent) const noexcept;
  [[nodiscard]] CW_FN pieces<std::byte> wait_room(handle s, mark seen, std::uint64_t at_least,
                                                  deadline& by) const noexcept;
  [[nodiscard]] CW_FN std::int64_t take_connection(handle listener, mark head) const noexcept;
  [[nodiscard]] CW_FN std::int64_t wait_connection(handle listener,
                                                   const wait_limits& l) const noexcept;
  [[nodiscard]] CW_FN std::int64_t wait_connected(handle s, const wait_limits& l) const noexcept;
  [[nodiscard]] CW_FN std::int64_t end(handle s, unsigned how) const noexcept;
  [[nodiscard]] CW_FN std::uint16_t look_at(poll_item& item) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN bool look_at_all(const G& g, poll_item* items, int n) const noexcept;
  struct watch {
    std::uint64_t activity = 0;  ///< as the leader saw it last
    bool knows = false;          ///< it was seen
    unsigned wakes = 0;          ///< how often the leader was woken
  };
  template <group G>
  [[nodiscard]] CW_FN status wait_for_news(const G& g, poll_item* items, int n, watch& w,
                                           deadline& by) const noexcept;
  [[nodiscard]] CW_FN status end_among_news(watch& w, deadline& by) const noexcept;
  [[nodiscard]] CW_FN std::uint32_t take_place(const wait_limits& l) const noexcept;
  [[nodiscard]] CW_FN bool reclaim(std::uint32_t place) const noexcept;
  [[nodiscard]] CW_FN std::int64_t ask(const call_request& r) const noexcept;

  memory m_;
  wait_limits limits_;
};

}  // namespace crosswarp::device::socket

#include "crosswarp/device/impl/socket_call_impl.hpp"
#include "crosswarp/device/impl/socket_impl.hpp"
#include "crosswarp/device/impl/socket_lane_impl.hpp"
