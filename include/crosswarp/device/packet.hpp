// Data that says itself that it has come: four bytes and the epoch they belong to in one 64-bit
// word, which is written and read whole. No flag, no fence, no barrier: who sees the epoch has the
// data. It takes twice the room, and pays where a signal would take longer than the data.
#pragma once

#include <cstdint>

#include "crosswarp/device/atomic.hpp"

namespace crosswarp::device {

/// Eight bytes of data in sixteen, moved by one instruction where the device has one. Each half is
/// whole by itself; the two may arrive one after the other.
struct alignas(16) packet {
  std::uint64_t half[2];
};

/// Visibility: of the data it carries and of nothing else.
CW_FN inline void store(packet& to, std::uint64_t data, std::uint32_t epoch) noexcept;
/// True when both halves are of that epoch; then `data` is what was stored with it.
[[nodiscard]] CW_FN inline bool load(packet& from, std::uint32_t epoch,
                                     std::uint64_t& data) noexcept;

}  // namespace crosswarp::device

#include "crosswarp/device/impl/packet_impl.hpp"
