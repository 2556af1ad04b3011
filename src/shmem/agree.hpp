// Collectives of a team that the host needs for itself, on the world's stream.
#pragma once

#include "crosswarp/device/shmem.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::shmem_impl {

// `outcome`: of the kernel, pinned. Nothing is allocated here: on a GPU that several PEs share,
// that could wait for a kernel which waits for this PE.

/// The bits that are set in everybody's `mine`. `votes`: two symmetric words.
std::uint64_t bits_in_common(world& w, const device::shmem& team, std::uint64_t* votes,
                             std::uint64_t mine, status* outcome);
/// Meets; what each did before is visible to all.
void sync(world& w, const device::shmem& team, status* outcome);

}  // namespace crosswarp::shmem_impl
