// Every operation of RDMA between two endpoints of one process, verified.
//
//   build/release/examples/11_local_ops
//   build/release/examples/11_local_ops cuda
#include "rdma_ops.hpp"

int main(int argc, char** argv) {
  using namespace rdma_ops;
  try {
    const auto device = cw::device_ref::parse(argc > 1 ? argv[1] : "cpu");
    const rdma::context all;
    const rdma::device_context d = all.devices().at(0).open(device);
    side a(d, device);
    side b(d, device);
    a.connect(b.address());
    b.connect(a.address());
    a.prepare();
    b.expect();
    a.run(b.region());
    b.verify();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
