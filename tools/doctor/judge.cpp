#include "judge.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/variables.hpp"
#include "crosswarp/options.hpp"
#include "words.hpp"

namespace crosswarp::tool::doctor_impl {
namespace {

constexpr std::uint64_t mebi = 1U << 20U;
// Of one heap, as CROSSWARP_HEAP has it when nobody says otherwise.
constexpr std::uint64_t usual_heap = 64 * mebi;

std::string bytes(std::uint64_t n) {
  return n == unlimited ? "unlimited" : options::print_bytes(n);
}

/// 13000 as "13.0".
std::string cuda_version(int v) {
  return fmt::format("{}.{}", v / 1000, v % 1000 / 10);
}

std::string value(const environment_facts& e, const std::string& name) {
  const auto it = e.set.find(name);
  return it == e.set.end() ? "" : it->second;
}

long number(const std::string& text, long otherwise) {
  long n = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, n);
  return bad == std::errc{} && stop == end ? n : otherwise;
}

}  // namespace

const char* to_string(severity s) noexcept {
  switch (s) {
    case severity::ok:
      return "ok";
    case severity::hint:
      return "hint";
    case severity::problem:
      return "problem";
    case severity::skipped:
      return "skipped";
  }
  return "?";
}

// ---- GPUs

finding judge_driver(const cuda_facts& f, bool wanted) {
  constexpr auto area = "cuda driver";
  const auto missing = wanted ? problem : hint;
  if (!f.built) {
    if (f.driver_file.empty() && !wanted) {
      return skipped(area, "built without CUDA, and no NVIDIA driver is here");
    }
    return missing(area,
                   wanted ? "CROSSWARP_DEVICE asks for a GPU, but this build has no CUDA"
                          : "an NVIDIA driver is here, but this build has no CUDA",
                   "put nvcc on PATH and build again (preset release or cuda)");
  }
  if (f.driver == 0) {
    return missing(area, "no NVIDIA driver: kernels run on the CPU",
                   "install the driver; in a container start it with --gpus all");
  }
  const std::string versions = fmt::format("driver for CUDA {}, built with {}",
                                           cuda_version(f.driver), cuda_version(f.runtime));
  if (f.driver / 1000 < f.runtime / 1000) {
    return problem(area, versions + ": too old, no kernel will run",
                   fmt::format("update the driver, or build with CUDA {}", f.driver / 1000));
  }
  if (f.gpus.empty()) {
    return missing(area, versions + "; no GPU: " + f.no_device_reason,
                   "see nvidia-smi, CUDA_VISIBLE_DEVICES and the permissions of /dev/nvidia*");
  }
  return ok(area,
            fmt::format("{}, {} GPU{}", versions, f.gpus.size(), f.gpus.size() == 1 ? "" : "s"));
}

namespace {

struct architecture {
  int number = 0;
  bool alone = false;  ///< "90a": code for this GPU and no other
  bool binary = true;  ///< not "-virtual"
  bool ptx = true;     ///< not "-real"
};

/// "80,90-real" and the like.
std::vector<architecture> architectures(const std::string& list) {
  std::vector<architecture> all;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    architecture a;
    const char* end_of_word = word.data() + word.size();
    const char* rest = std::from_chars(word.data(), end_of_word, a.number).ptr;
    a.alone = rest != end_of_word && *rest == 'a';
    a.binary = word.find("-virtual") == std::string::npos;
    a.ptx = word.find("-real") == std::string::npos;
    if (a.number > 0) all.push_back(a);
    at = end + 1;
  }
  return all;
}

finding judge_one(const gpu& g, const std::string& built_for) {
  constexpr auto area = "gpu";
  const std::string who =
      fmt::format("{}, compute capability {}.{}", g.name, g.capability / 10, g.capability % 10);
  const auto list = architectures(built_for);
  // The words native, all and all-major say nothing about numbers.
  if (list.empty()) return ok(area, who);
  const std::string remedy = fmt::format("build with -DCMAKE_CUDA_ARCHITECTURES={}", g.capability);
  const auto runs_as_is = [&](const architecture& a) {
    return a.binary && a.number / 10 == g.capability / 10 &&
           (a.alone ? a.number == g.capability : a.number <= g.capability);
  };
  if (std::any_of(list.begin(), list.end(), runs_as_is)) return ok(area, who);
  const auto translates = [&](const architecture& a) {
    return a.ptx && (a.alone ? a.number == g.capability : a.number <= g.capability);
  };
  if (std::any_of(list.begin(), list.end(), translates)) {
    return hint(area,
                who + ": built for " + built_for +
                    ", so the driver translates each kernel at its first use",
                remedy);
  }
  return problem(area, who + ": built for " + built_for + " alone, no kernel will run", remedy);
}

}  // namespace

