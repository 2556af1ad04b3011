#include "tour_scenes.hpp"

#include <cstddef>
#include <numeric>

#include "crosswarp/device/memory.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/world_launch.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {

namespace dev = crosswarp::device;

// ---- exec: a sum by blocks that wait for each other

namespace {

/// Each block sums its part in shared memory; after a grid barrier, block 0 adds up the parts.
struct sum_all {
  CW_FN void operator()(const dev::kernel_context& ctx, const long* values, int n, long* parts,
                        long* total) const {
    auto* mine = reinterpret_cast<long*>(ctx.shared_memory());
    const int t = ctx.thread_index();
    mine[t] = 0;
    for (int i = ctx.grid().rank(); i < n; i += ctx.grid().size()) mine[t] += values[i];
    ctx.block().sync();
    if (t == 0) {
      parts[ctx.block_index()] = 0;
      for (int k = 0; k < ctx.thread_count(); ++k) parts[ctx.block_index()] += mine[k];
    }
    if (ctx.grid().sync() != status::ok || ctx.grid().rank() != 0) return;
    *total = 0;
    for (int b = 0; b < ctx.block_count(); ++b) *total += parts[b];
  }
};

}  // namespace

scene exec_scene(device_ref d) {
  scene s;
  s.name = "exec";
  s.device = d.name();
  s.story = "8 resident blocks of 64 threads sum a million numbers and meet in a grid barrier";
  constexpr int n = 1'000'000;
  constexpr int blocks = 8;
  constexpr int threads = 64;
  std::vector<long> values(n);
  std::iota(values.begin(), values.end(), 1L);
  stream on(d);
  buffer<long> in(d, std::span<const long>(values));
  buffer<long> parts(d, blocks);
  buffer<long> total(d, 1);
  launch(on,
         {.blocks = blocks,
          .threads = threads,
          .shared_bytes = threads * sizeof(long),
          .resident = true},
         sum_all{}, in.data(), n, parts.data(), total.data());
  on.sync();
  s.verified = total.read()[0] == static_cast<long>(n) * (n + 1) / 2;
  bench::setup how;
  how.device = d;
  how.quick = true;
  s.rows = run_benchmarks({"exec"}, how);
  return s;
}

// ---- memory: a message goes around the ranks

namespace {

struct relay_memory {
  dev::signal_line arrived;
  int message[1024];
};

/// Takes the message from the left neighbour, adds one to every word, and puts it to the right.
struct relay {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<relay_memory> mem, int laps, status* out) const {
    const auto g = ctx.block();
    relay_memory& mine = *mem.local();
    const int right = (w.rank + 1) % w.size;
    status s = status::ok;
    for (int lap = 1; lap <= laps && s == status::ok; ++lap) {
      const auto now = static_cast<std::uint64_t>(lap);
      // Rank 0 begins each lap; its own message comes back at the lap's end.
      if (w.rank != 0) s = dev::wait(g, dev::signal(mine.arrived), now, w.limits);
      if (s != status::ok) break;
      for (int i = g.rank(); i < 1024; i += g.size()) mine.message[i] += 1;
      g.sync();
      dev::copy(g, mem.at(right)->message, mine.message, sizeof(mine.message));
      dev::notify(g, dev::signal(mem.at(right)->arrived), now);
      if (w.rank == 0) s = dev::wait(g, dev::signal(mine.arrived), now, w.limits);
    }
    if (g.rank() == 0) *out = s;
  }
};

}  // namespace

scene memory_scene(device_ref d) {
  scene s;
  s.name = "memory";
  s.device = d.name();
  s.ranks = 4;
  s.story = "a 4 KiB message goes 25 times around 4 ranks by put and signal, each adding one to it";
  constexpr int laps = 25;
  world_options o = world_options::from_environment();
  o.device = d;
  o.heap_bytes = 1U << 20U;
  bool right = true;
  run_local(s.ranks, o, [&](world& w) {
    symmetric_buffer<relay_memory> mem(w, 1);
    buffer<status> out(d, 1);
    launch(w, {.threads = 32}, relay{}, w.device(), mem.device(), laps, out.data());
    w.stream().sync();
    const bool ended_well = out.read()[0] == status::ok;
    if (w.rank() != 0) return;
    right = ended_well;
    const relay_memory last = mem.read().front();
    for (const int word : last.message) right = right && word == laps * w.size();
    s.path = w.path_to(1);
  });
  s.verified = right;
  bench::setup how;
  how.device = d;
  how.quick = true;
  how.processes = d.kind() == device_kind::cpu;
  s.rows = run_benchmarks({"memory"}, how);
  return s;
}

// ---- proxy: the same message, by commands to the host

namespace {

/// As relay, but nothing is mapped: the message goes by put-with-signal commands.
struct relay_by_commands {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<relay_memory> mem, int laps, status* out) const {
    const auto g = ctx.block();
    auto q = w.proxy.queue(ctx.block_index());
    relay_memory& mine = *mem.local();
    const int right = (w.rank + 1) % w.size;
    const dev::remote_address signal_at = mem.remote();
    const dev::remote_address message_at = {signal_at.offset + offsetof(relay_memory, message),
                                            signal_at.region};
    status s = status::ok;
    for (int lap = 1; lap <= laps && s == status::ok; ++lap) {
      const auto now = static_cast<std::uint64_t>(lap);
      if (w.rank != 0) s = dev::wait(g, dev::signal(mine.arrived), now, w.limits);
      if (s != status::ok) break;
      for (int i = g.rank(); i < 1024; i += g.size()) mine.message[i] += 1;
      s = q.put_signal(g, right, message_at, mine.message, sizeof(mine.message), signal_at, now,
                       dev::signal_op::set);
      if (w.rank == 0 && s == status::ok) {
        s = dev::wait(g, dev::signal(mine.arrived), now, w.limits);
      }
    }
    if (g.rank() == 0) *out = s;
  }
};

}  // namespace

scene proxy_scene(device_ref d) {
  scene s;
  s.name = "proxy";
  s.device = d.name();
  s.ranks = 4;
  s.story =
      "the same message, as if nothing were mapped: each kernel asks its host to put it, with a "
      "signal, by one command";
  constexpr int laps = 25;
  world_options o = world_options::from_environment();
  o.device = d;
  o.heap_bytes = 1U << 20U;
  o.proxy.path = path_choice::proxy;
  o.proxy.engine = "local";
  bool right = true;
  run_local(s.ranks, o, [&](world& w) {
    symmetric_buffer<relay_memory> mem(w, 1);
    buffer<status> out(d, 1);
    launch(w, {.threads = 32}, relay_by_commands{}, w.device(), mem.device(), laps, out.data());
    w.stream().sync();
    const bool ended_well = out.read()[0] == status::ok;
    if (w.rank() != 0) return;
    right = ended_well;
    const relay_memory last = mem.read().front();
    for (const int word : last.message) right = right && word == laps * w.size();
    s.path = w.path_to(1);
  });
  s.verified = right;
  bench::setup how;
  how.device = d;
  how.quick = true;
  s.rows = run_benchmarks({"proxy"}, how);
  return s;
}

}  // namespace crosswarp::tool
