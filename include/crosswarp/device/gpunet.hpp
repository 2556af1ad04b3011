// GPUnet's names for sockets, for kernels that were written for it.
//
//   const gpunet net(ctx, service);
//   while ((sock = net.gconnect_in(addr)) < 0) {};
//   ret = net.gsend(sock, buf + sent, BUF_SIZE - sent);
//
// Sockets are small numbers: places in the service's table. As there, one whose number was reused
// is not told from the one before. Calls are made by all threads of the block, those named
// single_thread_ by one of them. Results: as those of device/socket.hpp, so a peer's end is 0 and
// an error -errno.
#pragma once

#include <netinet/in.h>

#include "crosswarp/device/socket.hpp"

namespace crosswarp::device {

class gpunet {
 public:
  CW_FN gpunet(const kernel_context& ctx, const socket::service& s) noexcept
      : block_(ctx), service_(&s) {}

  /// A listener.
  [[nodiscard]] CW_FN int single_thread_gbind_in(const sockaddr_in* at) const {
    return number(service_->listen(thread_group{}, address_of(*at), 256));
  }
  [[nodiscard]] CW_FN int gconnect_in(const sockaddr_in* to) const {
    return number(service_->connect(block_, address_of(*to)));
  }
  [[nodiscard]] CW_FN int gaccept(int listener) const {
    return number(service_->accept(block_, named(listener)));
  }
  [[nodiscard]] CW_FN int gaccept_nb(int listener) const {
    return number(service_->accept(block_, named(listener), socket::at_once));
  }

  /// As many as there is room for, at least one.
  CW_FN int gsend(int s, const void* from, int bytes) const {
    const auto room = service_->send_reserve(block_, named(s), bytes > 0 ? 1 : 0);
    if (room.result < 0) return static_cast<int>(room.result);
    const std::int64_t n = bytes < room.result ? bytes : room.result;
    return static_cast<int>(service_->send(block_, named(s), from, static_cast<std::uint64_t>(n)));
  }
  CW_FN int grecv(int s, void* to, int bytes) const {
    return static_cast<int>(
        service_->recv(block_, named(s), to, static_cast<std::uint64_t>(bytes)));
  }
  CW_FN int grecv_nb(int s, void* to, int bytes) const {
    return static_cast<int>(
        service_->recv(block_, named(s), to, static_cast<std::uint64_t>(bytes), socket::at_once));
  }

  CW_FN int single_thread_gshutdown(int s, socket::half which = socket::half::both) const {
    return static_cast<int>(service_->shutdown(thread_group{}, named(s), which));
  }
  CW_FN int single_thread_gclose(int s) const {
    return static_cast<int>(service_->close(thread_group{}, named(s)));
  }

 private:
  CW_FN static int number(socket::handle h) noexcept {
    return h ? static_cast<int>(h.index()) : h.error();
  }
  [[nodiscard]] CW_FN socket::handle named(int s) const noexcept {
    return s < 0 ? socket::handle(-EBADF) : service_->at(static_cast<std::uint32_t>(s));
  }
  /// Read byte by byte: a GPU has no ntohs().
  CW_FN static socket::address address_of(const sockaddr_in& a) noexcept {
    const auto* const port = reinterpret_cast<const std::uint8_t*>(&a.sin_port);
    const auto* const host = reinterpret_cast<const std::uint8_t*>(&a.sin_addr);
    return socket::address::v4(host[0], host[1], host[2], host[3],
                               static_cast<std::uint16_t>(port[0] << 8U | port[1]));
  }

  block_group block_;
  const socket::service* service_;
};

}  // namespace crosswarp::device
