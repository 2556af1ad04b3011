// Kernels that test shmem: the body is written once and called by a thread, a warp or a block.
#pragma once

#include "crosswarp/launch.hpp"
#include "crosswarp/shmem.hpp"
#include "worlds.hpp"

namespace shmem_test {

namespace cw = crosswarp;
namespace dev = crosswarp::device;

/// Zeroed symmetric memory. Collective.
template <class T>
T* zeroed(cw::shmem& sh, std::size_t count) {
  T* const p = sh.allocate<T>(count);
  const std::vector<T> zeros(count);
  cw::exec::copy_now(sh.of().options().device, p, zeros.data(), count * sizeof(T));
  sh.of().barrier();
  return p;
}
template <class T>
std::vector<T> read_back(cw::shmem& sh, const T* p, std::size_t count) {
  std::vector<T> out(count);
  cw::exec::copy_now(sh.of().options().device, out.data(), p, count * sizeof(T));
  return out;
}

enum class caller { thread, warp, block };
inline constexpr caller callers[] = {caller::thread, caller::warp, caller::block};
inline const char* name_of(caller c) {
  return c == caller::thread ? "thread" : c == caller::warp ? "warp" : "block";
}

/// What went wrong first, and where.
struct report {
  cw::status what;
  int line;
};

/// What a test's body works with.
template <class G>
struct bench {
  const G& g;
  dev::shmem sh;
  report* out;

  /// Notes a failure; true when all is well, for all threads of the group.
  CW_COLD CW_FN bool ok(cw::status s, int line) const {
    const cw::status all = dev::agree(g, s);
    if (all != cw::status::ok && g.rank() == 0 && out->what == cw::status::ok) {
      *out = {all, line};
    }
    return all == cw::status::ok;
  }
  CW_FN bool holds(bool condition, int line) const {
    return ok(condition ? cw::status::ok : cw::status::invalid, line);
  }
};
// In a body: returns at the first failure.
#define SH_OK(expression) \
  if (!b.ok((expression), __LINE__)) return
#define SH_TRUE(condition) \
  if (!b.holds((condition), __LINE__)) return

/// `Body` has `template <class G> void operator()(const bench<G>&, args...)`.
template <class Body>
struct kernel {
  template <class... Args>
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem world, caller who, report* out,
                        Args... args) const {
    const dev::shmem sh = world.on_block(k);
    if (who == caller::block) {
      const auto g = k.block();
      Body{}(bench<dev::block_group>{g, sh, out}, args...);
    } else if (who == caller::warp) {
      const auto g = k.warp();
      if (g.index() == 0) Body{}(bench<dev::warp_group>{g, sh, out}, args...);
    } else if (k.thread_index() == 0) {
      const auto g = k.thread();
      Body{}(bench<dev::thread_group>{g, sh, out}, args...);
    }
  }
};

/// Runs a body on all PEs of a team as `who`, and expects that all was well. On each PE's stream,
/// not as one grid of all: nvcc makes one kernel of it, and not three.
template <class Body, class... Args>
void expect_ok(cw::world& w, const dev::shmem& sh, caller who, Args... args) {
  cw::buffer<report> out(w.options().device, 1);
  w.barrier();  // nobody allocates while a kernel of another PE spins on the same GPU
  cw::launch(w.stream(), {.threads = 40}, kernel<Body>{}, sh, who, out.data(), args...);
  w.stream().sync();
  w.barrier();
  const report r = out.read().front();
  EXPECT_EQ(r.what, cw::status::ok)
      << "PE " << w.rank() << ", " << name_of(who) << ", line " << r.line;
  w.barrier();
}

}  // namespace shmem_test
