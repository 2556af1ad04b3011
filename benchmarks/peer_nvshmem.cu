// The SHMEM figures of NVSHMEM, on the GPU that a run measures ours on: one process per PE, started
// by `crosswarp run -n N`. They meet by a file, whose name is the argument. PE 0 prints lines
// "name value".
#include <nvshmem.h>
#include <nvshmemx.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

__global__ void ping_pong(char* box, const char* own, std::size_t bytes, std::uint64_t* flag,
                          std::uint64_t first, int rounds, long long* took) {
  const int me = nvshmem_my_pe();
  if (me > 1) return;
  unsigned long long begin = 0;
  unsigned long long end = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  for (int i = 1; i <= rounds; ++i) {
    const std::uint64_t n = first + static_cast<std::uint64_t>(i);
    if (me == 1) {
      if (threadIdx.x == 0) nvshmem_signal_wait_until(flag, NVSHMEM_CMP_GE, n);
      __syncthreads();
    }
    nvshmemx_putmem_signal_block(box, own, bytes, flag, n, NVSHMEM_SIGNAL_SET, 1 - me);
    if (me == 0) {
      if (threadIdx.x == 0) nvshmem_signal_wait_until(flag, NVSHMEM_CMP_GE, n);
      __syncthreads();
    }
  }
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
  if (threadIdx.x == 0) *took = static_cast<long long>(end - begin);
}

__global__ void barriers(int rounds, long long* took) {
  unsigned long long begin = 0;
  unsigned long long end = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  for (int i = 0; i < rounds; ++i) nvshmemx_barrier_all_block();
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
  if (threadIdx.x == 0) *took = static_cast<long long>(end - begin);
}

__global__ void stream_out(char* box, const char* own, std::size_t bytes) {
  constexpr std::size_t piece = 128 * 1024;
  for (std::size_t at = piece * blockIdx.x; at < bytes; at += piece * gridDim.x) {
    nvshmemx_putmem_nbi_block(box + at, own + at, bytes - at < piece ? bytes - at : piece, 1);
  }
  nvshmem_quiet();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// From PE 0 to all.
bool exchange(nvshmemx_uniqueid_t& id, int rank, const std::string& file) {
  if (rank == 0) {
    nvshmemx_get_uniqueid(&id);
    FILE* const out = std::fopen((file + ".new").c_str(), "wb");
    if (out == nullptr) return false;
    const bool written = std::fwrite(&id, sizeof(id), 1, out) == 1;
    return std::fclose(out) == 0 && written &&
           std::rename((file + ".new").c_str(), file.c_str()) == 0;
  }
  for (int i = 0; i < 1000; ++i) {
    if (FILE* const in = std::fopen(file.c_str(), "rb")) {
      const bool got = std::fread(&id, sizeof(id), 1, in) == 1;
      std::fclose(in);
      return got;
    }
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

int number_from(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = number_from("CROSSWARP_RANK");
  const int size = number_from("CROSSWARP_SIZE");
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  if (argc != 2 || size < 2 || !exchange(id, rank, argv[1])) return 2;
  cudaSetDevice(0);
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_set_attr_uniqueid_args(rank, size, &id, &attr);
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) != 0) return 1;

  constexpr std::size_t largest = 64U << 20U;
  auto* const box = static_cast<char*>(nvshmem_malloc(largest));
  auto* const own = static_cast<char*>(nvshmem_malloc(largest));
  auto* const flags = static_cast<std::uint64_t*>(nvshmem_calloc(16, sizeof(std::uint64_t)));
  long long* took = nullptr;
  cudaHostAlloc(&took, sizeof(*took), cudaHostAllocMapped);
  const bool first = rank == 0;

  const auto measure = [&](int rounds, auto&& launch) {
    std::vector<double> all;
    for (int i = 0; i < 11; ++i) {
      nvshmem_barrier_all();
      launch(i);
      cudaDeviceSynchronize();
      all.push_back(static_cast<double>(*took) / rounds * 1e-3);
    }
    return median(all);
  };
  if (size == 2) {
    int which = 0;
    for (const std::size_t bytes : {8UL, 1024UL, 8192UL, 65536UL, 1UL << 20U}) {
      const int rounds = bytes >= 65536 ? 200 : 1000;
      const int threads = bytes >= 32768 ? 512 : bytes >= 2048 ? 256 : 32;
      std::uint64_t* const flag = flags + which++;
      const double us = measure(rounds, [&](int i) {
        ping_pong<<<1, threads>>>(box, own, bytes, flag,
                                  static_cast<std::uint64_t>(i) * static_cast<unsigned>(rounds),
                                  rounds, took);
      });
      if (first) std::printf("put_signal_%zu %f\n", bytes, us / 2);
    }
    std::vector<double> rates;
    for (int i = 0; i < 11; ++i) {
      nvshmem_barrier_all();
      if (first) {
        cudaEvent_t begin;
        cudaEvent_t end;
        cudaEventCreate(&begin);
        cudaEventCreate(&end);
        cudaEventRecord(begin);
        for (int k = 0; k < 10; ++k) stream_out<<<264, 512>>>(box, own, largest);
        cudaEventRecord(end);
        cudaDeviceSynchronize();
        float ms = 0;
        cudaEventElapsedTime(&ms, begin, end);
        rates.push_back(10.0 * static_cast<double>(largest) / ms * 1e-6);
      }
      nvshmem_barrier_all();
    }
    if (first) std::printf("bandwidth %f\n", median(rates));
  }
  const double us = measure(1000, [&](int) {
    void* args[] = {nullptr, &took};
    int rounds = 1000;
    args[0] = &rounds;
    nvshmemx_collective_launch(reinterpret_cast<const void*>(barriers), 1, 32, args, 0, nullptr);
  });
  if (first) std::printf("barrier_%d %f\n", size, us);
  nvshmem_free(box);
  nvshmem_free(own);
  nvshmem_free(flags);
  nvshmem_finalize();
  return 0;
}
