// Deterministic schedules: run a kernel so that its interleaving is chosen, recorded, repeatable.
//
// On device_ref::scheduled(s) all threads of all ranks of a collective launch run on one OS thread
// and switch only at atomic operations, barriers and waits, where the schedule chooses who is
// next. Under ThreadSanitizer the switches order nothing, so a missing acquire or release is
// reported although everything ran on one thread. What is explored are interleavings; what a
// weaker memory may do beyond them, ThreadSanitizer finds on the data that is meant to be ordered.
// Time is virtual: it moves only when everybody
// waits, so a deadlock shows at once as status::timeout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "crosswarp/device_ref.hpp"

namespace crosswarp {

/// Which interleavings to run. Needs a checked build with fibers: see available().
class schedule {
 public:
  /// `count` random walks from a seed; walk i depends on (seed, i) only.
  static schedule random(std::uint64_t seed, std::uint64_t count);
  /// Every interleaving in which at most `preemptions` switches happen where the running thread
  /// could have gone on; at most `limit` of them.
  static schedule exhaustive(int preemptions, std::uint64_t limit = 1'000'000);

  /// True when this build can run kernels under a schedule.
  static bool available() noexcept;

  /// Prepares the next execution; false when there is none. Call before each, also the first.
  bool next();
  /// Executions begun so far.
  [[nodiscard]] std::uint64_t executions() const noexcept { return executions_; }
  /// True when an exhaustive schedule ran out of interleavings rather than into its limit.
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  /// What identifies the current execution, for a failure message.
  [[nodiscard]] std::string describe() const;

  /// For the executor: picks one of `options` runnable threads; `preferred` is the one that ran
  /// last, or `options` when it cannot go on.
  std::size_t choose(std::size_t options, std::size_t preferred);

 private:
  schedule() = default;
  struct choice {
    std::size_t taken;
    std::size_t options;
    std::size_t preferred;
  };
  bool exhaustive_ = false;
  bool complete_ = false;
  std::uint64_t seed_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t executions_ = 0;
  std::uint64_t state_ = 0;  // of the random walk
  int preemptions_ = 0;      // allowed
  int preempted_ = 0;        // in this execution
  std::size_t depth_ = 0;
  std::vector<choice> path_;
};

/// Runs `body(device)` once for each execution of `s`.
template <class Body>
void explore(schedule& s, Body&& body) {
  while (s.next()) body(device_ref::scheduled(s));
}

}  // namespace crosswarp
