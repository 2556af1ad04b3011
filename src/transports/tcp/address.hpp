// Addresses as Linux writes them, and sockets that it makes.
#pragma once

#include <sys/socket.h>

#include "crosswarp/device/socket.hpp"

namespace crosswarp::tcp {

struct system_address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;  ///< 0: none
};

/// `bytes` is 0 when a kernel wrote what is no address.
system_address to_system(const device::socket::address& a) noexcept;
device::socket::address from_system(const system_address& a) noexcept;
/// What getsockname() or getpeername() says; none when it fails.
device::socket::address own_name(int fd) noexcept;
device::socket::address peer_name(int fd) noexcept;

/// A socket that does not block, or -errno.
int make_socket(const system_address& a) noexcept;
/// One that listens at `a`. A socket in the file system that nobody listens at is taken over.
int make_listener(const system_address& a, int backlog) noexcept;
/// Of a listener at a path: removes it if a socket is there.
void remove_path(const device::socket::address& a) noexcept;

int set_option(int fd, device::socket::option which, std::int64_t value) noexcept;
std::int64_t get_option(int fd, device::socket::option which) noexcept;
/// The error of a connection or of what was sent, once; 0: none.
int pending_error(int fd) noexcept;
/// A descriptor to give up when there is no other; -1 when there is none.
int open_spare() noexcept;
/// close() will tell the peer that the connection was reset.
void reset_on_close(int fd) noexcept;

}  // namespace crosswarp::tcp
