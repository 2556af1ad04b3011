// The one way to wait. Every wait of the library goes through poll_until, in every build, so that
// nothing can hang: it ends when its condition holds, when the world breaks, or at its deadline.
#pragma once

#include <cstdint>

#include "crosswarp/device/atomic.hpp"
#include "crosswarp/device/trace.hpp"
#include "crosswarp/status.hpp"

namespace crosswarp::device {

/// What ends a wait that its condition does not end. Comes from the world.
struct wait_limits {
  /// The world's fault word, in memory that this device can read; null: no world, no faults.
  const fault_word* fault = nullptr;
  /// How long to wait, counted from the first look at the clock shortly after the wait begins.
  /// 0: look once.
  std::uint64_t timeout_ns = 30'000'000'000;
  /// Where it is noted for the host that rank `peer` was waited for in vain; may be null.
  fault_word* late = nullptr;
  int peer = -1;
  /// Where waits are noted; null unless the world is traced.
  trace_log* trace = nullptr;

  /// With a deadline of one's own. Its passing is the caller's affair: it is not noted.
  [[nodiscard]] CW_FN constexpr wait_limits within(std::uint64_t ns) const noexcept {
    return {fault, ns, nullptr, peer, trace};
  }
  /// Waiting for rank `pe`, which the host is to name when the deadline passes.
  [[nodiscard]] CW_FN constexpr wait_limits for_peer(int pe) const noexcept {
    return {fault, timeout_ns, late, pe, trace};
  }
};

/// One deadline for an operation that waits several times.
class deadline {
 public:
  CW_FN explicit deadline(const wait_limits& limits) noexcept : limits_(limits) {}
  CW_FN void blame(int pe) noexcept { limits_.peer = pe; }
  /// Who waits notes the whole operation itself.
  CW_FN void do_not_trace() noexcept { limits_.trace = nullptr; }
  [[nodiscard]] CW_FN const wait_limits& limits() const noexcept { return limits_; }
  /// Looks at the clock; the first look starts it.
  [[nodiscard]] CW_FN bool passed() noexcept;

 private:
  wait_limits limits_;
  std::uint64_t started_ = 0;
};

/// Nanoseconds of this device's monotone clock.
CW_FN inline std::uint64_t now_ns() noexcept;

/// Calls `ready()` until it returns true.
/// Returns:  ok when ready() held (also when it held only in the last look before giving up);
///           timeout at the deadline; peer_lost or aborted when the world's fault word is set.
/// Order:    none of its own; ready() must load with acquire what orders data.
/// Callers:  one thread. A group waits with poll_until(g, ready, limits), see group.hpp.
template <class Predicate>
[[nodiscard]] CW_FN inline status poll_until(Predicate&& ready, deadline& by) noexcept;
template <class Predicate>
[[nodiscard]] CW_FN inline status poll_until(Predicate&& ready,
                                             const wait_limits& limits) noexcept {
  deadline by(limits);
  return poll_until(ready, by);
}

}  // namespace crosswarp::device

#include "crosswarp/device/impl/poll_impl.hpp"
