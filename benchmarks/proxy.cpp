// crosswarp bench proxy: commands of kernels that the host carries out.
#include <cstdio>
#include <memory>

#include "bench.hpp"

namespace crosswarp::bench {
namespace {

/// What a peer program prints as "put_quiet_us X"; none when it was not built or failed.
std::optional<double> peer_us(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"),
                                                   pclose);
  double us = 0;
  if (!pipe || std::fscanf(pipe.get(), "put_quiet_us %lf", &us) != 1) return std::nullopt;
  return us;
}

std::optional<double> plain_us(const std::string& engine) {
  const std::string ucx = CROSSWARP_UCX_PEER;
  const std::string mpi = CROSSWARP_MPI_PEER;
  if (engine == "ucx" && !ucx.empty()) return peer_us(ucx);
  if (engine == "mpi" && !mpi.empty()) {
    return peer_us("mpirun --allow-run-as-root --oversubscribe -n 2 " + mpi);
  }
  return std::nullopt;
}

}  // namespace

std::vector<row> bench_proxy(const setup& s, const rank_runner& run_ranks) {
  std::vector<row> rows;
  const auto add = [&](std::vector<row> more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  setup two = s;
  two.ranks = 2;
  two.engine = "local";
  two.heap_kind = memory_kind::pinned;  // on a GPU: the host carries commands out itself
  add(run_ranks("proxy-command", two));
  add(run_ranks("proxy-rate", two));
  add(run_ranks("proxy-quiet", two));
  add(run_ranks("proxy-bandwidth", two));
  if (s.device.kind() == device_kind::cuda) {
    add(run_ranks("proxy-idle", two));
    return rows;
  }
  for (const char* engine : {"ucx", "mpi"}) {
    if (!engine_usable(engine) || (s.quick && engine == std::string("mpi"))) continue;
    two.engine = engine;
    two.processes = true;
    auto more = run_ranks("proxy-quiet", two);
    if (const auto us = s.quick ? std::nullopt : plain_us(engine)) {
      for (row& r : more) {
        r.peer = engine == std::string("ucx") ? "plain UCX put + flush" : "plain MPI_Put + flush";
        r.peer_median = us;
      }
    }
    add(more);
    add(run_ranks("proxy-bandwidth", two));
    add(run_ranks("proxy-idle", two));
  }
  return rows;
}

}  // namespace crosswarp::bench
