// Benchmarks of the proxy that need ranks: commands there and back, their rate, put + quiet,
// idling.
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "bench.hpp"
#include "crosswarp/world_launch.hpp"
#include "rank_benchmarks.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;
using context = dev::kernel_context;

row proxy_row(const world& w, const char* what, const char* unit) {
  row r = base_row(w, what);
  r.bench = "proxy";
  r.unit = unit;
  return r;
}

/// Nanoseconds of a round of `f(i)` to `out`, or the status that ended it.
template <class F, class Last>
CW_FN void measure(int rounds, measured* out, const F& f, const Last& last) {
  const std::uint64_t begin = dev::now_ns();
  status s = status::ok;
  for (int i = 0; i < rounds && s == status::ok; ++i) s = f(i);
  if (s == status::ok) s = last();
  *out = {static_cast<double>(dev::now_ns() - begin) / rounds, s};
}
template <class F>
CW_FN void measure(int rounds, measured* out, const F& f) {
  measure(rounds, out, f, [] { return status::ok; });
}

// ---- a command and its answer

struct commands_and_answers {
  CW_FN void operator()(const context& ctx, dev::world w, dev::symmetric<std::uint64_t> word,
                        int rounds, measured* out) const {
    auto q = w.proxy.queue(0);
    std::uint64_t seen = 0;
    measure(rounds, out, [&](int /*i*/) {
      return q.atomic(ctx.thread(), dev::amo::fetch, 8, w.rank, word.remote(), 0, 0, seen);
    });
  }
};

/// The bare way: a flag in host memory there, and one back.
struct flag_round_trips {
  CW_FN void operator()(const context& /*ctx*/, dev::world w, dev::signal_line* there,
                        dev::signal_line* back, int rounds, measured* out) const {
    measure(rounds, out, [&](int i) {
      const auto n = static_cast<std::uint64_t>(i) + 1;
      dev::signal(*there).set_unordered(n);
      return dev::signal(*back).wait_unordered(n, w.limits);
    });
  }
};

bool is_broken(const world& w) {
  try {
    w.check();
    return false;
  } catch (const error&) {
    return true;
  }
}

double bare_round_trip_us(world& w, int rounds) {
  buffer<dev::signal_line> lines(w.options().device, 2, memory_kind::pinned);
  buffer<measured> out(w.options().device, 1);
  launch(w.stream(), {}, flag_round_trips{}, w.device(), lines.data(), lines.data() + 1, rounds,
         out.data());
  // A kernel that failed does not come any more: looked for now and then.
  auto failed = [&, looks = 0U]() mutable {
    constexpr unsigned seldom = 1U << 20U;
    return ++looks % seldom == 0 && is_broken(w);
  };
  for (int i = 1; i <= rounds; ++i) {
    const auto n = static_cast<std::uint64_t>(i);
    const dev::system_atomic<std::uint64_t> there(lines.data()[0].word);
    while (there.load(dev::order::acquire) != n) {
      if (!failed()) continue;
      w.stream().sync();
      return ns_of(out) * 1e-3;
    }
    dev::system_atomic<std::uint64_t>(lines.data()[1].word).store(n, dev::order::release);
  }
  w.stream().sync();
  return ns_of(out) * 1e-3;
}

double kernel_us(world& w, launch_shape shape, int rounds, const auto& kernel, auto... more) {
  buffer<measured> out(w.options().device, static_cast<std::size_t>(shape.blocks));
  launch(w.stream(), shape, kernel, w.device(), more..., rounds, out.data());
  w.stream().sync();
  return ns_of(out) * 1e-3;
}

std::vector<row> command_benchmark(world& w, const setup& s) {
  symmetric_buffer<std::uint64_t> word(w, 1);
  std::vector<row> rows;
  if (w.rank() == 0) {
    const int rounds = 2000;
    row r = proxy_row(
        w, "command (atomic fetch) and answer (limit: bare flag to the host and back)", "us");
    samples ours;
    samples bare;
    for (int i = 0; i < (s.quick ? 7 : 31); ++i) {
      ours.add(kernel_us(w, {}, rounds, commands_and_answers{}, word.device()));
      // Two threads that give way to nobody: on a machine that is busy they take turns of
      // milliseconds.
      bare.add(bare_round_trip_us(w, s.quick ? 200 : rounds));
    }
    ours.fill(r);
    r.limit = bare.median();
    rows.push_back(r);
  }
  w.barrier();
  return rows;
}

// ---- how many

struct many_small_puts {
  CW_FN void operator()(const context& ctx, dev::world w, dev::symmetric<std::uint64_t> words,
                        int rounds, measured* out) const {
    auto q = w.proxy.queue(ctx.block_index());
    const auto at = words.remote(static_cast<std::size_t>(ctx.block_index()));
    measure(
        rounds, out + ctx.block_index(),
        [&](int i) {
          return q.put_value(ctx.thread(), 1 % w.size, at, static_cast<unsigned>(i), 8);
        },
        [&] { return q.quiet(ctx.thread()); });
  }
};

std::vector<row> rate_benchmark(world& w, const setup& s) {
  const int blocks = on_gpu(w) ? 132 : 1;
  symmetric_buffer<std::uint64_t> words(w, static_cast<std::size_t>(blocks));
  std::vector<row> rows;
  if (w.rank() == 0) {
    row r = proxy_row(w, "8-byte puts, one thread in each block", "M/s");
    samples rate;
    for (int i = 0; i < (s.quick ? 5 : 15); ++i) {
      rate.add(blocks / kernel_us(w, {.blocks = blocks}, 2000, many_small_puts{}, words.device()));
    }
    rate.fill(r);
    rows.push_back(r);
  }
  w.barrier();
  return rows;
}

