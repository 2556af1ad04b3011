// Moving bytes by a group of threads: plain loads and stores, as wide as the addresses allow.
#pragma once

#include <cstddef>

#include "crosswarp/device/group.hpp"

namespace crosswarp::device {

/// Copies `bytes` from `src` to `dst`, which do not overlap.
/// Visibility: to the calling group after its next sync(); to others after a release that
///             follows that sync().
/// Callers:    all threads of `g`, same arguments. Does not sync.
template <class G>
CW_FN inline void copy(const G& g, void* dst, const void* src, std::size_t bytes) noexcept;

/// This block's part of a copy that all blocks of the grid make, in pieces of 128 KiB dealt out in
/// turn: so all of them work in one region of memory at a time.
/// Visibility: as copy(). Callers: all threads of all blocks, same arguments. Does not sync.
CW_FN inline void copy_part(const kernel_context& ctx, void* dst, const void* src,
                            std::size_t bytes) noexcept;

}  // namespace crosswarp::device

#include "crosswarp/device/impl/memory_impl.hpp"
