// In place of the CUDA backend in a build without it.
#include "../backends.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::exec::cuda {

namespace {
[[noreturn]] void refuse() {
  throw error(errc::not_supported, "cuda", absence_reason());
}
}  // namespace

backend& instance() {
  refuse();
}
int device_count() noexcept {
  return 0;
}
std::string absence_reason() {
  return "this build has no CUDA (CROSSWARP_CUDA=OFF or no nvcc)";
}
std::vector<device_info> list() {
  return {};
}
void pin(device_ref /*d*/, void* /*p*/, std::size_t /*bytes*/) {
  refuse();
}
void unpin(void* /*p*/) noexcept {}
dmabuf export_dmabuf(device_ref /*d*/, const void* /*p*/, std::size_t /*bytes*/) {
  refuse();
}
std::uint64_t* map_doorbell(device_ref /*d*/, void* /*page*/, std::size_t /*bytes*/,
                            std::size_t /*offset*/) {
  refuse();
}

}  // namespace crosswarp::exec::cuda
