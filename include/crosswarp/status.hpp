// The one vocabulary of outcomes, shared by kernels and hosts.
#pragma once

#include <cstdint>

#include "crosswarp/device/platform.hpp"

namespace crosswarp {

/// What a device operation returns. Anything but `ok` leaves the operation's effect undefined
/// unless its comment says otherwise; nothing ever hangs instead of returning.
enum class [[nodiscard]] status : std::int32_t{
    ok = 0,
    closed,       ///< the other side ended the stream, and everything before its end has been read
    timeout,      ///< the deadline passed before the condition held
    unsupported,  ///< the path to that rank cannot do this
    unreachable,  ///< no path leads to that rank
    aborted,      ///< a rank called abort, or its function threw
    peer_lost,    ///< a rank died; `fault_rank()` of the fault word says which
    invalid,      ///< an argument can never be satisfied (beyond capacity, out of range)
};
/// The gravest; statuses are ordered by how much they say about what went wrong.
inline constexpr status gravest_status = status::invalid;

/// A printable name, e.g. "peer_lost".
constexpr const char* to_string(status s) noexcept {
  switch (s) {
    case status::ok:
      return "ok";
    case status::timeout:
      return "timeout";
    case status::peer_lost:
      return "peer_lost";
    case status::aborted:
      return "aborted";
    case status::closed:
      return "closed";
    case status::unsupported:
      return "unsupported";
    case status::unreachable:
      return "unreachable";
    case status::invalid:
      return "invalid";
  }
  return "unknown";
}

/// The word by which a world tells its kernels that something broke: 0 while all is well, else
/// the status its waits return and the rank to blame. One 64-bit word so that it is read whole.
using fault_word = std::uint64_t;

CW_FN constexpr fault_word make_fault(status s, int rank) noexcept {
  return (static_cast<fault_word>(static_cast<std::uint32_t>(rank) + 1U) << 8U) |
         static_cast<fault_word>(static_cast<std::uint32_t>(s));
}
CW_FN constexpr status fault_status(fault_word w) noexcept {
  return static_cast<status>(w & 0xffU);
}
/// -1 when no rank is known.
CW_FN constexpr int fault_rank(fault_word w) noexcept {
  return static_cast<int>(w >> 8U) - 1;
}

}  // namespace crosswarp
