// crosswarp bench: runs benchmarks on ranks that are threads or processes.
#include "benchmarks/bench.hpp"

#include <fmt/core.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "commands.hpp"
#include "crosswarp/options.hpp"
#include "proxy/load.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {
namespace {

using bench::row;
using bench::setup;

std::vector<row> on_threads(const std::string& name, const setup& s) {
  const auto benchmark = bench::find_rank_benchmark(name);
  world_options o = world_options::from_environment();
  o.device = s.device;
  o.heap_bytes = s.device.kind() == device_kind::cuda ? 1100U << 20U : 80U << 20U;
  o.heap_kind = s.heap_kind;
  if (!s.engine.empty()) {
    o.heap_bytes = 80U << 20U;
    o.proxy.path = path_choice::proxy;
    o.proxy.engine = s.engine;
  }
  std::vector<row> rows;
  run_local(s.ranks, o, [&](world& w) {
    auto mine = benchmark(w, s);
    if (w.rank() == 0) rows = std::move(mine);
  });
  return rows;
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

/// A file that only this user can read, gone with this object.
class scratch_file {
 public:
  scratch_file() : path_((std::filesystem::temp_directory_path() / "cw-bench-XXXXXX").string()) {
    const int fd = mkstemp(path_.data());
    if (fd < 0) throw error::from_errno(errno, "mkstemp", path_);
    close(fd);
  }
  ~scratch_file() { std::filesystem::remove(path_); }
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Runs a command and waits for its end; throws when that is not a good one.
void run_to_end(std::vector<std::string> words, const std::string& what) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (const int bad = posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ)) {
    throw error::from_errno(bad, "posix_spawn", words[0]);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) throw error(errc::system, what, "its ranks failed");
}

/// Runs this very program as `crosswarp run` of itself. A process of its own: a launcher must own
/// all its threads' signals, and this process has run kernels.
void run_ranks_of_self(const std::vector<std::string>& options,
                       const std::vector<std::string>& rank_arguments) {
  std::vector<std::string> words = {own_path(), "run"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {own_path(), "bench-rank"});
  words.insert(words.end(), rank_arguments.begin(), rank_arguments.end());
  run_to_end(words, "bench " + rank_arguments.front());
}

/// The same under mpirun, for the engine that needs it.
void run_ranks_under_mpirun(int ranks, const std::vector<std::string>& rank_arguments) {
  std::vector<std::string> words = {"mpirun",    "--allow-run-as-root", "--oversubscribe",
                                    "-n",        std::to_string(ranks), own_path(),
                                    "bench-rank"};
  words.insert(words.end(), rank_arguments.begin(), rank_arguments.end());
  run_to_end(words, "bench " + rank_arguments.front());
}

std::vector<row> on_processes(const std::string& name, const setup& s) {
  const scratch_file answers;
  std::vector<std::string> arguments = {name, answers.path()};
  if (s.quick) arguments.emplace_back("--quick");
  arguments.insert(arguments.end(), {"--scope", std::to_string(static_cast<int>(s.scope))});
  if (!s.op.empty()) arguments.insert(arguments.end(), {"--op", s.op});
  arguments.insert(arguments.end(),
                   {"--from", std::to_string(s.bytes_from), "--to", std::to_string(s.bytes_to)});
  if (!s.engine.empty()) arguments.insert(arguments.end(), {"--engine", s.engine});
  const bool gpu = s.device.kind() == device_kind::cuda;
  if (s.engine == "mpi") {
    run_ranks_under_mpirun(s.ranks, arguments);
  } else {
    // UCX is for ranks on different machines.
    const int nodes = s.engine == "ucx" ? s.ranks : 1;
    run_ranks_of_self({"-n", std::to_string(s.ranks), "--nodes", std::to_string(nodes), "--device",
                       s.device.name(), "--heap", gpu ? "1100M" : "80M", "--no-prefix"},
                      arguments);
  }
  return nlohmann::json::parse(std::ifstream(answers.path())).get<std::vector<row>>();
}
/// From the start of the launcher to its end, with a barrier in between.
row start_row(int ranks) {
  bench::samples took;
  for (int i = 0; i < (ranks > 16 ? 3 : 7); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run_ranks_of_self({"-n", std::to_string(ranks), "--device", "cpu", "--heap", "1M"},
                      {"nothing"});
    const std::chrono::duration<double, std::milli> t = std::chrono::steady_clock::now() - begin;
    took.add(t.count());
  }
  row r;
  r.bench = "exec";
  r.what = "start, barrier and end of a job";
  r.ranks = ranks;
  r.device = "cpu";
  r.path = "memfd";
  r.unit = "ms";
  took.fill(r);
  return r;
}

}  // namespace