std::vector<finding> judge_capability(const cuda_facts& f) {
  std::vector<finding> all;
  for (const gpu& g : f.gpus) {
    finding next = judge_one(g, f.built_for);
    const bool told = std::any_of(all.begin(), all.end(),
                                  [&](const finding& other) { return other.seen == next.seen; });
    if (!told) all.push_back(std::move(next));
  }
  return all;
}

finding judge_mps(const mps_facts& f, const cuda_facts& cuda) {
  constexpr auto area = "mps";
  if (cuda.gpus.empty()) return skipped(area, "no GPU");
  if (!f.answers) {
    return hint(area,
                "no MPS control daemon at " + f.folder +
                    ": processes that share a GPU take turns, a signal takes 2 ms, not 0.35 us",
                "nvidia-cuda-mps-control -d (not needed for one process on each GPU)");
  }
  if (!f.folder_from_environment) {
    return hint(area,
                "the control daemon answers at " + f.folder +
                    ", but crosswarp run gives ranks a share of the GPU only when told",
                "export CUDA_MPS_PIPE_DIRECTORY=" + f.folder);
  }
  return ok(area, "the control daemon answers at " + f.folder);
}

finding judge_peer_access(const cuda_facts& f) {
  constexpr auto area = "peer access";
  if (f.gpus.size() < 2) return skipped(area, "fewer than two GPUs");
  if (f.without_peer_access.empty()) return ok(area, "between all GPUs");
  std::vector<std::string> pairs;
  for (const auto& [a, b] : f.without_peer_access) pairs.push_back(fmt::format("{}-{}", a, b));
  return hint(area, "none between GPUs " + joined(pairs) + ": ranks there cannot map each other",
              "CROSSWARP_PATH=proxy, or ranks on GPUs that nvidia-smi topo -p2p r shows as OK");
}

finding judge_cuda_settings(const environment_facts& e, const cuda_facts& cuda) {
  constexpr auto area = "cuda settings";
  if (cuda.gpus.empty()) return skipped(area, "no GPU");
  std::vector<std::string> missing;
  if (value(e, "CUDA_MODULE_LOADING") != "EAGER") missing.emplace_back("CUDA_MODULE_LOADING=EAGER");
  if (number(value(e, "CUDA_DEVICE_MAX_CONNECTIONS"), 8) < 32) {
    missing.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
  }
  if (missing.empty()) return ok(area, "modules load at once, 32 connections");
  return hint(area,
              "without " + joined(missing) + " a load or a launch may wait for a kernel that waits",
              "crosswarp run sets both; for other launchers export them");
}

// ---- limits

finding judge_locked_memory(const memory_facts& f, const rdma_facts& rdma) {
  constexpr auto area = "locked memory";
  const std::string seen = bytes(f.locked.soft) + " may be locked";
  if (f.may_lock_all) return ok(area, seen + ", but this user is not bound by it");
  if (f.locked.soft >= usual_heap) return ok(area, seen);
  const std::string remedy =
      f.locked.hard >= usual_heap
          ? "ulimit -l " + (f.locked.hard == unlimited ? std::string("unlimited")
                                                       : std::to_string(f.locked.hard / 1024))
          : "raise memlock in /etc/security/limits.conf; in a container "
            "--ulimit memlock=-1";
  if (rdma.devices.empty()) {
    return hint(area, seen + ": too little for heaps that an RDMA device reads", remedy);
  }
  return problem(area, seen + ": heaps of " + bytes(usual_heap) + " cannot be registered for RDMA",
                 remedy);
}

finding judge_open_files(const limit& f, int ranks) {
  constexpr auto area = "open files";
  // The launcher has two pipes and a connection for each rank; a few more are always there.
  const std::uint64_t needed = 3 * static_cast<std::uint64_t>(ranks) + 24;
  // A rank may have connections to all others besides, and strangers knock.
  const std::uint64_t comfortable = std::max<std::uint64_t>(1024, 8 * needed);
  const std::string seen =
      fmt::format("{} (at most {})", f.soft == unlimited ? "unlimited" : std::to_string(f.soft),
                  f.hard == unlimited ? "unlimited" : std::to_string(f.hard));
  // crosswarp run raises its own limit as far as it may.
  if (f.hard < needed) {
    return problem(
        area, fmt::format("{}: {} ranks need {}", seen, ranks, needed),
        "raise nofile in /etc/security/limits.conf; in a container --ulimit nofile=65536");
  }
  if (f.soft < comfortable && f.soft < f.hard) {
    return hint(area, fmt::format("{}: few for {} ranks with an engine", seen, ranks),
                fmt::format("ulimit -n {}", std::min<std::uint64_t>(f.hard, 65536)));
  }
  if (f.soft < comfortable) {
    return hint(area, fmt::format("{}: few for {} ranks with an engine", seen, ranks),
                "raise nofile in /etc/security/limits.conf; in a container --ulimit nofile=65536");
  }
  return ok(area, seen);
}

