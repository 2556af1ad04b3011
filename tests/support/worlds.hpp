// Worlds for tests: the ranks of `crosswarp run` when the test runs under it, else threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "crosswarp/options.hpp"
#include "crosswarp/world.hpp"
#include "device.hpp"

/// Other launchers set CROSSWARP_TEST_PROCESSES by hand.
inline bool under_launcher() {
  return crosswarp::options::read("CROSSWARP_BOOTSTRAP").has_value() ||
         crosswarp::options::read("CROSSWARP_TEST_PROCESSES").has_value();
}

inline crosswarp::world_options test_options() {
  auto o = crosswarp::world_options::from_environment();
  o.device = test_device();
  o.heap_bytes = 4U << 20U;
  return o;
}

/// Runs `rank_main` on `ranks` ranks; under a launcher on as many as it started.
inline void on_ranks(int ranks, const std::function<void(crosswarp::world&)>& rank_main,
                     const crosswarp::world_options& options = test_options()) {
  if (under_launcher()) {
    crosswarp::world w(options);
    rank_main(w);
  } else {
    crosswarp::run_local(ranks, options, rank_main);
  }
}
