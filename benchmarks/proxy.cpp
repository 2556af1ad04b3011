// crosswarp bench proxy: commands of kernels that the host carries out.
#include <cstdio>
#include <cstdlib>
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

/// While it lives, worlds are traced; what they write is thrown away.
class tracing {
 public:
  tracing() {
    setenv("CROSSWARP_TRACE", "/dev/null", 1);
    setenv("CROSSWARP_TRACE_EVENTS", "1500000", 1);  // so that none is dropped
  }
  ~tracing() {
    unsetenv("CROSSWARP_TRACE");
    unsetenv("CROSSWARP_TRACE_EVENTS");
  }
  tracing(const tracing&) = delete;
  tracing& operator=(const tracing&) = delete;
};

/// The same again, traced.
std::vector<row> quiet_traced(const setup& s, const rank_runner& run_ranks,
                              const std::vector<row>& untraced) {
  const tracing on;
  std::vector<row> rows = run_ranks("proxy-quiet", s);
  for (std::size_t i = 0; i < rows.size() && i < untraced.size(); ++i) {
    rows[i].what += ", traced (limit: not traced)";
    rows[i].limit = untraced[i].median;
  }
  return rows;
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
  const auto quiet = run_ranks("proxy-quiet", two);
  add(quiet);
  if (!s.quick) add(quiet_traced(two, run_ranks, quiet));
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
    if (!s.quick) add(quiet_traced(two, run_ranks, more));
    add(run_ranks("proxy-bandwidth", two));
    add(run_ranks("proxy-idle", two));
  }
  return rows;
}

}  // namespace crosswarp::bench
