// The calling thread's warp as whatever group costs least. Part of the seam, beside group.hpp.
#pragma once

#include "crosswarp/device/group.hpp"

namespace crosswarp::device {

/// f(g) with the calling thread's warp as g; a warp of one thread on a CPU is a thread_group, which
/// costs nothing.
template <class F>
[[nodiscard]] CW_FN inline auto with_warp(const kernel_context& ctx, const F& f) noexcept {
#if !CW_ON_GPU
  if (ctx.thread_count() == 1) return f(ctx.thread());
#endif
  return f(ctx.warp());
}

}  // namespace crosswarp::device
