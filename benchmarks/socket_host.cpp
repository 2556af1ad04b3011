#include "socket_host.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <vector>

#include "bench.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::bench {
namespace {

using clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* call) {
  throw error::from_errno(errno, call, "bench socket");
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  return a;
}

bool connect_to(int fd, std::uint16_t port) {
  const sockaddr_in a = loopback(port);
  return connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) == 0;
}

void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/// Calls block, for 10 s.
class client {
 public:
  explicit client(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    no_delay(fd_);
    if (!connect_to(fd_, port)) fail("connect");
  }
  ~client() { close(fd_); }
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  void write(const char* from, std::size_t n) const {
    while (n > 0) {
      const ssize_t did = send(fd_, from, n, MSG_NOSIGNAL);
      if (did <= 0) fail("send");
      from += did;
      n -= static_cast<std::size_t>(did);
    }
  }
  /// At most `n` bytes, at least one.
  std::size_t read(char* to, std::size_t n) const {
    const ssize_t did = recv(fd_, to, n, 0);
    if (did <= 0) fail("recv");
    return static_cast<std::size_t>(did);
  }
  /// A byte there and back.
  void ping() const {
    char c = 'x';
    write(&c, 1);
    read(&c, 1);
  }

 private:
  int fd_;
};

/// Sends `bytes` on one thread while another reads them back.
void stream_through(const client& c, std::size_t bytes) {
  constexpr std::size_t piece = 256 * 1024;
  std::thread writer([&] {
    const std::vector<char> from(piece, 'x');
    try {
      for (std::size_t done = 0; done < bytes; done += piece) {
        c.write(from.data(), std::min(piece, bytes - done));
      }
    } catch (const error&) {
      // The reader misses it, and says so.
    }
  });
  std::vector<char> to(piece);
  std::size_t done = 0;
  try {
    while (done < bytes) done += c.read(to.data(), std::min(piece, bytes - done));
  } catch (...) {
    writer.join();
    throw;
  }
  writer.join();
}

}  // namespace

// ---- the server

epoll_echo::epoll_echo()
    : listener_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  sockaddr_in a = loopback(0);
  socklen_t bytes = sizeof(a);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0 ||
      listen(listener_, 1024) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &bytes) != 0) {
    fail("listen");
  }
  port_ = ntohs(a.sin_port);
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = listener_;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &e);
  thread_ = std::thread([this] { run(); });
}

epoll_echo::~epoll_echo() {
  stop_.store(true);
  thread_.join();
  close(epoll_);
  close(listener_);
}

void epoll_echo::run() {
  std::vector<char> bytes(256 * 1024);
  std::array<epoll_event, 256> events;
  while (!stop_.load(std::memory_order_relaxed)) {
    const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 20);
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == listener_) {
        const int c = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (c < 0) continue;
        no_delay(c);
        epoll_event e{};
        e.events = EPOLLIN;
        e.data.fd = c;
        epoll_ctl(epoll_, EPOLL_CTL_ADD, c, &e);
        continue;
      }
      // It sends all before it reads more, and so needs no memory for what it could not send: as
      // fast as such a server can be, if not as fair.
      const ssize_t came = recv(fd, bytes.data(), bytes.size(), 0);
      ssize_t sent = 0;
      while (sent < came) {
        const ssize_t did =
            send(fd, bytes.data() + sent, static_cast<std::size_t>(came - sent), MSG_NOSIGNAL);
        if (did <= 0) break;
        sent += did;
      }
      if (came <= 0 || sent < came) close(fd);
    }
  }
}

host_streams::host_streams() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in a = loopback(0);
  socklen_t bytes = sizeof(a);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0 ||
      listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &bytes) != 0) {
    fail("listen");
  }
  port_ = ntohs(a.sin_port);
  thread_ = std::thread([this] { run(); });
}

host_streams::~host_streams() {
  stop_.store(true);
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

void host_streams::run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    no_delay(fd);
    serve(fd);
    close(fd);
  }
}

void host_streams::serve(int fd) {
  std::vector<char> bytes(256 * 1024);
  std::uint64_t asked = 0;
  while (recv(fd, &asked, sizeof(asked), MSG_WAITALL) == sizeof(asked)) {
    const bool sends = (asked & wants_bytes) != 0;
    for (std::uint64_t left = asked & ~wants_bytes; left > 0;) {
      const std::size_t n = std::min<std::uint64_t>(left, bytes.size());
      const ssize_t did =
          sends ? send(fd, bytes.data(), n, MSG_NOSIGNAL) : recv(fd, bytes.data(), n, 0);
      if (did <= 0) return;
      left -= static_cast<std::uint64_t>(did);
    }
    if (!sends && send(fd, bytes.data(), 1, MSG_NOSIGNAL) != 1) return;
  }
}

// ---- clients

std::string exchange(std::uint16_t port, const std::string& text) {
  const client c(port);
  c.write(text.data(), text.size());
  std::string back(text.size(), '\0');
  for (std::size_t done = 0; done < back.size();) {
    done += c.read(back.data() + done, back.size() - done);
  }
  return back;
}

