// The environment as OpenSHMEM has it, on top of the library's own.
#pragma once

#include <string>

#include "crosswarp/world.hpp"

namespace crosswarp::shmem_c {

/// "1.5G" and the like. Throws error(invalid_argument).
std::size_t parse_size(const std::string& text, const std::string& what);
/// A CPU's world whose waits take as long as they take; SHMEM_SYMMETRIC_SIZE.
world_options options_from_environment();
/// What SHMEM_VERSION and SHMEM_INFO ask for, on stdout.
void show_information();

}  // namespace crosswarp::shmem_c
