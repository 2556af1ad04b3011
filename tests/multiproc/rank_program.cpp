// What the ranks of the tests in this folder run: the first argument says how to behave.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "crosswarp/flow.hpp"
#include "crosswarp/flow_link.hpp"
#include "crosswarp/graph_programs.hpp"
#include "crosswarp/worklist.hpp"
#include "crosswarp/world.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
using context = cw::device::kernel_context;
using arguments = std::vector<std::string>;
using std::chrono::milliseconds;

namespace {

void write_to(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}
void say(const std::string& line) {
  write_to(STDOUT_FILENO, line + "\n");
}

/// As `crosswarp run` numbers this process.
int launched_rank() {
  const char* r = std::getenv("CROSSWARP_RANK");
  return r == nullptr ? 0 : std::atoi(r);
}
int number(const arguments& a, std::size_t i) {
  return std::stoi(a.at(i));
}

/// Until somebody ends this process; not for ever, in case nobody does.
void sleep_long() {
  for (int i = 0; i < 120; ++i) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// ---- without a world

/// COUNT lines to each of stdout and stderr, each written in two pieces.
int print_lines(const arguments& a) {
  const std::string rank = std::to_string(launched_rank());
  for (int i = 0; i < number(a, 0); ++i) {
    const std::string line = "line " + std::to_string(i) + " of " + rank + " ";
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) write_to(fd, line + std::string(40, 'x'));
    if (i % 16 == 0) std::this_thread::sleep_for(milliseconds(1));
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) write_to(fd, std::string(40, 'y') + "\n");
  }
  return 0;
}

/// One line of LENGTH letters, another for each rank.
int print_long_line(const arguments& a) {
  const char letter = static_cast<char>('a' + launched_rank());
  say(std::string(static_cast<std::size_t>(number(a, 0)), letter));
  return 0;
}

int print_unfinished(const arguments&) {
  write_to(STDOUT_FILENO, "first\n\nlast words");
  write_to(STDERR_FILENO, "complaint");
  return 0;
}

/// Rank RANK exits with CODE, the others wait to be ended.
int exit_code(const arguments& a) {
  if (launched_rank() == number(a, 0)) return number(a, 1);
  sleep_long();
  return 0;
}

/// Rank R exits with code 10 + R after R * STEP milliseconds, or with 0.
int exit_in_turn(const arguments& a) {
  std::this_thread::sleep_for(milliseconds(launched_rank() * number(a, 0)));
  return launched_rank() == 0 ? 0 : 10 + launched_rank();
}

/// Rank RANK dies by SIGNAL.
int die_by(const arguments& a) {
  if (launched_rank() != number(a, 0)) sleep_long();
  signal(number(a, 1), SIG_DFL);
  raise(number(a, 1));
  return 0;
}

/// Waits for signals; `deaf` ignores those that ask it to end.
int wait_for_signal(const arguments& a) {
  static std::atomic<int> got{0};
  const std::string how = a.empty() ? "" : a[0];
  if (how == "deaf") {
    for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) signal(s, SIG_IGN);
  } else if (how == "polite") {
    for (const int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) signal(s, [](int n) { got = n; });
  }
  say("ready");
  for (int i = 0; i < 12000; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    const int number = got;
    if (number == 0) continue;
    got = 0;  // before the answer, which may bring the next one
    say("got " + std::to_string(number));
    if (number == SIGTERM || number == SIGINT) return 0;
  }
  return 0;
}

/// Starts a process that outlives all but SIGKILL, and ends or waits.
int leave_grandchild(const arguments& a) {
  if (fork() == 0) {
    for (const int s : {SIGTERM, SIGINT, SIGHUP}) signal(s, SIG_IGN);
    if (a.at(0) == "quiet") {
      close(STDOUT_FILENO);
      close(STDERR_FILENO);
    }
    sleep_long();
    _exit(0);
  }
  say("ready");
  if (a.size() > 1 && a[1] == "end") return 0;
  sleep_long();
  return 0;
}