finding judge_memfd(const memory_facts& f) {
  constexpr auto area = "shared memory";
  if (f.memfd_error == 0) return ok(area, "memfd works");
  return problem(area,
                 fmt::format("memfd: {}: ranks cannot be processes that share memory",
                             std::strerror(f.memfd_error)),
                 f.memfd_error == EACCES ? "sysctl vm.memfd_noexec=1 (2 forbids it)"
                 : f.memfd_error == ENOMEM
                     ? "free some memory, or raise the memory limit of the container"
                     : "allow memfd_create, ftruncate and mmap in the sandbox or container");
}

finding judge_shm(const memory_facts& f) {
  constexpr auto area = "/dev/shm";
  if (!f.shm_there) {
    return hint(area, "is not there; heaps do not need it, UCX and Open MPI do",
                "mount -t tmpfs tmpfs /dev/shm");
  }
  const std::string seen = fmt::format("{} of {} free", bytes(f.shm_free), bytes(f.shm_bytes));
  if (f.shm_free < 2 * usual_heap) {
    return hint(area, seen + ": little for UCX and Open MPI; heaps do not need it",
                "in a container --shm-size=1g; else remove what is left there of dead programs");
  }
  return ok(area, seen);
}

finding judge_mappings(const memory_facts& f) {
  constexpr auto area = "memory maps";
  constexpr long usual = 65530;
  // A thread of a CPU kernel has a stack and a guard page: two mappings.
  const long threads = std::max(0L, f.max_map_count / 2 - 1000);
  const std::string seen = fmt::format("vm.max_map_count {}: {} threads of CPU kernels at once",
                                       f.max_map_count, threads);
  const std::string remedy = "sysctl vm.max_map_count=262144";
  if (f.max_map_count <= 0) return skipped(area, "vm.max_map_count cannot be read");
  if (threads < 1024) return problem(area, seen + ", less than one block may have", remedy);
  if (f.max_map_count < usual) return hint(area, seen, remedy);
  return ok(area, seen);
}

finding judge_overcommit(const memory_facts& f) {
  constexpr auto area = "overcommit";
  if (f.overcommit != 2) {
    return ok(area, fmt::format("vm.overcommit_memory {}: memory counts when it is touched",
                                f.overcommit));
  }
  const std::string seen = fmt::format(
      "vm.overcommit_memory 2: stacks of CPU kernels (256 KiB a thread) and heaps count in full; "
      "{} "
      "left",
      bytes(f.commit_left));
  const std::string remedy = "sysctl vm.overcommit_memory=0, or a larger vm.overcommit_ratio";
  return f.commit_left < usual_heap ? problem(area, seen, remedy) : hint(area, seen, remedy);
}

finding judge_cores(const core_facts& f, int ranks) {
  constexpr auto area = "cores";
  const double usable = std::min(static_cast<double>(f.allowed), f.quota.value_or(f.allowed));
  std::string seen = fmt::format("{}", f.allowed);
  if (f.allowed < f.online) seen += fmt::format(" of {}, by the affinity mask", f.online);
  if (f.quota && *f.quota < f.allowed) {
    return hint(area,
                fmt::format("{}, but the cgroup has time for {:.4g}: a rank that spins is stopped "
                            "for milliseconds",
                            seen, *f.quota),
                fmt::format("raise the quota (--cpus, cpu.max), or taskset -c 0-{}",
                            std::max(0, static_cast<int>(std::floor(*f.quota)) - 1)));
  }
  if (ranks > usable) {
    return hint(area,
                fmt::format("{} for {} ranks: they take turns, a barrier takes microseconds more",
                            seen, ranks),
                fmt::format("at most {} rank{} here for timings", static_cast<int>(usable),
                            static_cast<int>(usable) == 1 ? "" : "s"));
  }
  return ok(area, seen);
}