int bench_rank(const rank_options& o) {
  world_options options = world_options::from_environment();
  if (!o.engine.empty()) {
    options.proxy.path = path_choice::proxy;
    options.proxy.engine = o.engine;
    options.heap_bytes = 80U << 20U;
  }
  world w(options);
  const std::string& name = o.name;
  if (name == "nothing") {
    w.barrier();
    return 0;
  }
  setup s;
  s.device = w.options().device;
  s.ranks = w.size();
  s.processes = true;
  s.quick = o.quick;
  s.scope = static_cast<bench::shmem_scope>(o.scope);
  s.op = o.op;
  s.bytes_from = o.bytes_from;
  s.bytes_to = o.bytes_to;
  const auto rows = bench::find_rank_benchmark(name)(w, s);
  if (w.rank() == 0) std::ofstream(o.answers) << nlohmann::json(rows);
  return 0;
}

std::vector<row> run_ranks(const std::string& name, const setup& s) {
  return s.processes ? on_processes(name, s) : on_threads(name, s);
}

std::vector<row> run_benchmarks(const std::vector<std::string>& names, const setup& s) {
  std::vector<row> rows;
  const auto add = [&](std::vector<row> more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  for (const std::string& name : names) {
    if (name == "exec") {
      add(bench::bench_exec(s, run_ranks));
      if (s.device.kind() == device_kind::cpu && !s.quick) {
        for (const int n : {1, 2, 4, 8, 16, 32, 64}) add({start_row(n)});
      }
    } else if (name == "memory") {
      add(bench::bench_memory(s, run_ranks));
    } else if (name == "proxy") {
      add(bench::bench_proxy(s, run_ranks));
    } else if (name == "shmem") {
      add(bench::bench_shmem(s, run_ranks));
    } else if (name == "coll") {
      add(bench::bench_coll(s, run_ranks));
    } else if (name == "rdma") {
      add(bench::bench_rdma(s));
    } else if (name == "flow") {
      add(bench::bench_flow(s, run_ranks));
    } else if (name == "socket") {
      add(bench::bench_socket(s));
    } else if (name == "graph") {
      add(bench::bench_graph(s));
    } else {
      throw error(
          errc::invalid_argument, "bench",
          "'" + name + "' is none of exec, memory, proxy, shmem, coll, rdma, flow, socket, graph");
    }
  }
  return rows;
}

}  // namespace crosswarp::tool

bool crosswarp::bench::engine_usable(const std::string& engine) {
  if (!proxy_impl::find_engine(engine).there) return false;
  return engine != "mpi" || std::system("mpirun --version > /dev/null 2>&1") == 0;
}

