// Benchmarks of device::shmem: what kernels see.
#include <array>

#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"
#include "rank_benchmarks.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;
using context = dev::kernel_context;
using dev::amo;
using dev::compare;

/// Runs `f(group)` as the scope that is measured; the other threads of the block do nothing.
template <class F>
CW_FN void as_scope(const context& k, shmem_scope scope, const F& f) {
  if (scope == shmem_scope::block) {
    f(k.block());
  } else if (scope == shmem_scope::warp) {
    if (k.warp().index() == 0) f(k.warp());
  } else if (k.thread_index() == 0) {
    f(k.thread());
  }
}

/// Runs `f(group)` like that; nanoseconds of a round to `out`, or the status that ended it.
template <class F>
CW_FN void measure(const context& k, shmem_scope scope, int rounds, measured* out, const F& f) {
  as_scope(k, scope, [&](const auto& g) {
    const std::uint64_t begin = dev::now_ns();
    const status s = f(g);
    if (g.rank() == 0) *out = {static_cast<double>(dev::now_ns() - begin) / rounds, s};
  });
}

/// PEs 0 and 1 send the same bytes to and fro.
struct ping_pong {
  static constexpr int max_threads = 512;
  CW_FN void operator()(const context& k, dev::shmem world, shmem_scope scope, std::byte* box,
                        const std::byte* own, std::size_t bytes, std::uint64_t* flag,
                        std::uint64_t first, int rounds, measured* out) const {
    const dev::shmem sh = world.on_block(k);
    const int me = sh.my_pe();
    if (me > 1) return;
    measure(k, scope, rounds, out, [&](const auto& g) {
      status s = status::ok;
      for (int i = 1; i <= rounds && s == status::ok; ++i) {
        const std::uint64_t n = first + static_cast<std::uint64_t>(i);
        if (me == 1) s = sh.signal_wait_until(g, flag, compare::ge, n);
        if (s != status::ok) return s;
        s = sh.put_signal(g, box, own, bytes, flag, n, dev::signal_op::set, 1 - me);
        if (s != status::ok) return s;
        if (me == 0) s = sh.signal_wait_until(g, flag, compare::ge, n);
      }
      return s;
    });
  }
};

struct barriers {
  CW_FN void operator()(const context& k, dev::shmem sh, shmem_scope scope, int rounds,
                        measured* out) const {
    measure(k, scope, rounds, out, [&](const auto& g) {
      status s = status::ok;
      for (int i = 0; i < rounds && s == status::ok; ++i) s = sh.barrier(g);
      return s;
    });
  }
};

/// One operation again and again, to PE 1.
enum class single { put, put_quiet, get, p, g, fetch_add, add };
struct singles {
  CW_FN void operator()(const context& k, dev::shmem world, shmem_scope scope, single what,
                        std::uint64_t* box, std::uint64_t* own, int rounds, measured* out) const {
    const dev::shmem sh = world.on_block(k);
    measure(k, scope, rounds, out, [&](const auto& g) {
      std::uint64_t seen = 0;
      for (int i = 0; i < rounds; ++i) {
        status s = status::ok;
        switch (what) {
          case single::put:
            s = sh.put(g, box, own, 1, 1);
            break;
          case single::put_quiet:
            s = sh.put(g, box, own, 1, 1);
            if (s == status::ok) s = sh.quiet(g);
            break;
          case single::get:
            s = sh.get(g, own, box, 1, 1);
            break;
          case single::p:
            s = sh.p(g, box + i % 64, static_cast<std::uint64_t>(i), 1);
            break;
          case single::g:
            s = sh.g(g, seen, box, 1);
            break;
          case single::fetch_add:
            s = sh.atomic_fetch(g, amo::add, box, std::uint64_t{1}, std::uint64_t{0}, 1, seen);
            break;
          case single::add:
            s = sh.atomic(g, amo::add, box, std::uint64_t{1}, 1);
            break;
        }
        if (s != status::ok) return s;
      }
      return sh.quiet(g);
    });
  }
};

