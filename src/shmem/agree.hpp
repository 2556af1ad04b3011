// Collectives of a team that the host needs for itself, on the world's stream.
#pragma once

#include "crosswarp/device/shmem.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::shmem_impl {

/// The bits that are set in everybody's `mine`. `votes`: two symmetric words.
std::uint64_t bits_in_common(world& w, const device::shmem& team, std::uint64_t* votes,
                             std::uint64_t mine);
/// Meets; what each did before is visible to all.
void sync(world& w, const device::shmem& team);

}  // namespace crosswarp::shmem_impl
