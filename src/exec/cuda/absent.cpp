// In place of the CUDA backend in a build without it.
#include "../backends.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::exec::cuda {

backend& instance() {
  throw error(errc::not_supported, "cuda", absence_reason());
}
int device_count() noexcept { return 0; }
std::string absence_reason() { return "this build has no CUDA (CROSSWARP_CUDA=OFF or no nvcc)"; }
std::vector<device_info> list() { return {}; }

}  // namespace crosswarp::exec::cuda