/// All blocks put pieces of one large buffer, dealt out in turn; `failures`: one for each.
struct stream_out {
  static constexpr int max_threads = 1024;
  CW_FN void operator()(const context& k, dev::shmem world, std::byte* box, const std::byte* own,
                        std::size_t bytes, status* failures) const {
    constexpr std::size_t piece = 128 * 1024;
    const dev::shmem sh = world.on_block(k);
    const auto step = piece * static_cast<std::size_t>(k.block_count());
    status s = status::ok;
    for (auto at = piece * static_cast<std::size_t>(k.block_index()); at < bytes && s == status::ok;
         at += step) {
      const std::size_t n = bytes - at < piece ? bytes - at : piece;
      s = sh.put_nbi(k.block(), box + at, own + at, n, 1);
    }
    if (s == status::ok) s = sh.quiet(k.block());
    if (s != status::ok && k.thread_index() == 0) failures[k.block_index()] = s;
  }
};

row shmem_row(const world& w, const setup& s, const std::string& what) {
  row r = base_row(w, "");
  r.bench = "shmem";
  r.what = what + ", by a " +
           (s.scope == shmem_scope::block  ? "block"
            : s.scope == shmem_scope::warp ? "warp"
                                           : "thread");
  r.unit = "us";
  return r;
}

/// Whose path says what all ranks find alike: one's own memory is always mapped.
int neighbour(const world& w) {
  return (w.rank() + 1) % w.size();
}

/// Threads of the block: enough to copy with, on a GPU.
int threads_for(const world& w, const setup& s, std::size_t bytes) {
  if (!on_gpu(w) || s.scope == shmem_scope::thread) return 1;
  if (s.scope == shmem_scope::warp) return 32;
  return bytes >= (32U << 10U) ? 512 : bytes >= 2048 ? 256 : 32;
}

template <class Kernel, class... Args>
void sample(world& w, samples& into, double scale, int threads, Kernel k, const dev::shmem& sh,
            const setup& s, Args... args) {
  buffer<measured> out(w.options().device, 1);
  launch(w, {.threads = threads}, k, sh, s.scope, args..., out.data());
  w.stream().sync();
  into.add(ns_of(out) * scale);
}

/// Each world has so much symmetric memory for its boxes.
std::size_t largest_for(const world& w) {
  return std::min<std::size_t>(w.options().heap_bytes / 4, on_gpu(w) ? 64U << 20U : 8U << 20U);
}

std::vector<row> signal_rows(world& w, const setup& s) {
  shmem sh(w);
  const std::size_t largest = std::min<std::size_t>(largest_for(w), 1U << 20U);
  auto* const box = sh.allocate<std::byte>(largest);
  const buffer<std::byte> own(w.options().device, largest);
  std::vector<row> rows;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1024}, std::size_t{8192},
                                  std::size_t{65536}, std::size_t{1} << 20U}) {
    if (bytes > largest) continue;
    auto* const flag = sh.allocate<std::uint64_t>(1);
    const std::uint64_t zero = 0;
    exec::copy_now(w.options().device, flag, &zero, sizeof(zero));
    w.barrier();
    samples took;
    const int rounds = bytes >= 65536                            ? 200
                       : on_gpu(w) || !w.is_mapped(neighbour(w)) ? 1000
                                                                 : 10'000;
    for (int i = 0; i < (s.quick ? 5 : 21); ++i) {
      sample(w, took, 0.5e-3, threads_for(w, s, bytes), ping_pong{}, sh.device(), s, box,
             static_cast<const std::byte*>(own.data()), bytes, flag,
             static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(rounds), rounds);
    }
    row r = shmem_row(w, s, "put_signal, one way");
    r.bytes = bytes;
    took.fill(r);
    rows.push_back(r);
    sh.free(flag);
  }
  return rows;
}

