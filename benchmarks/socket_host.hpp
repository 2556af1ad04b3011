// The host's half of bench socket: clients, and a server written for epoll to compare with.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

namespace crosswarp::bench {

/// Sends back what comes, at an address of this machine, on a thread of its own.
class epoll_echo {
 public:
  epoll_echo();
  ~epoll_echo();
  epoll_echo(const epoll_echo&) = delete;
  epoll_echo& operator=(const epoll_echo&) = delete;
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  void run();
  int listener_;
  int epoll_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// What comes at an address of this machine is thrown away, and what is asked for is sent: one
/// connection after the other, on a thread that blocks. A client says in 8 bytes how many come or
/// are wanted, see one_way; who sends is told by a byte when all is there.
class host_streams {
 public:
  host_streams();
  ~host_streams();
  host_streams(const host_streams&) = delete;
  host_streams& operator=(const host_streams&) = delete;
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  void run();
  void serve(int fd);
  int listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};
/// In what a client says first: it wants them.
inline constexpr std::uint64_t wants_bytes = std::uint64_t{1} << 63U;

/// Connections to `port` that say nothing, held by a process of their own: each end has a
/// descriptor, and a process has a limit of them.
class idle_connections {
 public:
  idle_connections(std::uint16_t port, int count);
  ~idle_connections();
  idle_connections(const idle_connections&) = delete;
  idle_connections& operator=(const idle_connections&) = delete;

 private:
  pid_t holder_ = -1;
  int lives_ = -1;  ///< the process ends when this closes
};
/// How many connections a process of this one's limits can have, at most `wanted`. Raises the soft
/// limit to the hard one.
int possible_connections(int wanted);

// What clients of an echo server at `port` measure. Each throws error(system) when the server
// does not answer for 10 s.

/// What comes back for `text`, as many bytes.
std::string exchange(std::uint16_t port, const std::string& text);
/// Of one byte, the median of `rounds`, in us.
double round_trip(std::uint16_t port, int rounds);
/// `streams` connections that send `bytes` each and read them back, in GB/s.
double stream_rate(std::uint16_t port, int streams, std::size_t bytes);
/// One connection by which `bytes` go one way, to a server or from it, in GB/s.
double one_way(std::uint16_t port, std::size_t bytes, bool to_server);
/// Connect, one byte there and back, close; connections per second, one after the other.
double connection_rate(std::uint16_t port, int count);

/// While this lives, the calling thread runs on one core that it may use, and all others that the
/// process has now on the same one, or on another. How fast a byte comes back depends on that more
/// than on the server: a core that sleeps has to be woken.
class placement {
 public:
  enum class cores { one, two };
  explicit placement(cores c);
  ~placement();
  placement(const placement&) = delete;
  placement& operator=(const placement&) = delete;
  /// Whether the process may use two cores.
  static bool has_two();

 private:
  std::map<pid_t, cpu_set_t> before_;
};

/// A program that runs while this lives.
class program {
 public:
  /// Returns when something listens at `port`. Throws error(system) when nothing does.
  program(const std::string& path, const std::string& arguments, std::uint16_t port);
  ~program();
  program(const program&) = delete;
  program& operator=(const program&) = delete;

 private:
  pid_t pid_ = -1;
};
/// A port that nobody has now.
std::uint16_t free_port();

}  // namespace crosswarp::bench
