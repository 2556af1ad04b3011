// crosswarp bench rdma: entries that kernels post, carried out by the soft NIC.
#include "crosswarp/rdma.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "bench.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;
using context = dev::kernel_context;
using view = dev::rdma::endpoint;

constexpr std::uint32_t small = 64;

struct by_thread {
  CW_FN auto operator()(const context& ctx) const { return ctx.thread(); }
};
struct by_sole {
  CW_FN auto operator()(const context& /*ctx*/) const { return dev::rdma::sole_producer{}; }
};

/// Writes one after the other, each to its end.
template <class By>
struct write_and_wait {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::region r,
                        std::uint32_t bytes, int rounds, double* ns) const {
    const auto me = By{}(ctx);
    const std::uint64_t begin = dev::now_ns();
    for (int i = 0; i < rounds; ++i) {
      if (ep.write(me, r.local(), r.remote(bytes), bytes).outcome != status::ok) return;
    }
    *ns = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

/// Each block posts writes as fast as the queue takes them: all to one of the endpoints, or each to
/// one of its own.
struct write_many {
  CW_FN void operator()(const context& ctx, const view* all, int count, dev::rdma::region r,
                        int each, status* out) const {
    const auto me = ctx.thread();
    const view ep = all[ctx.block_index() % count];
    for (int i = 0; i < each; ++i) {
      const auto p = ep.post_write(me, r.local(), r.remote(small), small, false);
      status s = p.outcome;
      if (s == status::ok) s = ep.submit(me, p);
      if (s != status::ok) {
        out[ctx.block_index()] = s;
        return;
      }
    }
    out[ctx.block_index()] = ep.quiet(me).outcome;
  }
};

/// The same by warps, which post as many writes at a time as they have threads, and ring once.
struct write_batches {
  CW_FN void operator()(const context& ctx, const view* all, int count, dev::rdma::region r,
                        int each, status* out) const {
    const auto g = ctx.warp();
    const view ep = all[ctx.block_index() % count];
    const auto part = static_cast<std::uint32_t>(g.size());
    status s = status::ok;
    for (int i = 0; i < each && s == status::ok; i += g.size()) {
      const auto p = ep.post_batch(g, part, [&](std::uint32_t) {
        return dev::rdma::request{.op = dev::rdma::operation::write,
                                  .signalled = false,
                                  .bytes = small,
                                  .local = r.local(),
                                  .remote = r.remote(small)};
      });
      s = ep.submit(g, p);
    }
    const auto c = ep.quiet(g);
    if (g.rank() == 0) out[ctx.block_index()] = s == status::ok ? c.outcome : s;
  }
};

/// One write to each endpoint in turn; the last one of each is waited for.
struct write_round {
  CW_FN void operator()(const context& ctx, const view* all, int count, dev::rdma::region r,
                        int total, dev::rdma::posted* last, double* ns) const {
    const auto me = ctx.thread();
    const std::uint64_t begin = dev::now_ns();
    for (int i = 0; i < total; ++i) {
      const view& ep = all[i % count];
      const bool is_last = i + count >= total;
      const auto p = ep.post_write(me, r.local(), r.remote(small), small, is_last);
      if (p.outcome != status::ok || ep.submit(me, p) != status::ok) return;
      if (is_last) last[i % count] = p;
    }
    for (int i = 0; i < count; ++i) {
      if (all[i].wait(me, last[i]).outcome != status::ok) return;
    }
    *ns = static_cast<double>(dev::now_ns() - begin) / total;
  }
};

/// A word there, a word back: what a kernel and a host thread need at least.
struct flags {
  CW_FN void operator()(const context& /*ctx*/, std::uint64_t* there, std::uint64_t* back,
                        int rounds, double* ns) const {
    const std::uint64_t begin = dev::now_ns();
    for (int i = 1; i <= rounds; ++i) {
      const auto want = static_cast<std::uint64_t>(i);
      dev::signal(*there).set(want);
      if (dev::signal(*back).wait(want, dev::wait_limits{}) != status::ok) return;
    }
    *ns = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

/// Answers what `flags` sets, while it lives.
class echo {
 public:
  echo(std::uint64_t* there, std::uint64_t* back)
      : thread_([this, there, back] {
          const std::atomic_ref<std::uint64_t> in(*there);
          const std::atomic_ref<std::uint64_t> out(*back);
          for (std::uint64_t seen = 0; !stop_.load(std::memory_order_relaxed);) {
            const std::uint64_t now = in.load(std::memory_order_acquire);
            if (now == seen) continue;
            seen = now;
            out.store(seen, std::memory_order_release);
          }
        }) {}
  ~echo() {
    stop_.store(true);
    thread_.join();
  }
  echo(const echo&) = delete;
  echo& operator=(const echo&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// An endpoint that is connected to itself, and memory.
struct loop {
  loop(const rdma::device_context& d, device_ref device, std::size_t bytes, int depth)
      : memory(device, bytes, memory_kind::pinned),
        region(d.register_memory(memory.data(), bytes, rdma::access::all)),
        ep(d.make_endpoint({.send_depth = depth, .receive_depth = 4, .collapsed = true})) {
    ep.connect(ep.address());
  }
  buffer<std::byte> memory;
  rdma::memory_region region;
  rdma::endpoint ep;
};

class rdma_bench {
 public:
  explicit rdma_bench(const setup& s)
      : setup_(s), device_(all_.devices().at(0).open(s.device)), on_(s.device), ns_(s.device, 1) {}

  [[nodiscard]] std::vector<row> rows() {
    std::vector<row> all = {round_trip<by_thread>("", 1),
                            round_trip<by_sole>(" by a sole producer", 1),
                            round_trip<by_thread>(", of 1024 endpoints", 1024)};
    const bool is_gpu = setup_.device.kind() == device_kind::cuda;
    for (const int blocks : is_gpu ? std::vector{4, 132} : std::vector{4}) {
      all.push_back(rate<write_many>(blocks, 1, 1));
      all.push_back(rate<write_many>(blocks, blocks, 1));
    }
    all.push_back(rate<write_batches>(1, 1, 32));
    all.push_back(bandwidth());
    for (const int n : {1, 32, 1024}) all.push_back(many(n));
    return all;
  }

 private:
  [[nodiscard]] row base(const std::string& what, const std::string& unit) const {
    row r;
    r.bench = "rdma";
    r.what = what;
    r.device = setup_.device.name();
    r.path = "soft NIC";
    r.unit = unit;
    return r;
  }
  [[nodiscard]] int samples_wanted() const { return setup_.quick ? 5 : 21; }

  /// What a kernel says that it took.
  template <class Kernel, class... Args>
  double measure(Kernel k, Args... args) {
    ns_.write(std::vector<double>{0});
    launch(on_, {}, k, args..., ns_.data());
    on_.sync();
    const double ns = ns_.read()[0];
    if (ns == 0) throw error(errc::device_fault, "bench rdma", "an entry failed");
    return ns;
  }

  /// `present`: endpoints that are there, of which one is used.
  template <class By>
  row round_trip(const std::string& how, int present) {
    const int rounds = setup_.quick ? 500 : 2000;
    std::vector<std::unique_ptr<loop>> loops;
    while (std::ssize(loops) < present) {
      loops.push_back(std::make_unique<loop>(device_, setup_.device, 2 * small, 64));
    }
    const loop& l = *loops.back();
    buffer<std::uint64_t> words(setup_.device, 64, memory_kind::pinned);
    samples took;
    samples bare;
    for (int i = 0; i < samples_wanted(); ++i) {
      took.add(measure(write_and_wait<By>{}, l.ep.device(), l.region.device(), small, rounds) *
               1e-3);
      words.write(std::vector<std::uint64_t>(64));
      const echo answers(words.data(), words.data() + 32);
      bare.add(measure(flags{}, words.data(), words.data() + 32, rounds) * 1e-3);
    }
    row r =
        base("64-byte write and its completion" + how + " (limit: a flag there and back)", "us");
    r.bytes = small;
    took.fill(r);
    r.limit = bare.median();
    return r;
  }

  /// `blocks` that post to `endpoints`, `at_once` with each doorbell.
  template <class Kernel>
  row rate(int blocks, int endpoints, int at_once) {
    const int each = (setup_.quick ? 100'000 : 400'000) / blocks / at_once * at_once;
    std::vector<std::unique_ptr<loop>> loops;
    std::vector<view> views;
    while (std::ssize(loops) < endpoints) {
      loops.push_back(std::make_unique<loop>(device_, setup_.device, 2 * small, 1024));
      views.push_back(loops.back()->ep.device());
    }
    buffer<view> on_device(setup_.device, std::span<const view>(views));
    buffer<status> out(setup_.device, static_cast<std::size_t>(blocks));
    samples took;
    for (int i = 0; i < samples_wanted(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      launch(on_, {.blocks = blocks, .threads = at_once}, Kernel{},
             static_cast<const view*>(on_device.data()), endpoints, loops[0]->region.device(), each,
             out.data());
      on_.sync();
      const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
      for (const status s : out.read()) {
        if (s != status::ok) throw error(errc::device_fault, "bench rdma", to_string(s));
      }
      took.add(each * blocks / t.count());
    }
    row r = base("64-byte writes, " + rate_name(blocks, endpoints, at_once), "M/s");
    r.bytes = small;
    took.fill(r);
    return r;
  }
  [[nodiscard]] static std::string rate_name(int blocks, int endpoints, int at_once) {
    if (at_once > 1) return std::to_string(at_once) + " by a warp with each doorbell";
    return std::to_string(blocks) + " blocks on " +
           (endpoints == 1 ? "one endpoint" : "an endpoint each");
  }

  row bandwidth() {
    constexpr std::uint32_t bytes = 1U << 20U;
    constexpr int rounds = 50;
    loop l(device_, setup_.device, 2 * std::size_t{bytes}, 256);
    samples took;
    samples plain;
    for (int i = 0; i < samples_wanted(); ++i) {
      took.add(bytes / measure(write_and_wait<by_thread>{}, l.ep.device(), l.region.device(), bytes,
                               rounds));
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < rounds; ++k) {
        std::memcpy(l.memory.data() + bytes, l.memory.data(), bytes);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // all of them are made
      }
      const std::chrono::duration<double, std::nano> t = std::chrono::steady_clock::now() - begin;
      plain.add(bytes * static_cast<double>(rounds) / t.count());
    }
    row r = base("1 MiB writes (limit: memcpy)", "GB/s");
    r.bytes = bytes;
    took.fill(r);
    r.limit = plain.median();
    return r;
  }

  row many(int count) {
    const int total = 1024 * (setup_.quick ? 50 : 200);
    std::vector<std::unique_ptr<loop>> loops;
    std::vector<view> views;
    for (int i = 0; i < count; ++i) {
      loops.push_back(std::make_unique<loop>(device_, setup_.device, 2 * small, 64));
      views.push_back(loops.back()->ep.device());
    }
    buffer<view> on_device(setup_.device, std::span<const view>(views));
    buffer<dev::rdma::posted> last(setup_.device, views.size());
    samples took;
    for (int i = 0; i < samples_wanted(); ++i) {
      took.add(measure(write_round{}, static_cast<const view*>(on_device.data()), count,
                       loops[0]->region.device(), total, last.data()) *
               1e-3);
    }
    row r = base("64-byte write, " + std::to_string(count) + " endpoints in turn", "us");
    r.bytes = small;
    took.fill(r);
    return r;
  }

  setup setup_;
  rdma::context all_;
  rdma::device_context device_;
  stream on_;
  buffer<double> ns_;
};

}  // namespace

std::vector<row> bench_rdma(const setup& s) {
  return rdma_bench(s).rows();
}

}  // namespace crosswarp::bench
