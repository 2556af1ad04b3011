// Where cores are in a machine.
#pragma once

#include <string>
#include <vector>

#include "crosswarp/flow_policy.hpp"

namespace crosswarp::flow::impl {

/// What the machine's topology says of these cores, by their numbers in Linux. `synthetic`: of a
/// machine that is described so in the words of hwloc, instead of this one.
machine_spot spot_of(const std::vector<int>& cores, const std::string& synthetic = {});
/// What knows it, for people; empty: nothing does.
std::string knower_of_spots();

}  // namespace crosswarp::flow::impl
