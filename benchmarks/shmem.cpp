// crosswarp bench shmem: device::shmem by kernels, and shmem.h against another library's.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "bench.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::bench {
namespace {

/// What benchmarks/shmem_ops.c prints, by operation: one program, built with each library.
std::map<std::string, double> ops_of(const std::string& command) {
  std::map<std::string, double> all;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"),
                                                   pclose);
  if (!pipe) return all;
  char name[64];
  double value = 0;
  while (std::fscanf(pipe.get(), "%63s %lf", name, &value) == 2) all[name] = value;
  return all;
}

struct operation {
  const char* name;  ///< as the program prints it
  const char* what;
  const char* unit;
  const char* option;
  std::optional<std::size_t> bytes;
};

std::vector<row> c_rows(const setup& s) {
  const std::vector<operation> operations = {
      {"put_8", "shmem_long_put", "us", "put", 8},
      {"get_8", "shmem_long_get", "us", "get", 8},
      {"fetch_add", "shmem_long_atomic_fetch_add", "us", "amo", 8},
      {"ping_pong_8", "put and signal, one way", "us", "signal", 8},
      {"barrier", "shmem_barrier_all", "us", "barrier", std::nullopt},
      {"put_1m", "shmem_putmem + quiet", "us", "put", 1U << 20U},
      {"rate_8", "shmem_long_put_nbi", "M/s", "put", 8},
  };
  const auto mine = ops_of_ours(s.quick);
  const bool beside = s.peer == "oshmem" || (s.peer.empty() && !s.quick);
  const auto other = beside ? ops_of_oshmem() : std::map<std::string, double>();
  if (other.empty() && s.peer == "oshmem") {
    throw error(errc::not_supported, "--peer",
                "oshmem: its program measured nothing: build with Open MPI (libopenmpi-dev)");
  }
  std::vector<row> rows;
  for (const operation& o : operations) {
    if (!mine.contains(o.name) || (!s.op.empty() && s.op != o.option)) continue;
    row r;
    r.bench = "shmem";
    r.what = std::string(o.what) + " of shmem.h";
    r.ranks = 2;
    r.device = "cpu";
    r.path = "memfd";
    r.bytes = o.bytes;
    r.median = r.p10 = r.p90 = mine.at(o.name);
    r.unit = o.unit;
    if (other.contains(o.name)) {
      r.peer = "oshmem";
      r.peer_median = other.at(o.name);
    }
    rows.push_back(r);
  }
  return rows;
}

}  // namespace

std::map<std::string, double> ops_of_oshmem() {
  const std::string program = CROSSWARP_OSHMEM_PEER;
  if (program.empty()) return {};
  return ops_of("OMPI_MCA_btl=^uct oshrun --allow-run-as-root --oversubscribe -n 2 " + program);
}
std::map<std::string, double> ops_of_ours(bool quick) {
  const std::string program = CROSSWARP_SHMEM_OPS;
  if (program.empty()) return {};
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return ops_of("'" + self + "' run -n 2 --no-prefix " + program + (quick ? " 20" : ""));
}

/// NVSHMEM's figures for so many PEs, by the names that benchmarks/peer_nvshmem.cu prints.
std::map<std::string, double> ops_of_nvshmem(int pes) {
  const std::string program = CROSSWARP_NVSHMEM_PEER;
  if (program.empty() || !std::filesystem::exists(program)) return {};
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::filesystem::path meeting =
      std::filesystem::temp_directory_path() / ("crosswarp-nvshmem." + std::to_string(getpid()));
  const auto all = ops_of("'" + self + "' run -n " + std::to_string(pes) + " --no-prefix " +
                          program + " " + meeting.string());
  std::filesystem::remove(meeting);
  return all;
}

std::vector<row> bench_shmem(const setup& s, const rank_runner& run_ranks) {
  if (s.peer == "oshmem" && s.device.kind() == device_kind::cuda) {
    throw error(errc::not_supported, "--peer",
                "oshmem: it measures memory of the host; with --device cpu");
  }
  std::vector<row> rows;
  std::map<int, std::map<std::string, double>> nvshmem;  // by PEs
  const bool gpu = s.device.kind() == device_kind::cuda;
  const auto add = [&](std::vector<row> more) {
    for (row& r : more) {
      if (!gpu || !s.processes || s.quick || s.peer == "none") continue;  // its PEs are processes
      if (!nvshmem.contains(r.ranks)) nvshmem[r.ranks] = ops_of_nvshmem(r.ranks);
      const auto& theirs = nvshmem[r.ranks];
      const std::string name =
          r.what.starts_with("put_signal") ? "put_signal_" + std::to_string(r.bytes.value_or(0))
          : r.what.starts_with("barrier")  ? "barrier_" + std::to_string(r.ranks)
          : r.what.starts_with("put_nbi")  ? "bandwidth"
                                           : "";
      if (!theirs.contains(name)) continue;
      r.peer = "nvshmem";
      r.peer_median = theirs.at(name);
    }
    rows.insert(rows.end(), more.begin(), more.end());
  };
  const auto wanted = [&](const char* op) { return s.op.empty() || s.op == op; };
  setup two = s;
  two.ranks = 2;
  if (wanted("put") || wanted("get") || wanted("p") || wanted("g") || wanted("amo")) {
    add(run_ranks("shmem-single", two));
  }
  if (wanted("signal")) add(run_ranks("shmem-signal", two));
  if (wanted("barrier")) {
    for (const int n : gpu&& s.engine.empty() ? std::vector<int>{2, 4, 8} : std::vector<int>{2}) {
      two.ranks = n;
      add(run_ranks("shmem-barrier", two));
    }
    two.ranks = 2;
  }
  if (wanted("put")) add(run_ranks("shmem-bandwidth", two));
  if (!gpu && s.engine.empty()) add(c_rows(s));
  return rows;
}

}  // namespace crosswarp::bench
