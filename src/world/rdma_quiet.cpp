#include "crosswarp/launch.hpp"
#include "world/rdma_path.hpp"

namespace crosswarp::world_impl {

struct quiet_kernel {
  CW_FN void operator()(const device::kernel_context& ctx, device::proxy queues) const {
    for (int q = 0; q < queues.queues(); ++q) {
      // What failed was told to who asked for it.
      (void)queues.queue(q).quiet(ctx.thread());
    }
  }
};

void launch_quiet(stream& on, const device::proxy& queues) {
  launch(on, {}, quiet_kernel{}, queues);
}

}  // namespace crosswarp::world_impl
