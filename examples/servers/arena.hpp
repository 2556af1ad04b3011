// Memory for what a server keeps, all in one span that is given at the start. Zeroes are a valid,
// empty arena.
//
// The span is cut into chunks. A shard takes chunks, one at a time or several in a row, with atomic
// operations on one bit each: nobody waits. In a shard, under its lock, a chunk is a slab of blocks
// of one size; a block that is larger than a slab's has chunks of its own.
#pragma once

#include "bytes.hpp"
#include "crosswarp/device/atomic.hpp"

namespace servers {

/// A place in the arena, in units of 16 bytes from its start. 0: none.
using ref = std::uint32_t;

inline constexpr std::size_t unit_bytes = 16;
inline constexpr std::size_t chunk_bytes = std::size_t{32} * 1024;
/// 32, 48, 64, 96, ... 12288 bytes.
inline constexpr int size_classes = 18;

CW_FN constexpr std::size_t class_bytes(int c) noexcept {
  return static_cast<std::size_t>(c % 2 == 0 ? 32 : 48) << static_cast<unsigned>(c / 2);
}
/// The smallest class for so many bytes; size_classes when there is none.
CW_FN constexpr int class_of(std::size_t bytes) noexcept {
  int c = 0;
  while (c < size_classes && class_bytes(c) < bytes) ++c;
  return c;
}

/// Index of the lowest bit that is set; `bits` is not 0.
CW_FN constexpr unsigned lowest_bit(std::uint64_t bits) noexcept {
  unsigned n = 0;
  for (unsigned step = 32; step > 0; step /= 2) {
    if ((bits & ((std::uint64_t{1} << step) - 1)) == 0) {
      bits >>= step;
      n += step;
    }
  }
  return n;
}
/// Index of the highest bit that is set; `bits` is not 0.
CW_FN constexpr unsigned highest_bit(std::uint32_t bits) noexcept {
  unsigned n = 0;
  for (unsigned step = 16; step > 0; step /= 2) {
    if ((bits >> step) != 0) {
      bits >>= step;
      n += step;
    }
  }
  return n;
}

/// At the start of each slab, and of chunks that are one block.
struct alignas(unit_bytes) chunk_head {
  ref next;             ///< slabs of the class that have free blocks
  ref before;           ///< (both ways)
  ref free;             ///< blocks that came back, linked by their first word
  std::uint32_t fresh;  ///< blocks that were never used begin with this one
  std::uint32_t live;   ///< blocks in use
  std::uint32_t kind;   ///< its class; size_classes: one block
  std::uint32_t chunks;
};

/// A shard's slabs. Used under the shard's lock.
struct heap {
  ref partial[size_classes];  ///< slabs with free blocks
  std::uint64_t blocks;       ///< in use
};

class arena {
 public:
  arena() = default;
  /// `base`: aligned to 256 bytes.
  CW_FN arena(char* base, std::size_t bytes) noexcept : base_(base) {
    // One bit for each chunk. The first chunk begins where the bits end, at a whole unit.
    std::size_t chunks = (bytes - head_bytes) / chunk_bytes;
    while (chunks > 0 && start_of_chunks(chunks) + chunks * chunk_bytes > bytes) --chunks;
    chunks_ = static_cast<std::uint32_t>(chunks);
    start_ = start_of_chunks(chunks);
  }

  template <class T>
  [[nodiscard]] CW_FN T* at(ref r) const noexcept {
    return reinterpret_cast<T*>(base_ + r * unit_bytes);
  }

  /// Not initialised; 0 when there is none left.
  [[nodiscard]] CW_COLD CW_FN ref allocate(heap& h, std::size_t bytes) const noexcept {
    const int c = class_of(bytes);
    const ref r = c < size_classes ? from_slab(h, c) : whole_chunks(bytes);
    if (r != 0) ++h.blocks;
    return r;
  }
  CW_FN void release(heap& h, ref block) const noexcept;

  [[nodiscard]] CW_FN std::uint32_t chunk_count() const noexcept { return chunks_; }
  [[nodiscard]] CW_FN std::uint32_t chunks_in_use() const noexcept {
    return dev::device_atomic<std::uint32_t>(head().used).load(dev::order::relaxed);
  }
  /// All chunks are free again. Callers: one, who has kept all shards from using theirs.
  CW_FN void clear() const noexcept;

