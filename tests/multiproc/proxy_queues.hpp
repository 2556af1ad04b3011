#pragma once

#include "crosswarp/world.hpp"

/// Of the world's proxy, for kernels that wait with limits of their own.
crosswarp::device::proxy_memory queues_of(const crosswarp::world& w);
