// Worlds for tests of collectives.
#pragma once

#include "worlds.hpp"

/// With room for the communicators' own memory.
inline crosswarp::world_options roomy() {
  auto o = test_options();
  o.heap_bytes = o.device.kind() == crosswarp::device_kind::cuda ? 128U << 20U : 16U << 20U;
  return o;
}

inline void with_ranks(int ranks, const std::function<void(crosswarp::world&)>& rank_main) {
  on_ranks(ranks, rank_main, roomy());
}
