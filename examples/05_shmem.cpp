// The operations of SHMEM, one after the other, in sizes from one word to 256 KiB, each verified.
//
//   ./05_shmem [mode]                                  four PEs as threads
//   crosswarp run -n 4 --nodes 2 ./05_shmem quiet      processes, as if on two machines
//
// Modes: put, put_nbi, get, get_nbi, quiet, get_swarm, reduction, all.
#include <cstdio>
#include <string_view>

#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;

/// Word i of PE `pe` before the operation.
CW_FN int word_of(int pe, std::size_t i) {
  return pe * 1'000'000 + static_cast<int>(i);
}
CW_FN int right_of(const dev::shmem& sh) {
  return (sh.my_pe() + 1) % sh.n_pes();
}
CW_FN int left_of(const dev::shmem& sh) {
  return (sh.my_pe() + sh.n_pes() - 1) % sh.n_pes();
}

/// What an operation works with, all of it symmetric: `n` words of each array, and a signal.
struct arrays {
  int* dest;
  int* source;
  std::uint64_t* arrived;
  std::size_t n;
};

// Each mode: what every PE does, and what word i of its dest is afterwards.

struct put {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    return sh.put(k.block(), a.dest, a.source, a.n, right_of(sh));
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) { return word_of(left_of(sh), i); }
};

struct put_nbi {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    return sh.put_nbi(k.block(), a.dest, a.source, a.n, right_of(sh));
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) { return word_of(left_of(sh), i); }
};

struct get {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    return sh.get(k.block(), a.dest, a.source, a.n, right_of(sh));
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) {
    return word_of(right_of(sh), i);
  }
};

struct get_nbi {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    const auto g = k.block();
    const status s = sh.get_nbi(g, a.dest, a.source, a.n, right_of(sh));
    return s == status::ok ? sh.quiet(g) : s;
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) {
    return word_of(right_of(sh), i);
  }
};

/// Many puts that wait for nothing, then one quiet(): only then is the neighbour told.
struct quiet {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    const auto g = k.block();
    const std::size_t piece = (a.n + 63) / 64;
    status s = status::ok;
    for (std::size_t at = 0; at < a.n && s == status::ok; at += piece) {
      const std::size_t count = a.n - at < piece ? a.n - at : piece;
      s = sh.put_nbi(g, a.dest + at, a.source + at, count, right_of(sh));
    }
    if (s == status::ok) s = sh.quiet(g);
    if (s == status::ok) s = sh.signal_set(g, a.arrived, a.n, right_of(sh));
    if (s == status::ok) s = sh.signal_wait_until(g, a.arrived, dev::compare::eq, a.n);
    return s;
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) { return word_of(left_of(sh), i); }
};

/// All threads at once, each its part.
struct get_swarm {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    const auto threads = static_cast<std::size_t>(k.thread_count());
    const std::size_t part = (a.n + threads - 1) / threads;
    const std::size_t at = part * static_cast<std::size_t>(k.thread_index());
    if (at >= a.n) return status::ok;
    const std::size_t count = a.n - at < part ? a.n - at : part;
    return sh.get(k.thread(), a.dest + at, a.source + at, count, right_of(sh));
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) {
    return word_of(right_of(sh), i);
  }
};

struct reduction {
  CW_FN status operator()(const dev::kernel_context& k, const dev::shmem& sh, arrays a) const {
    return sh.reduce(k.block(), dev::shmem_op::sum{}, a.dest, a.source, a.n);
  }
  CW_FN static int expected(const dev::shmem& sh, std::size_t i) {
    int sum = 0;
    for (int pe = 0; pe < sh.n_pes(); ++pe) sum += word_of(pe, i);
    return sum;
  }
};

struct outcome {
  status what;
  bool wrong;  ///< what came is not what should have come
};

/// Fills the arrays, has all PEs do the operation, and looks at what came.
template <class Operation>
struct verified {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem all, arrays a,
                        outcome* out) const {
    const auto g = k.block();
    const auto sh = all.on_block(k);
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    for (std::size_t i = first; i < a.n; i += step) {
      a.source[i] = word_of(sh.my_pe(), i);
      a.dest[i] = -1;
    }
    if (g.rank() == 0) *a.arrived = 0;
    status s = sh.barrier(g);
    if (s == status::ok) s = dev::agree(g, Operation{}(k, sh, a));
    if (s == status::ok) s = sh.barrier(g);
    bool other = false;
    for (std::size_t i = first; i < a.n; i += step) {
      other = other || a.dest[i] != Operation::expected(sh, i);
    }
    other = g.any(other);
    if (g.rank() == 0) *out = {s, other};
  }
};

template <class Operation>
void run_mode(cw::shmem& sh, const char* name) {
  constexpr std::size_t most = 64U << 10U;
  cw::world& w = sh.of();
  cw::buffer<outcome> out(w.options().device, 1);
  arrays a{sh.allocate<int>(most), sh.allocate<int>(most), sh.allocate<std::uint64_t>(1), 0};
  for (a.n = 1; a.n <= most; a.n *= 4) {
    cw::launch(w, {.threads = 64}, verified<Operation>{}, sh.device(), a, out.data());
    w.stream().sync();
    const outcome o = out.read()[0];
    if (o.what != status::ok || o.wrong) {
      throw cw::error(cw::errc::device_fault, name,
                      std::to_string(a.n) + " words: " +
                          (o.what == status::ok ? "not what was sent" : cw::to_string(o.what)),
                      w.rank());
    }
  }
  sh.free(a.arrived);
  sh.free(a.source);
  sh.free(a.dest);
  if (w.rank() == 0) {
    std::printf("%-9s  1 to %zu words on each of %d PEs: right\n", name, most, w.size());
  }
}

constexpr struct {
  const char* name;
  void (*run)(cw::shmem& sh, const char* name);
} modes[] = {
    {"put", run_mode<put>},
    {"put_nbi", run_mode<put_nbi>},
    {"get", run_mode<get>},
    {"get_nbi", run_mode<get_nbi>},
    {"quiet", run_mode<quiet>},
    {"get_swarm", run_mode<get_swarm>},
    {"reduction", run_mode<reduction>},
};

/// Before a world is made, so that it is said in one line.
void check_mode(std::string_view chosen) {
  std::string names = "all";
  for (const auto& mode : modes) {
    if (chosen == "all" || chosen == mode.name) return;
    names += std::string(", ") + mode.name;
  }
  throw cw::error(cw::errc::invalid_argument, "mode",
                  "'" + std::string(chosen) + "' is none of " + names);
}

int main(int argc, char** argv) {
  const std::string_view chosen = argc > 1 ? argv[1] : "all";
  try {
    check_mode(chosen);
    cw::run(4, [&](cw::world& w) {
      cw::shmem sh(w);
      for (const auto& mode : modes) {
        if (chosen == "all" || chosen == mode.name) mode.run(sh, mode.name);
      }
    });
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
