#include "tour_scenes.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "crosswarp/coll.hpp"
#include "crosswarp/device/memory.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {

namespace dev = crosswarp::device;

scene measured(scene s, device_ref d, bool by_processes) {
  bench::setup how;
  how.device = d;
  how.quick = true;
  how.processes = by_processes;
  s.rows = run_benchmarks({s.name}, how);
  return s;
}

namespace {

world_options options_for(device_ref d, std::size_t heap_bytes) {
  world_options o = world_options::from_environment();
  o.device = d;
  o.heap_bytes = heap_bytes;
  return o;
}

}  // namespace

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
  scene s{
      .name = "exec",
      .story = "8 resident blocks of 64 threads sum a million numbers and meet in a grid barrier",
      .device = d.name()};
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
  return measured(std::move(s), d, false);
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

/// Has `Kernel` send the message around, and looks at it when it is back.
template <class Kernel>
void go_around(scene& s, const world_options& o, Kernel kernel) {
  constexpr int laps = 25;
  run_local(s.ranks, o, [&](world& w) {
    symmetric_buffer<relay_memory> mem(w, 1);
    buffer<status> out(o.device, 1);
    launch(w, {.threads = 32}, kernel, w.device(), mem.device(), laps, out.data());
    w.stream().sync();
    const bool ended_well = out.read()[0] == status::ok;
    if (w.rank() != 0) return;
    s.verified = ended_well;
    const relay_memory last = mem.read().front();
    for (const int word : last.message) s.verified = s.verified && word == laps * w.size();
    s.path = w.path_to(1);
  });
}

}  // namespace

scene memory_scene(device_ref d) {
  scene s{
      .name = "memory",
      .story =
          "a 4 KiB message goes 25 times around 4 ranks by put and signal, each adding one to it",
      .ranks = 4,
      .device = d.name()};
  go_around(s, options_for(d, 1U << 20U), relay{});
  return measured(std::move(s), d, d.kind() == device_kind::cpu);
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
  scene s{.name = "proxy",
          .story =
              "the same message, as if nothing were mapped: each kernel asks its host to put it, "
              "with a "
              "signal, by one command",
          .ranks = 4,
          .device = d.name()};
  world_options o = options_for(d, 1U << 20U);
  o.proxy.path = path_choice::proxy;
  o.proxy.engine = "local";
  go_around(s, o, relay_by_commands{});
  return measured(std::move(s), d, false);
}

// ---- shmem: everybody talks to everybody, by the names of SHMEM

namespace {

constexpr int letter_words = 1024;

/// Symmetric, but for the last two.
struct exchange_memory {
  long* boxes;             ///< a letter from each PE
  long* letter;            ///< the own one
  std::uint64_t* arrived;  ///< how many came
  long* drawn;             ///< tickets; those of PE 0 count
  long* mine;              ///< sum of the letters here
  long* all;               ///< of all PEs' sums
  long* ticket;
  status* out;
};

/// A letter to each PE with a signal, a ticket at PE 0, and a sum of all that came anywhere.
struct exchange {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::shmem pes, exchange_memory m) const {
    const auto g = ctx.block();
    const dev::shmem sh = pes.on_block(ctx);
    const int me = sh.my_pe();
    const int n = sh.n_pes();
    for (int i = g.rank(); i < letter_words; i += g.size()) m.letter[i] = me + 1;
    g.sync();
    status s = status::ok;
    for (int k = 1; k <= n && s == status::ok; ++k) {
      s = sh.put_signal_nbi(g, m.boxes + me * letter_words, m.letter, letter_words, m.arrived, 1,
                            dev::signal_op::add, (me + k) % n);
    }
    long ticket = -1;
    if (s == status::ok) s = sh.atomic_fetch(g, dev::amo::add, m.drawn, 1L, 0L, 0, ticket);
    if (s == status::ok) {
      s = sh.signal_wait_until(g, m.arrived, dev::compare::ge, static_cast<std::uint64_t>(n));
    }
    if (s == status::ok && g.rank() == 0) {
      *m.ticket = ticket;
      *m.mine = 0;
      for (int i = 0; i < n * letter_words; ++i) *m.mine += m.boxes[i];
    }
    g.sync();
    if (s == status::ok) s = sh.reduce(g, dev::shmem_op::sum{}, m.all, m.mine, 1);
    if (s == status::ok) s = sh.barrier(g);
    if (g.rank() == 0) *m.out = s;
  }
};

/// True when this PE has what it should; `tickets` are everybody's.
bool has_all(int n, long sum, std::vector<long> tickets) {
  std::sort(tickets.begin(), tickets.end());
  for (int i = 0; i < n; ++i) {
    if (tickets[static_cast<std::size_t>(i)] != i) return false;
  }
  return sum == static_cast<long>(n) * letter_words * n * (n + 1) / 2;
}

