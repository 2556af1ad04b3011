// What endpoints ask of the host on CPU threads. Defined in src/transports/verbs; never called on a
// GPU.
#pragma once

namespace crosswarp::verbs {

/// How a queue pair's kernels call its NIC.
struct nic_call;

/// A kernel rang a doorbell: the NIC hears it now, and not only when its nap is over, and need not
/// look at all doorbells to find out whose it was.
void call_nic(nic_call& c) noexcept;

}  // namespace crosswarp::verbs
