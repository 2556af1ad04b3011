// What moves bytes between descriptors and memory for a worker. One thread uses it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

  /// Takes care of a descriptor, which does not block, until remove(). 0 or -errno.
  virtual int add(std::uint32_t token, int fd) = 0;
  /// Nothing of it completes afterwards.
  virtual void remove(std::uint32_t token) = 0;

  // Each returns what the system call returned, -errno, or in_progress. At most one operation of
  // each direction is in progress for a token.
  virtual int receive(std::uint32_t token, std::span<iovec> to) = 0;
  virtual int send(std::uint32_t token, std::span<iovec> from) = 0;
  /// A new descriptor, which does not block, and its peer.
  virtual int accept(std::uint32_t token, sockaddr_storage& peer, socklen_t& bytes) = 0;
  virtual int connect(std::uint32_t token, const sockaddr_storage& where, socklen_t bytes) = 0;

  /// What has completed.
  virtual void look(std::vector<completion>& done) = 0;
  /// Readable while something has completed: what to sleep on.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;
};

/// Always there.
std::unique_ptr<engine> make_epoll_engine();

}  // namespace crosswarp::socket_impl