// ---- in a world

struct meet_in_kernel {
  CW_FN void operator()(const context&, cw::device::world w, int times, cw::status* out) const {
    *out = cw::status::ok;
    for (int i = 0; i < times && *out == cw::status::ok; ++i) {
      *out = w.barrier_all(cw::device::thread_group{});
    }
  }
};

struct receive_in_kernel {
  CW_FN void operator()(const context& ctx, const cw::device::flow::link& from,
                        cw::status* out) const {
    cw::device::flow::packet p;
    *out = cw::device::flow::receiver::open(ctx.thread(), from).receive(ctx.thread(), p);
  }
};

/// Sends so many packets to the right, then takes one from the left, if it is to.
struct use_links {
  CW_FN void operator()(const context& ctx, const cw::device::flow::link& left,
                        const cw::device::flow::link& right, int sends, bool receives,
                        cw::status* out) const {
    const auto g = ctx.thread();
    auto to = cw::device::flow::sender::open(g, right);
    cw::status s = cw::status::ok;
    for (int i = 0; s == cw::status::ok && i < sends; ++i) s = to.send(g, &i, sizeof(i));
    if (s == cw::status::ok && receives) {
      auto from = cw::device::flow::receiver::open(g, left);
      cw::device::flow::packet p;
      s = from.receive(g, p);
      if (s == cw::status::ok) s = from.release(g);
    }
    *out = s;
  }
};

/// Throws when the host does; says first what the kernel saw.
void finish_kernel(cw::world& w, const cw::buffer<cw::status>& out) {
  try {
    w.stream().sync();
  } catch (const cw::error&) {
    say("kernel: " + std::string(to_string(out.read()[0])));
    throw;
  }
  if (out.read()[0] != cw::status::ok) throw std::runtime_error("the host noticed nothing");
}

void kernel_barriers(cw::world& w, int times) {
  const cw::buffer<cw::status> out(w.options().device, 1);
  cw::launch(w, {}, meet_in_kernel{}, w.device(), times, out.data());
  finish_kernel(w, out);
}

/// A short job that uses everything once.
int work(const arguments&) {
  cw::world w;
  cw::symmetric_buffer<int> box(w, 100);
  for (int i = 0; i < 10; ++i) w.barrier();
  const int mine = w.rank();
  w.put("key" + std::to_string(w.rank()), std::as_bytes(std::span(&mine, 1)));
  for (int r = 0; r < w.size(); ++r) {
    if (w.get("key" + std::to_string(r)).size() != sizeof(int)) return 21;
  }
  if (w.node_count() == 1) kernel_barriers(w, 100);
  const auto all = w.allgather(w.rank());
  for (int r = 0; r < w.size(); ++r) {
    if (all.at(static_cast<std::size_t>(r)) != r) return 23;
  }
  say("done " + std::to_string(w.rank()) + " of " + std::to_string(w.size()));
  return 0;
}

/// Where everybody is.
int show_paths(const arguments&) {
  cw::world w;
  std::string text =
      "rank " + std::to_string(w.rank()) + " nodes " + std::to_string(w.node_count());
  for (int r = 0; r < w.size(); ++r) {
    text += " " + std::to_string(w.node_of(r)) + ":" + w.path_to(r);
  }
  say(text);
  return 0;
}

/// What a rank does that is lost to the others.
void get_lost(const std::string& how) {
  if (how == "kill") raise(SIGKILL);
  if (how == "exit") _exit(7);
  if (how == "std_exit") std::exit(7);
  if (how == "leave") std::exit(0);
  if (how == "throw") throw std::runtime_error("this rank has had enough");
  if (how == "terminate") std::terminate();
  if (how == "stop") {
    raise(SIGSTOP);
    sleep_long();
  }
}

