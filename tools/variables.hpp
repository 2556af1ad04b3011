// Environment variables that look like ours and are not.
#pragma once

#include <string>
#include <vector>

namespace crosswarp::tool {

/// Set, named CROSSWARP_..., and read by nobody: most likely a typing error, which would otherwise
/// show in nothing.
std::vector<std::string> unknown_variables();

}  // namespace crosswarp::tool
