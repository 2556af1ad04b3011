// What endpoints ask of the host on CPU threads. Defined in src/transports/verbs; never called on a
// GPU.
#pragma once

namespace crosswarp::verbs {

class soft_nic;

/// A kernel rang a doorbell: the NIC hears it now, and not only when its nap is over.
void call_nic(soft_nic& n) noexcept;

}  // namespace crosswarp::verbs
