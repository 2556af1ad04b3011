// Commands as tests run them: output captured, always ended, and nothing that they started escapes.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using process_clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Variables to set for a command, on top of this process's own. What a launcher sets for its
/// ranks is not passed on, so that a test sees the same under any launcher.
using environment = std::map<std::string, std::string>;

namespace process_impl {

inline bool belongs_to_a_launcher(std::string_view variable) {
  for (const char* prefix : {"CROSSWARP_", "PMIX_", "OMPI_", "PRTE_", "SLURM_", "MASTER_", "RANK=",
                             "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "TORCHELASTIC_"}) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

inline std::vector<std::string> variables(const environment& extra) {
  std::vector<std::string> all;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view text(*v);
    const bool replaced = extra.contains(std::string(text.substr(0, text.find('='))));
    if (!replaced && !belongs_to_a_launcher(text)) all.emplace_back(text);
  }
  for (const auto& [name, value] : extra) all.push_back(name + "=" + value);
  return all;
}

inline std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& t : texts) all.push_back(const_cast<char*>(t.c_str()));
  all.push_back(nullptr);
  return all;
}

/// Of a file in /proc; what could be read when its process ended meanwhile.
inline std::string contents(const std::filesystem::path& file) {
  std::string text;
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char chunk[16384];
  for (ssize_t n = 0; (n = read(fd, chunk, sizeof(chunk))) > 0;) {
    text.append(chunk, static_cast<std::size_t>(n));
  }
  close(fd);
  return text;
}

/// Field `index` (from 0: the state) of what follows the name in /proc/PID/stat.
inline std::string stat_field(const std::filesystem::path& entry, int index) {
  const std::string stat = contents(entry / "stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::size_t at = name_end + 2;
  for (; index > 0 && at != std::string::npos; --index) at = stat.find(' ', at) + 1;
  return at >= stat.size() ? "" : stat.substr(at, stat.find(' ', at) - at);
}

inline std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::error_code gone;
  for (std::filesystem::directory_iterator it("/proc", gone), end; it != end; it.increment(gone)) {
    const std::string name = it->path().filename();
    if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      pids.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return pids;
}

inline std::filesystem::path proc(pid_t pid) {
  return std::filesystem::path("/proc") / std::to_string(pid);
}

}  // namespace process_impl

/// True when `done` becomes true in time.
inline bool soon(milliseconds limit, const std::function<bool()>& done) {
  for (const auto end = process_clock::now() + limit;;) {
    if (done()) return true;
    if (process_clock::now() >= end) return false;
    usleep(5000);
  }
}

/// A process of a job, as found in /proc.
struct job_process {
  pid_t pid;
  pid_t parent;
  std::string name;
  int rank;  ///< what CROSSWARP_RANK says; -1 for the launcher and its guard
};

/// A command that runs. All that it starts carries a marker in its environment and is killed, at
/// the latest, by the destructor.
class process {
 public:
  explicit process(std::vector<std::string> argv, environment extra = {}) {
    // Orphans come to this process rather than to init, so that they can be waited for.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    static std::atomic<int> count{0};
    marker_ = std::to_string(getpid()) + "." + std::to_string(count.fetch_add(1));
    extra["TEST_JOB_MARKER"] = marker_;
    start(argv, process_impl::variables(extra));
  }
  ~process() {
    if (!ended_) kill(SIGKILL);
    if (!ended_) wait(seconds(10));
    for (const job_process& p : alive()) ::kill(p.pid, SIGKILL);
    soon(seconds(2), [&] { return alive().empty(); });
    close_pipes();
    reap_orphans();
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill(int signal) const {
    if (!ended_) ::kill(pid_, signal);
  }

  /// Stops all of its threads; true when they stand. A signal alone takes effect when it may.
  [[nodiscard]] bool stop() const {
    kill(SIGSTOP);
    return soon(seconds(10), [&] {
      std::error_code gone;
      const std::filesystem::directory_iterator threads(process_impl::proc(pid_) / "task", gone);
      return std::all_of(begin(threads), end(threads), [](const auto& entry) {
        return process_impl::stat_field(entry.path(), 0) == "T";
      });
    });
  }

  /// Waits for its end, reading what it says. False when it has not ended in time.
  bool wait(std::chrono::microseconds limit) {
    return pump(limit, [&] { return ended_; });
  }
  /// Waits until its output (or error output) holds `text`, `times` times.
  bool wait_for(const std::string& text, int times = 1, milliseconds limit = seconds(30)) {
    pump(limit, [&] { return ended_ || occurrences(text) >= times; });
    return occurrences(text) >= times;
  }

  /// As a shell has it: 128 + signal when one ended it; -1 while it runs.
  [[nodiscard]] int code() const {
    if (!ended_) return -1;
    return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  }
  [[nodiscard]] const std::string& out() const noexcept { return text_[0]; }
  [[nodiscard]] const std::string& err() const noexcept { return text_[1]; }

  /// Lines of its output.
  [[nodiscard]] std::vector<std::string> lines() const { return split(out()); }
  [[nodiscard]] std::vector<std::string> error_lines() const { return split(err()); }

  /// All processes of the job, the command itself too; not those that have ended.
  [[nodiscard]] std::vector<job_process> alive() const {
    std::vector<job_process> found;
    const std::string mine = "TEST_JOB_MARKER=" + marker_;
    for (const pid_t pid : process_impl::all_pids()) {
      const auto entry = process_impl::proc(pid);
      const auto set = split(process_impl::contents(entry / "environ"), '\0');
      if (std::find(set.begin(), set.end(), mine) == set.end()) continue;
      const std::string state = process_impl::stat_field(entry, 0);
      if (state.empty() || state == "Z" || state == "X") continue;
      const std::string parent = process_impl::stat_field(entry, 1);
      std::string name = process_impl::contents(entry / "comm");
      if (!name.empty()) name.pop_back();
      found.push_back(
          {pid, parent.empty() ? 0 : static_cast<pid_t>(std::stol(parent)), name, rank_in(set)});
    }
    return found;
  }
  /// What is left of the job after `limit`, for people; empty when nothing is.
  [[nodiscard]] std::string left_after(milliseconds limit) const {
    std::vector<job_process> left;
    soon(limit, [&] { return (left = alive()).empty(); });
    reap_orphans();
    std::string text;
    for (const job_process& p : left) {
      text += p.name + " (process " + std::to_string(p.pid) + ", rank " + std::to_string(p.rank) +
              ", state " + process_impl::stat_field(process_impl::proc(p.pid), 0) + ") ";
    }
    return text;
  }

  [[nodiscard]] std::string report() const {
    return "code " + std::to_string(code()) + "\n--- output\n" + out().substr(0, 4000) +
           "\n--- errors\n" + err().substr(0, 4000);
  }

  static std::vector<std::string> split(const std::string& text, char at = '\n') {
    std::vector<std::string> parts;
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = std::min(text.find(at, from), text.size());
      parts.push_back(text.substr(from, end - from));
      from = end + 1;
    }
    return parts;
  }

