// In place of cuda_share.cpp in a build without CUDA.
#include "crosswarp/error.hpp"
#include "cuda_share.hpp"

namespace crosswarp::mapped {
namespace {
[[noreturn]] void refuse() {
  throw error(errc::not_supported, "symmetric heap", cuda_absence_reason());
}
}  // namespace

std::unique_ptr<mapping> share_new_on_gpu(const request& /*r*/, std::size_t /*bytes*/) {
  refuse();
}
std::unique_ptr<mapping> share_existing_on_gpu(const request& /*r*/, void* /*p*/,
                                               std::size_t /*bytes*/) {
  refuse();
}

std::string gpu_obstacle(const request& /*r*/, const void* /*p*/, std::size_t /*bytes*/) {
  refuse();
}

}  // namespace crosswarp::mapped
