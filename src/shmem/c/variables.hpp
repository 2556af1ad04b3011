// Where the program's global and static variables lie: OpenSHMEM has them symmetric.
#pragma once

#include <cstddef>
#include <vector>

namespace crosswarp::shmem_c {

struct memory_range {
  std::byte* base;
  std::size_t bytes;
};
/// Whole pages of the main executable that are written after it is loaded.
std::vector<memory_range> program_variables();

}  // namespace crosswarp::shmem_c
