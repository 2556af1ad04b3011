// The subcommands of `crosswarp`.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace crosswarp::tool {

struct run_options {
  int ranks = 1;
  int nodes = 1;
  std::string device;  ///< empty: as CROSSWARP_DEVICE says
  std::string heap;    ///< empty: as CROSSWARP_HEAP says
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
  bool processes = false;  ///< what ranks are; neither: processes on the CPU,
  bool threads = false;    ///< threads on a GPU
  bool quick = false;
  bool json = false;
  std::string plot;
};
int bench(const bench_options& o);

struct tour_options {
  std::string device = "auto";
  std::string report = "crosswarp-tour.html";
};
/// Returns 0 when every scene was verified.
int tour(const tour_options& o);

/// One rank of a benchmark; started by bench().
int bench_rank(const std::string& name, const std::string& answers, bool quick);

}  // namespace crosswarp::tool
