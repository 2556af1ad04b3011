// Runs grids on CPU threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "block.hpp"

namespace crosswarp {
class proxy;
class schedule;
}  // namespace crosswarp

namespace crosswarp::exec::cpu {

/// Runs one grid to its end; all its blocks make progress at once. Called by a stream's thread, or
/// by one that waits for the stream. Throws what the kernel threw.
void run_grid(const cpu_grid& grid);

/// Throws error(does_not_fit) when the grid's threads cannot all exist at once: on a CPU all blocks
/// of every launch do.
void check_fits(const launch_shape& shape);

/// Runs several ranks' grids to their ends on the calling thread, interleaved as `s` says.
void run_scheduled(const std::vector<cpu_grid>& grids, schedule& s);
/// Whether this build can.
bool scheduling_available() noexcept;

/// Tells the running scheduler, if there is one, that waiting threads may look again.
void note_progress() noexcept;

/// Says how many kernel threads of this job want a core here, so that waits know whether spinning
/// hurts. Counts add up; a negative number takes back.
void announce_load(int threads) noexcept;
/// More of them than cores: who spins takes a core from the one it waits for.
bool crowded() noexcept;

/// Kernels of rank `owner` lend their waiting threads to `p`; null: no longer. None of them runs
/// at this moment.
void set_helper(std::uint32_t owner, proxy* p) noexcept;

class fiber;

/// What decides who runs next on this OS thread while it runs fibers.
class scheduler {
 public:
  virtual ~scheduler() = default;
  /// The calling fiber waits for something that another must do; see relax().
  virtual bool on_wait(std::uint32_t spin) noexcept = 0;
  /// The calling fiber is about to do an atomic operation.
  virtual void on_atomic(access kind) noexcept = 0;
  virtual void on_progress() noexcept = 0;
  virtual std::uint64_t now_ns() noexcept = 0;
  /// Whose fiber runs.
  [[nodiscard]] virtual const identity& who() const noexcept = 0;
};

/// What runs on this OS thread at this moment: fibers, one kernel thread, or no kernel.
struct running_thread {
  scheduler* decides = nullptr;
  fiber* now = nullptr;  ///< the fiber that runs, when it may yield without asking `decides`
  identity who;          ///< when there are no fibers
};
running_thread& running() noexcept;

/// Checked builds: notes a scope too narrow for those who use the word at `address`.
void check_scope(const void* address, device::scope scope, const identity& who) noexcept;
/// A launch's number, not 0; check_scope() forgets what it saw of a launch that has ended.
std::uint32_t begin_launch() noexcept;
void end_launch(std::uint32_t launch) noexcept;
/// Throws error(invalid_argument) with what check_scope() or a kernel found in that launch, if they
/// did.
void throw_breach_of(std::uint32_t launch);

}  // namespace crosswarp::exec::cpu