finding judge_peeking(const peek_facts& f) {
  constexpr auto area = "process_vm_readv";
  if (f.self_error != 0) {
    return hint(
        area,
        fmt::format("{}: the proxy believes addresses of commands instead of checking them, "
                    "a wrong one crashes",
                    std::strerror(f.self_error)),
        "allow process_vm_readv in the sandbox; in a container --cap-add SYS_PTRACE");
  }
  if (f.sibling_error != 0) {
    return hint(
        area,
        fmt::format(
            "works within a process; between ranks: {}{}: UCX copies twice",
            std::strerror(f.sibling_error),
            f.ptrace_scope > 0 ? fmt::format(" (yama ptrace_scope {})", f.ptrace_scope) : ""),
        f.ptrace_scope > 0 ? "sysctl kernel.yama.ptrace_scope=0"
                           : "in a container --cap-add SYS_PTRACE, or the same user for all ranks");
  }
  return ok(area, "works, also between processes");
}

// ---- engines

finding judge_engine(const engine_facts& f, bool asked) {
  const std::string area = "engine " + f.name;
  if (f.there) return ok(area, f.where_or_why);
  const bool absent = f.where_or_why.starts_with("no crosswarp_");
  if (f.crashed || !absent) {
    return problem(area, "does not load: " + f.where_or_why,
                   "build or install it again with this version; see CROSSWARP_ENGINE_PATH");
  }
  const std::string development = f.name == "ucx" ? "libucx-dev" : "libopenmpi-dev";
  const std::string remedy = f.built ? "set CROSSWARP_ENGINE_PATH to the folder that has it"
                                     : "install " + development + " and build again";
  const std::string lost = f.name == "ucx" ? "; ranks on other machines have no path" : "";
  if (asked) return problem(area, f.where_or_why + ", but CROSSWARP_ENGINE asks for it", remedy);
  return hint(area, f.where_or_why + lost, remedy);
}

finding judge_ucx_gpu(const engine_facts& f, const cuda_facts& cuda) {
  constexpr auto area = "ucx and gpus";
  if (!f.there || f.library.empty()) return skipped(area, "no engine ucx");
  if (f.gpu_memory) return ok(area, f.library + " knows GPU memory");
  const std::string seen = f.library + " has no libuct_cuda beside it";
  if (cuda.gpus.empty()) return skipped(area, seen + "; no GPU either");
  return hint(area, seen + ": data of a GPU goes through host memory",
              "a UCX built with --with-cuda (NVIDIA HPC-X has one), then build Crosswarp with it");
}

finding judge_mpirun(const environment_facts& e, const engine_facts& mpi) {
  constexpr auto area = "mpirun";
  if (!e.mpirun.empty()) return ok(area, e.mpirun);
  if (!mpi.there) return skipped(area, "not on PATH, and no engine mpi");
  return hint(area, "not on PATH: the engine mpi works only in jobs of mpirun",
              "install openmpi-bin, or put its bin folder on PATH");
}

// ---- networks

finding judge_loopback(const network_facts& f) {
  constexpr auto area = "loopback";
  if (f.loopback_error.empty()) return ok(area, "127.0.0.1 works");
  return problem(area, "127.0.0.1: " + f.loopback_error + ": ranks cannot meet",
                 "ip link set lo up; no firewall rule may touch lo");
}

finding judge_host_name(const network_facts& f) {
  constexpr auto area = "host name";
  if (f.advertised == "127.0.0.1") {
    return hint(area, f.host_name + " has no address but 127.0.0.1: jobs on this machine only",
                "ip address shows what is up");
  }
  if (!f.resolve_error.empty()) {
    return hint(area,
                fmt::format("{} does not resolve ({}); ranks elsewhere are told {}", f.host_name,
                            f.resolve_error, f.advertised),
                fmt::format("add '{} {}' to /etc/hosts", f.advertised, f.host_name));
  }
  return ok(area, fmt::format("{}; ranks elsewhere are told {}", f.host_name, f.advertised));
}

namespace {

finding judge_passage(const char* area, passage p, const std::string& where,
                      const std::string& why) {
  switch (p) {
    case passage::open:
      return ok(area, where);
    case passage::refused:
      return problem(area, where + ": refused: that machine answers, but nothing listens there",
                     "crosswarp doctor --listen PORT there first; else a firewall there rejects");
    case passage::timed_out:
      return problem(area, where + ": no answer at all",
                     "most likely a firewall drops it: open the ports of all ranks, not one; else "
                     "the address is wrong");
    case passage::unreachable:
      return problem(area, where + ": unreachable (" + why + ")",
                     "ip route get ADDRESS; a firewall that rejects looks the same");
    case passage::unknown_host:
      return problem(area, where + ": unknown host (" + why + ")",
                     "use its address, or add the name to /etc/hosts");
    case passage::failed:
      return problem(area, where + ": " + why, "see whether another program speaks there");
    case passage::not_tried:
      break;
  }
  return skipped(area, where + ": not tried");
}

}  // namespace

