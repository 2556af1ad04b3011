// Bodies of packet.hpp.
#pragma once

#include "crosswarp/device/packet.hpp"

namespace crosswarp::device {

// Relaxed: a word orders nothing but itself, and it carries its data.
CW_FN inline void store(packet& to, std::uint64_t data, std::uint32_t epoch) noexcept {
  const std::uint64_t tag = static_cast<std::uint64_t>(epoch) << 32U;
  store_pair(to.half, tag | (data & 0xffffffffU), tag | (data >> 32U));
}

CW_FN inline bool load(packet& from, std::uint32_t epoch, std::uint64_t& data) noexcept {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  load_pair(from.half[0], from.half[1], first, second, order::relaxed);
  data = (first & 0xffffffffU) | (second << 32U);
  return (first >> 32U) == epoch && (second >> 32U) == epoch;
}

}  // namespace crosswarp::device
