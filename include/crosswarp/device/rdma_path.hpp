// The path `rdma` of a world: what a kernel asks of ranks that are not mapped becomes entries that
// it writes itself. Commands are those of proxy.hpp; here they go to an adapter, and not to the
// host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device {

/// A rank's part of some symmetric memory, for entries.
struct rdma_part {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  ///< 0: none
  std::uint32_t rkey = 0;
};

/// Where an adapter puts a value for one thread, which holds it meanwhile.
struct rdma_landing {
  std::uint64_t held;
  std::uint64_t value;
};

/// What those who post to one endpoint share besides.
struct rdma_way_state {
  std::uint64_t fetches;  ///< behind the last read or atomic that was posted
  std::uint64_t told;     ///< 1: a quiet has told of its failure
};
struct rdma_way {
  rdma::endpoint to;
  rdma_way_state* state = nullptr;
};

/// What was done by one kind of call, from one queue.
struct rdma_counts {
  std::uint64_t calls;
  std::uint64_t bytes;  ///< of those that did not fail
  std::uint64_t failures;
};

/// The ways of a rank. In memory that kernels read; valid while the world lives.
struct rdma_path {
  static constexpr std::uint32_t most_regions = 256;

  const rdma_way* ways = nullptr;    ///< queues x ranks
  const rdma_part* parts = nullptr;  ///< by region, then by rank
  rdma_counts* counts = nullptr;     ///< queues x proxy_calls
  rdma_landing* landings = nullptr;
  std::uint32_t landing_count = 0;
  std::uint32_t landing_key = 0;
  std::uint32_t any_key = 0;  ///< of all memory of this process
  int ranks = 0;
};

}  // namespace crosswarp::device
