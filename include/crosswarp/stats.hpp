// What a rank's kernels and its proxy did: counters by kind of operation.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace crosswarp {

struct operation_stats {
  /// What kernels called: "put_signal", "atomic add", "quiet", ... By loads and stores: "put,
  /// mapped", ..., counted when CROSSWARP_STATS is 1 or the world is traced; a collective's own
  /// operations count, too.
  std::string name;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t failures = 0;
  /// Kernels waited so long in all for a free slot of their queue.
  std::chrono::nanoseconds waited_for_slot{0};
  /// From the moment the host read the command to its end, in all; measured when CROSSWARP_STATS
  /// is 1.
  std::chrono::nanoseconds to_completion{0};
  /// By loads and stores: counted, and nothing of the two above is measured.
  bool mapped = false;
  /// By entries that kernels wrote, with CROSSWARP_PATH=rdma: likewise.
  bool by_rdma = false;
};

/// As a table for people; operations that did not occur are left out, and what was not measured is
/// "-".
std::string print_stats(const std::vector<operation_stats>& all);

}  // namespace crosswarp
