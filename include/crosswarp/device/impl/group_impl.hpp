// Bodies of exec_context.hpp and group.hpp.
#pragma once

#include <atomic>
#include <cstring>

#include "crosswarp/device/group.hpp"

namespace crosswarp::device {

// ---- context

CW_FN inline int kernel_context::thread_index() const noexcept {
#if CW_ON_GPU
  return static_cast<int>(threadIdx.x);
#else
  return cpu_thread_index_;
#endif
}

CW_FN inline int kernel_context::thread_count() const noexcept {
#if CW_ON_GPU
  return static_cast<int>(blockDim.x);
#else
  return cpu_thread_count_;
#endif
}

CW_FN inline std::byte* kernel_context::shared_memory() const noexcept {
#if CW_ON_GPU
  extern __shared__ __align__(16) unsigned char crosswarp_shared[];
  return reinterpret_cast<std::byte*>(crosswarp_shared);
#else
  return cpu_shared_;
#endif
}

CW_FN inline kernel_context kernel_context::here() noexcept {
#if CW_ON_GPU
  return kernel_context(place{.block_index = static_cast<int>(blockIdx.x),
                              .block_count = static_cast<int>(gridDim.x)});
#else
  return kernel_context(place{});
#endif
}

CW_FN inline thread_group kernel_context::thread() const noexcept {
  return {};
}
CW_FN inline warp_group kernel_context::warp() const& noexcept {
  return warp_group(*this);
}
CW_FN inline block_group kernel_context::block() const& noexcept {
  return block_group(*this);
}
CW_FN inline grid_group kernel_context::grid() const& noexcept {
  return grid_group(*this);
}

namespace impl {

/// Broadcast through 64 bytes that all threads of `g` can reach: the second barrier keeps the
/// next broadcast from overwriting a value that is still being read.
template <class G, class T>
CW_FN inline T broadcast_through(const G& g, void* slot, T value) noexcept {
  if (g.rank() == 0) memcpy(slot, &value, sizeof(T));
  g.sync();
  memcpy(&value, slot, sizeof(T));
  g.sync();
  return value;
}

#if CW_ON_GPU
__device__ inline unsigned warp_mask(int size) noexcept {
  return size == warp_group::width ? 0xffffffffU : (1U << static_cast<unsigned>(size)) - 1U;
}
#endif

}  // namespace impl

// ---- warp

CW_FN inline int warp_group::rank() const noexcept {
  return context_->thread_index() % width;
}

CW_FN inline int warp_group::index() const noexcept {
  return context_->thread_index() / width;
}

CW_FN inline int warp_group::size() const noexcept {
  const int left = context_->thread_count() - index() * width;
  return left < width ? left : width;
}

CW_FN inline void warp_group::sync() const noexcept {
#if CW_ON_GPU
  __syncwarp(impl::warp_mask(size()));
#else
  if (context_->cpu_block_ != nullptr) exec::cpu::sync_warp(*context_->cpu_block_, index(), false);
#endif
}

template <broadcastable T>
CW_FN inline T warp_group::broadcast(T value) const noexcept {
#if CW_ON_GPU
  // By shuffles of 32-bit words: no shared memory, one instruction for an int.
  constexpr int words = (sizeof(T) + 3) / 4;
  unsigned word[words] = {};
  memcpy(word, &value, sizeof(T));
  const unsigned mask = impl::warp_mask(size());
  for (int i = 0; i < words; ++i) word[i] = __shfl_sync(mask, word[i], 0);
  // A shuffle moves the value but promises no memory order; the barrier does.
  __syncwarp(mask);
  memcpy(&value, word, sizeof(T));
  return value;
#else
  if (context_->cpu_block_ == nullptr) return value;
  return impl::broadcast_through(*this, exec::cpu::broadcast_slot(*context_->cpu_block_, index()),
                                 value);
#endif
}

CW_FN inline bool warp_group::any(bool b) const noexcept {
#if CW_ON_GPU
  const unsigned mask = impl::warp_mask(size());
  const bool result = __any_sync(mask, b) != 0;
  __syncwarp(mask);
  return result;
#else
  if (context_->cpu_block_ == nullptr) return b;
  return exec::cpu::sync_warp(*context_->cpu_block_, index(), b);
#endif
}

CW_FN inline std::uint32_t warp_group::ballot(bool b) const noexcept {
#if CW_ON_GPU
  const unsigned mask = impl::warp_mask(size());
  const std::uint32_t votes = __ballot_sync(mask, b);
  __syncwarp(mask);
  return votes;
#else
  if (context_->cpu_block_ == nullptr || size() == 1) return b ? 1 : 0;
  auto& votes =
      *reinterpret_cast<std::uint32_t*>(exec::cpu::broadcast_slot(*context_->cpu_block_, index()));
  if (rank() == 0) votes = 0;
  sync();
  // Relaxed: the barriers order.
  if (b) {
    std::atomic_ref<std::uint32_t>(votes).fetch_or(1U << static_cast<unsigned>(rank()),
                                                   std::memory_order_relaxed);
  }
  sync();
  const std::uint32_t all = votes;
  sync();
  return all;
#endif
}

template <class T>
requires(sizeof(T) == 4) CW_FN inline T warp_group::swap(T value, int mask) const noexcept {
#if CW_ON_GPU
  return __shfl_xor_sync(0xffffffffU, value, mask);
#else
  if (context_->cpu_block_ == nullptr) return value;
  auto* const slot =
      reinterpret_cast<T*>(exec::cpu::broadcast_slot(*context_->cpu_block_, index()));
  constexpr int at_once = broadcast_bytes / static_cast<int>(sizeof(T));
  const int other = rank() ^ mask;
  T theirs = value;
  for (int first = 0; first < width; first += at_once) {
    if (rank() / at_once * at_once == first) slot[rank() - first] = value;
    sync();
    if (other / at_once * at_once == first) theirs = slot[other - first];
    sync();
  }
  return theirs;
#endif
}

template <class T>
requires(sizeof(T) == 4 || sizeof(T) == 8)
    CW_FN inline T warp_group::from(T value, int rank) const noexcept {
#if CW_ON_GPU
  // A shuffle takes any of the types that it knows for bits.
  using bits = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  bits word = 0;
  memcpy(&word, &value, sizeof(T));
  word = __shfl_sync(impl::warp_mask(size()), word, rank);
  memcpy(&value, &word, sizeof(T));
  return value;
#else
  if (context_->cpu_block_ == nullptr) return value;
  auto* const slot =
      reinterpret_cast<T*>(exec::cpu::broadcast_slot(*context_->cpu_block_, index()));
  constexpr int at_once = broadcast_bytes / static_cast<int>(sizeof(T));
  T theirs = value;
  for (int first = 0; first < size(); first += at_once) {
    if (this->rank() / at_once * at_once == first) slot[this->rank() - first] = value;
    sync();
    if (rank / at_once * at_once == first) theirs = slot[rank - first];
    sync();
  }
  return theirs;
#endif
}

CW_FN constexpr bool warps_go_together() noexcept {
  return CW_ON_GPU == 1;
}

CW_FN inline int count_bits(std::uint32_t bits) noexcept {
#if CW_ON_GPU
  return __popc(bits);
#else
  return __builtin_popcount(bits);
#endif
}

CW_FN inline int leading_bits(std::uint32_t bits) noexcept {
#if CW_ON_GPU
  return bits == ~0U ? 32 : __ffs(static_cast<int>(~bits)) - 1;
#else
  return bits == ~0U ? 32 : __builtin_ctz(~bits);
#endif
}

template <class F>
CW_FN inline auto with_warp(const kernel_context& ctx, const F& f) noexcept {
#if !CW_ON_GPU
  if (ctx.thread_count() == 1) return f(ctx.thread());
#endif
  return f(ctx.warp());
}

// ---- block

CW_FN inline void block_group::sync() const noexcept {
#if CW_ON_GPU
  __syncthreads();
#else
  if (context_->cpu_block_ != nullptr) exec::cpu::sync_block(*context_->cpu_block_, false);
#endif
}

template <broadcastable T>
CW_FN inline T block_group::broadcast(T value) const noexcept {
#if CW_ON_GPU
  __shared__ alignas(16) unsigned char slot[broadcast_bytes];
  return impl::broadcast_through(*this, slot, value);
#else
  if (context_->cpu_block_ == nullptr) return value;
  return impl::broadcast_through(*this, exec::cpu::broadcast_slot(*context_->cpu_block_, -1),
                                 value);
#endif
}

CW_FN inline bool block_group::any(bool b) const noexcept {
#if CW_ON_GPU
  return __syncthreads_or(static_cast<int>(b)) != 0;
#else
  if (context_->cpu_block_ == nullptr) return b;
  return exec::cpu::sync_block(*context_->cpu_block_, b);
#endif
}

template <class T, int N, class Write>
requires(sizeof(T) * N <= static_cast<std::size_t>(broadcast_bytes))
    CW_FN inline void block_group::make_together(T (&all)[N], [[maybe_unused]] std::size_t turn,
                                                 const Write& write) const noexcept {
#if CW_ON_GPU
  // In two places in turn: who writes one again has been at the sync of the call between, and so
  // have all who read it.
  __shared__ T places[2][N];
  T* const told = places[turn % 2];
  write(told);
  sync();
  CW_UNROLLED
  for (int i = 0; i < N; ++i) all[i] = told[i];
#else
  if (context_->cpu_block_ == nullptr) return write(all);
  auto* const told = reinterpret_cast<T*>(exec::cpu::broadcast_slot(*context_->cpu_block_, -1));
  write(told);
  sync();
  std::memcpy(all, told, sizeof(all));
  sync();
#endif
}

// ---- grid

namespace impl {

/// Beside the count of those that have arrived, see give_up().
inline constexpr std::uint32_t grid_has_failed = 1U << 31U;

/// How a block has come to its grid's barrier.
struct grid_arrival {
  std::uint32_t before;  ///< the epoch that it came in
  bool is_last;          ///< of a launch in which no barrier has failed
};
CW_FN inline grid_arrival arrive(grid_words& words, int blocks) noexcept {
  // Relaxed: the epoch cannot move before this block has arrived.
  const std::uint32_t before = device_atomic<std::uint32_t>(words.epoch).load(order::relaxed);
  // acq_rel: pairs with the other blocks' arrivals, so that the last one has seen all of them.
  const std::uint32_t others =
      device_atomic<std::uint32_t>(words.arrived).fetch_add(1, order::acq_rel);
  return {before, others + 1 == static_cast<std::uint32_t>(blocks)};
}
/// By the last one.
CW_FN inline void let_go(grid_words& words, int blocks, std::uint32_t before) noexcept {
  // Not set to zero: somebody may have given up meanwhile. Relaxed: the next word orders it.
  device_atomic<std::uint32_t>(words.arrived)
      .fetch_add(0U - static_cast<std::uint32_t>(blocks), order::relaxed);
  // Pairs with the acquire in await().
  device_atomic<std::uint32_t>(words.epoch).store(before + 1, order::release);
}
/// A block that has given up was counted all the same: no barrier of this launch can be trusted
/// any more, so all of them fail alike. Who is told of it comes here, too, before it can arrive
/// once more: so a count that has a block twice has the mark, and makes nobody the last.
CW_FN inline status give_up(grid_words& words, status why) noexcept {
  // Relaxed, both: they order no data.
  device_atomic<std::uint32_t>(words.arrived).fetch_or(grid_has_failed, order::relaxed);
  std::int32_t first = 0;
  const std::int32_t mine = static_cast<std::int32_t>(why);
  device_atomic<std::int32_t>(words.failed).compare_exchange(first, mine, order::relaxed);
  return static_cast<status>(first != 0 ? first : mine);
}
/// By the others.
CW_FN inline status await(grid_words& words, std::uint32_t before,
                          const wait_limits& limits) noexcept {
  const device_atomic<std::uint32_t> epoch(words.epoch);
  const device_atomic<std::int32_t> failed(words.failed);
  bool met = false;
  const status outcome = poll_until(
      [&] {
        // Asked for first, so that both are under way. Who has failed before sees it here, whatever
        // the epoch: a slow block may be ending the barrier that this one has given up.
        const bool broken = failed.load(order::relaxed) != 0;
        met = epoch.load(order::acquire) != before && !broken;  // pairs with let_go()
        return met || broken;
      },
      limits);
  return met ? status::ok : give_up(words, outcome);
}

CW_FN inline status meet_blocks(grid_words& words, int blocks, const wait_limits& limits) noexcept {
  const grid_arrival mine = arrive(words, blocks);
  if (!mine.is_last) return await(words, mine.before, limits);
  let_go(words, blocks, mine.before);
  return status::ok;
}

}  // namespace impl

CW_FN inline int grid_group::rank() const noexcept {
  return context_->block_index() * context_->thread_count() + context_->thread_index();
}

CW_FN inline int grid_group::size() const noexcept {
  return context_->block_count() * context_->thread_count();
}

CW_FN inline status grid_group::sync() const noexcept {
  if (context_->grid_ == nullptr) return status::invalid;
  const block_group block(*context_);
  block.sync();
  return leader_of(block, [&] {
    return impl::meet_blocks(*context_->grid_, context_->block_count(), context_->limits_);
  });
}

template <class F>
CW_FN inline status grid_group::sync(const F& f) const noexcept {
  if (context_->grid_ == nullptr) return status::invalid;
  grid_words& words = *context_->grid_;
  const block_group block(*context_);
  block.sync();
  const int blocks = context_->block_count();
  const impl::grid_arrival mine = leader_of(block, [&] { return impl::arrive(words, blocks); });
  if (!mine.is_last) {
    return leader_of(block, [&] { return impl::await(words, mine.before, context_->limits_); });
  }
  const status s = f(block);
  // Of what has failed first, also here: somebody may have waited too long for f.
  if (s != status::ok) return leader_of(block, [&] { return impl::give_up(words, s); });
  block.sync();  // what its threads did is ahead of the leader's word to the others
  if (block.rank() == 0) impl::let_go(words, blocks, mine.before);
  return status::ok;
}

}  // namespace crosswarp::device
