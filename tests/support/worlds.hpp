// Worlds for tests: the ranks of `crosswarp run` when the test runs under it, else threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "crosswarp/world.hpp"
#include "device.hpp"

inline crosswarp::world_options test_options() {
  auto o = crosswarp::world_options::from_environment();
  o.device = test_device();
  // A GPU's kernels have many workers, each with its queues.
  o.heap_bytes = o.device.kind() == crosswarp::device_kind::cuda ? 64U << 20U : 4U << 20U;
  return o;
}

/// Runs `rank_main` on `ranks` ranks; under a launcher on as many as it started.
inline void on_ranks(int ranks, const std::function<void(crosswarp::world&)>& rank_main,
                     const crosswarp::world_options& options = test_options()) {
  crosswarp::run(ranks, options, rank_main);
}
