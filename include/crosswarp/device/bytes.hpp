// The order of bytes. Part of the seam: a GPU has an instruction for it that its compiler does not
// find.
#pragma once

#include <cstdint>

#include "crosswarp/device/platform.hpp"

namespace crosswarp::device {

/// The same bytes the other way round.
[[nodiscard]] CW_FN constexpr std::uint32_t swap_bytes(std::uint32_t v) noexcept {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) return __byte_perm(v, 0, 0x0123);
#endif
  return (v << 24U) | ((v & 0xff00U) << 8U) | ((v >> 8U) & 0xff00U) | (v >> 24U);
}

}  // namespace crosswarp::device
