// crosswarp run: the launcher for one machine.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "commands.hpp"
#include "core/log.hpp"
#include "crosswarp/device_ref.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "guard.hpp"
#include "output.hpp"
#include "trace/write.hpp"
#include "transports/mapped/node_segment.hpp"
#include "world/star.hpp"

namespace crosswarp::tool {
namespace {

using world_impl::descriptor;
using clock = std::chrono::steady_clock;

constexpr int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
// After the first failure the others have this long to notice, then are asked, then are killed.
constexpr auto time_to_notice = std::chrono::seconds(1);
constexpr auto time_to_end = std::chrono::seconds(2);
// A rank that was sent a signal may have something to put in order first.
constexpr auto time_to_obey = std::chrono::seconds(2);

struct child {
  int rank = 0;
  pid_t pid = -1;
  bool running = false;
  descriptor out;
  descriptor err;
  line_writer out_lines;
  line_writer err_lines;
};

void check_options(const run_options& o) {
  if (o.ranks < 1 || o.ranks > 4096) {
    throw error(errc::invalid_argument, "run", fmt::format("{} ranks: from 1 to 4096", o.ranks));
  }
  if (o.nodes < 1 || o.nodes > o.ranks) {
    throw error(errc::invalid_argument, "run",
                fmt::format("{} nodes for {} ranks", o.nodes, o.ranks));
  }
  if (!o.device.empty()) (void)device_ref::parse(o.device);
  (void)log::from_environment();  // told once, not by each rank
  if (!o.trace.empty()) trace::make_way(o.trace, "--trace");
  const std::string heap =
      !o.heap.empty() ? o.heap : options::read("CROSSWARP_HEAP").value_or("64M");
  mapped::check_host_memory(options::parse_bytes(heap, "--heap or CROSSWARP_HEAP"),
                            static_cast<std::size_t>(o.ranks));
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class launcher {
 public:
  explicit launcher(const run_options& o)
      : options_(o),
        secret_(world_impl::make_secret()),
        signals_(block_signals()),
        server_(world_impl::listen_tcp("127.0.0.1", 0, "127.0.0.1"), o.ranks, secret_, -1) {}

  int run() {
    line_writer::interrupt_by(signals_.get());
    children_.reserve(static_cast<std::size_t>(options_.ranks));
    for (int r = 0; r < options_.ranks && code_ == 0; ++r) start(r);
    while (alive() > 0) turn();
    settle_blame();
    clean_up();
    return code_;
  }

 private:
  static descriptor block_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const int s : forwarded) sigaddset(&set, s);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    descriptor fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd.open()) throw error::from_errno(errno, "signalfd");
    return fd;
  }

  // ---- starting

  void start(int rank) {
    int out[2];
    int err[2];
    int failed[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) {
      throw error::from_errno(errno, "pipe", "ulimit -n is too low for this many ranks");
    }
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw error::from_errno(errno, "fork", fmt::format("rank {}", rank));
    if (pid == 0) become_rank(rank, parent, out[1], err[1], failed[1]);
    setpgid(pid, pid);  // the child does it too: whoever comes first
    guard_.started(pid);
    for (const int fd : {out[1], err[1], failed[1]}) close(fd);
    const std::string prefix = options_.prefix ? fmt::format("[{}] ", rank) : "";
    children_.push_back({rank, pid, true, descriptor(out[0]), descriptor(err[0]),
                         line_writer(STDOUT_FILENO, prefix), line_writer(STDERR_FILENO, prefix)});
    int reason = 0;
    const descriptor verdict(failed[0]);
    if (read(verdict.get(), &reason, sizeof(reason)) == sizeof(reason)) {
      fmt::print(stderr, "crosswarp: cannot run '{}': {}\n", options_.command[0],
                 std::strerror(reason));
      code_ = reason == ENOENT ? 127 : 126;
      first_failure_ = clock::now() - time_to_notice;
    }
  }

