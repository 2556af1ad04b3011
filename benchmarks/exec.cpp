// crosswarp bench exec: launching kernels and meeting inside them.
#include <chrono>

#include "bench.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;
using context = dev::kernel_context;

struct nothing {
  CW_FN void operator()(const context& /*ctx*/) const {}
};

struct block_barriers {
  CW_FN void operator()(const context& ctx, int rounds, double* out) const {
    const std::uint64_t begin = dev::now_ns();
    for (int i = 0; i < rounds; ++i) ctx.block().sync();
    if (ctx.thread_index() == 0) *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

struct grid_barriers {
  CW_FN void operator()(const context& ctx, int rounds, double* out) const {
    const std::uint64_t begin = dev::now_ns();
    for (int i = 0; i < rounds; ++i) {
      if (ctx.grid().sync() != status::ok) return;
    }
    if (ctx.grid().rank() == 0) *out = static_cast<double>(dev::now_ns() - begin) / rounds;
  }
};

row base_row(const setup& s, const std::string& what) {
  row r;
  r.bench = "exec";
  r.what = what;
  r.device = s.device.name();
  r.unit = "us";
  return r;
}

row launch_row(const setup& s, stream& on, const launch_shape& shape) {
  samples took;
  for (int i = 0; i < (s.quick ? 50 : 500); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    launch(on, shape, nothing{});
    on.sync();
    const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
    if (i >= 10) took.add(t.count());
  }
  row r = base_row(s, "empty launch and sync, " + std::to_string(shape.blocks) + " x " +
                          std::to_string(shape.threads) + " threads");
  took.fill(r);
  return r;
}

template <class Kernel>
row barrier_row(const setup& s, stream& on, const launch_shape& shape, const std::string& what,
                Kernel k, int rounds) {
  samples took;
  buffer<double> out(s.device, 1);
  for (int i = 0; i < (s.quick ? 5 : 21); ++i) {
    launch(on, shape, k, rounds, out.data());
    on.sync();
    took.add(out.read()[0] * 1e-3);
  }
  row r = base_row(s, what);
  took.fill(r);
  return r;
}

}  // namespace

std::vector<row> bench_exec(const setup& s, const rank_runner& /*run_ranks*/) {
  stream on(s.device);
  const bool gpu = s.device.kind() == device_kind::cuda;
  const int blocks = gpu ? 132 : 2;
  std::vector<row> rows;
  rows.push_back(launch_row(s, on, {}));
  rows.push_back(launch_row(s, on, {.blocks = 1, .threads = 256}));
  rows.push_back(barrier_row(s, on, {.threads = 256}, "barrier of a block of 256 threads",
                             block_barriers{}, gpu ? 10'000 : 200));
  rows.push_back(barrier_row(s, on, {.blocks = blocks, .threads = 64, .resident = true},
                             "barrier of a grid of " + std::to_string(blocks) + " x 64 threads",
                             grid_barriers{}, gpu ? 2000 : 200));
  return rows;
}

}  // namespace crosswarp::bench
