// What the rest of this project sees of its kernels.
#pragma once

#include <crosswarp/world.hpp>

/// Every rank writes `value` to its right neighbour, with a kernel; returns what came from the
/// left.
int pass_right(crosswarp::world& w, int value);
