// What kernels do by loads and stores, counted and traced when CROSSWARP_STATS or CROSSWARP_TRACE
// asks for it. What goes by the proxy is counted there.
#pragma once

#include "crosswarp/device/proxy.hpp"
#include "crosswarp/device/trace.hpp"

namespace crosswarp::device {

/// One for a rank, in memory of its device.
struct mapped_profile {
  struct counts {
    std::uint64_t calls;
    std::uint64_t bytes;
  };
  counts by_call[proxy_calls];  ///< by proxy_call
  trace_log* trace;             ///< null unless the world is traced
};

/// An operation, from here to the end of the scope. Does nothing when there is no profile.
class profiled {
 public:
  /// `leader`: whether the calling thread is the one that notes it.
  CW_FN profiled(mapped_profile* to, bool leader, proxy_call what, std::uint64_t bytes,
                 int pe) noexcept
      : to_(leader ? to : nullptr),
        began_(to_ != nullptr ? trace_ticks() : 0),
        bytes_(bytes),
        pe_(pe),
        what_(what) {}
  CW_FN ~profiled() {
    if (to_ != nullptr) note(to_, what_, bytes_, pe_, began_);
  }
  profiled(const profiled&) = delete;
  profiled& operator=(const profiled&) = delete;

 private:
  CW_COLD CW_FN static void note(mapped_profile* to, proxy_call what, std::uint64_t bytes, int pe,
                                 std::uint64_t began) noexcept {
    mapped_profile::counts& c = to->by_call[static_cast<std::size_t>(what)];
    // Relaxed: read when kernels have ended, or for people.
    system_atomic<std::uint64_t>(c.calls).fetch_add(1, order::relaxed);
    system_atomic<std::uint64_t>(c.bytes).fetch_add(bytes, order::relaxed);
    if (to->trace == nullptr) return;
    trace_record r;
    r.begin = began;
    r.end = trace_ticks();
    r.bytes = bytes;
    r.pe = pe;
    r.block = trace_block();
    r.kind = trace_kind::mapped;
    r.what = static_cast<std::uint8_t>(what);
    write(*to->trace, reserve(*to->trace), r);
  }

  mapped_profile* to_;
  std::uint64_t began_;
  std::uint64_t bytes_;
  int pe_;
  proxy_call what_;
};

}  // namespace crosswarp::device
