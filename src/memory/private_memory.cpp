#include "memory/private_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/log.hpp"

namespace crosswarp::memory {
namespace {

using transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                             unsigned long);

/// The kernel copies between two places of this process, and says so when one of them is none.
/// Where it may not (a sandbox), the addresses are believed.
status ask_kernel(transfer move, std::byte* here, std::byte* there, std::size_t bytes,
                  bool& forbidden) noexcept {
  for (std::size_t done = 0; done < bytes;) {
    const iovec local{here + done, bytes - done};
    const iovec remote{there + done, bytes - done};
    const ssize_t n = move(getpid(), &local, 1, &remote, 1, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    const int why = errno;
    forbidden = n < 0 && (why == EPERM || why == ENOSYS);
    static std::atomic<bool> told{false};
    if (forbidden && !told.exchange(true, std::memory_order_relaxed)) {
      log::warn(-1, "process_vm_readv is forbidden here (", std::strerror(why),
                "): addresses that kernels give to the proxy are not checked");
    }
    return status::invalid;
  }
  return status::ok;
}

}  // namespace

status read_private(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  bool forbidden = false;
  const status s = ask_kernel(process_vm_readv, to, const_cast<std::byte*>(from), bytes, forbidden);
  if (!forbidden) return s;
  std::memcpy(to, from, bytes);
  return status::ok;
}

status write_private(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  bool forbidden = false;
  const status s =
      ask_kernel(process_vm_writev, const_cast<std::byte*>(from), to, bytes, forbidden);
  if (!forbidden) return s;
  std::memcpy(to, from, bytes);
  return status::ok;
}

}  // namespace crosswarp::memory
