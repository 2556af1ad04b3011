// GPUs, as the CUDA runtime shows them.
#include <cuda_runtime_api.h>

#include <fstream>

#include "probe.hpp"

namespace crosswarp::tool::doctor_impl {

cuda_facts probe_cuda() {
  cuda_facts f;
  f.built = true;
  f.built_for = CROSSWARP_CUDA_ARCHITECTURES;
  std::ifstream file("/proc/driver/nvidia/version");
  std::getline(file, f.driver_file);
  (void)cudaRuntimeGetVersion(&f.runtime);
  if (cudaDriverGetVersion(&f.driver) != cudaSuccess) f.driver = 0;
  if (f.driver == 0) return f;
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) {
    f.no_device_reason = e == cudaSuccess ? "none is visible" : cudaGetErrorString(e);
    return f;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    f.gpus.push_back({p.name, 10 * p.major + p.minor});
    for (int other = 0; other < i; ++other) {
      int there = 0;
      int back = 0;
      (void)cudaDeviceCanAccessPeer(&there, i, other);
      (void)cudaDeviceCanAccessPeer(&back, other, i);
      if (there == 0 || back == 0) f.without_peer_access.emplace_back(other, i);
    }
  }
  return f;
}

}  // namespace crosswarp::tool::doctor_impl
