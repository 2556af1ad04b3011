// Starting kernels.
//
// A kernel is a callable whose first parameter is `const device::kernel_context&`, followed by
// trivially copyable arguments. The same one runs on every device:
//
//   struct scale {
//     CW_FN void operator()(const cw::device::kernel_context& ctx, float* x, int n, float by) const
//     {
//       for (int i = ctx.grid().rank(); i < n; i += ctx.grid().size()) x[i] *= by;
//     }
//   };
//   cw::launch(stream, {.blocks = 8, .threads = 256}, scale{}, x.data(), n, 2.0f);
//
// Views such as device::world are passed by value and taken by `const &`: the compiler of CUDA 13.0
// was seen to lose a kernel's copy of a large argument (docs/gotchas.md).
//
// A kernel for large blocks says `static constexpr int max_threads = 1024;`, so that a GPU's
// registers suffice for so many threads.
//
// A kernel that says `static constexpr bool place_early = true;` can be launched so, see
// launch_shape.
//
// To run it on a GPU, compile the file as CUDA: crosswarp_add_kernels(target file.cpp) in CMake.
#pragma once

#include <functional>
#include <type_traits>

#include "crosswarp/device/exec_context.hpp"
#include "crosswarp/device/group.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp {

struct launch_shape {
  int blocks = 1;
  int threads = 1;
  std::size_t shared_bytes = 0;
  /// All blocks are on the device at once, so that they may wait for each other. The launch
  /// throws error(does_not_fit) when that cannot be.
  bool resident = false;
  /// On a GPU that can: the grid's blocks are placed while the kernel before it in the stream still
  /// runs, if that was launched so, too, and begin when it has ended. Both have to fit.
  bool place_early = false;
  /// What ends the grid's own waits (grid().sync()); a world's launches pass the world's.
  device::wait_limits limits = {};
};

/// Runs `kernel(ctx, args...)` on the stream's device.
/// Returns when it is queued. Throws error(invalid_argument) for an empty or impossible shape,
/// error(does_not_fit), error(not_supported) when this file was not compiled for that device.
template <class Kernel, class... Args>
requires std::invocable<const Kernel&, const device::kernel_context&, const Args&...>
void launch(stream& s, const launch_shape& shape, Kernel kernel, Args... args);

}  // namespace crosswarp

#include "crosswarp/impl/launch_impl.hpp"
