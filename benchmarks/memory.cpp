// crosswarp bench memory: signals, barriers and puts between ranks.
#include "bench.hpp"

namespace crosswarp::bench {
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
      const auto theirs = ops_of_oshmem();
      for (row& r : more) {
        if (!theirs.contains("barrier")) continue;
        r.peer = "oshmem barrier_all";
        r.peer_median = theirs.at("barrier");
      }
    }
    add(more);
  }
  add(run_ranks("put", two));
  return rows;
}

}  // namespace crosswarp::bench
