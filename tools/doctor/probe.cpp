#include "probe.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "coll/tuning.hpp"
#include "core/variables.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "crosswarp/world.hpp"
#include "proxy/load.hpp"
#include "world/socket.hpp"

namespace crosswarp::tool::doctor_impl {
namespace {

namespace fs = std::filesystem;
using world_impl::descriptor;

std::string first_line(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

/// The first number in a file; `otherwise` when there is none.
long number_in(const fs::path& file, long otherwise) {
  long n = 0;
  return std::ifstream(file) >> n ? n : otherwise;
}

/// Of /proc/meminfo, in bytes.
std::uint64_t memory_info(const std::string& key) {
  std::ifstream info("/proc/meminfo");
  for (std::string name, rest; info >> name; std::getline(info, rest)) {
    std::uint64_t kib = 0;
    if (name == key + ":" && info >> kib) return kib * 1024;
  }
  return 0;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code none;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none)) {
    all.push_back(it->path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// ---- other processes

struct last_words {
  std::string said;
  std::string bad_end;  ///< how it ended; empty: well
};

std::string describe_bad_end(int status) {
  if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "ends with code " + std::to_string(WEXITSTATUS(status));
}

[[noreturn]] void speak(int to, const std::function<std::string()>& f) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // What a library prints while it fails is none of our output.
  const int nowhere = open("/dev/null", O_RDWR);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const std::string words = f();
  const ssize_t n = write(to, words.data(), words.size());
  _exit(n == static_cast<ssize_t>(words.size()) ? 0 : 1);
}

/// Runs `f` in a child, which says what it returns; ended when it takes too long.
last_words in_child(const std::function<std::string()>& f) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {"", std::strerror(errno)};
  const descriptor from(ends[0]);
  descriptor to(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return {"", std::strerror(errno)};
  if (pid == 0) speak(to.get(), f);
  to.reset();
  last_words w;
  constexpr int patience_ms = 20'000;
  bool ended = false;
  for (pollfd p{from.get(), POLLIN, 0}; !ended && poll(&p, 1, patience_ms) > 0;) {
    char chunk[4096];
    const ssize_t n = read(from.get(), chunk, sizeof(chunk));
    ended = n <= 0;
    if (!ended) w.said.append(chunk, static_cast<std::size_t>(n));
  }
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  w.bad_end = ended ? describe_bad_end(status) : "takes too long";
  return w;
}

int try_to_read(pid_t pid, char& word) {
  char got = 0;
  const iovec here{&got, 1};
  const iovec there{&word, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == 1 && got == word ? 0 : errno;
}

/// As one rank looks at another: neither is the other's parent.
int try_to_read_sibling() {
  static char word = 'w';
  const pid_t sibling = fork();
  if (sibling < 0) return errno;
  if (sibling == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 60; ++i) sleep(1);
    _exit(0);
  }
  const last_words w = in_child([&] { return std::to_string(try_to_read(sibling, word)); });
  kill(sibling, SIGKILL);
  waitpid(sibling, nullptr, 0);
  return w.said.empty() ? ECHILD : std::stoi(w.said);
}

}  // namespace

peek_facts probe_peeking() {
  static char word = 'w';
  peek_facts f;
  f.self_error = try_to_read(getpid(), word);
  f.sibling_error = try_to_read_sibling();
  f.ptrace_scope = static_cast<int>(number_in("/proc/sys/kernel/yama/ptrace_scope", -1));
  return f;
}

// ---- GPUs

namespace {

bool somebody_reads(const fs::path& pipe) {
  struct stat what {};
  if (stat(pipe.c_str(), &what) != 0) return false;
  if (S_ISFIFO(what.st_mode)) {
    return descriptor(open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)).open();
  }
  sockaddr_un to{};
  if (!S_ISSOCK(what.st_mode) || pipe.native().size() >= sizeof(to.sun_path)) return false;
  to.sun_family = AF_UNIX;
  std::strcpy(to.sun_path, pipe.c_str());
  const auto answers = [&](int type) {
    const descriptor s(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return s.open() && connect(s.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  };
  return answers(SOCK_STREAM) || answers(SOCK_SEQPACKET) || answers(SOCK_DGRAM);
}

}  // namespace

mps_facts probe_mps() {
  mps_facts f;
  const auto folder = options::read("CUDA_MPS_PIPE_DIRECTORY");
  f.folder_from_environment = folder.has_value();
  f.folder = folder.value_or("/tmp/nvidia-mps");
  f.answers = somebody_reads(fs::path(f.folder) / "control");
  return f;
}

// ---- limits

namespace {

limit read_limit(__rlimit_resource what) {
  rlimit l{};
  if (getrlimit(what, &l) != 0) return {};
  const auto number = [](rlim_t n) { return n == RLIM_INFINITY ? unlimited : std::uint64_t{n}; };
  return {number(l.rlim_cur), number(l.rlim_max)};
}

bool has_capability(unsigned bit) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> bit & 1U) != 0;
  }
  return false;
}

/// As the heap does it.
int try_memfd() {
  constexpr std::size_t length = 1U << 20U;
  const descriptor fd(memfd_create("crosswarp-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.open() || ftruncate(fd.get(), length) != 0) return errno;
  void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (p == MAP_FAILED) return errno;
  munmap(p, length);
  return 0;
}

}  // namespace

limit probe_open_files() {
  return read_limit(RLIMIT_NOFILE);
}

memory_facts probe_memory() {
  constexpr unsigned cap_ipc_lock = 14;
  memory_facts f;
  f.locked = read_limit(RLIMIT_MEMLOCK);
  f.may_lock_all = has_capability(cap_ipc_lock);
  struct statvfs shm {};
  f.shm_there = statvfs("/dev/shm", &shm) == 0;
  f.shm_bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
  f.shm_free = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  f.memfd_error = try_memfd();
  f.max_map_count = number_in("/proc/sys/vm/max_map_count", 0);
  f.overcommit = static_cast<int>(number_in("/proc/sys/vm/overcommit_memory", 0));
  const std::uint64_t most = memory_info("CommitLimit");
  const std::uint64_t now = memory_info("Committed_AS");
  f.commit_left = most > now ? most - now : 0;
  return f;
}

namespace {

/// "150000 100000" as 1.5; none for "max 100000".
std::optional<double> quota_of_v2(const fs::path& group) {
  double quota = 0;
  double period = 0;
  std::ifstream in(group / "cpu.max");
  if (in >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

std::optional<double> quota_of_v1(const fs::path& group) {
  const long quota = number_in(group / "cpu.cfs_quota_us", -1);
  const long period = number_in(group / "cpu.cfs_period_us", 0);
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

/// In a container the path may be the host's, which is not mounted here: then the root is ours.
std::optional<double> smallest_quota(const fs::path& mount, const fs::path& path,
                                     std::optional<double> (*of)(const fs::path&)) {
  std::optional<double> least;
  for (fs::path at = path.relative_path();; at = at.parent_path()) {
    if (const auto q = of(mount / at); q && (!least || *q < *least)) least = q;
    if (at.empty()) return least;
  }
}

}  // namespace

std::optional<double> cpu_quota(const std::string& membership, const fs::path& root) {
  std::optional<double> least;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    // "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    const std::string listed = "," + controllers + ",";
    std::optional<double> q;
    if (controllers.empty()) {
      q = smallest_quota(root, path, quota_of_v2);
      if (!q) q = smallest_quota(root / "unified", path, quota_of_v2);
    } else if (listed.find(",cpu,") != std::string::npos) {
      q = smallest_quota(root / controllers, path, quota_of_v1);
      if (!q) q = smallest_quota(root / "cpu", path, quota_of_v1);
    }
    if (q && (!least || *q < *least)) least = q;
  }
  return least;
}

core_facts probe_cores() {
  core_facts f;
  f.online = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t mask;
  CPU_ZERO(&mask);
  f.allowed = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : f.online;
  std::ifstream membership("/proc/self/cgroup");
  std::ostringstream text;
  text << membership.rdbuf();
  f.quota = cpu_quota(text.str(), "/sys/fs/cgroup");
  return f;
}

// ---- engines

namespace {

/// Where the library with that name was loaded from, in this process.
std::string loaded_library(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const fs::path file = line.substr(at);
    if (file.filename().native().starts_with(name)) return file;
  }
  return "";
}

bool has_module_beside(const fs::path& library, const std::string& module) {
  const auto all = entries(library.parent_path() / "ucx");
  return std::any_of(all.begin(), all.end(), [&](const fs::path& p) {
    return p.filename().native().starts_with(module + ".so");
  });
}

}  // namespace

engine_facts probe_engine(const std::string& name, bool built) {
  engine_facts f;
  f.name = name;
  f.built = built;
  const last_words w = in_child([&] {
    const proxy_impl::engine_presence p = proxy_impl::find_engine(name);
    return (p.there ? "1" : "0") + loaded_library("libuct.so") + "\n" + p.where_or_why;
  });
  if (!w.bad_end.empty() || w.said.empty()) {
    f.crashed = true;
    f.where_or_why = w.bad_end;
    return f;
  }
  const std::size_t line = w.said.find('\n');
  f.there = w.said.front() == '1';
  f.library = w.said.substr(1, line - 1);
  f.where_or_why = w.said.substr(line + 1);
  f.gpu_memory = !f.library.empty() && has_module_beside(f.library, "libuct_cuda");
  return f;
}

// ---- verbs

namespace {

rdma_port probe_port(const std::string& device, const fs::path& port) {
  // "4: ACTIVE"
  const std::string state = first_line(port / "state");
  const std::size_t colon = state.find(": ");
  rdma_port p{device, std::atoi(port.filename().c_str()),
              colon == std::string::npos ? state : state.substr(colon + 2),
              first_line(port / "link_layer")};
  for (const fs::path& gid : entries(port / "gids")) {
    const std::string value = first_line(gid);
    if (value.find_first_not_of("0:") == std::string::npos) continue;  // an empty place
    p.gids.push_back({std::atoi(gid.filename().c_str()), value,
                      first_line(port / "gid_attrs/types" / gid.filename())});
  }
  std::sort(p.gids.begin(), p.gids.end(),
            [](const rdma_gid& a, const rdma_gid& b) { return a.index < b.index; });
  return p;
}

/// What dlopen() says; empty when it loads.
std::string loading_error(const char* library) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return dlerror();
  dlclose(handle);
  return "";
}

}  // namespace

rdma_facts probe_rdma(const fs::path& sys, const fs::path& dev, const fs::path& proc) {
  rdma_facts f;
  std::error_code none;
  for (const fs::path& device : entries(sys / "class/infiniband")) {
    const std::string name = device.filename();
    f.devices.push_back(name);
    if (fs::read_symlink(device / "device/driver", none).filename() == "mlx5_core") {
      f.mlx5.push_back(name);
    }
    for (const fs::path& port : entries(device / "ports")) {
      f.ports.push_back(probe_port(name, port));
    }
  }
  for (const fs::path& node : entries(dev / "infiniband")) {
    if (!node.filename().native().starts_with("uverbs")) continue;
    f.nodes.push_back(node);
    if (access(node.c_str(), R_OK | W_OK) != 0) f.forbidden.push_back(node);
  }
  f.rxe_module = fs::exists(sys / "module/rdma_rxe", none);
  f.library_error = loading_error("libibverbs.so.1");
  f.peer_memory = fs::exists(sys / "module/nvidia_peermem", none);
  std::ifstream file(proc / "driver/nvidia/params");
  const std::string settings{std::istreambuf_iterator<char>(file), {}};
  f.may_map_doorbells =
      geteuid() == 0 || settings.find("PeerMappingOverride=1") != std::string::npos;
  return f;
}

// ---- the network

network_facts probe_network() {
  network_facts f;
  try {
    const auto here = world_impl::listen_tcp("127.0.0.1", 0, "127.0.0.1");
    (void)world_impl::connect_to(here.address, world_impl::after(std::chrono::seconds(2)));
  } catch (const error& e) {
    f.loopback_error = e.what();
  }
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  f.host_name = name;
  addrinfo* found = nullptr;
  if (const int bad = getaddrinfo(name, nullptr, nullptr, &found)) {
    f.resolve_error = gai_strerror(bad);
  } else {
    freeaddrinfo(found);
  }
  f.advertised = world_impl::advertised_host();
  return f;
}

// ---- the environment

namespace {

std::string find_program(const std::string& name) {
  std::istringstream path(options::read("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code none;
    if (fs::is_regular_file(file, none) && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace

environment_facts probe_environment() {
  environment_facts f;
  const auto look = [&](std::string_view name) {
    if (const auto v = options::read(name)) f.set.emplace(name, *v);
  };
  for (const options::setting& s : options::all()) {
    if (s.name != "CROSSWARP_SECRET") look(s.name);
  }
  for (const char* name : {"CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"}) look(name);
  f.unknown = options::unknown_variables();
  try {
    (void)world_options::from_environment();
    if (const auto file = coll_impl::tuning_file_to_read()) (void)coll_impl::read_tuning(*file);
  } catch (const error& e) {
    f.refused = e.what();
  }
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    f.mpi_launcher = f.mpi_launcher || options::read(name).has_value();
  }
  f.mpirun = find_program("mpirun");
  return f;
}

}  // namespace crosswarp::tool::doctor_impl