 private:
  void start(const std::vector<std::string>& argv, const std::vector<std::string>& variables) {
    int ends[2][2];
    if (pipe2(ends[0], O_CLOEXEC) != 0 || pipe2(ends[1], O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[0][1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1][1], STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Its own group: a signal to the terminal or to this test's group is not for it.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    const int bad =
        posix_spawnp(&pid_, argv[0].c_str(), &actions, &attributes,
                     process_impl::pointers(argv).data(), process_impl::pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    for (int i = 0; i < 2; ++i) {
      close(ends[i][1]);
      pipe_[i] = ends[i][0];
      fcntl(pipe_[i], F_SETFL, O_NONBLOCK);
    }
    if (bad != 0) {
      ended_ = true;
      throw std::runtime_error("cannot start " + argv[0] + ": " + std::strerror(bad));
    }
    running().insert(pid_);
  }

  bool pump(std::chrono::microseconds limit, const std::function<bool()>& done) {
    for (const auto end = process_clock::now() + limit; !done();) {
      if (process_clock::now() >= end) return false;
      pollfd p[2] = {{pipe_[0], POLLIN, 0}, {pipe_[1], POLLIN, 0}};
      const auto left = end - process_clock::now();
      const auto nap = std::min<process_clock::duration>(left, milliseconds(2));
      const timespec pause{0, std::max<long>(0, std::chrono::nanoseconds(nap).count())};
      ::ppoll(p, 2, &pause, nullptr);
      read_pipes();
      if (ended_ || waitpid(pid_, &status_, WNOHANG) != pid_) continue;
      ended_ = true;
      running().erase(pid_);
      // The last words may still be in the pipes, which others may hold open.
      soon(milliseconds(500), [&] {
        read_pipes();
        return pipe_[0] < 0 && pipe_[1] < 0;
      });
    }
    return true;
  }

  void read_pipes() {
    for (int i = 0; i < 2; ++i) {
      char chunk[65536];
      ssize_t n = -1;
      while (pipe_[i] >= 0 && (n = read(pipe_[i], chunk, sizeof(chunk))) > 0) {
        text_[i].append(chunk, static_cast<std::size_t>(n));
      }
      if (pipe_[i] >= 0 && n == 0) {
        close(pipe_[i]);
        pipe_[i] = -1;
      }
    }
  }
  void close_pipes() {
    for (int& fd : pipe_) {
      if (fd >= 0) close(fd);
      fd = -1;
    }
  }

  [[nodiscard]] int occurrences(const std::string& text) const {
    int n = 0;
    for (const std::string& t : text_) {
      for (std::size_t at = 0; (at = t.find(text, at)) != std::string::npos; ++at) ++n;
    }
    return n;
  }

  static int rank_in(const std::vector<std::string>& variables) {
    constexpr std::string_view name = "CROSSWARP_RANK=";
    for (const std::string& v : variables) {
      if (v.starts_with(name)) return std::atoi(v.c_str() + name.size());
    }
    return -1;
  }

  /// Commands of this process that have not been waited for.
  static std::set<pid_t>& running() {
    static std::set<pid_t> all;
    return all;
  }
  /// Waits for what others left to this process, and for nothing else.
  static void reap_orphans() {
    for (const pid_t pid : process_impl::all_pids()) {
      if (running().contains(pid)) continue;
      const auto entry = process_impl::proc(pid);
      if (process_impl::stat_field(entry, 0) == "Z" &&
          process_impl::stat_field(entry, 1) == std::to_string(getpid())) {
        waitpid(pid, nullptr, WNOHANG);
      }
    }
  }

  std::string marker_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  int pipe_[2] = {-1, -1};
  std::string text_[2];
};
