// GPU memory between processes.
#pragma once

#include <memory>

#include "mapped.hpp"

namespace crosswarp::mapped {

/// New memory on the request's GPU, mapped between processes by descriptors (VMM), or by CUDA IPC
/// handles where the driver cannot export descriptors.
std::unique_ptr<mapping> share_new_on_gpu(const request& r, std::size_t bytes);
/// Memory from cudaMalloc, by CUDA IPC handles.
std::unique_ptr<mapping> share_existing_on_gpu(const request& r, void* p, std::size_t bytes);
/// Why that memory cannot be shared among the request's ranks; empty when it can.
std::string gpu_obstacle(const request& r, const void* p, std::size_t bytes);

}  // namespace crosswarp::mapped
