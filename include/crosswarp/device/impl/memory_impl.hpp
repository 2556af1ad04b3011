// Bodies of memory.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "crosswarp/device/memory.hpp"

namespace crosswarp::device::impl {

struct alignas(16) word16 {
  std::uint32_t part[4];
};

/// The widest that `Bytes` are made of.
template <std::size_t Bytes>
using whole_word = std::conditional_t<Bytes % sizeof(word16) == 0, word16, std::uint64_t>;

/// At most `Depth` words for this thread: all loads before the first store.
template <class Word, int Depth>
CW_FN inline void copy_rest(Word* dst, const Word* src, std::size_t count, std::size_t first,
                            std::size_t stride) noexcept {
  Word held[Depth];
  for (int k = 0; k < Depth; ++k) {
    const std::size_t at = first + static_cast<std::size_t>(k) * stride;
    if (at < count) held[k] = src[at];
  }
  for (int k = 0; k < Depth; ++k) {
    const std::size_t at = first + static_cast<std::size_t>(k) * stride;
    if (at < count) dst[at] = held[k];
  }
}

/// Copies `count` words, thread after thread, so that neighbours touch neighbouring words. Several
/// independent loads are in flight per thread before the first store.
template <class Word>
CW_FN inline void copy_words(Word* dst, const Word* src, std::size_t count, std::size_t first,
                             std::size_t stride) noexcept {
  constexpr int depth = 8;
  std::size_t i = first;
  CW_IN_TURN
  for (; i + (depth - 1) * stride < count; i += depth * stride) {
    Word held[depth];
    for (int k = 0; k < depth; ++k) held[k] = src[i + static_cast<std::size_t>(k) * stride];
    for (int k = 0; k < depth; ++k) dst[i + static_cast<std::size_t>(k) * stride] = held[k];
  }
  CW_IN_TURN
  for (; i < count; i += stride) dst[i] = src[i];
}

/// Bytes before the first aligned word, whole words, bytes after the last. `dst` and `src` are as
/// far from one.
template <class Word>
CW_FN inline void copy_wide(std::byte* dst, const std::byte* src, std::size_t bytes,
                            std::size_t rank, std::size_t size) noexcept {
  std::size_t head =
      (sizeof(Word) - reinterpret_cast<std::uintptr_t>(dst) % sizeof(Word)) % sizeof(Word);
  if (head > bytes) head = bytes;
  const std::size_t words = (bytes - head) / sizeof(Word);
  const std::size_t body = head + words * sizeof(Word);
  CW_IN_TURN
  for (std::size_t i = rank; i < head; i += size) dst[i] = src[i];
  copy_words(reinterpret_cast<Word*>(dst + head), reinterpret_cast<const Word*>(src + head), words,
             rank, size);
  CW_IN_TURN
  for (std::size_t i = body + rank; i < bytes; i += size) dst[i] = src[i];
}

/// At most `Depth` words for each thread, when all is aligned for them.
template <class Word, int Depth>
CW_FN inline bool copy_at_once(std::byte* dst, const std::byte* src, std::size_t bytes,
                               std::size_t rank, std::size_t size) noexcept {
  const auto all = reinterpret_cast<std::uintptr_t>(dst) | reinterpret_cast<std::uintptr_t>(src) |
                   static_cast<std::uintptr_t>(bytes);
  if (all % sizeof(Word) != 0 || bytes > Depth * size * sizeof(Word)) return false;
  copy_rest<Word, Depth>(reinterpret_cast<Word*>(dst), reinterpret_cast<const Word*>(src),
                         bytes / sizeof(Word), rank, size);
  return true;
}

/// Not in line, as what follows: a few words for each thread.
CW_COLD CW_FN inline bool copy_few(std::byte* dst, const std::byte* src, std::size_t bytes,
                                   std::size_t rank, std::size_t size) noexcept {
  return copy_at_once<word16, 4>(dst, src, bytes, rank, size);
}

/// The interleaved copy that GPUs want: coalesced across a warp. Not in line: it is long, and
/// kernels that put in many places would consist of it.
CW_COLD CW_FN inline void copy_interleaved(std::byte* dst, const std::byte* src, std::size_t bytes,
                                           std::size_t rank, std::size_t size) noexcept {
  const auto misfit = reinterpret_cast<std::uintptr_t>(dst) ^ reinterpret_cast<std::uintptr_t>(src);
  if (misfit % 16 == 0) return copy_wide<word16>(dst, src, bytes, rank, size);
  if (misfit % 4 == 0) return copy_wide<std::uint32_t>(dst, src, bytes, rank, size);
  copy_words(dst, src, bytes, rank, size);
}

/// The contiguous copy that CPUs want: each thread one piece, of whole cache lines, by memcpy.
inline void copy_in_pieces(std::byte* dst, const std::byte* src, std::size_t bytes,
                           std::size_t rank, std::size_t size) noexcept {
  const std::size_t lines = (bytes + line_bytes - 1) / line_bytes;
  const std::size_t piece = (lines + size - 1) / size * line_bytes;
  const std::size_t begin = rank * piece;
  if (begin >= bytes) return;
  std::memcpy(dst + begin, src + begin, bytes - begin < piece ? bytes - begin : piece);
}

}  // namespace crosswarp::device::impl

