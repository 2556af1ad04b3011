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

/// The same on symmetric memory.
struct goes_on_in_place {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all,
                        const dev::symmetric<float>& data, cw::status* out) const {
    cw::status s = cw::status::ok;
    while (s == cw::status::ok) s = all.all_reduce(k.block(), data, data, data.size());
    if (k.thread_index() == 0) *out = s;
  }
};

/// A message goes around: rank 0 sends it, the others receive first.
struct goes_around {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, float* data,
                        std::size_t count, cw::status* out) const {
    const auto g = k.block();
    const int right = (all.rank() + 1) % all.size();
    const int left = (all.rank() + all.size() - 1) % all.size();
    cw::status s = cw::status::ok;
    while (s == cw::status::ok) {
      if (all.rank() == 0) s = all.send(g, data, count, right);
      if (s == cw::status::ok) s = all.receive(g, data, count, left);
      if (s == cw::status::ok && all.rank() != 0) s = all.send(g, data, count, right);
    }
    if (k.thread_index() == 0) *out = s;
  }
};

cw::coll_algorithm algorithm_of(const std::string& name) {
  for (const auto a : {cw::coll_algorithm::push, cw::coll_algorithm::pull,
                       cw::coll_algorithm::two_shot, cw::coll_algorithm::ring}) {
    if (name == to_string(a)) return a;
  }
  throw cw::error(cw::errc::invalid_argument, "coll_program", "no algorithm " + name);
}

/// In kernels, until it fails.
void go_on(cw::world& w, const cw::coll& all, const std::string& how,
           const cw::symmetric_buffer<float>& data, cw::status* out) {
  constexpr std::size_t few = 20;
  if (how == "symmetric") {
    cw::launch(w.stream(), {}, goes_on_in_place{}, all.device(), data.device(), out);
  } else if (how == "message") {
    cw::launch(w.stream(), {}, goes_around{}, all.device(), data.data(), few, out);
  } else {
    cw::launch(w.stream(), {}, goes_on{}, all.device(), data.data(), few, algorithm_of(how), out);
  }
  w.stream().sync();
}

int lose(cw::world& w, const std::string& how, int mortal) {
  cw::coll all(w);
  const cw::symmetric_buffer<float> data(w, 1000);
  const cw::buffer<cw::status> out(w.options().device, 1);
  if (how != "host" && how != "symmetric" && how != "message") (void)algorithm_of(how);
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
        const float* const in = data.data();
        for (int i = 0; i < 20; ++i) all.all_reduce(data.data(), in, 1000);
        all.check();
      }
    }
    go_on(w, all, how, data, out.data());
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
