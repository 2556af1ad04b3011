// A PE that is lost while the kernels of the others use SHMEM.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "crosswarp/launch.hpp"
#include "crosswarp/shmem.hpp"
#include "proxy_queues.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using std::chrono::milliseconds;

namespace {

/// In one piece, also when others print.
void say(const std::string& line) {
  [[maybe_unused]] const ssize_t n = write(STDOUT_FILENO, (line + "\n").c_str(), line.size() + 1);
}

enum class place { barrier, wait_until, get, get_alone, atomic, lock };

/// Until it fails.
struct goes_on {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem sh, long* box,
                        std::uint64_t* words, int mortal, place where, cw::status* out) const {
    const auto me = k.thread();
    const int right = (sh.my_pe() + 1) % sh.n_pes();
    cw::status s = cw::status::ok;
    while (s == cw::status::ok) {
      long old = 0;
      switch (where) {
        case place::barrier:
          s = sh.barrier(me);
          break;
        case place::wait_until:
          s = sh.signal_wait_until(me, words, dev::compare::ne, 0);
          break;
        case place::get:
          // A mapped PE's memory outlives it: what ends is the meeting.
          s = sh.get(me, box + 1000, box, 1000, right);
          if (s == cw::status::ok) s = sh.barrier(me);
          break;
        case place::get_alone:
          s = sh.get(me, box + 1000, box, 1000, mortal);
          break;
        case place::atomic:
          s = sh.atomic_fetch(me, dev::amo::add, box, 1L, 0L, right, old);
          if (s == cw::status::ok) s = sh.sync(me);
          break;
        case place::lock:
          s = sh.set_lock(me, words + 1);
          if (s == cw::status::ok) s = sh.clear_lock(me, words + 1);
          if (s == cw::status::ok) s = sh.sync(me);
          break;
      }
    }
    *out = s;
  }
};

place place_of(const std::string& name) {
  if (name == "barrier") return place::barrier;
  if (name == "wait_until") return place::wait_until;
  if (name == "get") return place::get;
  if (name == "get_alone") return place::get_alone;
  if (name == "atomic") return place::atomic;
  return place::lock;
}

/// PE `mortal` is killed while all are in `where`.
int lose(cw::world& w, const std::string& where, int mortal) {
  cw::shmem sh(w);
  auto* const box = sh.allocate<long>(2000);
  auto* const words = sh.allocate<std::uint64_t>(2);
  const std::uint64_t zeros[2] = {};
  cw::exec::copy_now(w.options().device, words, zeros, sizeof(zeros));
  cw::buffer<cw::status> out(w.options().device, 1);
  w.barrier();
  const auto start = std::chrono::steady_clock::now();
  cw::launch(w.stream(), {}, goes_on{}, sh.device(), box, words, mortal, place_of(where),
             out.data());
  if (w.rank() == mortal) {
    std::this_thread::sleep_for(milliseconds(150));
    die_outside_of_engine(w);
  }
  signal(SIGTERM, SIG_IGN);  // to report although the launcher ends the job
  std::string host = "noticed nothing";
  try {
    w.stream().sync();
  } catch (const cw::error& e) {
    host = e.what();
  }
  const auto took =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  say("survivor " + std::to_string(w.rank()) + ": " + to_string(out.read()[0]) + " after " +
      std::to_string(took.count()) + " ms, host: " + host);
  return 9;
}

}  // namespace

int main(int /*argc*/, char** argv) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  try {
    cw::world w;
    return lose(w, argv[1], std::stoi(argv[2]));
  } catch (const cw::error& e) {
    say(std::string("error: ") + e.what());
    return 9;
  }
}
