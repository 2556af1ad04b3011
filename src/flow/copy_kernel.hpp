// A copy that the device makes itself.
#pragma once

#include <cstddef>

#include "crosswarp/stream.hpp"

namespace crosswarp::flow::impl {

/// Queues a kernel that copies; both addresses are known to the stream's device.
void queue_copy(stream& s, void* dst, const void* src, std::size_t bytes);

}  // namespace crosswarp::flow::impl
