// The subcommands of `crosswarp`.
#pragma once

#include <cstdint>
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
  bool stats = false;  ///< a table of what was done, at the end
  std::string trace;   ///< the file for a trace; empty: as CROSSWARP_TRACE says
  std::vector<std::string> command;
};
/// Starts the ranks and returns the first failing exit code, or 0.
int run(const run_options& o);

struct info_options {
  bool json = false;
  bool environment = false;
};
int info(const info_options& o);

struct doctor_options {
  bool json = false;
  int ranks = 0;               ///< for how many there is to be room; 0: nobody said
  std::optional<int> listen;   ///< wait for a doctor on another machine at this port
  std::string reach;           ///< HOST:PORT of such a one
  std::optional<int> timeout;  ///< seconds, for the two above
};
/// Returns 0 when nothing is worse than a hint, 1 when something will not work.
int doctor(const doctor_options& o);

struct trace_options {
  std::vector<std::string> files;  ///< parts of one trace
  int top = 15;
};
/// What a trace says, as text.
int trace(const trace_options& o);

struct bench_options {
  std::vector<std::string> names;  ///< exec, memory, proxy, shmem, coll, rdma, flow, graph
  std::string device = "cpu";
  bool processes = false;  ///< what ranks are; neither: processes on the CPU,
  bool threads = false;    ///< threads on a GPU
  bool quick = false;
  bool json = false;
  std::string plot;
  // Of bench shmem alone:
  std::string scope;  ///< empty: block
  std::string op;     ///< empty: all; of bench coll: all_reduce; also of bench graph
  std::string path;   ///< an engine of the proxy; empty: mapped
  // Of bench coll alone:
  std::string bytes;  ///< from and to; empty: 8:64M
  int ranks = 0;      ///< 0: 4; also of bench graph: 2
  bool graph = false;
  std::string peer;  ///< mpi, nccl, none; empty: mpi on a CPU, if it is there and not quick
  // Of bench graph alone:
  int scale = 0;       ///< 0: 18
  int blocks = 0;      ///< of each rank's kernel; 0: as the device suggests
  std::string method;  ///< rounds, worklist; empty: automatic
  std::string gapbs;   ///< where GAPBS's programs are
};
int bench(const bench_options& o);

struct tune_options {
  std::vector<int> ranks;  ///< none: 2, 4 and 8
  std::string device = "cpu";
  std::string out;       ///< empty: where collectives look for it
  bool quick = false;    ///< fewer samples
  bool times = false;    ///< show what was measured
  bool replace = false;  ///< the file is not read: it may be none
};
/// Measures collectives and writes the table by which they choose; what it says of other devices
/// and ranks stays, unless it is replaced.
int tune(const tune_options& o);

struct coll_test_options {
  std::string op = "all_reduce";  ///< this and the next two: a name, or all
  std::string type = "f32";
  std::string redop = "sum";
  std::string bytes = "1K:1M";  ///< from and to
  int factor = 2;               ///< from one size to the next
  std::string algorithm;        ///< of all_reduce; empty: automatic
  std::string in_place = "both";
  std::string device;  ///< empty: as CROSSWARP_DEVICE says
  int root = 0;
  int threads = 0;  ///< ranks are threads of this process; 0: a launcher's, or 4 threads
  int iterations = 20;
  bool symmetric = false;
  bool uneven = false;
  bool peer = true;
};
/// Tests collectives and measures them, in the table of nccl-tests. Returns 1 when a result is
/// wrong.
int test_collectives(const coll_test_options& o);

struct graph_options {
  std::string program;   ///< bfs, sssp, pr, cc
  std::string file;      ///< the graph, or
  std::string generate;  ///< kron, uniform, grid
  int scale = 16;
  int degree = 16;
  std::uint64_t seed = 1;
  bool symmetrise = false;
  int ranks = 2;       ///< unless a launcher started this process
  std::string device;  ///< empty: as CROSSWARP_DEVICE says
  int trials = 1;
  std::optional<std::uint32_t> source;  ///< none: another one for each trial
  std::uint64_t delta = 0;              ///< of sssp; 0: by the lengths of edges
  std::string partition = "edges";      ///< edges, vertices, metis
  std::string method = "automatic";     ///< automatic, rounds, worklist
  int blocks = 0;                       ///< of each rank's kernel; 0: as the device suggests
  // Of worklists: who asks for one of these asks for them.
  std::string route;        ///< of items: direct, ring, nodes; empty: direct
  std::uint64_t queue = 0;  ///< places of each worker's; 0: as the device suggests
  std::uint64_t spill = 0;  ///< items that each worker keeps when queues are full
  int threads = 2;          ///< that make the graph
  bool verify = false;
  std::string out;   ///< the last trial's result, a line for each vertex
  std::string save;  ///< the graph, as a binary file
};
/// Runs a graph program. Returns 1 when a result is wrong.
int run_graph(const graph_options& o);

struct tour_options {
  std::string device = "auto";
  std::string report = "crosswarp-tour.html";
};
/// Returns 0 when every scene was verified.
int tour(const tour_options& o);

struct rank_options {
  std::string name;     ///< of a rank benchmark
  std::string answers;  ///< the file that rank 0 writes its rows to
  std::string engine;   ///< of the proxy; empty: no proxy
  bool quick = false;
  int scope = 0;
  std::string op;
  std::size_t bytes_from = 8;
  std::size_t bytes_to = 0;
};
/// One rank of a benchmark; started by bench().
int bench_rank(const rank_options& o);

}  // namespace crosswarp::tool
