// Benchmarks that need several ranks: signal, barrier, put.
#include "rank_benchmarks.hpp"

#include <chrono>

#include "bench.hpp"
#include "crosswarp/device/memory.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp::bench {

row base_row(const world& w, const char* what) {
  row r;
  r.bench = "memory";
  r.what = what;
  r.ranks = w.size();
  r.device = w.options().device.name();
  r.path = w.size() > 1 ? w.path_to(1) : "self";
  return r;
}

bool on_gpu(const world& w) {
  return w.options().device.kind() == device_kind::cuda;
}

double copy_rate(world& w, std::size_t bytes, int repeat, const std::function<void()>& f) {
  w.stream().sync();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) f();
  w.stream().sync();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(bytes) * repeat / took.count() / 1e9;
}

void check_outcome(status s) {
  if (s != status::ok) throw error(errc::device_fault, "bench", to_string(s));
}

double ns_of(const buffer<measured>& by_blocks) {
  const auto all = by_blocks.read();
  for (const measured& m : all) check_outcome(m.outcome);
  return all.front().ns;
}

namespace {

namespace dev = crosswarp::device;
using context = dev::kernel_context;

/// Two flags between ranks 0 and 1. Each kernel writes the nanoseconds of one round to `out`.
struct flags {
  dev::signal_line ping;
  dev::signal_line pong;
};

/// The library's way: signals, waits with deadline and faults.
struct signal_ping_pong {
  CW_FN void operator()(const context& /*ctx*/, dev::world w, dev::symmetric<flags> mem,
                        std::uint64_t first, int rounds, double* out) const {
    if (w.rank > 1) return;
    flags& mine = *mem.local();
    flags& theirs = *mem.at(1 - w.rank);
    const std::uint64_t begin = dev::now_ns();
    for (int i = 1; i <= rounds; ++i) {
      const std::uint64_t n = first + static_cast<std::uint64_t>(i);
      if (w.rank == 0) {
        dev::signal(theirs.ping).set(n);
        if (dev::signal(mine.pong).wait(n, w.limits) != status::ok) return;
      } else {
        if (dev::signal(mine.ping).wait(n, w.limits) != status::ok) return;
        dev::signal(theirs.pong).set(n);
      }
    }
    *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

/// A signal that carries no data, as other libraries' bare signal operations do.
struct unordered_ping_pong {
  CW_FN void operator()(const context& /*ctx*/, dev::world w, dev::symmetric<flags> mem,
                        std::uint64_t first, int rounds, double* out) const {
    if (w.rank > 1) return;
    const dev::signal mine(w.rank == 0 ? mem.local()->pong : mem.local()->ping);
    const dev::signal theirs(w.rank == 0 ? mem.at(1)->ping : mem.at(0)->pong);
    const std::uint64_t begin = dev::now_ns();
    for (int i = 1; i <= rounds; ++i) {
      const std::uint64_t n = first + static_cast<std::uint64_t>(i);
      if (w.rank == 0) theirs.set_unordered(n);
      if (mine.wait_unordered(n, w.limits) != status::ok) return;
      if (w.rank == 1) theirs.set_unordered(n);
    }
    *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

/// The bare way: the same flags, and nothing that ends a wait but the flag. This is the limit.
template <class Set, class See>
struct bare_ping_pong {
  CW_FN void operator()(const context& /*ctx*/, dev::world w, dev::symmetric<flags> mem,
                        std::uint64_t first, int rounds, double* out) const {
    if (w.rank > 1) return;
    const dev::system_atomic<std::uint64_t> mine(w.rank == 0 ? mem.local()->pong.word
                                                             : mem.local()->ping.word);
    const dev::system_atomic<std::uint64_t> theirs(w.rank == 0 ? mem.at(1)->ping.word
                                                               : mem.at(0)->pong.word);
    const std::uint64_t begin = dev::now_ns();
    for (int i = 1; i <= rounds; ++i) {
      const std::uint64_t n = first + static_cast<std::uint64_t>(i);
      if (w.rank == 0) theirs.store(n, Set{});
      for (bool there = false; !there;) there = mine.load(See{}) == n;
      if (w.rank == 1) theirs.store(n, Set{});
    }
    *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

/// The world's barrier, by a block of at least as many threads as ranks on a GPU.
struct barrier_rounds {
  CW_FN void operator()(const context& ctx, dev::world w, int rounds, double* out) const {
    const auto g = ctx.block();
    auto all = w.all.open(g);
    const std::uint64_t begin = dev::now_ns();
    for (int i = 0; i < rounds; ++i) {
      if (all.wait(g) != status::ok) return;
    }
    if (g.rank() == 0) *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

/// Flags only: a thread for each peer writes its flag there and spins on its own.
struct bare_barrier {
  CW_FN void operator()(const context& ctx, dev::world w, dev::symmetric<dev::signal_line> lines,
                        std::uint64_t first, int rounds, double* out) const {
    const auto g = ctx.block();
    const std::uint64_t begin = dev::now_ns();
    for (int i = 1; i <= rounds; ++i) {
      const std::uint64_t n = first + static_cast<std::uint64_t>(i);
      g.sync();
      for (int pe = g.rank(); pe < w.size; pe += g.size()) {
        dev::system_atomic<std::uint64_t>(lines.at(pe)[w.rank].word).store(n, dev::order::release);
      }
      for (int pe = g.rank(); pe < w.size; pe += g.size()) {
        const dev::system_atomic<std::uint64_t> flag(lines.local()[pe].word);
        for (bool there = false; !there;) {
          there = dev::reached(flag.load(dev::order::acquire), n);
        }
      }
      g.sync();
    }
    if (g.rank() == 0) *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

struct put_bytes {
  static constexpr int max_threads = 1024;
  CW_FN void operator()(const context& ctx, char* to, const char* from, std::size_t bytes) const {
    dev::copy_part(ctx, to, from, bytes);
  }
};

/// Runs a kernel that reports nanoseconds on every rank; samples rank 0's, times `scale`.
template <class Kernel, class... Args>
void sample(world& w, samples& into, double scale, int threads, Kernel k, Args... args) {
  buffer<double> out(w.options().device, 1);
  launch(w, {.threads = threads}, k, w.device(), args..., out.data());
  w.stream().sync();
  w.check();
  into.add(out.read()[0] * scale);
}

/// Ping-pong by `Ours` against the same by `Bare`.
template <class Ours, class Bare>
row ping_pong_row(world& w, const setup& s, const char* what) {
  symmetric_buffer<flags> mem(w, 1);
  symmetric_buffer<flags> bare_mem(w, 1);
  const int rounds = on_gpu(w) ? 2000 : 20'000;
  samples ours;
  samples bare;
  const double one_way_us = 0.5e-3;
  for (int i = 0; i < (s.quick ? 7 : 31); ++i) {
    const auto first = static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(rounds);
    sample(w, ours, one_way_us, 1, Ours{}, mem.device(), first, rounds);
    sample(w, bare, one_way_us, 1, Bare{}, bare_mem.device(), first, rounds);
  }
  row r = base_row(w, what);
  ours.fill(r);
  r.unit = "us";
  r.limit = bare.median();
  return r;
}

std::vector<row> signal_benchmark(world& w, const setup& s) {
  namespace order = dev::order;
  std::vector<row> rows;
  rows.push_back(
      ping_pong_row<signal_ping_pong, bare_ping_pong<order::release_t, order::acquire_t>>(
          w, s, "signal, one way (limit: bare flag)"));
  rows.push_back(
      ping_pong_row<unordered_ping_pong, bare_ping_pong<order::relaxed_t, order::relaxed_t>>(
          w, s, "unordered signal, one way (limit: bare flag)"));
  return rows;
}

std::vector<row> barrier_benchmark(world& w, const setup& s) {
  symmetric_buffer<dev::signal_line> lines(w, static_cast<std::size_t>(w.size()));
  const int rounds = on_gpu(w) ? 2000 : 20'000 / w.size();
  const int threads = on_gpu(w) ? std::max(32, (w.size() + 31) / 32 * 32) : 1;
  samples ours;
  samples bare;
  for (int i = 0; i < (s.quick ? 7 : 31); ++i) {
    const auto first = static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(rounds);
    sample(w, ours, 1e-3, threads, barrier_rounds{}, rounds);
    // Spinning for ever on one core while the others wait for it would measure the system.
    if (on_gpu(w) || w.size() <= 2) {
      sample(w, bare, 1e-3, threads, bare_barrier{}, lines.device(), first, rounds);
    }
  }
  row r = base_row(w, "barrier in a kernel (limit: bare flags)");
  ours.fill(r);
  r.unit = "us";
  if (on_gpu(w) || w.size() <= 2) r.limit = bare.median();
  return {r};
}

std::vector<row> put_benchmark(world& w, const setup& s) {
  const bool gpu = on_gpu(w);
  const std::size_t largest = gpu ? 1U << 30U : 64U << 20U;
  symmetric_buffer<char> to(w, largest);
  buffer<char> from(w.options().device, largest);
  char* const there = to.data(w.size() > 1 ? 1 : 0);
  std::vector<row> rows;
  for (std::size_t bytes = 256U << 10U; bytes <= largest; bytes *= 4) {
    if (s.quick && bytes > (gpu ? 64U << 20U : 16U << 20U)) break;
    row r = base_row(w, "put by a kernel (limit: plain copy)");
    r.bytes = bytes;
    r.unit = "GB/s";
    samples ours;
    samples plain;
    if (w.rank() == 0) {
      const launch_shape shape =
          gpu ? launch_shape{.blocks = 132, .threads = 1024} : launch_shape{};
      const int repeat = static_cast<int>(std::clamp<std::size_t>((256U << 20U) / bytes, 4, 2000));
      for (int i = 0; i < (s.quick ? 3 : 11); ++i) {
        ours.add(copy_rate(w, bytes, repeat, [&] {
          launch(w.stream(), shape, put_bytes{}, there, from.data(), bytes);
        }));
        plain.add(copy_rate(w, bytes, repeat, [&] { w.stream().copy(there, from.data(), bytes); }));
      }
      ours.fill(r);
      r.limit = plain.median();
    }
    w.barrier();
    rows.push_back(r);
  }
  return rows;
}

}  // namespace

rank_benchmark find_rank_benchmark(const std::string& name) {
  if (name == "signal") return signal_benchmark;
  if (name == "barrier") return barrier_benchmark;
  if (name == "put") return put_benchmark;
  if (auto found = find_proxy_benchmark(name)) return found;
  if (auto found = find_shmem_benchmark(name)) return found;
  if (auto found = find_coll_benchmark(name)) return found;
  if (auto found = find_flow_benchmark(name)) return found;
  throw error(errc::invalid_argument, "bench", "no rank benchmark '" + name + "'");
}

}  // namespace crosswarp::bench