 private:
  struct arena_head {
    std::uint32_t used;  ///< chunks
    std::uint32_t hint;  ///< a word of bits where a chunk was free
  };
  static constexpr std::size_t head_bytes = 256;

  CW_FN static std::size_t start_of_chunks(std::size_t chunks) noexcept {
    return head_bytes + (chunks + 2047) / 2048 * 256;
  }
  [[nodiscard]] CW_FN arena_head& head() const noexcept {
    return *reinterpret_cast<arena_head*>(base_);
  }
  [[nodiscard]] CW_FN std::uint32_t words() const noexcept { return (chunks_ + 63) / 64; }
  [[nodiscard]] CW_FN dev::device_atomic<std::uint64_t> word(std::uint32_t i) const noexcept {
    return dev::device_atomic<std::uint64_t>(
        reinterpret_cast<std::uint64_t*>(base_ + head_bytes)[i]);
  }
  /// Bits of a word that stand for chunks.
  [[nodiscard]] CW_FN std::uint64_t valid_bits(std::uint32_t w) const noexcept {
    const std::uint32_t left = chunks_ - w * 64;
    return left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
  }
  [[nodiscard]] CW_FN ref ref_of_chunk(std::uint32_t i) const noexcept {
    return static_cast<ref>((start_ + i * chunk_bytes) / unit_bytes);
  }
  [[nodiscard]] CW_FN std::uint32_t chunk_of(ref r) const noexcept {
    return static_cast<std::uint32_t>((r * unit_bytes - start_) / chunk_bytes);
  }
  CW_FN void count(std::uint32_t chunks) const noexcept {
    dev::device_atomic<std::uint32_t>(head().used).fetch_add(chunks, dev::order::relaxed);
  }

  [[nodiscard]] CW_FN ref take_one() const noexcept;
  [[nodiscard]] CW_FN ref take(std::uint32_t n) const noexcept;
  [[nodiscard]] CW_FN std::uint32_t claim(std::uint32_t first, std::uint32_t n) const noexcept;
  CW_FN void give(std::uint32_t first, std::uint32_t n) const noexcept;
  [[nodiscard]] CW_FN ref from_slab(heap& h, int c) const noexcept;
  [[nodiscard]] CW_FN ref whole_chunks(std::size_t bytes) const noexcept;
  CW_FN void link(heap& h, ref slab) const noexcept;
  CW_FN void unlink(heap& h, ref slab) const noexcept;

  char* base_ = nullptr;
  std::size_t start_ = 0;
  std::uint32_t chunks_ = 0;
};

// ---- chunks

/// One chunk. Looks at each word of bits at most twice.
CW_FN inline ref arena::take_one() const noexcept {
  const dev::device_atomic<std::uint32_t> hint(head().hint);
  const std::uint32_t start = hint.load(dev::order::relaxed);
  for (std::uint32_t i = 0; i < words(); ++i) {
    const std::uint32_t w = (start + i) % words();
    for (int attempt = 0; attempt < 64; ++attempt) {
      const std::uint64_t open = ~word(w).load(dev::order::relaxed) & valid_bits(w);
      if (open == 0) break;
      const std::uint32_t chunk = w * 64 + lowest_bit(open);
      if (claim(chunk, 1) != 1) continue;
      if (w != start) hint.store(w, dev::order::relaxed);
      return ref_of_chunk(chunk);
    }
  }
  return 0;
}

/// Several in a row, the first that are found.
CW_FN inline ref arena::take(std::uint32_t n) const noexcept {
  if (n == 1) return take_one();
  std::uint32_t in_row = 0;
  for (std::uint32_t i = 0; i < chunks_; ++i) {
    const std::uint64_t bits = word(i / 64).load(dev::order::relaxed);
    if ((bits >> i % 64 & 1) != 0) {
      in_row = 0;
      if (bits == ~std::uint64_t{0}) i |= 63U;
      continue;
    }
    if (++in_row < n) continue;
    const std::uint32_t got = claim(i + 1 - n, n);
    if (got == n) return ref_of_chunk(i + 1 - n);
    in_row = n - 1 - got;  // somebody took the one after those
  }
  return 0;
}

/// Takes chunks in turn until one is another's; if so gives back what it took. Returns how many
/// it could take.
CW_FN inline std::uint32_t arena::claim(std::uint32_t first, std::uint32_t n) const noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << (first + i) % 64;
    // pairs with give(): what its last owner did there is over
    if ((word((first + i) / 64).fetch_or(bit, dev::order::acquire) & bit) == 0) continue;
    count(i);
    give(first, i);
    return i;
  }
  count(n);
  return n;
}

