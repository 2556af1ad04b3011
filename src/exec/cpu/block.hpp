// A running block of a CPU kernel: where its threads meet and what they share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "crosswarp/device/exec_context.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::exec::cpu {

class fiber;

/// A barrier with a vote, for fibers and for OS threads alike. A thread that ends its kernel
/// leaves the barrier, as on a GPU.
class team_barrier {
 public:
  explicit team_barrier(std::uint32_t members) noexcept : state_(pack(0, members, false, 0)) {}

  /// Waits for all members; true when one of them voted true.
  bool meet(bool vote) noexcept;
  /// One member less; releases the others if they were only waiting for it.
  void leave() noexcept;

 private:
  // One word, so that arriving and leaving are each one step.
  static constexpr std::uint64_t pack(std::uint64_t generation, std::uint64_t members, bool vote,
                                      std::uint64_t arrived) noexcept {
    return generation << 32U | members << 16U | (vote ? 1ULL : 0ULL) << 15U | arrived;
  }
  struct parts {
    std::uint32_t generation;
    std::uint32_t members;
    bool vote;
    std::uint32_t arrived;
  };
  static constexpr parts unpack(std::uint64_t s) noexcept {
    return {static_cast<std::uint32_t>(s >> 32U), static_cast<std::uint32_t>(s >> 16U & 0xffffU),
            (s >> 15U & 1U) != 0, static_cast<std::uint32_t>(s & 0x7fffU)};
  }
  /// The state after one step; when it completes the generation, its vote goes to result_.
  std::uint64_t settle(parts p) noexcept;

  // Fibers of one OS thread, which is the fast and the usual case; and everything else.
  bool meet_fibers(bool vote, fiber& me) noexcept;
  bool arrive_and_wait(bool vote) noexcept;
  void await_generation_after(std::uint32_t generation) noexcept;
  void tell_waiters() noexcept;

  std::atomic<std::uint64_t> state_;
  // The vote of a generation, kept until the next but one begins: by then all have read it.
  std::atomic<bool> result_[2] = {false, false};
};

/// The most threads a block may have; team_barrier counts them in 15 bits, GPUs stop at 1024.
inline constexpr int max_block_threads = 1024;

/// Who runs: what the scope checker compares.
struct identity {
  std::uint32_t owner = 0;   ///< rank, unique in the process; 0: not of a world
  std::uint32_t launch = 0;  ///< 0: a host thread
  std::int32_t block = 0;
};

struct block {
  block(const cpu_grid& grid, int index, device::grid_words& words, std::uint32_t launch);

  /// Runs the kernel as thread `t` of this block, then leaves its barriers.
  void run_thread(int t);

  const cpu_grid& grid;
  int index;
  device::grid_words& words;
  identity who;
  std::unique_ptr<std::byte[]> shared;
  team_barrier everyone;
  std::vector<std::unique_ptr<team_barrier>> warps;
  struct alignas(64) slot {
    std::byte bytes[device::broadcast_bytes];
  };
  std::vector<slot> slots;  // [0]: block, [1 + w]: warp w
};

/// The first exception that a thread of a launch let escape.
class first_exception {
 public:
  void capture() noexcept;
  void rethrow_if_any();

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr exception_;
};

}  // namespace crosswarp::exec::cpu
