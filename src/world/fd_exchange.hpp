// Descriptors among the ranks of one machine.
#pragma once

#include <span>
#include <vector>

#include "socket.hpp"

namespace crosswarp::world_impl {

/// Every rank of `locals` (sorted, this one among them) hands in a descriptor or -1 and gets all of
/// them, in the order of `locals`; closed ones where -1 came. Collective over the whole world.
/// The lowest local rank collects and deals them out over Unix sockets, so n ranks make n
/// connections; only processes of the same user that know the job's secret are served.
std::vector<descriptor> allgather_descriptors(bootstrap& boot, std::span<const int> locals, int fd,
                                              nanoseconds timeout);

}  // namespace crosswarp::world_impl
