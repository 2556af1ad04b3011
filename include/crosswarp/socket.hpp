// Sockets inside kernels, on the host: a service owns the sockets of some kernels and threads that
// serve them. What kernels do with them is in device/socket.hpp.
//
//   socket::service net(device);
//   launch(stream, {}, server{}, net.device(), port);
//   ...
//   net.stop();          // every call of the kernels returns -ESHUTDOWN
//   stream.sync();
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/socket.hpp"
#include "crosswarp/device_ref.hpp"

namespace crosswarp {
class world;
}

namespace crosswarp::socket {

using device::socket::address;

/// "127.0.0.1:80", "[::1]:80", "unix:/path", "unix:@name", ":80" (every IPv4 address of this
/// machine). Throws error(invalid_argument). Names of hosts are not looked up.
address parse_address(std::string_view text);
std::string to_string(const address& a);

/// By what a service moves bytes in and out of descriptors. Behaviour is the same.
enum class engine_kind : std::uint8_t {
  automatic,  ///< as CROSSWARP_SOCKET_ENGINE says; unasked epoll, see docs/design/socket.md
  epoll,
  io_uring,  ///< epoll where Linux refuses it, or the build has no liburing
};

struct service_options {
  /// Places in the table, for listeners and connections. When none is free peers wait in Linux's
  /// backlog, and connect() returns -EMFILE.
  int sockets = 1024;
  /// Connections that live at a time, of one listener and from one address; 0: any number. Beyond
  /// the first peers wait in the backlog, beyond the second they are reset.
  int per_listener = 0;
  int per_peer = 0;
  /// Bytes of a ring at first and at most, powers of two from 4 KiB on. Each connection has two.
  std::size_t ring_bytes = 16 * 1024;
  std::size_t most_ring_bytes = 256 * 1024;
  /// All rings together; allocated at once, in host memory that kernels reach. Rings grow only
  /// where first ones for all free places stay free, or half of this.
  std::size_t ring_budget = 64 * 1024 * 1024;
  /// Where rings are. Host memory: kernels read and write it over the bus. The device's own: the
  /// host copies each piece there or back before it tells of it, so a byte takes longer, and what
  /// kernels look at many times they have at hand; as much host memory is used again.
  memory_kind ring_memory = memory_kind::pinned;
  /// A connection from which nothing has come for so long is reset with ETIMEDOUT: at first, and
  /// later; 0: never.
  std::chrono::nanoseconds first_byte{0};
  std::chrono::nanoseconds idle{0};
  /// What was sent before close(), and before the service ends, has so long to leave; then the peer
  /// sees a reset.
  std::chrono::nanoseconds linger = std::chrono::seconds(5);
  /// TCP_NODELAY from the beginning: small sends meet in the ring already.
  bool no_delay = true;
  engine_kind engine = engine_kind::automatic;
  /// Threads that serve sockets, from 1 to 64 and not more than `sockets`. Each has its share of
  /// the table; connections go to the one with most places left.
  int threads = 1;
  /// Of a world's service: connections at a time, per rank, whose other end is of the same service
  /// on a rank that is mapped here, and that go around TCP by memory which both write; 0: none.
  /// Kernels do not notice. Others stay with TCP, and so do all when first_byte or idle is set.
  int lanes = 64;
  /// Bytes of a lane's ring, a power of two from 4 KiB on.
  std::size_t lane_bytes = 64 * 1024;
};

/// What a service did so far.
struct service_stats {
  std::uint64_t accepted = 0;
  std::uint64_t connected = 0;
  std::uint64_t around = 0;  ///< connections that may go around TCP, see service_options::lanes
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t refused = 0;    ///< connections that were reset: too many, no descriptor left
  std::uint64_t timed_out = 0;  ///< by first_byte, idle or linger
  std::uint64_t breaches = 0;   ///< a kernel wrote what cannot be; its socket was reset
  std::uint64_t ring_bytes = 0;
  int sockets = 0;  ///< in use now
  std::vector<int> sockets_of_thread;
  std::string engine;  ///< epoll or io_uring
};

class service {
 public:
  /// For kernels on `d`. Throws error(invalid_argument) for options out of range.
  explicit service(device_ref d, const service_options& options = {});
  /// For kernels of this rank, with the world's limits. Making and destroying it is collective,
  /// with the same `lanes` and `lane_bytes` on all ranks, else error(asymmetric).
  explicit service(world& w, const service_options& options = {});
  /// Closes all sockets. Kernels that use it have ended; what they sent is delivered, see `linger`.
  ~service();
  service(service&&) noexcept;
  service& operator=(service&&) = delete;

  /// For kernels, by value; valid while this lives. `limits` end its waits; by default the world's,
  /// or 30 s.
  [[nodiscard]] device::socket::service device() const noexcept;
  [[nodiscard]] device::socket::service device(const device::wait_limits& limits) const noexcept;

  /// Ends what kernels wait for: as soon as its threads have heard of it, all calls but close()
  /// fail with -ESHUTDOWN, or with -EPIPE and 0 where that was told already.
  void stop();

  [[nodiscard]] service_stats stats() const;

 private:
  struct state_type;
  std::unique_ptr<state_type> state_;
};

}  // namespace crosswarp::socket
