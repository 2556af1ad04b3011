// Bodies of packet.hpp.
#pragma once

#include "crosswarp/device/packet.hpp"

namespace crosswarp::device {

namespace impl {

// Relaxed: a word orders nothing but itself, and it carries its data.
CW_FN inline void store_two(packet& to, std::uint64_t first, std::uint64_t second) noexcept {
#if CW_ON_GPU
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(&to)),
               "l"(first), "l"(second)
               : "memory");
#else
  system_atomic<std::uint64_t>(to.half[0]).store(first, order::relaxed);
  system_atomic<std::uint64_t>(to.half[1]).store(second, order::relaxed);
#endif
}

CW_FN inline void load_two(packet& from, std::uint64_t& first, std::uint64_t& second) noexcept {
#if CW_ON_GPU
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(__cvta_generic_to_global(&from))
               : "memory");
#else
  first = system_atomic<std::uint64_t>(from.half[0]).load(order::relaxed);
  second = system_atomic<std::uint64_t>(from.half[1]).load(order::relaxed);
#endif
}

}  // namespace impl

CW_FN inline void store(packet& to, std::uint64_t data, std::uint32_t epoch) noexcept {
  const std::uint64_t tag = static_cast<std::uint64_t>(epoch) << 32U;
  impl::store_two(to, tag | (data & 0xffffffffU), tag | (data >> 32U));
}

CW_FN inline bool load(packet& from, std::uint32_t epoch, std::uint64_t& data) noexcept {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  impl::load_two(from, first, second);
  data = (first & 0xffffffffU) | (second << 32U);
  return (first >> 32U) == epoch && (second >> 32U) == epoch;
}

}  // namespace crosswarp::device