CW_FN inline void arena::give(std::uint32_t first, std::uint32_t n) const noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << (first + i) % 64;
    word((first + i) / 64).fetch_and(~bit, dev::order::release);  // pairs with claim()
  }
  count(0 - n);
}

CW_FN inline void arena::clear() const noexcept {
  for (std::uint32_t w = 0; w < words(); ++w) word(w).store(0, dev::order::relaxed);
  dev::device_atomic<std::uint32_t>(head().used).store(0, dev::order::relaxed);
}

CW_FN inline ref arena::whole_chunks(std::size_t bytes) const noexcept {
  const std::size_t all = bytes + sizeof(chunk_head);
  if (all > chunks_ * chunk_bytes) return 0;
  const auto n = static_cast<std::uint32_t>((all + chunk_bytes - 1) / chunk_bytes);
  const ref first = take(n);
  if (first == 0) return 0;
  auto* const h = at<chunk_head>(first);
  h->kind = size_classes;
  h->chunks = n;
  return first + sizeof(chunk_head) / unit_bytes;
}

// ---- blocks of slabs

CW_FN inline void arena::link(heap& h, ref slab) const noexcept {
  auto* const s = at<chunk_head>(slab);
  s->before = 0;
  s->next = h.partial[s->kind];
  if (s->next != 0) at<chunk_head>(s->next)->before = slab;
  h.partial[s->kind] = slab;
}

CW_FN inline void arena::unlink(heap& h, ref slab) const noexcept {
  const auto* const s = at<chunk_head>(slab);
  if (s->next != 0) at<chunk_head>(s->next)->before = s->before;
  (s->before != 0 ? at<chunk_head>(s->before)->next : h.partial[s->kind]) = s->next;
}

CW_FN constexpr std::uint32_t blocks_of_slab(int c) noexcept {
  return static_cast<std::uint32_t>((chunk_bytes - sizeof(chunk_head)) / class_bytes(c));
}

CW_FN inline ref arena::from_slab(heap& h, int c) const noexcept {
  ref slab = h.partial[c];
  if (slab == 0) {
    slab = take_one();
    if (slab == 0) return 0;
    auto* const made = at<chunk_head>(slab);
    *made = {};
    made->kind = static_cast<std::uint32_t>(c);
    made->chunks = 1;
    link(h, slab);
  }
  auto* const s = at<chunk_head>(slab);
  ref block = s->free;
  if (block != 0) {
    s->free = *at<ref>(block);
  } else {
    block = slab + static_cast<ref>((sizeof(chunk_head) + s->fresh * class_bytes(c)) / unit_bytes);
    ++s->fresh;
  }
  if (++s->live == blocks_of_slab(c)) unlink(h, slab);
  return block;
}

CW_COLD CW_FN inline void arena::release(heap& h, ref block) const noexcept {
  --h.blocks;
  const std::uint32_t chunk = chunk_of(block);
  const ref slab = ref_of_chunk(chunk);
  auto* const s = at<chunk_head>(slab);
  if (s->kind == size_classes) return give(chunk, s->chunks);
  *at<ref>(block) = s->free;
  s->free = block;
  if (s->live-- == blocks_of_slab(static_cast<int>(s->kind))) link(h, slab);
  // The last slab of its class stays: the next block would take a chunk again.
  if (s->live == 0 && (s->next != 0 || s->before != 0)) {
    unlink(h, slab);
    give(chunk, 1);
  }
}

}  // namespace servers