namespace crosswarp::tool {

void prepare_shared_gpu(device_ref device) {
  if (device.kind() != device_kind::cuda) return;
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

std::ofstream create_file(const std::string& path, const std::string& option) {
  std::ofstream file(path);
  if (!file) throw error::from_errno(errno, option, path);
  return file;
}

namespace {

/// An option that changed nothing would be taken for one that did.
void check_options(const bench_options& o) {
  struct special {
    const char* option;
    bool given;
    std::vector<std::string> of;
  };
  const std::vector<special> all = {{"--scope", !o.scope.empty(), {"shmem"}},
                                    {"--path", !o.path.empty(), {"shmem"}},
                                    {"--bytes", !o.bytes.empty(), {"coll"}},
                                    {"--ranks", o.ranks != 0, {"coll", "graph"}},
                                    {"--graph", o.graph, {"coll"}},
                                    {"--scale", o.scale != 0, {"graph"}},
                                    {"--blocks", o.blocks != 0, {"graph"}},
                                    {"--method", !o.method.empty(), {"graph"}},
                                    {"--gapbs", !o.gapbs.empty(), {"graph"}},
                                    {"--peer", o.peer == "mpi" || o.peer == "nccl", {"coll"}},
                                    {"--peer", o.peer == "oshmem", {"shmem"}}};
  for (const auto& [option, given, of] : all) {
    if (!given ||
        std::find_first_of(o.names.begin(), o.names.end(), of.begin(), of.end()) != o.names.end()) {
      continue;
    }
    throw error(errc::invalid_argument, option,
                fmt::format("only bench {} {} it; all have --device, --processes, --threads, "
                            "--quick, --json, --plot",
                            fmt::join(of, " and "), of.size() == 1 ? "has" : "have"));
  }
}

/// Each of the benchmarks named has the operation, if one of them has any.
void check_op(const bench_options& o) {
  if (o.op.empty()) return;
  const std::map<std::string, std::vector<std::string>> all = {
      {"shmem", {"put", "get", "p", "g", "amo", "signal", "barrier"}},
      {"coll",
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "gather",
        "scatter"}},
      {"graph", {"bfs", "sssp", "pr", "cc"}}};
  bool used = false;
  for (const std::string& name : o.names) {
    const auto found = all.find(name);
    if (found == all.end()) continue;
    used = true;
    const auto& ops = found->second;
    if (std::find(ops.begin(), ops.end(), o.op) != ops.end()) continue;
    throw error(errc::invalid_argument, "--op",
                fmt::format("'{}' is none of bench {}: {}", o.op, name, fmt::join(ops, ", ")));
  }
  if (!used)
    throw error(errc::invalid_argument, "--op", "only bench shmem, coll and graph have it");
}

/// As 1K:64M.
void parse_range(const std::string& text, setup& s) {
  const std::size_t colon = text.find(':');
  s.bytes_from = options::parse_bytes(text.substr(0, colon), "--bytes");
  s.bytes_to = colon == std::string::npos ? s.bytes_from
                                          : options::parse_bytes(text.substr(colon + 1), "--bytes");
  if (s.bytes_from == 0 || s.bytes_from % 4 != 0 || s.bytes_to % 4 != 0 ||
      s.bytes_to < s.bytes_from) {
    throw error(errc::invalid_argument, "--bytes", "'" + text + "' is no range of whole floats");
  }
}

}  // namespace

int bench(const bench_options& o) {
  check_options(o);
  check_op(o);
  setup s;
  s.device = device_ref::parse(o.device);
  s.processes = o.processes || (!o.threads && s.device.kind() == device_kind::cpu);
  s.quick = o.quick;
  s.scope = o.scope == "thread" ? bench::shmem_scope::thread
            : o.scope == "warp" ? bench::shmem_scope::warp
                                : bench::shmem_scope::block;
  s.op = o.op;
  s.engine = o.path == "mapped" ? "" : o.path;
  if (o.graph && !o.op.empty() && o.op != "all_reduce") {
    throw error(errc::invalid_argument, "--graph", "all_reduce alone is measured so");
  }
  s.graph = o.graph;
  s.peer = o.peer;
  if (o.ranks != 0) s.coll_ranks = s.graph_ranks = o.ranks;
  s.scale = o.scale;
  s.graph_blocks = o.blocks;
  s.graph_method = o.method;
  s.gapbs = o.gapbs;
  if (!o.bytes.empty()) parse_range(o.bytes, s);
  std::ofstream picture;
  if (!o.plot.empty()) picture = create_file(o.plot, "--plot");
  const auto rows = run_benchmarks(o.names, s);
  if (!o.plot.empty()) {
    picture << bench::plot(rows, bench::provenance());
    if (!picture.flush()) throw error::from_errno(errno, "--plot", o.plot);
  }
  if (o.json) {
    fmt::print("{}\n", bench::report(rows).dump(2));
  } else {
    fmt::print("{}", bench::table(rows));
  }
  return 0;
}

}  // namespace crosswarp::tool
