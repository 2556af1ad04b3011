// Bodies of poll.hpp, and the clocks of trace.hpp.
#pragma once

#include "crosswarp/device/impl/atomic_max.hpp"
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

// ---- of trace.hpp

CW_FN inline std::uint64_t trace_ticks() noexcept {
#if !CW_ON_GPU && defined(__x86_64__)
  return __builtin_ia32_rdtsc();  // less than half of what the system's clock takes
#else
  return now_ns();
#endif
}

CW_FN inline std::uint32_t trace_block() noexcept {
#if CW_ON_GPU
  return blockIdx.x;
#else
  return exec::cpu::current_block();
#endif
}

// ---- waiting

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

/// Tells the host for which rank was waited in vain, and why. Who cannot name one waited for
/// somebody here, who may have waited for a rank: that one's note is the greater, and stays.
CW_FN inline status note_vain(const wait_limits& limits, status why) noexcept {
  if (limits.late != nullptr) {
    // Relaxed: the note orders no data. Any rank that is named is a culprit. Among threads of this
    // device: across a bus it may not be atomic, and need not be.
    raise<scope::system>(*limits.late, make_fault(why, limits.peer), order::relaxed);
  }
  return why;
}

/// What broke the world, or what a kernel has noted since; 0: neither.
CW_FN inline fault_word read_blame(const wait_limits& limits) noexcept {
  const fault_word fault = read_fault(limits);
  if (fault != 0 || limits.late == nullptr) return fault;
  // Relaxed: as note_vain().
  return system_atomic<fault_word>(*limits.late).load(order::relaxed);
}

CW_FN inline void trace_wait(const wait_limits& limits, std::uint64_t place, std::uint64_t began,
                             status s) noexcept {
  trace_record r;
  r.begin = began;
  r.end = trace_ticks();
  r.pe = limits.peer;
  r.block = trace_block();
  r.kind = trace_kind::wait;
  r.outcome = static_cast<std::uint8_t>(s);
  write(*limits.trace, place, r);
}

}  // namespace impl

CW_FN inline bool deadline::passed() noexcept {
  if (limits_.timeout_ns == 0) return true;
  const std::uint64_t now = now_ns();
  if (started_ == 0) started_ = now;
  return now > started_ && now - started_ >= limits_.timeout_ns;
}

namespace impl {

/// The same value. Threads of a warp leave a wait one after the other; a compiler that knows with
/// what, lets each go its own way from there, and all that follows is done once for each of them.
CW_FN inline status together(status s) noexcept {
#if CW_ON_GPU
  auto value = static_cast<unsigned>(s);
  asm volatile("" : "+r"(value));
  return static_cast<status>(value);
#else
  return s;
#endif
}

template <class Predicate>
CW_FN inline status poll(Predicate&& ready, deadline& by) noexcept {
  const wait_limits& limits = by.limits();
  status s = status::ok;
  for (std::uint32_t spin = 1; !ready(); ++spin) {
    if (!relax(spin) && limits.timeout_ns != 0) continue;
    const fault_word fault = read_fault(limits);
    if (fault == 0 && !by.passed()) continue;
    if (!ready()) s = fault != 0 ? fault_status(fault) : note_vain(limits, status::timeout);
    break;
  }
  return together(s);
}

/// What is there at the first look was not waited for, and is not noted.
template <class Predicate>
CW_FN inline status poll_traced(Predicate&& ready, deadline& by) noexcept {
  if (ready()) return status::ok;
  const std::uint64_t began = trace_ticks();
  const std::uint64_t place = reserve(*by.limits().trace);
  const status s = poll(ready, by);
  trace_wait(by.limits(), place, began, s);
  return s;
}

}  // namespace impl

// Two loops, so that the one of worlds that are not traced keeps nothing for a trace.
template <class Predicate>
CW_FN inline status poll_until(Predicate&& ready, deadline& by) noexcept {
  return by.limits().trace == nullptr ? impl::poll(ready, by) : impl::poll_traced(ready, by);
}

}  // namespace crosswarp::device
