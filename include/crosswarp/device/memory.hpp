// Moving bytes by a group of threads: plain loads and stores, as wide as the addresses allow.
#pragma once

#include <cstddef>
#include <cstdint>

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

/// As many elements as a thread takes at a time: one wide access of a GPU's, some vectors of a
/// CPU's.
template <class T>
[[nodiscard]] CW_FN constexpr int tile_size() noexcept;
/// How many tiles a thread had better have under way before it uses the first.
[[nodiscard]] CW_FN constexpr int tiles_in_flight() noexcept;
/// Whether tiles may lie there: anywhere for a CPU, at multiples of 16 bytes for a GPU.
[[nodiscard]] CW_FN inline bool takes_tiles(const void* p) noexcept;
/// A tile to and from a thread's own array.
template <class T>
CW_FN inline void load_tile(T* held, const T* from) noexcept;
template <class T>
CW_FN inline void store_tile(T* to, const T* held) noexcept;

/// Says that what lies there is read soon. A CPU's thread has nobody who works while it waits; on a
/// GPU other warps do, and it does nothing.
CW_FN inline void fetch_ahead(const void* from) noexcept;

/// So many bytes, a multiple of 8, by one thread in few accesses; where they may lie for that.
template <std::size_t Bytes>
[[nodiscard]] CW_FN inline bool takes_whole(const void* p) noexcept;
template <std::size_t Bytes>
CW_FN inline void copy_whole(void* to, const void* from) noexcept;

/// `*where` if `load`, else `address`. Without a branch on a GPU, so that several can be under way
/// at once: it may be done before it is known to be wanted, so `load` alone must say that `where`
/// can be read. What is there does not change while a kernel runs.
[[nodiscard]] CW_FN inline std::byte* load_or(bool load, std::byte* const* where,
                                              std::uintptr_t address) noexcept;

}  // namespace crosswarp::device

#include "crosswarp/device/impl/memory_impl.hpp"
