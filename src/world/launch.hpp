// Whose kernels are on a device at once.
#pragma once

#include <optional>
#include <string>

#include "crosswarp/world.hpp"

namespace crosswarp::world_impl {

/// The most ranks that share a device, as threads or as processes. The same on all ranks.
/// Collective.
int ranks_of_one_device(world& w);

/// What all processes of a machine call a GPU; `visible`: CUDA_VISIBLE_DEVICES, by which each of
/// them may number GPUs in its own way.
std::string gpu_name(int ordinal, const std::optional<std::string>& visible);

}  // namespace crosswarp::world_impl
