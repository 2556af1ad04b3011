// The one way to wait. Every wait of the library goes through poll_until, in every build, so that
// nothing can hang: it ends when its condition holds, when the world breaks, or at its deadline.
#pragma once

#include <cstdint>

#include "crosswarp/device/atomic.hpp"
#include "crosswarp/status.hpp"

namespace crosswarp::device {

/// What ends a wait that its condition does not end. Comes from the world; may be shortened for
/// one call: `limits.within(5'000'000)`.
struct wait_limits {
  /// The world's fault word, in memory that this device can read; null: no world, no faults.
  const fault_word* fault = nullptr;
  /// How long to wait, counted from the first look at the clock shortly after the wait begins.
  std::uint64_t timeout_ns = 30'000'000'000;

  [[nodiscard]] CW_FN constexpr wait_limits within(std::uint64_t ns) const noexcept {
    return {fault, ns};
  }
};

/// Nanoseconds of this device's monotone clock.
CW_FN inline std::uint64_t now_ns() noexcept;

/// Calls `ready()` until it returns true.
/// Returns:  ok when ready() held (also when it held only in the last look before giving up);
///           timeout at the deadline; peer_lost or aborted when the world's fault word is set.
/// Order:    none of its own; ready() must load with acquire what orders data.
/// Callers:  one thread. Groups wait with their leader and broadcast the outcome, see `wait()`.
template <class Predicate>
[[nodiscard]] CW_FN inline status poll_until(Predicate&& ready,
                                              const wait_limits& limits) noexcept;

}  // namespace crosswarp::device

#include "crosswarp/device/impl/poll_impl.hpp"
