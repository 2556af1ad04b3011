#include "block.hpp"

#include <algorithm>

#include "executor.hpp"
#if CROSSWARP_HAVE_FIBERS
#include "fiber.hpp"
#endif

namespace crosswarp::exec::cpu {

inline __attribute__((always_inline)) std::uint64_t team_barrier::settle(parts p) noexcept {
  if (p.arrived < p.members || p.members == 0) {
    return pack(p.generation, p.members, p.vote, p.arrived);
  }
  result_[p.generation & 1U].store(p.vote, std::memory_order_relaxed);
  return pack(p.generation + 1, p.members, false, 0);
}

#if CROSSWARP_HAVE_FIBERS

/// All members are fibers of this OS thread: no step can come between a load and a store.
inline __attribute__((always_inline)) bool team_barrier::meet_fibers(bool vote,
                                                                     fiber& me) noexcept {
  const parts mine = unpack(state_.load(std::memory_order_relaxed));
  const std::uint64_t after =
      settle({mine.generation, mine.members, mine.vote || vote, mine.arrived + 1});
  state_.store(after, std::memory_order_relaxed);
  if (unpack(after).generation != mine.generation) {
    note_progress();
  } else {
    do {
      me.yield();
    } while (unpack(state_.load(std::memory_order_relaxed)).generation == mine.generation);
  }
  return result_[mine.generation & 1U].load(std::memory_order_relaxed);
}

#endif

bool team_barrier::arrive_and_wait(bool vote) noexcept {
  std::uint64_t before = state_.load(std::memory_order_relaxed);
  parts mine{};
  std::uint64_t after = 0;
  do {
    mine = unpack(before);
    after = settle({mine.generation, mine.members, mine.vote || vote, mine.arrived + 1});
    // acq_rel: the last to arrive has seen all others' work; its store below is theirs to acquire.
  } while (!state_.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  if (unpack(after).generation != mine.generation) {
    tell_waiters();
  } else {
    await_generation_after(mine.generation);
  }
  return result_[mine.generation & 1U].load(std::memory_order_relaxed);
}

void team_barrier::await_generation_after(std::uint32_t generation) noexcept {
  const running_thread& here = running();
  for (std::uint32_t spin = 1;; ++spin) {
    const std::uint64_t now = state_.load(std::memory_order_acquire);
    if (unpack(now).generation != generation) return;
    if (here.decides == nullptr && spin > 100) {
      state_.wait(now, std::memory_order_acquire);  // an OS thread sleeps; see tell_waiters()
    } else {
      relax(spin);
    }
  }
}

void team_barrier::tell_waiters() noexcept {
  if (running().decides == nullptr) {
    state_.notify_all();
  } else {
    note_progress();
  }
}

void team_barrier::leave() noexcept {
  std::uint64_t before = state_.load(std::memory_order_relaxed);
  std::uint64_t after = 0;
  do {
    const parts p = unpack(before);
    after = settle({p.generation, p.members - 1, p.vote, p.arrived});
  } while (!state_.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  tell_waiters();
}

block::block(const cpu_grid& g, int i, device::grid_words& w, std::uint32_t launch)
    : grid(g),
      index(i),
      words(w),
      who{g.owner, launch, i},
      shared(g.shape.shared_bytes == 0 ? nullptr : new std::byte[g.shape.shared_bytes]),
      everyone(static_cast<std::uint32_t>(g.shape.threads)) {
  const int width = device::warp_group::width;
  const int count = (g.shape.threads + width - 1) / width;
  for (int n = 0; n < count; ++n) {
    const int members = std::min(width, g.shape.threads - n * width);
    warps.push_back(std::make_unique<team_barrier>(static_cast<std::uint32_t>(members)));
  }
  slots.resize(1 + static_cast<std::size_t>(count));
}

void block::run_thread(int t) {
  const device::kernel_context ctx({.block_index = index,
                                    .block_count = grid.shape.blocks,
                                    .grid = grid.shape.resident ? &words : nullptr,
                                    .limits = grid.shape.limits,
                                    .thread_index = t,
                                    .thread_count = grid.shape.threads,
                                    .block = this,
                                    .shared = shared.get()});
  struct leaver {
    block& b;
    std::size_t warp;
    ~leaver() {
      b.warps[warp]->leave();
      b.everyone.leave();
    }
  } leave{*this, static_cast<std::size_t>(t / device::warp_group::width)};
  grid.body(ctx);
}

void first_exception::capture() noexcept {
  if (!taken_.exchange(true)) exception_ = std::current_exception();
}

void first_exception::rethrow_if_any() {
  if (taken_.load()) std::rethrow_exception(exception_);
}

inline __attribute__((always_inline)) bool team_barrier::meet(bool vote) noexcept {
  // Alone: nobody to wait for, and nobody to tell. Acquire: those who left are before this.
  if (unpack(state_.load(std::memory_order_acquire)).members == 1) return vote;
#if CROSSWARP_HAVE_FIBERS
  if (fiber* const me = running().now) return meet_fibers(vote, *me);
#endif
  return arrive_and_wait(vote);
}

bool sync_block(block& b, bool vote) noexcept {
  return b.everyone.meet(vote);
}

bool sync_warp(block& b, int warp, bool vote) noexcept {
  return b.warps[static_cast<std::size_t>(warp)]->meet(vote);
}

std::byte* broadcast_slot(block& b, int warp) noexcept {
  return b.slots[static_cast<std::size_t>(warp) + 1].bytes;
}

}  // namespace crosswarp::exec::cpu
