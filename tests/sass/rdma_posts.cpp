// One thread posts one entry of 64 bytes and rings: what scripts/count_posts counts. For nvcc
// alone.
#include "crosswarp/device/rdma.hpp"

namespace dev = crosswarp::device;
namespace rdma = crosswarp::device::rdma;
using crosswarp::status;

namespace {

struct arguments {
  rdma::endpoint ep;
  rdma::local_memory local;
  rdma::remote_memory remote;
  std::uint32_t bytes;
  std::uint64_t operand;
  const void* data;
};

template <class G>
__device__ inline status ring(const G& g, const arguments& a, const rdma::posted& p) {
  return p.outcome == status::ok ? a.ep.submit(g, p) : p.outcome;
}
template <class G>
__device__ inline status write(const G& g, const arguments& a) {
  return ring(g, a, a.ep.post_write(g, a.local, a.remote, a.bytes));
}
template <class G>
__device__ inline status write_inline(const G& g, const arguments& a) {
  return ring(g, a, a.ep.post_write_inline(g, a.data, a.remote, 8));
}
template <class G>
__device__ inline status write_imm(const G& g, const arguments& a) {
  return ring(g, a, a.ep.post_write_imm(g, a.local, a.remote, a.bytes, 7));
}
template <class G>
__device__ inline status read(const G& g, const arguments& a) {
  return ring(g, a, a.ep.post_read(g, a.local, a.remote, a.bytes));
}
template <class G>
__device__ inline status send(const G& g, const arguments& a) {
  return ring(g, a, a.ep.post_send(g, a.local, a.bytes));
}
template <class G>
__device__ inline status fetch_add(const G& g, const arguments& a) {
  return ring(g, a,
              a.ep.post_atomic(g, {.op = rdma::operation::fetch_add,
                                   .local = a.local,
                                   .remote = a.remote,
                                   .operand = a.operand}));
}

using one = dev::thread_group;
using sole = rdma::sole_producer;

}  // namespace

// clang-format off
extern "C" __global__ void post_write(const __grid_constant__ arguments a, status* out) { *out = write(one{}, a); }
extern "C" __global__ void post_write_inline(const __grid_constant__ arguments a, status* out) { *out = write_inline(one{}, a); }
extern "C" __global__ void post_write_imm(const __grid_constant__ arguments a, status* out) { *out = write_imm(one{}, a); }
extern "C" __global__ void post_read(const __grid_constant__ arguments a, status* out) { *out = read(one{}, a); }
extern "C" __global__ void post_send(const __grid_constant__ arguments a, status* out) { *out = send(one{}, a); }
extern "C" __global__ void post_fetch_add(const __grid_constant__ arguments a, status* out) { *out = fetch_add(one{}, a); }
extern "C" __global__ void sole_write(const __grid_constant__ arguments a, status* out) { *out = write(sole{}, a); }
extern "C" __global__ void sole_write_inline(const __grid_constant__ arguments a, status* out) { *out = write_inline(sole{}, a); }
extern "C" __global__ void sole_write_imm(const __grid_constant__ arguments a, status* out) { *out = write_imm(sole{}, a); }
extern "C" __global__ void sole_read(const __grid_constant__ arguments a, status* out) { *out = read(sole{}, a); }
extern "C" __global__ void sole_send(const __grid_constant__ arguments a, status* out) { *out = send(sole{}, a); }
extern "C" __global__ void sole_fetch_add(const __grid_constant__ arguments a, status* out) { *out = fetch_add(sole{}, a); }
// clang-format on
