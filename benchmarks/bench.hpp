// What every benchmark reports, and how it is shown.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "crosswarp/world.hpp"

namespace crosswarp::bench {

/// One measurement. `limit` is the physical bound that `what` names (a bare flag, a plain copy),
/// `peer` another library, each measured in the same run.
struct row {
  std::string bench;  ///< "memory"
  std::string what;   ///< "signal, one way (limit: bare flag)"
  int ranks = 1;
  std::string device;
  std::string path;
  std::optional<std::size_t> bytes;
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  std::string unit;
  std::optional<double> limit;
  std::optional<std::string> peer;
  std::optional<double> peer_median;
};

void to_json(nlohmann::json& j, const row& r);
void from_json(const nlohmann::json& j, row& r);

/// Samples of one quantity.
class samples {
 public:
  void add(double v) { values_.push_back(v); }
  [[nodiscard]] double quantile(double q) const;
  [[nodiscard]] double median() const { return quantile(0.5); }
  /// Puts median, p10 and p90 into `r`.
  void fill(row& r) const;

 private:
  std::vector<double> values_;
};

/// Who calls SHMEM.
enum class shmem_scope { thread, warp, block };

/// What to measure and where.
struct setup {
  device_ref device = device_ref::cpu();
  int ranks = 2;
  bool processes = false;  ///< ranks as processes rather than threads
  bool quick = false;      ///< fewer samples, for the tour and for tests
  std::string engine;      ///< of the proxy; empty: no proxy
  memory_kind heap_kind = memory_kind::device;
  shmem_scope scope = shmem_scope::block;
  int coll_ranks = 4;        ///< of bench coll, and the next four
  bool graph = false;        ///< recorded and replayed
  int graph_ranks = 2;       ///< of bench graph, and the next four
  int graph_blocks = 0;      ///< of each rank's kernel; 0: as the device suggests
  std::string graph_method;  ///< rounds, worklist; empty: automatic
  int scale = 0;             ///< of its graphs; 0: 18, quick 12
  std::string gapbs;  ///< where GAPBS's programs are, to be measured beside; empty: they are not
  std::string peer;   ///< mpi, nccl, none; empty: mpi on a CPU, if it is there and not quick
  std::size_t bytes_from = 8;
  std::size_t bytes_to = 64U << 20U;
  std::string op;  ///< of bench shmem: put, get, p, g, amo, signal, barrier; empty: all
                   ///< of bench coll: a collective; empty: all_reduce
                   ///< of bench graph: bfs, sssp, pr, cc; empty: all
};

/// From the smallest to the largest, each 4 times the one before.
std::vector<std::size_t> sizes_of(const setup& s);

/// A benchmark that runs on all ranks of a world; rank 0 returns the rows.
using rank_benchmark = std::function<std::vector<row>(world&, const setup&)>;
/// By name: "signal", "barrier", "put".
rank_benchmark find_rank_benchmark(const std::string& name);

/// All rows of `crosswarp bench exec`, `crosswarp bench memory`.
/// `run_ranks(name)` runs a rank benchmark on the setup's ranks and returns rank 0's rows.
using rank_runner = std::function<std::vector<row>(const std::string& name, const setup&)>;
std::vector<row> bench_exec(const setup& s, const rank_runner& run_ranks);
std::vector<row> bench_memory(const setup& s, const rank_runner& run_ranks);
std::vector<row> bench_proxy(const setup& s, const rank_runner& run_ranks);
std::vector<row> bench_shmem(const setup& s, const rank_runner& run_ranks);
std::vector<row> bench_coll(const setup& s, const rank_runner& run_ranks);
std::vector<row> bench_rdma(const setup& s);
std::vector<row> bench_flow(const setup& s, const rank_runner& run_ranks);
/// Of those a filter over several devices.
std::vector<row> bench_flow_filter(const setup& s);
std::vector<row> bench_socket(const setup& s);
std::vector<row> bench_graph(const setup& s);
/// What a client on this machine gets back from an echo server in a kernel.
std::string echoed_by_kernel(device_ref d, const std::string& text);
/// What benchmarks/shmem_ops.c prints, by operation, built with Open MPI's OpenSHMEM; empty when
/// that was not there. And built with ours.
std::map<std::string, double> ops_of_oshmem();
std::map<std::string, double> ops_of_ours(bool quick);
/// What benchmarks/peer_mpi_coll.c prints: microseconds by bytes. Empty when there is no MPI, or
/// when it has no such type or operation.
struct coll_of_peer {
  std::string op = "all_reduce";
  std::string type = "f32";
  std::string redop = "sum";
};
std::map<std::size_t, double> times_of_mpi(const coll_of_peer& what, int ranks,
                                           const std::vector<std::size_t>& sizes);
/// The same of benchmarks/peer_nccl_coll.cu, each rank on a GPU of its own.
std::map<std::size_t, double> times_of_nccl(const coll_of_peer& what, int ranks,
                                            const std::vector<std::size_t>& sizes);
/// Whether these programs were built.
bool has_mpi_peer();
bool has_nccl_peer();
/// Whether ranks can be started that use this engine of the proxy.
bool engine_usable(const std::string& engine);

// ---- showing

/// `{date, machine, commit, rows}`.
nlohmann::json report(const std::vector<row>& rows);
/// When, of which commit and on what machine this is measured: a line for people.
std::string provenance();
std::string table(const std::vector<row>& rows);
/// Cells in columns, each as wide as its widest cell. `flush`: < or > for each column.
std::string align(const std::vector<std::vector<std::string>>& lines, std::string_view flush);
/// Bars with their limits, a panel for each unit; bandwidths as curves over the size; `note` below.
/// A whole SVG document.
std::string plot(const std::vector<row>& rows, const std::string& note = "");

}  // namespace crosswarp::bench
