// Copies between memory of the host that kernels look at meanwhile.
#pragma once

#include <cstddef>

namespace crosswarp::memory {

/// A whole word is read and written as one, with acquire and release: who sees a word that was
/// copied after other data sees that data. The ranges may overlap.
void copy_for_kernels(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace crosswarp::memory
