#include "kept_memory.hpp"

#include <cuda_runtime_api.h>

#include <bit>
#include <cstring>

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "cuda.hpp"

namespace crosswarp::exec::cuda {
namespace {

/// Larger blocks are freed: they are few, and memory is not endless.
constexpr std::size_t largest_kept = 1U << 20U;
constexpr std::size_t smallest = 256;

cudaError_t allocate_new(void** p, memory_kind kind, std::size_t bytes) {
  return kind == memory_kind::pinned
             ? cudaHostAlloc(p, bytes, cudaHostAllocMapped | cudaHostAllocPortable)
             : cudaMalloc(p, bytes);
}

void free_now(memory_kind kind, void* p) noexcept {
  kind == memory_kind::pinned ? cudaFreeHost(p) : cudaFree(p);
}

/// By a stream that waits for no other.
void clear(memory_kind kind, void* p, std::size_t bytes) {
  if (kind == memory_kind::pinned) {
    std::memset(p, 0, bytes);
    return;
  }
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const cudaError_t cleared = cudaMemsetAsync(p, 0, bytes, stream);
  const cudaError_t done = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check(cleared, "cudaMemsetAsync");
  check(done, "cudaStreamSynchronize");
}

}  // namespace

kept_memory& kept_memory::instance() {
  static auto* const one = new kept_memory;  // outlives every buffer
  return *one;
}

void* kept_memory::take(const shape& s) {
  const std::scoped_lock lock(mutex_);
  auto& free = free_[s];
  void* p = nullptr;
  if (!free.empty()) {
    p = free.back();
    free.pop_back();
  }
  return p;
}

void kept_memory::free_all() noexcept {
  const std::scoped_lock lock(mutex_);
  for (auto& [s, blocks] : free_) {
    for (void* p : blocks) free_now(s.kind, p);
    blocks.clear();
  }
}

void* kept_memory::allocate(device_ref d, memory_kind kind, std::size_t bytes) {
  const bool keep = bytes <= largest_kept;
  const shape s{d.ordinal(), kind, keep ? std::bit_ceil(std::max(bytes, smallest)) : bytes};
  void* p = keep ? take(s) : nullptr;
  if (p == nullptr) {
    cudaError_t e = allocate_new(&p, kind, s.bytes);
    if (e == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      free_all();
      e = allocate_new(&p, kind, s.bytes);
    }
    if (e == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw error(errc::out_of_memory, "buffer",
                  options::print_bytes(bytes) +
                      (kind == memory_kind::pinned ? " of pinned memory" : " on " + d.name()));
    }
    check(e, "cudaMalloc");
  }
  try {
    clear(kind, p, s.bytes);
    if (keep) {
      const std::scoped_lock lock(mutex_);
      lent_.emplace(p, s);
    }
  } catch (...) {
    free_now(kind, p);
    throw;
  }
  return p;
}

void kept_memory::release(device_ref d, memory_kind kind, void* p) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto i = lent_.find(p); i != lent_.end()) {
      const shape s = i->second;
      lent_.erase(i);
      try {
        free_[s].push_back(p);
        return;
      } catch (const std::bad_alloc&) {
        // Then it is freed.
      }
    }
  }
  try {
    const device_scope here(d.ordinal());
    free_now(kind, p);
  } catch (const error&) {
    // The device is gone, and its memory with it.
  }
}

}  // namespace crosswarp::exec::cuda
