// Memory of this process by addresses that a kernel gave: looked at with care.
#pragma once

#include <cstddef>

#include "crosswarp/status.hpp"

namespace crosswarp::memory {

/// Copies from an address that may be anything. invalid when some of it cannot be read.
status read_private(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
/// Copies to an address that may be anything. invalid when some of it cannot be written; then
/// what comes before may have been.
status write_private(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace crosswarp::memory
