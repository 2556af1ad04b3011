// Bodies of trace.hpp.
#pragma once

#include "crosswarp/device/impl/cpu_hooks.hpp"
#include "crosswarp/device/trace.hpp"

namespace crosswarp::device {

CW_FN inline std::uint64_t trace_ticks() noexcept {
#if CW_ON_GPU
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
#elif defined(__x86_64__)
  return __builtin_ia32_rdtsc();  // less than half of what the system's clock takes
#else
  return exec::cpu::now_ns();
#endif
}

CW_FN inline std::uint32_t trace_block() noexcept {
#if CW_ON_GPU
  return blockIdx.x;
#else
  return exec::cpu::current_block();
#endif
}

}  // namespace crosswarp::device
