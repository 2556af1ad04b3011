// Every operation of RDMA from rank 0 to rank 1, verified: two processes, or two machines.
//
//   crosswarp run -n 2 build/release/examples/12_dist_ops
//   crosswarp run -n 2 --nodes 2 build/release/examples/12_dist_ops      # as if on two machines
#include "crosswarp/world.hpp"
#include "rdma_ops.hpp"

int main() {
  using namespace rdma_ops;
  try {
    cw::run(2, cw::world_options::from_environment(), [](cw::world& w) {
      if (w.size() != 2) {
        throw cw::error(cw::errc::invalid_argument, "dist_ops", "it takes two ranks: -n 2");
      }
      const auto device = w.options().device;
      const rdma::context all(rdma::backend::soft, {.machines = w.node_count() > 1});
      const rdma::device_context d = all.devices().at(0).open(device);
      side mine(d, device);
      // Plain bytes: any other way to bring them there would do.
      const auto addresses = w.allgather(mine.address());
      const auto regions = w.allgather(mine.region());
      const std::size_t other = w.rank() == 0 ? 1 : 0;
      mine.connect(addresses[other]);
      if (w.rank() == 0) mine.prepare();
      if (w.rank() == 1) mine.expect();
      w.barrier();
      if (w.rank() == 0) mine.run(regions[other]);
      w.barrier();
      if (w.rank() == 1) mine.verify();
      w.barrier();
    });
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