std::vector<row> barrier_rows(world& w, const setup& s) {
  shmem sh(w);
  samples took;
  const int rounds = on_gpu(w) || !w.is_mapped(neighbour(w)) ? 1000 : 20'000 / w.size();
  for (int i = 0; i < (s.quick ? 5 : 21); ++i) {
    sample(w, took, 1e-3, threads_for(w, s, 0), barriers{}, sh.device(), s, rounds);
  }
  row r = shmem_row(w, s, "barrier");
  took.fill(r);
  return {r};
}

std::vector<row> single_rows(world& w, const setup& s) {
  struct named {
    single what;
    const char* name;
    const char* option;
  };
  constexpr std::array all = {
      named{single::put, "put of 8 bytes", "put"},
      named{single::put_quiet, "put of 8 bytes + quiet", "put"},
      named{single::get, "get of 8 bytes", "get"},
      named{single::p, "p", "p"},
      named{single::g, "g", "g"},
      named{single::fetch_add, "fetch_add", "amo"},
      named{single::add, "add", "amo"},
  };
  shmem sh(w);
  auto* const box = sh.allocate<std::uint64_t>(64);
  const buffer<std::uint64_t> own(w.options().device, 1);
  std::vector<row> rows;
  for (const named& one : all) {
    if (!s.op.empty() && s.op != one.option) continue;
    samples took;
    const int rounds = on_gpu(w) || !w.is_mapped(neighbour(w)) ? 2000 : 200'000;
    for (int i = 0; i < (s.quick ? 5 : 21); ++i) {
      if (w.rank() == 0) {
        buffer<measured> out(w.options().device, 1);
        launch(w.stream(), {.threads = threads_for(w, s, 0)}, singles{}, sh.device(), s.scope,
               one.what, box, own.data(), rounds, out.data());
        w.stream().sync();
        took.add(ns_of(out) * 1e-3);
      }
      w.barrier();
    }
    row r = shmem_row(w, s, one.name);
    r.bytes = 8;
    if (w.rank() == 0) took.fill(r);
    rows.push_back(r);
  }
  return rows;
}

std::vector<row> bandwidth_rows(world& w, const setup& s) {
  shmem sh(w);
  const std::size_t bytes = largest_for(w);
  auto* const box = sh.allocate<std::byte>(bytes);
  const buffer<std::byte> own(w.options().device, bytes);
  row r = base_row(w, "put_nbi from many blocks (limit: plain copy)");
  r.bench = "shmem";
  r.bytes = bytes;
  r.unit = "GB/s";
  if (w.rank() == 0) {
    const launch_shape shape =
        on_gpu(w) ? launch_shape{.blocks = 264, .threads = 512} : launch_shape{};
    const buffer<std::byte> other(w.options().device, bytes);
    buffer<status> failures(w.options().device, static_cast<std::size_t>(shape.blocks));
    samples ours;
    samples plain;
    for (int i = 0; i < (s.quick ? 3 : 11); ++i) {
      ours.add(copy_rate(w, bytes, 10, [&] {
        launch(w.stream(), shape, stream_out{}, sh.device(), box,
               static_cast<const std::byte*>(own.data()), bytes, failures.data());
      }));
      for (const status f : failures.read()) check_outcome(f);
      plain.add(copy_rate(w, bytes, 10, [&] { w.stream().copy(other.data(), own.data(), bytes); }));
    }
    ours.fill(r);
    r.limit = plain.median();
  }
  w.barrier();
  return {r};
}

}  // namespace

rank_benchmark find_shmem_benchmark(const std::string& name) {
  if (name == "shmem-signal") return signal_rows;
  if (name == "shmem-barrier") return barrier_rows;
  if (name == "shmem-single") return single_rows;
  if (name == "shmem-bandwidth") return bandwidth_rows;
  return nullptr;
}

}  // namespace crosswarp::bench
