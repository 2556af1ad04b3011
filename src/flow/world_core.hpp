// A dataflow graph over the ranks of a world.
#pragma once

#include <memory>

#include "crosswarp/world.hpp"
#include "flow/core.hpp"

namespace crosswarp::flow::impl {

/// Collective, and so are all that it makes and its end. The world outlives it.
std::shared_ptr<core> make_world_core(world& w);

}  // namespace crosswarp::flow::impl
