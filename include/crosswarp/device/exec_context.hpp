// What a kernel knows about where it runs. The first parameter of every kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/impl/cpu_hooks.hpp"
#include "crosswarp/device/platform.hpp"
#include "crosswarp/device/poll.hpp"

namespace crosswarp::device {

/// A mistake of the program that a kernel's thread has found: on a CPU it ends its launch. What
/// looks for mistakes does it in checked builds alone.
CW_FN inline void note_mistake([[maybe_unused]] const char* call,
                               [[maybe_unused]] const char* why) noexcept {
#if !CW_ON_GPU
  exec::cpu::note_mistake(call, why);
#endif
}

class thread_group;
class warp_group;
class block_group;
class grid_group;

/// Memory by which the blocks of one resident launch meet. Zero before each launch.
struct grid_words {
  alignas(line_bytes) std::uint32_t arrived;
  alignas(line_bytes) std::uint32_t epoch;
  std::int32_t failed;  ///< the first failure; all barriers of the launch return it from then on
};

/// The calling thread's place: thread in block, block in grid. Grids and blocks have one
/// dimension. When several ranks share one cooperative grid, each sees only its own part.
class kernel_context {
 public:
  [[nodiscard]] CW_FN int thread_index() const noexcept;
  [[nodiscard]] CW_FN int thread_count() const noexcept;
  [[nodiscard]] CW_FN int block_index() const noexcept { return block_index_; }
  [[nodiscard]] CW_FN int block_count() const noexcept { return block_count_; }

  /// Memory shared by the threads of this block: `launch_shape::shared_bytes` long, aligned to 16
  /// bytes, not initialised.
  [[nodiscard]] CW_FN std::byte* shared_memory() const noexcept;

  [[nodiscard]] CW_FN thread_group thread() const noexcept;
  [[nodiscard]] CW_FN warp_group warp() const& noexcept;
  [[nodiscard]] CW_FN block_group block() const& noexcept;
  /// All threads of this rank's grid. Its sync() needs a resident launch.
  [[nodiscard]] CW_FN grid_group grid() const& noexcept;
  // A group refers to its context, so it cannot come from a temporary one.
  warp_group warp() && = delete;
  block_group block() && = delete;
  grid_group grid() && = delete;

  /// For a `__global__` kernel of one's own, of one dimension: the context of the calling GPU
  /// thread. Grid barriers need a launch by crosswarp::launch; here grid().sync() returns invalid.
  static CW_FN kernel_context here() noexcept;

  /// For the executors only.
  struct place {
    int block_index = 0;
    int block_count = 1;
    grid_words* grid = nullptr;
    wait_limits limits = {};
    // CPU executors only.
    int thread_index = 0;
    int thread_count = 1;
    exec::cpu::block* block = nullptr;
    std::byte* shared = nullptr;
  };
  CW_FN explicit kernel_context(const place& p) noexcept
      : block_index_(p.block_index),
        block_count_(p.block_count),
        grid_(p.grid),
        limits_(p.limits),
        cpu_thread_index_(p.thread_index),
        cpu_thread_count_(p.thread_count),
        cpu_block_(p.block),
        cpu_shared_(p.shared) {}

 private:
  friend class warp_group;
  friend class block_group;
  friend class grid_group;

  int block_index_;
  int block_count_;
  grid_words* grid_;
  wait_limits limits_;
  int cpu_thread_index_;
  int cpu_thread_count_;
  exec::cpu::block* cpu_block_;
  std::byte* cpu_shared_;
};

}  // namespace crosswarp::device

#include "crosswarp/device/group.hpp"
