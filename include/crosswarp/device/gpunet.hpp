// GPUnet's names for sockets, for kernels that were written for it.
//
//   struct gpuclient : gpunet {  // was: __global__ void gpuclient(...)
//     using gpunet::gpunet;
//     CW_FN void kernel(sockaddr_in* addr) const {
//       int sock;                                   // was: __shared__ int sock;
//       uchar* const buf = shared_memory<uchar>();  // was: __shared__ uchar buf[BUF_SIZE];
//       while ((sock = gconnect_in(addr)) < 0) {};
//       ret = gsend(sock, buf + sent, BUF_SIZE - sent);
//       syncthreads();                              // was: __syncthreads();
//       BEGIN_SINGLE_THREAD_PART { single_thread_gclose(sock); } END_SINGLE_THREAD_PART;
//     }
//   };
//   launch(stream, {.threads = 128, .shared_bytes = BUF_SIZE}, gpunet_kernel<gpuclient>{},
//          net.device(), addr);
//
// Sockets are small numbers: places in the service's table. As there, one whose number was reused
// is not told from the one before. Calls are made by all threads of the block, those named
// single_thread_ by one of them. Results: as those of device/socket.hpp, so a peer's end is 0 and
// an error -errno. A socket begins with gconnect, gaccept or gbind: there is no gsocket().
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include "crosswarp/device/socket.hpp"

namespace crosswarp::device {

/// What gpoll() looks at. `events`: POLLIN, POLLOUT; found are these, POLLERR, POLLHUP, POLLNVAL.
struct gpollfd {
  int fd = -1;
  short events = 0;
  short revents = 0;
};

class gpunet {
 public:
  CW_FN gpunet(const kernel_context& ctx, const socket::service& s) noexcept
      : context_(&ctx), block_(ctx), service_(&s) {}

  // ---- listeners
  [[nodiscard]] CW_FN int single_thread_gbind_in(const sockaddr_in* at) const {
    return number(service_->listen(thread_group{}, address_of(*at), backlog));
  }
  /// At a path, or "@name"; `bytes` of it, or up to the 0 before.
  [[nodiscard]] CW_FN int single_thread_gbind(const char* path, int bytes) const {
    return number(service_->listen(thread_group{}, local_of(path, bytes), backlog));
  }
  [[nodiscard]] CW_FN int gaccept(int listener) const {
    return number(service_->accept(block_, named(listener)));
  }
  [[nodiscard]] CW_FN int gaccept_nb(int listener) const {
    return number(service_->accept(block_, named(listener), socket::at_once));
  }

  // ---- connections
  [[nodiscard]] CW_FN int gconnect_in(const sockaddr_in* to) const {
    return number(service_->connect(block_, address_of(*to)));
  }
  [[nodiscard]] CW_FN int gconnect(const char* path, int bytes) const {
    return number(service_->connect(block_, local_of(path, bytes)));
  }

  /// As many as there is room for, at least one.      Fails: -EINVAL when `bytes` is negative.
  CW_FN int gsend(int s, const void* from, int bytes) const {
    if (bytes < 0) return -EINVAL;
    const auto room = service_->send_reserve(block_, named(s), bytes > 0 ? 1 : 0);
    if (room.result < 0) return static_cast<int>(room.result);
    const std::int64_t n = bytes < room.result ? bytes : room.result;
    return static_cast<int>(service_->send(block_, named(s), from, static_cast<std::uint64_t>(n)));
  }
  /// Fails: -EINVAL when `bytes` is negative.
  CW_FN int grecv(int s, void* to, int bytes) const { return receive(s, to, bytes, {}); }
  CW_FN int grecv_nb(int s, void* to, int bytes) const {
    return receive(s, to, bytes, socket::at_once);
  }

  /// Waits until one of `n` is as wanted. Returns how many are, 0 when none was in time.
  /// `timeout_ns` <= 0: as long as the service's limits say.
  CW_FN int gpoll(gpollfd* all, int n, int timeout_ns = 0) const {
    const wait_limits& most = service_->limits();
    deadline by(timeout_ns > 0 ? most.within(static_cast<std::uint64_t>(timeout_ns)) : most);
    for (;;) {
      bool mine = false;
      for (int k = block_.rank(); k < n; k += block_.size()) {
        mine = look_at(all[k], socket::at_once) != 0 || mine;
      }
      if (block_.any(mine)) break;
      // A short wait for the first one lends the host this thread, where it can use it.
      const int outcome = leader_of(block_, [&] {
        if (by.passed()) return 1;
        return n > 0 && look_at(all[0], socket::patience{slice_ns}) < 0 ? 2 : 0;
      });
      if (outcome != 0) return outcome == 1 ? 0 : -ECANCELED;
    }
    return leader_of(block_, [&] {
      int count = 0;
      for (int k = 0; k < n; ++k) count += all[k].revents != 0 ? 1 : 0;
      return count;
    });
  }

