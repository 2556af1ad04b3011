#pragma once

#include "crosswarp/world.hpp"

/// Of the world's proxy, for kernels that wait with limits of their own.
crosswarp::device::proxy_memory queues_of(const crosswarp::world& w);

/// Kills this process while its proxy is not inside of the engine: whoever dies while UCX writes to
/// another rank may leave that one deaf (docs/design/proxy.md, Limits).
void die_outside_of_engine(const crosswarp::world& w);