/// From each rank to the next; made while all are there.
std::vector<std::unique_ptr<cw::flow::device_link>> ring_of_links(cw::world& w) {
  std::vector<std::unique_ptr<cw::flow::device_link>> all;
  for (int r = 0; r < w.size(); ++r) {
    all.push_back(std::make_unique<cw::flow::device_link>(w, r, (r + 1) % w.size(), 64, 1));
  }
  return all;
}

void wait_at(cw::world& w, const std::string& place,
             const std::vector<std::unique_ptr<cw::flow::device_link>>& links) {
  if (place == "barrier") return w.barrier();
  if (place == "get") return static_cast<void>(w.get("never put"));
  if (place == "kernel") return kernel_barriers(w, 1);
  const auto left = static_cast<std::size_t>((w.rank() + w.size() - 1) % w.size());
  const cw::buffer<cw::status> out(w.options().device, 1);
  cw::launch(w.stream(), {}, receive_in_kernel{}, links[left]->device(), out.data());
  finish_kernel(w, out);
}

/// What becomes of a rank whose `wait` ends because another is lost.
int survive(cw::world& w, const std::function<void()>& wait) {
  const auto start = std::chrono::steady_clock::now();
  // They are to report even when their launcher has begun to end the job.
  signal(SIGTERM, SIG_IGN);
  try {
    wait();
    say("survivor " + std::to_string(w.rank()) + ": nothing happened");
  } catch (const cw::error& e) {
    const auto took =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
    const std::string code = e.code() == cw::errc::peer_lost ? "peer_lost"
                             : e.code() == cw::errc::aborted ? "aborted"
                             : e.code() == cw::errc::timeout ? "timeout"
                                                             : "other";
    say("survivor " + std::to_string(w.rank()) + ": " + code + " peer " + std::to_string(e.peer()) +
        " after " + std::to_string(took.count()) + " ms: " + e.what());
  }
  // As a program that gives up.
  return 9;
}

/// Rank WHO is lost (HOW) while the others wait (PLACE); they say what became of it.
int lose(const arguments& a) {
  const std::string& how = a.at(0);
  const std::string& place = a.at(1);
  cw::world w;
  const auto links = ring_of_links(w);
  w.barrier();
  if (w.rank() == number(a, 2)) {
    std::this_thread::sleep_for(milliseconds(150));
    get_lost(how);
    return 0;
  }
  return survive(w, [&] { wait_at(w, place, links); });
}

/// Items that go round the ranks until they are `end`.
struct goes_round {
  using item = std::uint64_t;
  int rank;
  int ranks;
  item end;
  CW_FN int owner(item n) const { return static_cast<int>(n % static_cast<item>(ranks)); }
  CW_FN static std::uint64_t priority(item /*n*/) { return 0; }
  template <class G, class Out>
  CW_FN void seed(const G& g, int /*worker*/, Out& out) const {
    out.push(g, g.rank() == 0, static_cast<item>(rank));
  }
  template <class G, class Out>
  CW_FN void work(const G& g, item n, Out& out) const {
    out.push(g, g.rank() == 0 && n + 1 < end, n + 1);
  }
};
struct run_round {
  CW_FN void operator()(const context& ctx, const cw::device::worklist<std::uint64_t>& list,
                        const goes_round& program, cw::status* out) const {
    *out = list.run(ctx, program);
  }
};

/// Rank WHO is killed while all work off a list, which they have done once: that connects all.
int lose_in_worklist(const arguments& a) {
  cw::world w;
  cw::worklist<std::uint64_t> list(w, {.queue = 16, .spill = 16});
  cw::buffer<cw::status> out(w.options().device, 1);
  const auto begin = [&](std::uint64_t end) {
    list.reset();
    cw::launch(w, {}, run_round{}, list.device(), goes_round{w.rank(), w.size(), end}, out.data());
  };
  begin(30);
  w.stream().sync();
  begin(~std::uint64_t{0});
  if (w.rank() == number(a, 0)) {
    std::this_thread::sleep_for(milliseconds(150));
    raise(SIGKILL);
  }
  return survive(w, [&] {
    try {
      w.stream().sync();
      // A command may find out before the host has heard of it.
      static_cast<void>(w.get("a rank that is gone"));
    } catch (const cw::error&) {
      say("kernel: " + std::string(to_string(out.read()[0])));
      throw;
    }
  });
}