// ---- put + quiet

struct put_and_quiet {
  CW_FN void operator()(const context& ctx, dev::world w, dev::symmetric<std::uint64_t> words,
                        int rounds, measured* out) const {
    auto q = w.proxy.queue(0);
    const int pe = 1 % w.size;
    measure(rounds, out, [&](int i) {
      const status s = q.put_value(ctx.thread(), pe, words.remote(), static_cast<unsigned>(i), 8);
      return s == status::ok ? q.quiet(ctx.thread()) : s;
    });
  }
};

std::vector<row> quiet_benchmark(world& w, const setup& s) {
  symmetric_buffer<std::uint64_t> words(w, 1);
  std::vector<row> rows;
  if (w.rank() == 0) {
    row r = proxy_row(w, "8-byte put + quiet", "us");
    r.bytes = 8;
    samples ours;
    for (int i = 0; i < (s.quick ? 7 : 31); ++i) {
      ours.add(kernel_us(w, {}, 5000, put_and_quiet{}, words.device()));
    }
    ours.fill(r);
    rows.push_back(r);
  }
  w.barrier();
  return rows;
}

// ---- much

struct stream_puts {
  CW_FN void operator()(const context& ctx, dev::world w, dev::symmetric<char> to, const char* from,
                        std::size_t bytes, int rounds, measured* out) const {
    auto q = w.proxy.queue(0);
    measure(
        rounds, out,
        [&](int /*i*/) { return q.put_nbi(ctx.thread(), 1 % w.size, to.remote(), from, bytes); },
        [&] { return q.quiet(ctx.thread()); });
  }
};

double plain_copy_rate(world& w, char* to, const char* from, std::size_t bytes, int rounds) {
  w.stream().sync();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) w.stream().copy(to, from, bytes);
  w.stream().sync();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(bytes) * rounds / took.count() / 1e9;
}

std::vector<row> bandwidth_benchmark(world& w, const setup& s) {
  const std::size_t largest = 16U << 20U;
  symmetric_buffer<char> to(w, largest);
  buffer<char> from(w.options().device, largest);
  std::vector<row> rows;
  if (w.rank() == 0) {
    for (std::size_t bytes = 64U << 10U; bytes <= largest; bytes *= 4) {
      char* const there = to.data(1 % w.size());  // where copies lead there, too
      row r = proxy_row(
          w, there != nullptr ? "puts in a stream (limit: plain copy)" : "puts in a stream",
          "GB/s");
      r.bytes = bytes;
      samples ours;
      samples plain;
      const int rounds = static_cast<int>(std::max<std::size_t>(16, (64U << 20U) / bytes));
      for (int i = 0; i < (s.quick ? 3 : 9); ++i) {
        const double us = kernel_us(w, {}, rounds, stream_puts{}, to.device(),
                                    static_cast<const char*>(from.data()), bytes);
        ours.add(static_cast<double>(bytes) / us / 1e3);
        if (there != nullptr) plain.add(plain_copy_rate(w, there, from.data(), bytes, rounds));
      }
      ours.fill(r);
      if (there != nullptr) r.limit = plain.median();
      rows.push_back(r);
    }
  }
  w.barrier();
  return rows;
}

// ---- nothing

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return s(u.ru_utime) + s(u.ru_stime);
}

/// Waits without a command, then asks for one thing.
struct ask_after_rest {
  CW_FN void operator()(const context& ctx, dev::world w, dev::symmetric<std::uint64_t> words,
                        std::uint64_t rest_ns, int /*rounds*/, measured* out) const {
    auto q = w.proxy.queue(0);
    const auto ask = [&](int /*i*/) {
      const status s = q.put_value(ctx.thread(), 1 % w.size, words.remote(), 1, 8);
      return s == status::ok ? q.quiet(ctx.thread()) : s;
    };
    measure(1, out, ask);
    if (out->outcome != status::ok) return;
    const std::uint64_t begin = dev::now_ns();
    while (dev::now_ns() - begin < rest_ns) {
    }
    measure(1, out, ask);
  }
};

std::vector<row> idle_benchmark(world& w, const setup& s) {
  symmetric_buffer<std::uint64_t> words(w, 1);
  std::vector<row> rows;
  row share = proxy_row(w, "idle proxies of this process, share of a core, after 100 ms", "%");
  samples shares;
  for (int i = 0; i < (s.quick ? 2 : 5); ++i) {
    w.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    shares.add((cpu_seconds() - before) / 0.5 * 100);
  }
  w.barrier();
  shares.fill(share);
  rows.push_back(share);
  row wake = proxy_row(w, "8-byte put + quiet after 100 ms of rest", "us");
  samples wakes;
  for (int i = 0; i < (s.quick ? 5 : 21); ++i) {
    w.barrier();
    if (w.rank() == 0) {
      wakes.add(kernel_us(w, {}, 1, ask_after_rest{}, words.device(), std::uint64_t{100'000'000}));
    }
  }
  w.barrier();
  if (w.rank() != 0) return {};
  wakes.fill(wake);
  rows.push_back(wake);
  return rows;
}

}  // namespace

rank_benchmark find_proxy_benchmark(const std::string& name) {
  if (name == "proxy-command") return command_benchmark;
  if (name == "proxy-rate") return rate_benchmark;
  if (name == "proxy-quiet") return quiet_benchmark;
  if (name == "proxy-bandwidth") return bandwidth_benchmark;
  if (name == "proxy-idle") return idle_benchmark;
  return nullptr;
}

}  // namespace crosswarp::bench
