// What moves bytes between descriptors and memory for a worker. One thread uses it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "crosswarp/socket.hpp"

namespace crosswarp::socket_impl {

enum class direction : std::uint8_t {
  input,   ///< receive() or accept()
  output,  ///< send() or connect()
  end,     ///< the connection ended or failed in some way; not asked for
};

/// The end of an operation that was in progress.
struct completion {
  std::uint32_t token = 0;
  direction which = direction::input;
  int result = 0;  ///< as if returned at once; -EAGAIN: to be called again
};

class engine {
 public:
  /// Returned by an operation that completes later. The memory it was given has to stay until then.
  static constexpr int in_progress = -EINPROGRESS;

  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  /// Takes care of a descriptor until remove(): of make_socket(), make_listener() or accept().
  /// 0 or -errno.
  virtual int add(std::uint32_t token, int fd) = 0;
  /// Nothing of it completes afterwards, and no memory of it is used. True when bytes had been
  /// received that nobody was told of.
  virtual bool remove(std::uint32_t token) = 0;

  // Each returns what the system call returned, -errno, or in_progress. At most one operation of
  // each direction is in progress for a token.
  virtual int receive(std::uint32_t token, std::span<iovec> to) = 0;
  virtual int send(std::uint32_t token, std::span<iovec> from) = 0;
  /// A new descriptor for add(), and its peer.
  virtual int accept(std::uint32_t token, sockaddr_storage& peer, socklen_t& bytes) = 0;
  /// -EAGAIN: the other end's backlog is full, which only Unix-domain sockets tell; to be tried
  /// again.
  virtual int connect(std::uint32_t token, const sockaddr_storage& where, socklen_t bytes) = 0;

  /// What has completed. Starts what was asked for since the last look, where that gathers().
  virtual void look(std::vector<completion>& done) = 0;
  /// Operations start with the next look(), all at once; a look at nothing costs next to nothing.
  [[nodiscard]] virtual bool gathers() const noexcept = 0;
  /// Readable while something has completed: what to sleep on.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;
};

/// Always there.
std::unique_ptr<engine> make_epoll_engine();
/// Throws error(not_supported) in a build without liburing, error(system) where Linux refuses.
std::unique_ptr<engine> make_uring_engine();

struct chosen_engines {
  std::vector<std::unique_ptr<engine>> all;  ///< of one kind: they pass descriptors to each other
  std::string name;                          ///< epoll or io_uring
  std::string why;  ///< others than were asked for; empty: it is what was asked for
};
/// So many of `wanted`, or of what CROSSWARP_SOCKET_ENGINE says when that is automatic. Where there
/// is no io_uring, or not enough of it, all are epoll. Throws error(invalid_argument) when the
/// variable says something else.
chosen_engines make_engines(socket::engine_kind wanted, int count);

}  // namespace crosswarp::socket_impl
