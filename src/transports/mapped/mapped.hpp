// The mapped path: peers' memory in this process's address space, reached by loads and stores.
#pragma once

#include <memory>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/atomic.hpp"
#include "world/members.hpp"

namespace crosswarp::mapped {

/// Some memory of each rank, mapped here as far as it can be. Unmapped by the destructor.
class mapping {
 public:
  virtual ~mapping() = default;
  /// By rank; null where a rank's memory cannot be reached.
  std::vector<std::byte*> base;
  /// What every rank's own memory is aligned to.
  std::size_t alignment = 4096;
  /// That takes in all kernels which can use it.
  device::scope reach = device::scope::system;
  /// How it was done, for people: "same process", "memfd", "CUDA VMM", "CUDA IPC".
  std::string how;
};

struct request {
  world_impl::bootstrap& boot;
  const world_impl::members& who;
  device_ref device;
  memory_kind kind;
  world_impl::nanoseconds timeout;
};

/// New zeroed memory, `bytes` on each rank. Collective.
/// Throws error(out_of_memory) when the machine does not have that much.
std::unique_ptr<mapping> map_new(const request& r, std::size_t bytes);

/// All ranks throw error(not_supported), with this text and its rank, when one has an obstacle;
/// else it is empty. Collective.
void agree_to_share(const request& r, const std::string& obstacle);

/// Memory that the caller already has, of any length on each rank. Collective. The memory stays
/// where it is and must not be written while this runs.
/// Throws error(not_supported) when that kind of memory cannot be shared after the fact.
std::unique_ptr<mapping> map_existing(const request& r, void* p, std::size_t bytes);

}  // namespace crosswarp::mapped