  CW_FN int single_thread_gshutdown(int s, socket::half which = socket::half::both) const {
    return static_cast<int>(service_->shutdown(thread_group{}, named(s), which));
  }
  CW_FN int single_thread_gclose(int s) const {
    return static_cast<int>(service_->close(thread_group{}, named(s)));
  }

  // ---- the block
  CW_FN void syncthreads() const noexcept { block_.sync(); }
  [[nodiscard]] CW_FN bool is_first_thread() const noexcept { return block_.rank() == 0; }
  /// The launch's `shared_bytes`.
  template <class T>
  [[nodiscard]] CW_FN T* shared_memory() const noexcept {
    return reinterpret_cast<T*>(context_->shared_memory());
  }
  [[nodiscard]] CW_FN const kernel_context& context() const noexcept { return *context_; }

 private:
  static constexpr int backlog = 256;
  static constexpr std::uint64_t slice_ns = 20'000;

  CW_FN static int number(socket::handle h) noexcept {
    return h ? static_cast<int>(h.index()) : h.error();
  }
  [[nodiscard]] CW_FN socket::handle named(int s) const noexcept {
    return s < 0 ? socket::handle(-EBADF) : service_->at(static_cast<std::uint32_t>(s));
  }
  CW_FN int receive(int s, void* to, int bytes, socket::patience p) const {
    if (bytes < 0) return -EINVAL;
    return static_cast<int>(
        service_->recv(block_, named(s), to, static_cast<std::uint64_t>(bytes), p));
  }
  /// Sets `revents`; as service::poll().
  CW_FN int look_at(gpollfd& f, socket::patience p) const {
    using namespace socket;
    const auto wanted = ((f.events & POLLIN) != 0 ? event::readable : 0) |
                        ((f.events & POLLOUT) != 0 ? event::writable : 0);
    poll_item one{named(f.fd), static_cast<std::uint16_t>(wanted), 0};
    const std::int64_t n = service_->poll(thread_group{}, &one, 1, p);
    const auto as = [&](unsigned which, int told) { return (one.ready & which) != 0 ? told : 0; };
    f.revents = static_cast<short>(as(event::readable, POLLIN) | as(event::writable, POLLOUT) |
                                   as(event::error, POLLERR) | as(event::hang_up, POLLHUP) |
                                   as(event::invalid, POLLNVAL));
    return static_cast<int>(n);
  }
  /// Read byte by byte: a GPU has no ntohs().
  CW_FN static socket::address address_of(const sockaddr_in& a) noexcept {
    const auto* const port = reinterpret_cast<const std::uint8_t*>(&a.sin_port);
    const auto* const host = reinterpret_cast<const std::uint8_t*>(&a.sin_addr);
    return socket::address::v4(host[0], host[1], host[2], host[3],
                               static_cast<std::uint16_t>(port[0] << 8U | port[1]));
  }
  /// No address when it is too long.
  CW_FN static socket::address local_of(const char* path, int bytes) noexcept {
    socket::address a;
    const int most = static_cast<int>(sizeof(a.path)) - 1;
    int n = 0;
    while (n < bytes && n < most && path[n] != '\0') {
      a.path[n] = path[n];
      ++n;
    }
    if (n == bytes || path[n] == '\0') a.family = socket::address::local;
    return a;
  }

  const kernel_context* context_;
  block_group block_;
  const socket::service* service_;
};

/// A kernel whose body is `Body::kernel(...)`, where `Body` derives from gpunet: GPUnet's names
/// need no object there.
template <class Body>
struct gpunet_kernel {
  template <class... Args>
  CW_FN void operator()(const kernel_context& ctx, const socket::service& s, Args... args) const {
    Body(ctx, s).kernel(args...);
  }
};

}  // namespace crosswarp::device

// GPUnet's, for the body of such a kernel: what stands in braces between them is done by one
// thread, and by the others waited for.
#define BEGIN_SINGLE_THREAD_PART \
  syncthreads();                 \
  if (is_first_thread()) do
#define END_SINGLE_THREAD_PART \
  while (false)                \
    ;                          \
  syncthreads()
