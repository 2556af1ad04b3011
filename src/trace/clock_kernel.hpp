// What a GPU's clock shows at a moment of the host's.
#pragma once

#include "crosswarp/device_ref.hpp"
#include "recorder.hpp"

namespace crosswarp::trace {

/// Asks a kernel of one thread a few times; right within about a microsecond. Throws error(timeout)
/// when the kernel does not start within a second, since others hold the GPU.
clock_pair read_clock(device_ref d);

}  // namespace crosswarp::trace