double round_trip(std::uint16_t port, int rounds) {
  const client c(port);
  for (int i = 0; i < rounds / 10; ++i) c.ping();
  samples took;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = clock::now();
    c.ping();
    took.add(std::chrono::duration<double, std::micro>(clock::now() - begin).count());
  }
  return took.median();
}

double stream_rate(std::uint16_t port, int streams, std::size_t bytes) {
  const auto begin = clock::now();
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(streams));
  std::atomic<int> failed{0};
  for (int i = 0; i < streams; ++i) {
    threads.emplace_back([&] {
      try {
        const client c(port);
        stream_through(c, bytes);
      } catch (const error&) {
        ++failed;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (failed != 0) throw error(errc::system, "bench socket", "a stream was not sent back");
  const std::chrono::duration<double, std::nano> t = clock::now() - begin;
  return static_cast<double>(bytes) * streams / t.count();
}

double one_way(std::uint16_t port, std::size_t bytes, bool to_server) {
  const client c(port);
  std::vector<char> held(256 * 1024, 'x');
  const std::uint64_t asked = bytes | (to_server ? 0 : wants_bytes);
  const auto begin = clock::now();
  c.write(reinterpret_cast<const char*>(&asked), sizeof(asked));
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t n = std::min(held.size(), bytes - done);
    if (to_server) c.write(held.data(), n);
    done += to_server ? n : c.read(held.data(), n);
  }
  if (to_server) c.read(held.data(), 1);
  const std::chrono::duration<double, std::nano> t = clock::now() - begin;
  return static_cast<double>(bytes) / t.count();
}

double connection_rate(std::uint16_t port, int count) {
  const auto begin = clock::now();
  for (int i = 0; i < count; ++i) client(port).ping();
  return count / std::chrono::duration<double>(clock::now() - begin).count();
}

// ---- idle connections

int possible_connections(int wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t for_others = 200;
  return limit.rlim_max < static_cast<rlim_t>(wanted) + for_others
             ? static_cast<int>(limit.rlim_max - for_others)
             : wanted;
}

idle_connections::idle_connections(std::uint16_t port, int count) {
  int ends[2];
  int told[2];
  if (pipe(ends) != 0 || pipe(told) != 0) fail("pipe");
  holder_ = fork();
  if (holder_ < 0) fail("fork");
  if (holder_ == 0) {  // system calls only: other threads' locks are lost
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1]);
    char connected = 'y';
    for (int i = 0; i < count && connected == 'y'; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      if (fd < 0 || !connect_to(fd, port)) connected = 'n';
    }
    char c = 0;
    if (write(told[1], &connected, 1) == 1) (void)!read(ends[0], &c, 1);
    _exit(0);
  }
  close(ends[0]);
  close(told[1]);
  lives_ = ends[1];
  char connected = 'n';
  const bool answered = read(told[0], &connected, 1) == 1;
  close(told[0]);
  if (!answered || connected != 'y') {
    throw error(errc::system, "bench socket", "the server did not take all idle connections");
  }
}

idle_connections::~idle_connections() {
  close(lives_);
  waitpid(holder_, nullptr, 0);
}

// ---- programs

std::uint16_t free_port() {
  return epoll_echo().port();
}

namespace {

std::vector<int> cores_of_process() {
  cpu_set_t mine;
  if (sched_getaffinity(getpid(), sizeof(mine), &mine) != 0) {
    throw error::from_errno(errno, "sched_getaffinity");
  }
  std::vector<int> cores;
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(c, &mine)) cores.push_back(c);
  }
  return cores;
}

void move_thread(pid_t thread, const cpu_set_t& to) {
  // One that has ended meanwhile needs no core.
  if (sched_setaffinity(thread, sizeof(to), &to) != 0 && errno != ESRCH) {
    throw error::from_errno(errno, "sched_setaffinity");
  }
}

}  // namespace

bool placement::has_two() {
  return cores_of_process().size() > 1;
}

placement::placement(cores c) {
  const std::vector<int> mine = cores_of_process();
  const pid_t self = gettid();
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(task.path().filename().string());
    cpu_set_t to;
    if (sched_getaffinity(thread, sizeof(to), &to) != 0) continue;  // it has ended
    before_[thread] = to;
    CPU_ZERO(&to);
    CPU_SET(c == cores::one || thread == self ? mine.front() : mine.back(), &to);
    move_thread(thread, to);
  }
}

placement::~placement() {
  for (const auto& [thread, its] : before_) {
    (void)sched_setaffinity(thread, sizeof(its), &its);  // one may have ended
  }
}

program::program(const std::string& path, const std::string& arguments, std::uint16_t port) {
  std::vector<std::string> words = {path};
  std::istringstream text(arguments);
  for (std::string w; text >> w;) words.push_back(w);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const int bad = posix_spawnp(&pid_, argv[0], &quiet, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (bad != 0) throw error::from_errno(bad, "posix_spawn", path);
  for (int i = 0; i < 200; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool there = connect_to(fd, port);
    close(fd);
    if (there) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  throw error(errc::system, path, "does not listen at port " + std::to_string(port));
}

program::~program() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

}  // namespace crosswarp::bench
