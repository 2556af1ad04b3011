// A rank that is killed while all are in collectives: by a kernel's own calls, or queued by the
// host; and one that disagrees.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

namespace {

/// In one piece, also when others print.
void say(const std::string& line) {
  [[maybe_unused]] const ssize_t n = write(STDOUT_FILENO, (line + "\n").c_str(), line.size() + 1);
}

/// Until it fails.
struct goes_on {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, float* data,
                        std::size_t count, cw::coll_algorithm how, cw::status* out) const {
    cw::status s = cw::status::ok;
    while (s == cw::status::ok) {
      s = all.all_reduce(k.block(), data, data, count, dev::coll_ops::sum{}, how);
    }
    if (k.thread_index() == 0) *out = s;
  }
};

cw::coll_algorithm algorithm_of(const std::string& name) {
  if (name == "push") return cw::coll_algorithm::push;
  if (name == "pull") return cw::coll_algorithm::pull;
  return cw::coll_algorithm::two_shot;
}

int lose(cw::world& w, const std::string& how, int mortal) {
  cw::coll all(w);
  const cw::buffer<float> data(w.options().device, 1000);
  const cw::buffer<cw::status> out(w.options().device, 1);
  w.barrier();
  if (w.rank() == mortal) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      raise(SIGKILL);
    }).detach();
  } else {
    signal(SIGTERM, SIG_IGN);  // to report although the launcher ends the job
  }
  std::string host = "noticed nothing";
  try {
    if (how == "host") {
      for (;;) {
        for (int i = 0; i < 20; ++i) all.all_reduce(data.data(), data.data(), 1000);
        all.check();
      }
    }
    cw::launch(w.stream(), {}, goes_on{}, all.device(), data.data(), std::size_t{20},
               algorithm_of(how), out.data());
    w.stream().sync();
  } catch (const cw::error& e) {
    host = e.what();
  }
  say("survivor " + std::to_string(w.rank()) + ": " + to_string(out.read()[0]) + ", " + host);
  return 9;
}

/// One rank passes another count. The memory that is registered goes before the communicator.
int disagree(cw::world& w) {
  try {
    cw::coll all(w);
    const cw::buffer<float> data(w.options().device, 100000);
    all.register_buffer(data.data(), 100000 * sizeof(float));
    all.all_reduce(data.data(), data.data(), w.rank() == 0 ? 10 : 100000);
    all.check();
  } catch (const cw::error& e) {
    say("rank " + std::to_string(w.rank()) + ": " + e.what());
  }
  return 9;
}

}  // namespace

int main(int /*argc*/, char** argv) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  try {
    cw::world w;
    if (std::string(argv[1]) == "disagree") return disagree(w);
    return lose(w, argv[1], std::stoi(argv[2]));
  } catch (const cw::error& e) {
    say(std::string("error: ") + e.what());
    return 9;
  }
}