std::vector<finding> judge_reach(const reach_facts& f) {
  std::vector<finding> all = {judge_passage("there", f.there, f.where, f.there_why)};
  if (f.there != passage::open) return all;
  if (!f.answered) {
    all.back() = hint("there",
                      fmt::format("{}: connects in {:.0f} us, but what listens there is no doctor",
                                  f.where, f.microseconds),
                      "crosswarp doctor --listen PORT there, to try the way back too");
    return all;
  }
  if (f.microseconds > 0) all.back().seen += fmt::format(", round trip {:.0f} us", f.microseconds);
  all.push_back(
      judge_passage("back", f.back, "from there to a port of its own choice here", f.back_why));
  // Somebody listens for sure: what refuses is no missing program.
  if (f.back == passage::refused) {
    all.back().seen = "from there to a port of its own choice here: refused";
    all.back().remedy = "a firewall on this side rejects it: open the ports of all ranks";
  }
  return all;
}

std::vector<finding> judge_answer(const reach_facts& f) {
  if (f.there != passage::open) {
    return {problem("in", f.where + ": nobody came",
                    "crosswarp doctor --reach from the other machine; if that gets no answer, a "
                    "firewall drops it")};
  }
  std::vector<finding> all = {ok("in", "from " + f.where)};
  all.push_back(
      judge_passage("out", f.back, "to a port of its own choice on " + f.where, f.back_why));
  if (f.back == passage::refused) {
    all.back().seen = "to a port of its own choice on " + f.where + ": refused";
    all.back().remedy = "a firewall over there rejects it: open the ports of all ranks";
  }
  return all;
}

// ---- the environment

std::vector<finding> judge_variables(const environment_facts& e) {
  std::vector<finding> all;
  for (const std::string& name : e.unknown) {
    const std::string meant = options::nearest_variable(name);
    all.push_back(hint("variables", name + " is set, but nobody reads it",
                       meant.empty() ? "unset it; crosswarp info --env lists those that are read"
                                     : "did you mean " + meant + "?"));
  }
  if (all.empty()) all.push_back(ok("variables", "no CROSSWARP_ variable that nobody reads"));
  return all;
}

std::vector<finding> judge_settings(const environment_facts& e) {
  constexpr auto area = "settings";
  std::vector<finding> all;
  if (!e.refused.empty()) {
    all.push_back(problem(area, e.refused, "set it right or unset it; see crosswarp info --env"));
  }
  const long nodes = number(value(e, "CROSSWARP_NODES"), 1);
  const std::string path = value(e, "CROSSWARP_PATH");
  const std::string engine = value(e, "CROSSWARP_ENGINE");
  if (path == "mapped" && nodes > 1) {
    all.push_back(
        problem(area,
                fmt::format("CROSSWARP_PATH=mapped with CROSSWARP_NODES={}: nodes share no "
                            "memory, so ranks of two have no path",
                            nodes),
                "CROSSWARP_PATH=auto, or one node"));
  }
  if (engine == "local" && nodes > 1) {
    all.push_back(problem(area,
                          fmt::format("CROSSWARP_ENGINE=local with CROSSWARP_NODES={}: it copies "
                                      "between ranks that share memory",
                                      nodes),
                          "CROSSWARP_ENGINE=auto or ucx, or one node"));
  }
  if (!engine.empty() && engine != "auto" && engine != "ucx" && engine != "mpi" &&
      engine != "local") {
    all.push_back(problem(area, "CROSSWARP_ENGINE=" + engine + " names no engine",
                          "one of auto, ucx, mpi, local"));
  }
  if (engine == "mpi" && !e.mpi_launcher) {
    const bool in_job = !value(e, "CROSSWARP_BOOTSTRAP").empty();
    all.push_back((in_job ? problem : hint)(
        area, "CROSSWARP_ENGINE=mpi, but mpirun did not start this process",
        "start ranks with mpirun, not with crosswarp run, or unset it"));
  }
  if (number(value(e, "CROSSWARP_SIZE"), 1) != 1 && value(e, "CROSSWARP_BOOTSTRAP").empty()) {
    all.push_back(problem(area, "CROSSWARP_SIZE is set without CROSSWARP_BOOTSTRAP",
                          "unset both; crosswarp run -n N sets them"));
  }
  if (all.empty()) all.push_back(ok(area, "no contradictions"));
  return all;
}

int exit_code(const std::vector<finding>& all) noexcept {
  return std::any_of(all.begin(), all.end(),
                     [](const finding& f) { return f.how == severity::problem; })
             ? 1
             : 0;
}

}  // namespace crosswarp::tool::doctor_impl
