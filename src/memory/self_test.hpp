// Does a mapped peer's memory really arrive where it should?
#pragma once

#include "crosswarp/world.hpp"

namespace crosswarp::memory {

/// Each rank writes a pattern to its own line at every mapped peer, by a kernel on its device; each
/// then looks at its lines at home, and reads back what it wrote. Collective.
/// `lines` holds one line for each rank. Throws error(device_fault) naming the peer.
void self_test(world& w, const device::symmetric<device::signal_line>& lines);

}  // namespace crosswarp::memory
