// The driver's own interface: looked up, not linked, so that the library loads without it.
#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "crosswarp/error.hpp"
#include "exec/cuda/cuda.hpp"

namespace crosswarp::exec::cuda {

/// Throws error(not_supported) when this driver does not have it.
template <class Function>
Function driver(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess) {
    throw error(errc::not_supported, name, "this driver does not have it");
  }
  return reinterpret_cast<Function>(found);
}

}  // namespace crosswarp::exec::cuda
