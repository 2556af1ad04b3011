// peer_nccl_coll GPUS OP TYPE REDOP BYTES...: one collective of NCCL, one rank on each of the first
// GPUs, for the sizes that are named, of the longer of input and result: prints the median time of
// several batches, in us. all_reduce is made in place. Exit code 3 when NCCL has no such operation
// or type, or fails.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "peer_nccl_coll: %s\n", why);
  std::exit(3);
}
void check(ncclResult_t r) {
  if (r != ncclSuccess) give_up(ncclGetErrorString(r));
}
void check(cudaError_t r) {
  if (r != cudaSuccess) give_up(cudaGetErrorString(r));
}

template <class T>
T named(const std::map<std::string, T>& all, const char* name) {
  const auto found = all.find(name);
  if (found == all.end()) give_up(name);
  return found->second;
}

struct type {
  ncclDataType_t nccl;
  std::size_t bytes;
};
const std::map<std::string, type> types = {
    {"f64", {ncclFloat64, 8}},     {"f32", {ncclFloat32, 4}},    {"f16", {ncclFloat16, 2}},
    {"bf16", {ncclBfloat16, 2}},   {"i32", {ncclInt32, 4}},      {"i64", {ncclInt64, 8}},
    {"e4m3", {ncclFloat8e4m3, 1}}, {"e5m2", {ncclFloat8e5m2, 1}}};
const std::map<std::string, ncclRedOp_t> ops = {
    {"sum", ncclSum}, {"prod", ncclProd}, {"min", ncclMin}, {"max", ncclMax}, {"avg", ncclAvg}};

struct rank {
  ncclComm_t comm;
  cudaStream_t stream;
  void* in;
  void* out;
};

struct call {
  std::string name;
  type t;
  ncclRedOp_t op;
};

ncclResult_t make(const call& c, const rank& r, std::size_t bytes, int ranks) {
  const std::size_t count = bytes / c.t.bytes;
  const std::size_t part = count / static_cast<std::size_t>(ranks);
  const auto t = c.t.nccl;
  if (c.name == "all_reduce") return ncclAllReduce(r.out, r.out, count, t, c.op, r.comm, r.stream);
  if (c.name == "reduce") return ncclReduce(r.in, r.out, count, t, c.op, 0, r.comm, r.stream);
  if (c.name == "reduce_scatter") {
    return ncclReduceScatter(r.in, r.out, part, t, c.op, r.comm, r.stream);
  }
  if (c.name == "all_gather") return ncclAllGather(r.in, r.out, part, t, r.comm, r.stream);
  if (c.name == "send_recv") {
    int me = 0;
    check(ncclCommUserRank(r.comm, &me));
    check(ncclSend(r.in, count, t, (me + 1) % ranks, r.comm, r.stream));
    return ncclRecv(r.out, count, t, (me + ranks - 1) % ranks, r.comm, r.stream);
  }
  if (c.name == "broadcast") return ncclBroadcast(r.in, r.out, count, t, 0, r.comm, r.stream);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (c.name == "all_to_all") return ncclAlltoAll(r.in, r.out, part, t, r.comm, r.stream);
  if (c.name == "gather") return ncclGather(r.in, r.out, part, t, 0, r.comm, r.stream);
  if (c.name == "scatter") return ncclScatter(r.in, r.out, part, t, 0, r.comm, r.stream);
#endif
  give_up(c.name.c_str());
}

/// Microseconds of one call on all GPUs.
double batch(const call& c, const std::vector<rank>& all, std::size_t bytes, int rounds) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) {
    check(ncclGroupStart());
    for (const rank& r : all) check(make(c, r, bytes, static_cast<int>(all.size())));
    check(ncclGroupEnd());
  }
  for (const rank& r : all) check(cudaStreamSynchronize(r.stream));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / rounds;
}

std::vector<rank> make_ranks(int gpus, std::size_t longest) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(gpus));
  check(ncclCommInitAll(comms.data(), gpus, nullptr));
  std::vector<rank> all;
  for (int g = 0; g < gpus; ++g) {
    rank r = {comms[static_cast<std::size_t>(g)], nullptr, nullptr, nullptr};
    check(cudaSetDevice(g));
    check(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    check(cudaMalloc(&r.in, longest));
    check(cudaMalloc(&r.out, longest));
    all.push_back(r);
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) give_up("GPUS OP TYPE REDOP BYTES...");
  const call c = {argv[2], named(types, argv[3]), named(ops, argv[4])};
  std::vector<std::size_t> sizes;
  for (int a = 5; a < argc; ++a) sizes.push_back(std::strtoull(argv[a], nullptr, 10));
  const auto all = make_ranks(std::atoi(argv[1]), *std::max_element(sizes.begin(), sizes.end()));
  for (const std::size_t bytes : sizes) {
    const int rounds = bytes <= (1U << 20U) ? 200 : 20;
    (void)batch(c, all, bytes, 5);  // to warm up
    std::vector<double> took;
    for (int b = 0; b < 11; ++b) took.push_back(batch(c, all, bytes, rounds));
    std::sort(took.begin(), took.end());
    std::printf("%zu %.4f\n", bytes, took[took.size() / 2]);
  }
}
