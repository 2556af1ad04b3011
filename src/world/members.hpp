// Where the ranks of a world are.
#pragma once

#include <vector>

#include "bootstrap.hpp"

namespace crosswarp::world_impl {

struct members {
  std::vector<int> node;    ///< by rank: its machine, numbered from 0 by its lowest rank
  std::vector<int> locals;  ///< ranks on this rank's machine, ascending
  int nodes = 1;
};

/// Ranks are on one machine when they share a kernel and a network namespace and were not told to
/// pretend otherwise. Collective.
members find_members(bootstrap& boot, int pretended_nodes, nanoseconds timeout);

}  // namespace crosswarp::world_impl
