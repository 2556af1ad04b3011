// What the five small protocols share. Each stands for a module of the library and uses nothing but
// the device core; each is run on CPU threads, under deterministic schedules, on a GPU, and between
// processes.
#pragma once

#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/ring.hpp"
#include "crosswarp/device/world.hpp"

namespace protocols {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;

/// What a rank reports: how its waits ended, and how many values were not what they should be.
struct outcome {
  status waits;
  int wrong;
};

/// Which group makes the calls.
struct by_thread {
  CW_FN auto operator()(const dev::kernel_context& ctx) const { return ctx.thread(); }
};
struct by_warp {
  CW_FN auto operator()(const dev::kernel_context& ctx) const { return ctx.warp(); }
};
struct by_block {
  CW_FN auto operator()(const dev::kernel_context& ctx) const { return ctx.block(); }
};

/// A value that tells where and when it was written.
CW_FN inline int stamp(int rank, std::uint64_t round, int i) {
  return rank * 1'000'003 + static_cast<int>(round % 1009) * 1009 + i;
}

/// The same report from all threads of the group, whatever each of them saw.
template <class G>
CW_FN inline void report(const G& g, outcome* out, status s, int wrong) {
  s = dev::agree(g, s);
  const bool bad = g.any(wrong != 0);
  if (g.rank() == 0) *out = {s, bad ? (wrong != 0 ? wrong : 1) : 0};
}

}  // namespace protocols
