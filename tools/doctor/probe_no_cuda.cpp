// In place of probe_cuda.cpp in a build without CUDA.
#include <fstream>

#include "probe.hpp"

namespace crosswarp::tool::doctor_impl {

cuda_facts probe_cuda() {
  cuda_facts f;
  std::ifstream file("/proc/driver/nvidia/version");
  std::getline(file, f.driver_file);
  return f;
}

}  // namespace crosswarp::tool::doctor_impl