  [[noreturn]] void become_rank(int rank, pid_t parent, int out, int err, int failed) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    if (rank != 0 || isatty(STDIN_FILENO) != 0) {
      const int nowhere = open("/dev/null", O_RDONLY);
      dup2(nowhere, STDIN_FILENO);
    }
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    set_environment(rank);
    std::vector<char*> argv;
    for (const std::string& a : options_.command) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    const int reason = errno;
    [[maybe_unused]] const ssize_t n = write(failed, &reason, sizeof(reason));
    _exit(127);
  }

  void set_environment(int rank) const {
    const auto set = [](const char* name, const std::string& value) {
      setenv(name, value.c_str(), 1);
    };
    set("CROSSWARP_RANK", std::to_string(rank));
    set("CROSSWARP_SIZE", std::to_string(options_.ranks));
    set("CROSSWARP_BOOTSTRAP", server_.address());
    set("CROSSWARP_SECRET", world_impl::to_hex(secret_));
    set("CROSSWARP_NODES", std::to_string(options_.nodes));
    if (!options_.device.empty()) set("CROSSWARP_DEVICE", options_.device);
    if (!options_.heap.empty()) set("CROSSWARP_HEAP", options_.heap);
    if (options_.stats) set("CROSSWARP_STATS", "1");
    if (!options_.trace.empty()) set("CROSSWARP_TRACE", options_.trace);
    // A program that lies elsewhere has this command's engines.
    std::error_code none;
    const auto engines =
        std::filesystem::read_symlink("/proc/self/exe", none).parent_path().parent_path() / "lib" /
        "crosswarp";
    if (std::filesystem::is_directory(engines, none)) {
      setenv("CROSSWARP_ENGINE_PATH", engines.c_str(), 0);
    }
    // Ranks that share a GPU wait for each other: nothing may be loaded or queued behind a kernel
    // that spins, and under MPS each gets its share of the multiprocessors.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    int connections = 32;
    if (options::read("CUDA_MPS_PIPE_DIRECTORY")) {
      const int share = std::max(1, 100 / options_.ranks);
      setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(share).c_str(), 0);
      // All clients of MPS share one GPU's connections; when there are none left, a process's first
      // call fails with "out of memory".
      connections = std::clamp(64 / options_.ranks, 2, connections);
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(connections).c_str(), 0);
  }

  // ---- watching

  [[nodiscard]] std::size_t alive() const {
    return static_cast<std::size_t>(std::count_if(children_.begin(), children_.end(),
                                                  [](const child& c) { return c.running; }));
  }

  void turn() {
    std::vector<pollfd> watch = {{signals_.get(), POLLIN, 0}};
    for (const child& c : children_) {
      watch.push_back({c.out.get(), POLLIN, 0});  // a closed one is -1, which poll skips
      watch.push_back({c.err.get(), POLLIN, 0});
    }
    if (poll(watch.data(), watch.size(), milliseconds_to_next_step()) > 0) {
      for (std::size_t i = 0; i < children_.size(); ++i) {
        child& c = children_[i];
        if (watch[1 + 2 * i].revents != 0) pass_on(c.out, c.out_lines);
        if (watch[2 + 2 * i].revents != 0) pass_on(c.err, c.err_lines);
      }
      if (watch[0].revents != 0) take_signals();
    }
    settle_blame();
    escalate();
  }

  static void pass_on(descriptor& from, line_writer& to) {
    char chunk[65536];
    const ssize_t n = read(from.get(), chunk, sizeof(chunk));
    if (n > 0) return to.write({chunk, static_cast<std::size_t>(n)});
    if (n < 0 && errno == EINTR) return;
    to.finish();
    from.reset();
  }

  void take_signals() {
    signalfd_siginfo s{};
    while (read(signals_.get(), &s, sizeof(s)) == sizeof(s)) {
      if (s.ssi_signo == SIGCHLD) continue;
      const int number = static_cast<int>(s.ssi_signo);
      const bool impatient = number == SIGINT && ++interrupts_ > 1;
      kill_all(impatient ? SIGKILL : number);
      // Ranks that do not end on a signal to end are dealt with like those of a failed job.
      const bool ends = number != SIGUSR1 && number != SIGUSR2;
      if (ends) line_writer::give_up_when_blocked();
      if (ends && !first_failure_) {
        first_failure_ = clock::now() + time_to_obey;
        signalled_ = number;
      }
    }
    reap();
  }

  void reap() {
    int status = 0;
    for (child& c : children_) {
      if (!c.running || waitpid(c.pid, &status, WNOHANG) != c.pid) continue;
      c.running = false;
      server_.rank_gone(c.rank, describe_end(status));
      if (status == 0) continue;
      failures_.push_back({c.rank, status});
      if (!first_failure_) first_failure_ = clock::now();
    }
    settle_blame();
  }

  /// Says which rank failed first. When one dies, the others notice and may end before it can be
  /// waited for; the bootstrap knows whose connection ended first.
  void settle_blame() {
    if (code_ != 0) return;
    if (failures_.empty()) {
      if (alive() == 0 && signalled_ != 0) code_ = 128 + signalled_;
      return;
    }
    const int culprit = server_.first_culprit();
    const auto of_culprit = std::find_if(failures_.begin(), failures_.end(),
                                         [&](const failure& f) { return f.rank == culprit; });
    const bool unfailed = culprit >= 0 && of_culprit == failures_.end();
    const bool running = unfailed && children_[static_cast<std::size_t>(culprit)].running;
    if (running && clock::now() < *first_failure_ + time_to_notice) return;  // it may fail yet
    const failure& f = of_culprit != failures_.end() ? *of_culprit : failures_.front();
    code_ = exit_code(f.status);
    const std::string cause =
        unfailed && !running
            ? fmt::format("rank {} exited with code 0 while others still needed it; then ", culprit)
            : "";
    const auto chosen = server_.chosen_code();
    if (chosen && f.rank == culprit) {
      fmt::print(stderr, "crosswarp: PE {} called shmem_global_exit({})\n", culprit, *chosen);
    } else {
      fmt::print(stderr, "crosswarp: {}rank {} {}\n", cause, f.rank, describe_end(f.status));
    }
  }

  // ---- ending

  [[nodiscard]] int milliseconds_to_next_step() const {
    if (!first_failure_) return -1;
    const auto next = *first_failure_ + time_to_notice + (asked_ ? time_to_end : time_to_end * 0);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - clock::now());
    return static_cast<int>(std::clamp<long>(left.count() + 1, 0, 1000));
  }

  void escalate() {
    if (!first_failure_) return;
    const auto since = clock::now() - *first_failure_;
    if (since >= time_to_notice && !asked_) {
      asked_ = true;
      kill_all(SIGTERM);
    }
    if (since >= time_to_notice + time_to_end) kill_all(SIGKILL);
  }

  void kill_all(int number) const {
    for (const child& c : children_) {
      if (c.running) kill(-c.pid, number);
    }
  }

  /// What a rank started and left behind goes too; then the last of the output.
  void clean_up() {
    for (const child& c : children_) {
      kill(-c.pid, SIGKILL);
      guard_.ended(c.pid);
    }
    for (child& c : children_) {
      drain(c.out, c.out_lines);
      drain(c.err, c.err_lines);
    }
  }

  static void drain(descriptor& from, line_writer& to) {
    while (from.open()) {
      pollfd p{from.get(), POLLIN, 0};
      if (poll(&p, 1, 200) <= 0) break;
      pass_on(from, to);
    }
    to.finish();
  }

  const run_options& options_;
  world_impl::secret_key secret_;
  guard guard_;  // before any thread exists
  descriptor signals_;
  world_impl::star_server server_;
  struct failure {
    int rank;
    int status;
  };
  std::vector<child> children_;
  std::vector<failure> failures_;  // in the order they were seen
  int code_ = 0;
  int signalled_ = 0;
  int interrupts_ = 0;
  bool asked_ = false;
  std::optional<clock::time_point> first_failure_;
};

/// Pipes for every rank and connections of strangers: as many descriptors as the system allows.
void raise_descriptor_limit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int run(const run_options& o) {
  check_options(o);
  raise_descriptor_limit();
  return launcher(o).run();
}

}  // namespace crosswarp::tool
