// Bodies of atomic.hpp: cuda::atomic_ref on a GPU, std::atomic_ref on the CPU.
#pragma once

#include <atomic>

#include "crosswarp/device/atomic.hpp"
#include "crosswarp/device/impl/cpu_hooks.hpp"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace crosswarp::device::impl {

#if CW_ON_GPU

template <scope S>
inline constexpr auto native_scope = S == scope::block    ? cuda::thread_scope_block
                                     : S == scope::device ? cuda::thread_scope_device
                                                          : cuda::thread_scope_system;
template <class T, scope S>
using native_ref = cuda::atomic_ref<T, native_scope<S>>;
using native_order = cuda::std::memory_order;

#else

template <class T, scope>
using native_ref = std::atomic_ref<T>;
using native_order = std::memory_order;

#endif

CW_FN constexpr native_order native(order::relaxed_t) {
  return native_order::relaxed;
}
CW_FN constexpr native_order native(order::acquire_t) {
  return native_order::acquire;
}
CW_FN constexpr native_order native(order::release_t) {
  return native_order::release;
}
CW_FN constexpr native_order native(order::acq_rel_t) {
  return native_order::acq_rel;
}

// A GPU's fenced operations rely on the fence; a CPU's order by themselves.
#if CW_ON_GPU
CW_FN constexpr native_order native_load(order::fenced_t) {
  return native_order::relaxed;
}
CW_FN constexpr native_order native_store(order::fenced_t) {
  return native_order::relaxed;
}
CW_FN constexpr native_order native(order::fenced_t) {
  return native_order::relaxed;
}
#else
CW_FN constexpr native_order native_load(order::fenced_t) {
  return native_order::acquire;
}
CW_FN constexpr native_order native_store(order::fenced_t) {
  return native_order::release;
}
CW_FN constexpr native_order native(order::fenced_t) {
  return native_order::acq_rel;
}
#endif
template <load_order O>
CW_FN constexpr native_order native_load(O o) {
  return native(o);
}
template <store_order O>
CW_FN constexpr native_order native_store(O o) {
  return native(o);
}

// The order of a compare-exchange that fails: its load part.
CW_FN constexpr native_order native_failure(order::fenced_t o) {
  return native_load(o);
}
CW_FN constexpr native_order native_failure(order::relaxed_t) {
  return native(order::relaxed);
}
CW_FN constexpr native_order native_failure(order::acquire_t) {
  return native(order::acquire);
}
CW_FN constexpr native_order native_failure(order::release_t) {
  return native(order::relaxed);
}
CW_FN constexpr native_order native_failure(order::acq_rel_t) {
  return native(order::acquire);
}

using exec::cpu::access;

template <scope S>
CW_FN inline void observe([[maybe_unused]] const void* address, [[maybe_unused]] access kind) {
#if CROSSWARP_CHECKED && !CW_ON_GPU
  exec::cpu::before_atomic(address, kind, S);
#endif
}

}  // namespace crosswarp::device::impl

namespace crosswarp::device {

template <atomic_word T, scope S>
template <load_order O>
CW_FN inline T atomic_ref<T, S>::load(O o) const noexcept {
  impl::observe<S>(object_, impl::access::load);
  return impl::native_ref<T, S>(*object_).load(impl::native_load(o));
}

template <atomic_word T, scope S>
template <store_order O>
CW_FN inline void atomic_ref<T, S>::store(T value, O o) const noexcept {
  impl::observe<S>(object_, impl::access::store);
  impl::native_ref<T, S>(*object_).store(value, impl::native_store(o));
}

template <atomic_word T, scope S>
template <update_order O>
requires updatable_word<T> CW_FN inline T atomic_ref<T, S>::exchange(T value, O o) const noexcept {
  impl::observe<S>(object_, impl::access::update);
  return impl::native_ref<T, S>(*object_).exchange(value, impl::native(o));
}

template <atomic_word T, scope S>
template <update_order O>
requires updatable_word<T> CW_FN inline T atomic_ref<T, S>::fetch_add(T value, O o) const noexcept {
  impl::observe<S>(object_, impl::access::update);
  return impl::native_ref<T, S>(*object_).fetch_add(value, impl::native(o));
}

template <atomic_word T, scope S>
template <update_order O>
requires updatable_word<T> && std::integral<T> CW_FN inline T atomic_ref<T, S>::fetch_and(
    T value, O o) const noexcept {
  impl::observe<S>(object_, impl::access::update);
  return impl::native_ref<T, S>(*object_).fetch_and(value, impl::native(o));
}

template <atomic_word T, scope S>
template <update_order O>
requires updatable_word<T> && std::integral<T> CW_FN inline T atomic_ref<T, S>::fetch_or(
    T value, O o) const noexcept {
  impl::observe<S>(object_, impl::access::update);
  return impl::native_ref<T, S>(*object_).fetch_or(value, impl::native(o));
}

template <atomic_word T, scope S>
template <update_order O>
requires updatable_word<T> && std::integral<T> CW_FN inline T atomic_ref<T, S>::fetch_xor(
    T value, O o) const noexcept {
  impl::observe<S>(object_, impl::access::update);
  return impl::native_ref<T, S>(*object_).fetch_xor(value, impl::native(o));
}

template <atomic_word T, scope S>
template <update_order O>
requires updatable_word<T> CW_FN inline bool atomic_ref<T, S>::compare_exchange(
    T& expected, T desired, O o) const noexcept {
  impl::observe<S>(object_, impl::access::update);
  return impl::native_ref<T, S>(*object_).compare_exchange_strong(
      expected, desired, impl::native(o), impl::native_failure(o));
}

CW_FN inline void store_pair(std::uint64_t* to, std::uint64_t first,
                             std::uint64_t second) noexcept {
#if CW_ON_GPU
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)),
               "l"(first), "l"(second)
               : "memory");
#else
  system_atomic<std::uint64_t>(to[0]).store(first, order::relaxed);
  system_atomic<std::uint64_t>(to[1]).store(second, order::relaxed);
#endif
}

template <load_order O>
CW_FN inline void load_pair(std::uint64_t& a, [[maybe_unused]] std::uint64_t& b,
                            std::uint64_t& first, std::uint64_t& second,
                            [[maybe_unused]] O o) noexcept {
#if CW_ON_GPU
  if constexpr (std::same_as<O, order::acquire_t>) {
    asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(first), "=l"(second)
                 : "l"(__cvta_generic_to_global(&a))
                 : "memory");
  } else {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(first), "=l"(second)
                 : "l"(__cvta_generic_to_global(&a))
                 : "memory");
  }
#else
  first = system_atomic<std::uint64_t>(a).load(o);
  second = system_atomic<std::uint64_t>(b).load(o);
#endif
}

CW_FN constexpr bool release_is_free() noexcept {
  return CW_ON_GPU == 0;
}

template <scope S>
CW_FN inline void fence() noexcept {
#if CW_ON_GPU
  cuda::atomic_thread_fence(cuda::std::memory_order_acq_rel, impl::native_scope<S>);
#elif !defined(__SANITIZE_THREAD__)
  // For plain copies that follow; ThreadSanitizer knows no fences, and those are races to it.
  std::atomic_thread_fence(std::memory_order_acq_rel);
#endif
}

template <scope S>
CW_FN inline void full_fence() noexcept {
#if CW_ON_GPU
  cuda::atomic_thread_fence(cuda::std::memory_order_seq_cst, impl::native_scope<S>);
#elif !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#else
  std::atomic<int> word{0};
  word.exchange(1, std::memory_order_seq_cst);  // as strong on the machines that run it
#endif
}

}  // namespace crosswarp::device
