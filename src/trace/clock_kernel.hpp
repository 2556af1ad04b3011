// What a device's clock shows, at a moment of the host's and where a stream has come to.
#pragma once

#include "recorder.hpp"

namespace crosswarp::trace {

/// Asks a kernel of one thread a few times; right within about a microsecond. Throws error(timeout)
/// when the kernel does not start within a second, since others hold the GPU.
clock_pair read_clock(device_ref d);

/// What the kernels of one stream need to be noted: they come one after the other.
struct kernel_stamps {
  device::trace_log* log;
  std::uint64_t* began;  ///< in memory of the device
};
/// In order with the stream; the second notes the kernel between the two.
void stamp_begin(stream& on, const kernel_stamps& s);
void stamp_end(stream& on, const kernel_stamps& s);

}  // namespace crosswarp::trace
