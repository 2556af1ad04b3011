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

struct bench_options {
  std::vector<std::string> names;  ///< exec, memory
  std::string device = "cpu";
  std::optional<bool> processes;   ///< ranks as processes; none: on the CPU yes, on a GPU no
  bool quick = false;
  bool json = false;
  std::string plot;
};
int bench(const bench_options& o);
/// One rank of a benchmark; started by bench().
int bench_rank(const std::string& name, const std::string& answers, bool quick);

}  // namespace crosswarp::tool
