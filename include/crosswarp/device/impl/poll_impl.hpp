// Bodies of poll.hpp.
#pragma once

#include "crosswarp/device/impl/cpu_hooks.hpp"
#include "crosswarp/device/poll.hpp"

namespace crosswarp::device {

CW_FN inline std::uint64_t now_ns() noexcept {
#if CW_ON_GPU
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
#else
  return exec::cpu::now_ns();
#endif
}

namespace impl {

/// Between two looks. True when it is worth looking at the clock and at the fault word: these
/// may lie across a bus from a GPU, where one look costs as much as the wait should.
CW_FN inline bool relax(std::uint32_t spin) noexcept {
#if CW_ON_GPU
  return (spin & 0xffU) == 0;
#else
  return exec::cpu::relax(spin);
#endif
}

CW_FN inline fault_word read_fault(const wait_limits& limits) noexcept {
  if (limits.fault == nullptr) return 0;
  // Relaxed: the fault orders no data, it only ends waits.
  return system_atomic<fault_word>(*const_cast<fault_word*>(limits.fault)).load(order::relaxed);
}

}  // namespace impl

template <class Predicate>
CW_FN inline status poll_until(Predicate&& ready, const wait_limits& limits) noexcept {
  std::uint64_t started = 0;
  for (std::uint32_t spin = 1; !ready(); ++spin) {
    if (!impl::relax(spin)) continue;
    if (const fault_word fault = impl::read_fault(limits); fault != 0) {
      return ready() ? status::ok : fault_status(fault);
    }
    const std::uint64_t now = now_ns();
    if (started == 0) started = now;
    if (now - started >= limits.timeout_ns) return ready() ? status::ok : status::timeout;
  }
  return status::ok;
}

}  // namespace crosswarp::device
