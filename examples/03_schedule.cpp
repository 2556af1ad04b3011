// A bug that only some interleavings show, found by running a kernel under all of them.
//
//   ./03_schedule      in a checked build (presets cpu, tsan, asan) with Boost.Context
#include <cstdio>

#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

/// Wrong: another rank may load the same number before this one has stored the next.
struct load_and_store {
  CW_FN int operator()(const dev::system_atomic<int>& next) const {
    const int mine = next.load(dev::order::relaxed);
    next.store(mine + 1, dev::order::relaxed);
    return mine;
  }
};

/// Right: one step.
struct add {
  CW_FN int operator()(const dev::system_atomic<int>& next) const {
    return next.fetch_add(1, dev::order::relaxed);
  }
};

/// Each rank takes a ticket from the counter in rank 0's memory; no two may get the same.
template <class Take>
struct take_ticket {
  CW_FN void operator()(const dev::kernel_context& /*ctx*/, dev::symmetric<int> counter,
                        int* ticket) const {
    *ticket = Take{}(dev::system_atomic<int>(*counter.at(0)));
  }
};

/// Runs the kernel once, under the interleaving that `device` stands for.
template <class Take>
bool tickets_differ(cw::device_ref device) {
  cw::world_options options;
  options.device = device;
  options.heap_bytes = 4096;
  options.self_test = false;  // it would be run under the schedule, too
  bool differ = false;
  cw::run_local(2, options, [&](cw::world& w) {
    cw::symmetric_buffer<int> counter(w, 1);
    cw::buffer<int> ticket(device, 1);
    cw::launch(w, {}, take_ticket<Take>{}, counter.device(), ticket.data());
    w.stream().sync();
    const auto tickets = w.allgather(ticket.read()[0]);
    if (w.rank() == 0) differ = tickets[0] != tickets[1];
  });
  return differ;
}

/// Runs the kernel under every interleaving; returns how many of them went wrong.
template <class Take>
int explore(const char* name) {
  // More preemptions than the kernel has steps: all there are. A larger kernel has too many, and
  // two preemptions find most of its bugs.
  auto all = cw::schedule::exhaustive(8);
  int wrong = 0;
  std::string first;
  cw::explore(all, [&](cw::device_ref device) {
    if (!tickets_differ<Take>(device) && wrong++ == 0) first = all.describe();
  });
  std::printf("%s: %d of %llu interleavings give two ranks the same ticket%s\n", name, wrong,
              static_cast<unsigned long long>(all.executions()),
              all.complete() ? "" : ", and there are more of them");
  if (wrong > 0) std::printf("  the first: %s\n", first.c_str());
  return all.complete() ? wrong : -1;
}

int main() {
  if (!cw::schedule::available()) {
    std::puts("schedules need a checked build (CROSSWARP_CHECKED=ON) with Boost.Context");
    return 0;
  }
  try {
    const bool found = explore<load_and_store>("load and store") > 0;
    const bool fixed = explore<add>("fetch_add") == 0;
    return found && fixed ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
