// crosswarp bench memory: signals, barriers and puts between ranks.
#include <array>
#include <cstdio>
#include <memory>

#include "bench.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::bench {
namespace {

/// The barrier of Open MPI's OpenSHMEM, measured now, if it was found when this was built.
std::optional<double> oshmem_barrier_us(int ranks) {
  const std::string program = CROSSWARP_OSHMEM_PEER;
  if (program.empty()) return std::nullopt;
  const std::string command = "OMPI_MCA_btl=^uct oshrun --allow-run-as-root --oversubscribe -n " +
                              std::to_string(ranks) + " " + program + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return std::nullopt;
  double us = 0;
  if (std::fscanf(pipe.get(), "barrier_us %lf", &us) != 1) return std::nullopt;
  return us;
}

}  // namespace

std::vector<row> bench_memory(const setup& s, const rank_runner& run_ranks) {
  std::vector<row> rows;
  const auto add = [&](std::vector<row> more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  setup two = s;
  two.ranks = 2;
  add(run_ranks("signal", two));
  std::vector<int> counts = {2};
  if (s.device.kind() == device_kind::cuda && !s.processes) counts = {2, 4, 8, 16};
  for (const int n : counts) {
    setup these = s;
    these.ranks = n;
    auto more = run_ranks("barrier", these);
    if (s.device.kind() == device_kind::cpu && s.processes && !s.quick) {
      for (row& r : more) {
        if (const auto us = oshmem_barrier_us(n)) {
          r.peer = "oshmem barrier_all";
          r.peer_median = us;
        }
      }
    }
    add(more);
  }
  add(run_ranks("put", two));
  return rows;
}

}  // namespace crosswarp::bench
