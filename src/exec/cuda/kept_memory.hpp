// Memory of GPUs, and pinned memory, which is kept when it is released.
//
// CUDA's own functions wait for all kernels of the device when memory is freed. A kernel that waits
// for another rank would wait for ever when that rank, on the same GPU, frees a buffer. So small
// blocks stay with the process, for the next who wants one of that size.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "crosswarp/buffer.hpp"

namespace crosswarp::exec::cuda {

class kept_memory {
 public:
  static kept_memory& instance();

  /// Zeroed. Throws error(out_of_memory).
  void* allocate(device_ref d, memory_kind kind, std::size_t bytes);
  void release(device_ref d, memory_kind kind, void* p) noexcept;

 private:
  struct shape {
    int device;
    memory_kind kind;
    std::size_t bytes;
    auto operator<=>(const shape&) const = default;
  };
  void* take(const shape& s);
  void free_all() noexcept;

  std::mutex mutex_;
  std::map<shape, std::vector<void*>> free_;
  std::unordered_map<void*, shape> lent_;  // those that will be kept
};

}  // namespace crosswarp::exec::cuda
