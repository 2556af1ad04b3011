#include "guard.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "crosswarp/error.hpp"

namespace crosswarp::tool {
namespace {

/// The guard's whole life. Reads what the launcher says until the pipe ends.
[[noreturn]] void watch(int pipe) {
  setsid();
  prctl(PR_SET_NAME, "crosswarp-guard");
  for (int s = 1; s < 32; ++s) {
    if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_IGN);
  }
  const int nowhere = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(nowhere, fd);
  std::set<pid_t> alive;
  for (pid_t said = 0;;) {
    const ssize_t n = read(pipe, &said, sizeof(said));
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof(said)) break;
    if (said > 0) {
      alive.insert(said);
    } else {
      alive.erase(-said);
    }
  }
  for (const pid_t group : alive) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

guard::guard() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw error::from_errno(errno, "pipe");
  pid_ = fork();
  if (pid_ < 0) throw error::from_errno(errno, "fork");
  if (pid_ == 0) {
    close(ends[1]);
    watch(ends[0]);
  }
  close(ends[0]);
  pipe_ = world_impl::descriptor(ends[1]);
}

guard::~guard() {
  pipe_.reset();
  waitpid(pid_, nullptr, 0);
}

void guard::started(pid_t group) {
  [[maybe_unused]] const ssize_t n = write(pipe_.get(), &group, sizeof(group));
}
void guard::ended(pid_t group) {
  started(-group);
}

}  // namespace crosswarp::tool