namespace crosswarp::device {

template <class G>
CW_FN inline void copy(const G& g, void* dst, const void* src, std::size_t bytes) noexcept {
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const auto rank = static_cast<std::size_t>(g.rank());
  const auto size = static_cast<std::size_t>(g.size());
#if CW_ON_GPU
  if (impl::copy_at_once<std::uint64_t, 1>(to, from, bytes, rank, size)) return;
  if (impl::copy_at_once<impl::word16, 1>(to, from, bytes, rank, size)) return;
  if (impl::copy_few(to, from, bytes, rank, size)) return;
  impl::copy_interleaved(to, from, bytes, rank, size);
#else
  impl::copy_in_pieces(to, from, bytes, rank, size);
#endif
}

template <class T>
CW_FN constexpr int tile_size() noexcept {
#if CW_ON_GPU
  return 16 / static_cast<int>(sizeof(T));
#else
  return 256 / static_cast<int>(sizeof(T));
#endif
}

CW_FN constexpr int tiles_in_flight() noexcept {
#if CW_ON_GPU
  return 8;
#else
  return 1;  // what a CPU reads ahead it finds out itself
#endif
}

CW_FN inline bool takes_tiles([[maybe_unused]] const void* p) noexcept {
#if CW_ON_GPU
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
#else
  return true;
#endif
}

template <class T>
CW_FN inline void load_tile(T* held, const T* from) noexcept {
#if CW_ON_GPU
  const impl::word16 all = *reinterpret_cast<const impl::word16*>(from);
  memcpy(held, &all, sizeof(all));
#else
  std::memcpy(held, from, sizeof(T) * static_cast<std::size_t>(tile_size<T>()));
#endif
}

template <class T>
CW_FN inline void store_tile(T* to, const T* held) noexcept {
#if CW_ON_GPU
  impl::word16 all;
  memcpy(&all, held, sizeof(all));
  *reinterpret_cast<impl::word16*>(to) = all;
#else
  std::memcpy(to, held, sizeof(T) * static_cast<std::size_t>(tile_size<T>()));
#endif
}

CW_FN inline void fetch_ahead([[maybe_unused]] const void* from) noexcept {
#if !CW_ON_GPU
  asm volatile("");  // else GCC leaves out calls of it, as of a function without effect
  __builtin_prefetch(from);
#endif
}

template <std::size_t Bytes>
CW_FN inline bool takes_whole([[maybe_unused]] const void* p) noexcept {
#if CW_ON_GPU
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(impl::whole_word<Bytes>) == 0;
#else
  return true;
#endif
}

template <std::size_t Bytes>
CW_FN inline void copy_whole(void* to, const void* from) noexcept {
#if CW_ON_GPU
  using word = impl::whole_word<Bytes>;
  for (std::size_t i = 0; i < Bytes / sizeof(word); ++i) {
    static_cast<word*>(to)[i] = static_cast<const word*>(from)[i];
  }
#else
  std::memcpy(to, from, Bytes);
#endif
}

CW_FN inline std::byte* load_or(bool load, std::byte* const* where,
                                std::uintptr_t address) noexcept {
#if CW_ON_GPU
  asm("{.reg .pred p; setp.ne.s32 p, %1, 0; @p ld.global.nc.u64 %0, [%2];}"
      : "+l"(address)
      : "r"(static_cast<int>(load)), "l"(__cvta_generic_to_global(where)));
  return reinterpret_cast<std::byte*>(address);
#else
  return load ? *where : reinterpret_cast<std::byte*>(address);
#endif
}

CW_FN inline void copy_part(const kernel_context& ctx, void* dst, const void* src,
                            std::size_t bytes) noexcept {
  constexpr std::size_t piece = 128 * 1024;
  const std::size_t stride = piece * static_cast<std::size_t>(ctx.block_count());
  for (std::size_t at = piece * static_cast<std::size_t>(ctx.block_index()); at < bytes;
       at += stride) {
    copy(ctx.block(), static_cast<std::byte*>(dst) + at, static_cast<const std::byte*>(src) + at,
         bytes - at < piece ? bytes - at : piece);
  }
}

}  // namespace crosswarp::device
