// Atomic access with the scope in the type and the order at each call.
//
// This is the seam on which everything above stands: the same line becomes `ld.acquire.sys` on a
// GPU and a std::atomic_ref load on the CPU, so ThreadSanitizer checks the order token that nvcc
// compiles. Order sits on the operation that needs it. The one fence there is goes with operations
// of order `fenced`, for interfaces that have a fence of their own (SHMEM) and where several words
// are ordered at a time (RDMA): then a GPU pays for order once, and on a CPU, where it costs
// nothing, it still sits on the operations. A GPU's fence orders none of those among themselves.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "crosswarp/device/platform.hpp"

namespace crosswarp::device {

/// Who may be on the other side of an atomic operation.
enum class scope : std::uint8_t {
  block,   ///< threads of one block
  device,  ///< blocks of one rank on one device
  system,  ///< other ranks, other devices, the host
};

/// Orders, one type each, so that a load with `release` does not compile.
namespace order {
enum relaxed_t { relaxed };
enum acquire_t { acquire };
enum release_t { release };
enum acq_rel_t { acq_rel };
/// Ordered by the calling thread's fence() before it (a store) or after it (a load).
enum fenced_t { fenced };
}  // namespace order

template <class O>
concept load_order = std::same_as<O, order::relaxed_t> || std::same_as<O, order::acquire_t> ||
    std::same_as<O, order::fenced_t>;
template <class O>
concept store_order = std::same_as<O, order::relaxed_t> || std::same_as<O, order::release_t> ||
    std::same_as<O, order::fenced_t>;
template <class O>
concept update_order = load_order<O> || store_order<O> || std::same_as<O, order::acq_rel_t>;

/// Values that every device can load and store as one indivisible word, and those that it can
/// update.
template <class T>
concept atomic_word = std::is_trivially_copyable_v<T> &&
    (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
template <class T>
concept updatable_word = atomic_word<T> && sizeof(T) >= 4;

/// A view of an ordinary object through which it is accessed atomically at scope `S`.
/// While any thread uses an atomic_ref to an object, all threads must; and all that are within
/// reach of each other must use a scope that covers them (checked builds report a breach).
template <atomic_word T, scope S>
class atomic_ref {
 public:
  CW_FN explicit atomic_ref(T& object) noexcept : object_(&object) {}

  template <load_order O>
  [[nodiscard]] CW_FN T load(O o) const noexcept;
  template <store_order O>
  CW_FN void store(T value, O o) const noexcept;

  /// Each returns the value before the update.
  template <update_order O>
  requires updatable_word<T> CW_FN T exchange(T value, O o)
  const noexcept;
  template <update_order O>
  requires updatable_word<T> CW_FN T fetch_add(T value, O o)
  const noexcept;
  template <update_order O>
  requires updatable_word<T> && std::integral<T> CW_FN T fetch_and(T value, O o)
  const noexcept;
  template <update_order O>
  requires updatable_word<T> && std::integral<T> CW_FN T fetch_or(T value, O o)
  const noexcept;
  template <update_order O>
  requires updatable_word<T> && std::integral<T> CW_FN T fetch_xor(T value, O o)
  const noexcept;

  /// Replaces `expected` by `desired`; on failure stores what it saw into `expected`.
  template <update_order O>
  requires updatable_word<T> CW_FN bool compare_exchange(T& expected, T desired,
                                                         O o) const noexcept;

 private:
  T* object_;
};

template <class T>
using system_atomic = atomic_ref<T, scope::system>;
template <class T>
using device_atomic = atomic_ref<T, scope::device>;
template <class T>
using block_atomic = atomic_ref<T, scope::block>;

/// `f` of a view of `object` at a scope that is known at run time, device or system.
template <atomic_word T, class F>
CW_FN inline void within(scope s, T& object, const F& f) noexcept {
  if (s == scope::device) {
    f(device_atomic<T>(object));
  } else {
    f(system_atomic<T>(object));
  }
}

/// Two words at a multiple of 16 bytes, for all of the system to see: each is whole, and nothing is
/// ordered. One access on a GPU.
CW_FN inline void store_pair(std::uint64_t* to, std::uint64_t first, std::uint64_t second) noexcept;
/// `a` and `b`, which lies behind it; with acquire, each of the two has it.
template <load_order O>
CW_FN inline void load_pair(std::uint64_t& a, std::uint64_t& b, std::uint64_t& first,
                            std::uint64_t& second, O o) noexcept;
/// Whether a store with release costs no more than a relaxed one: so it is on a CPU.
[[nodiscard]] CW_FN constexpr bool release_is_free() noexcept;

/// Orders all that the calling thread did before ahead of what it does after, as seen by those
/// within `S` who read the latter with acquire or before a fence of their own.
template <scope S>
CW_FN inline void fence() noexcept;
/// The same, and what the thread wrote before is visible within `S` before it reads anything after.
template <scope S>
CW_FN inline void full_fence() noexcept;
/// The same at a scope that is known at run time, device or system.
CW_FN inline void fence(scope s) noexcept {
  s == scope::device ? fence<scope::device>() : fence<scope::system>();
}
CW_FN inline void full_fence(scope s) noexcept {
  s == scope::device ? full_fence<scope::device>() : full_fence<scope::system>();
}

}  // namespace crosswarp::device

#include "crosswarp/device/impl/atomic_impl.hpp"