template <class T>
T* allocate_zeros(shmem& sh, std::size_t count) {
  T* const p = sh.allocate<T>(count);
  const std::vector<T> zeros(count);
  exec::copy_now(sh.of().options().device, p, zeros.data(), count * sizeof(T));
  return p;
}

}  // namespace

scene shmem_scene(device_ref d) {
  scene s{.name = "shmem",
          .story =
              "in one kernel each of 4 PEs puts 8 KiB with a signal to every PE, draws a ticket at "
              "PE 0 "
              "by fetch-and-add, and all sum up what came",
          .ranks = 4,
          .device = d.name()};
  run_local(s.ranks, options_for(d, 4U << 20U), [&](world& w) {
    shmem sh(w);
    const auto n = static_cast<std::size_t>(w.size());
    buffer<long> ticket(d, 1);
    buffer<status> out(d, 1);
    const exchange_memory m = {allocate_zeros<long>(sh, n * letter_words),
                               allocate_zeros<long>(sh, letter_words),
                               allocate_zeros<std::uint64_t>(sh, 1),
                               allocate_zeros<long>(sh, 1),
                               allocate_zeros<long>(sh, 1),
                               allocate_zeros<long>(sh, 1),
                               ticket.data(),
                               out.data()};
    w.barrier();  // all is zero, and nobody allocates once a kernel waits for the others
    launch(w, {.threads = 32}, exchange{}, sh.device(), m);
    w.stream().sync();
    w.barrier();
    long sum = 0;
    exec::copy_now(d, &sum, m.all, sizeof(sum));
    const bool mine =
        out.read()[0] == status::ok && has_all(w.size(), sum, w.allgather(ticket.read()[0]));
    const auto all = w.allgather(static_cast<int>(mine));
    if (w.rank() != 0) return;
    s.verified = std::all_of(all.begin(), all.end(), [](int one) { return one == 1; });
    s.path = w.path_to(1);
  });
  return measured(std::move(s), d, d.kind() == device_kind::cpu);
}

// ---- coll: the same sum by every algorithm

namespace {

constexpr std::size_t addends = 60;  // what packets have room for, also on a CPU
constexpr int sums = 3;

/// Something of each rank's own that no float holds exactly: another order would give other bits.
CW_FN float addend(int rank, std::size_t i) {
  return 1.0F / static_cast<float>(static_cast<std::size_t>(rank) * addends + i + 3);
}

/// By packets, by reading everybody's, and in two shots.
struct add_up {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::coll& with, float* in,
                        float* out, status* outcome) const {
    const auto g = ctx.block();
    for (auto i = static_cast<std::size_t>(g.rank()); i < addends;
         i += static_cast<std::size_t>(g.size())) {
      in[i] = addend(with.rank(), i);
    }
    g.sync();
    status s = status::ok;
    for (int k = 0; k < sums && s == status::ok; ++k) {
      s = with.all_reduce(g, out + static_cast<std::size_t>(k) * addends, in, addends,
                          dev::coll_ops::sum{}, static_cast<coll_algorithm>(k + 1));
    }
    if (g.rank() == 0) *outcome = s;
  }
};

/// All sums are the one in the order of ranks, bit by bit; `got` has one after the other.
bool all_the_same(int ranks, const std::vector<float>& got) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    float want = addend(0, i % addends);
    for (int r = 1; r < ranks; ++r) want += addend(r, i % addends);
    if (got[i] != want) return false;
  }
  return true;
}

}  // namespace

scene coll_scene(device_ref d) {
  scene s{.name = "coll",
          .story =
              "4 ranks add up vectors of floats in a kernel by packets, by reading and in two "
              "shots, and once more on a stream: the same bits each time, on all ranks",
          .ranks = 4,
          .device = d.name()};
  run_local(s.ranks, options_for(d, 64U << 20U), [&](world& w) {
    coll all(w);
    const buffer<float> in(d, addends);
    const buffer<float> out(d, (sums + 1) * addends);
    const buffer<status> outcome(d, 1);
    w.barrier();  // nobody allocates once a kernel waits for the others
    launch(w, {.threads = 32}, add_up{}, all.device(), in.data(), out.data(), outcome.data());
    all.all_reduce(out.data() + sums * addends, static_cast<const float*>(in.data()), addends);
    all.check();
    w.barrier();
    const bool mine = outcome.read()[0] == status::ok && all_the_same(w.size(), out.read());
    const auto everybody = w.allgather(static_cast<int>(mine));
    if (w.rank() != 0) return;
    s.verified = std::all_of(everybody.begin(), everybody.end(), [](int one) { return one == 1; });
    s.path = w.path_to(1);
  });
  return measured(std::move(s), d, d.kind() == device_kind::cpu);
}

}  // namespace crosswarp::tool
