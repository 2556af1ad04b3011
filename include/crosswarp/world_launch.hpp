// Collective launches: kernels that wait for other ranks.
//
// A kernel that waits for another rank's kernel needs both to run at once. Ranks that share a GPU
// in one process are therefore gathered into one cooperative grid, split by rank, so that they are
// all resident or the launch fails; on a CPU all launches make progress anyway. On
// device_ref::scheduled() the gathered ranks run interleaved as the schedule says.
#pragma once

#include "crosswarp/launch.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp {

/// Runs `kernel(ctx, args...)` on every rank, in order with each rank's stream; each passes its own
/// arguments and the same shape. Collective among the ranks of this process that share the device.
/// The launch is resident, and its limits are the world's.
/// Throws as launch(stream, ...) does, on all of these ranks; error(asymmetric) when kernels or
/// shapes differ; error(timeout, peer_lost, aborted) when one of them does not come.
template <class Kernel, class... Args>
requires std::invocable<const Kernel&, const device::kernel_context&, const Args&...>
void launch(world& w, launch_shape shape, Kernel kernel, Args... args);

}  // namespace crosswarp

#include "crosswarp/impl/world_launch_impl.hpp"
