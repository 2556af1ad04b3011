// One thread posts one entry of 64 bytes and rings: what scripts/count_posts counts. For nvcc
// alone.
#include "crosswarp/device/rdma.hpp"

namespace dev = crosswarp::device;
namespace rdma = crosswarp::device::rdma;

namespace {

struct arguments {
  rdma::endpoint ep;
  rdma::local_memory local;
  rdma::remote_memory remote;
  std::uint32_t bytes;
  std::uint64_t operand;
  const void* data;
};

__device__ inline crosswarp::status ring(const arguments& a, const rdma::posted& p) {
  return p.outcome == crosswarp::status::ok ? a.ep.submit(dev::thread_group{}, p.end) : p.outcome;
}

}  // namespace

extern "C" __global__ void post_write(const __grid_constant__ arguments a, crosswarp::status* out) {
  *out = ring(a, a.ep.post_write(dev::thread_group{}, a.local, a.remote, a.bytes));
}
extern "C" __global__ void post_write_inline(const __grid_constant__ arguments a,
                                             crosswarp::status* out) {
  *out = ring(a, a.ep.post_write_inline(dev::thread_group{}, a.data, a.remote, 8));
}
extern "C" __global__ void post_write_imm(const __grid_constant__ arguments a,
                                          crosswarp::status* out) {
  *out = ring(a, a.ep.post_write_imm(dev::thread_group{}, a.local, a.remote, a.bytes, 7));
}
extern "C" __global__ void post_read(const __grid_constant__ arguments a, crosswarp::status* out) {
  *out = ring(a, a.ep.post_read(dev::thread_group{}, a.local, a.remote, a.bytes));
}
extern "C" __global__ void post_send(const __grid_constant__ arguments a, crosswarp::status* out) {
  *out = ring(a, a.ep.post_send(dev::thread_group{}, a.local, a.bytes));
}
extern "C" __global__ void post_fetch_add(const __grid_constant__ arguments a,
                                          crosswarp::status* out) {
  *out = ring(a, a.ep.post_atomic(dev::thread_group{}, {.op = rdma::operation::fetch_add,
                                                        .local = a.local,
                                                        .remote = a.remote,
                                                        .operand = a.operand}));
}
