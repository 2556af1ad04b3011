// The subcommands of `crosswarp`.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace crosswarp::tool {

struct run_options {
  int ranks = 1;
  int nodes = 1;
  std::string device;               ///< empty: as CROSSWARP_DEVICE says
  std::string heap;                 ///< empty: as CROSSWARP_HEAP says
  bool prefix = true;
  std::vector<std::string> command;
};
/// Starts the ranks and returns the first failing exit code, or 0.
int run(const run_options& o);

struct info_options {
  bool json = false;
  bool environment = false;
};
int info(const info_options& o);

}  // namespace crosswarp::tool
