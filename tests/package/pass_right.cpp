#include "pass_right.hpp"

#include <crosswarp/world_launch.hpp>

namespace cw = crosswarp;

namespace {

struct pass {
  CW_FN void operator()(const cw::device::kernel_context& ctx, cw::device::world w,
                        cw::device::symmetric<int> box, int value, cw::status* out) const {
    const auto g = ctx.block();
    if (g.rank() == 0) *box.at((w.rank + 1) % w.size) = value;
    const cw::status s = w.barrier_all(g);
    if (g.rank() == 0) *out = s;
  }
};

}  // namespace

int pass_right(cw::world& w, int value) {
  cw::symmetric_buffer<int> box(w, 1);
  cw::buffer<cw::status> out(w.options().device, 1);
  cw::launch(w, {.threads = 4}, pass{}, w.device(), box.device(), value, out.data());
  w.stream().sync();
  return out.read()[0] == cw::status::ok ? box.read()[0] : -1;
}