/// While this rank works. Who calls it has connected all ranks: UCX aborts a process whose peer
/// dies before that is done.
void die_soon() {
  std::thread([] {
    std::this_thread::sleep_for(milliseconds(150));
    raise(SIGKILL);
  }).detach();
}

/// Rank WHO is killed while all search a graph (bfs or sssp), again and again.
int lose_in_program(const arguments& a) {
  cw::world w;
  const auto g = cw::graph::grid({.scale = 10});
  cw::graph::divided d(w, g);
  d.bfs(0);  // connects all
  w.barrier();
  if (w.rank() == number(a, 1)) die_soon();
  return survive(w, [&] {
    for (;;) a.at(0) == "bfs" ? d.bfs(0) : d.sssp(0);
  });
}

/// Rank WHO is killed while segments go round the ranks in a graph of the hosts.
int lose_in_graph(const arguments& a) {
  cw::world w;
  const std::vector<int> values(100, w.rank());
  cw::flow::context ctx(w);
  const auto round = ctx.router(w.size(), w.size(), cw::flow::ring());
  std::vector<cw::flow::link> to;
  std::vector<cw::flow::link> from;
  for (int r = 0; r < w.size(); ++r) to.push_back(ctx.link(cw::flow::host_of(r), round, 64, 1));
  for (int r = 0; r < w.size(); ++r) from.push_back(ctx.link(round, cw::flow::host_of(r), 64, 2));
  const auto me = static_cast<std::size_t>(w.rank());
  const auto go_round = [&] {
    const auto sent = to[me].send(std::span(values));
    for (std::size_t got = 0; got < sizeof(int) * values.size();) {
      const auto s = from[me].receive().get();
      got += s.bytes();
      from[me].release(s);
    }
    sent.get().sync();
  };
  go_round();  // connects all
  w.barrier();
  if (w.rank() == number(a, 0)) die_soon();
  return survive(w, [&] {
    for (;;) go_round();
  });
}

/// Rank WHO is killed while kernels of all wait at a link: for a packet (empty) or for room (full).
int lose_at_link(const arguments& a) {
  cw::world w;
  const auto links = ring_of_links(w);
  const auto& right = links[static_cast<std::size_t>(w.rank())]->device();
  const auto& left =
      links[static_cast<std::size_t>((w.rank() + w.size() - 1) % w.size())]->device();
  const cw::buffer<cw::status> out(w.options().device, 1);
  cw::launch(w.stream(), {}, use_links{}, left, right, 1, true, out.data());  // connects all
  w.stream().sync();
  w.barrier();
  if (w.rank() == number(a, 1)) die_soon();
  return survive(w, [&] {
    const bool full = a.at(0) == "full";
    cw::launch(w.stream(), {}, use_links{}, left, right, full ? 2 : 0, !full, out.data());
    finish_kernel(w, out);
  });
}

/// Rank WHO throws in the function that it was given to run(); the others wait for it.
int throw_in_run(const arguments& a) {
  cw::run(3, [&](cw::world& w) {
    if (w.rank() == number(a, 0)) throw std::runtime_error("this rank has had enough");
    w.barrier();
  });
  return 0;
}

/// Rank WHO dies while the others are busy with something else.
int lose_while_busy(const arguments& a) {
  cw::world w;
  w.barrier();
  if (w.rank() == number(a, 0)) raise(SIGKILL);
  signal(SIGTERM, SIG_IGN);
  std::this_thread::sleep_for(milliseconds(500));
  return 9;
}

/// Rank WHO's kernel waits for the others, who do not come; nobody asks what became of it.
int end_while_kernel_waits(const arguments& a) {
  const auto options = cw::world_options::from_environment();
  cw::buffer<cw::status> out(options.device, 1);  // outlives the world, and so the kernel
  cw::world w(options);
  if (w.rank() == number(a, 0)) {
    cw::launch(w, {}, meet_in_kernel{}, w.device(), 1, out.data());
  }
  return 0;
}

/// Rank 1 gives up, with these last words.
int abort_with(const arguments& a) {
  cw::world w;
  if (w.rank() == 1) w.abort(a.at(0));
  return 9;
}

/// For the test to know what must not be seen.
int tell_secret(const arguments& a) {
  say(std::string("the secret is ") + std::getenv("CROSSWARP_SECRET"));
  return work(a);
}

/// Rank WHO ends without ever joining; the others try to.
int stay_away(const arguments& a) {
  if (launched_rank() == number(a, 0)) return number(a, 1);
  signal(SIGTERM, SIG_IGN);
  try {
    cw::world w;
    say("joined");
  } catch (const cw::error& e) {
    say("survivor: peer " + std::to_string(e.peer()) + ": " + e.what());
  }
  return 9;
}

/// Rank WHO does not come; the others find out by themselves.
int never_come(const arguments& a) {
  const char* rank = std::getenv("PMIX_RANK");
  if (rank == nullptr) rank = std::getenv("CROSSWARP_RANK");
  if (std::stoi(rank) == number(a, 0)) sleep_long();
  try {
    cw::world w;
    say("joined");
  } catch (const cw::error& e) {
    say(std::string("survivor: ") + e.what());
  }
  return 9;
}

// ---- strangers

/// A raw connection to where the launcher listens.
int connect_as_stranger() {
  const std::string address = std::getenv("CROSSWARP_BOOTSTRAP");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return -1;
  return s;
}

/// Rank 0 pesters the launcher with IDLE silent connections and some noisy ones, before and while
/// everybody works.
int pester(const arguments& a) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<int> silent;
  if (launched_rank() == 0) {
    for (int i = 0; i < number(a, 0); ++i) silent.push_back(connect_as_stranger());
    for (std::size_t length : {1U, 7U, 8U, 9U, 300U, 100000U}) {
      const std::string noise(length, '\xff');
      const int s = connect_as_stranger();
      [[maybe_unused]] const ssize_t n = send(s, noise.data(), noise.size(), MSG_NOSIGNAL);
      silent.push_back(s);
    }
  }
  return work({});
}

}  // namespace

int main(int argc, char** argv) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const std::map<std::string, std::function<int(const arguments&)>> behaviours = {
      {"print_lines", print_lines},
      {"print_long_line", print_long_line},
      {"print_unfinished", print_unfinished},
      {"exit_code", exit_code},
      {"exit_in_turn", exit_in_turn},
      {"die_by", die_by},
      {"wait_for_signal", wait_for_signal},
      {"leave_grandchild", leave_grandchild},
      {"work", work},
      {"show_paths", show_paths},
      {"lose", lose},
      {"throw_in_run", throw_in_run},
      {"lose_in_program", lose_in_program},
      {"lose_in_graph", lose_in_graph},
      {"lose_at_link", lose_at_link},
      {"lose_in_worklist", lose_in_worklist},
      {"lose_while_busy", lose_while_busy},
      {"end_while_kernel_waits", end_while_kernel_waits},
      {"abort_with", abort_with},
      {"tell_secret", tell_secret},
      {"stay_away", stay_away},
      {"never_come", never_come},
      {"pester", pester},
  };
  const arguments all(argv + 1, argv + argc);
  const auto it = behaviours.find(all.empty() ? "" : all[0]);
  if (it == behaviours.end()) return 99;
  try {
    return it->second({all.begin() + 1, all.end()});
  } catch (const std::exception& e) {
    write_to(STDERR_FILENO, std::string("rank program: ") + e.what() + "\n");
    return 9;
  }
}
