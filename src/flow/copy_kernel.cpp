#include "flow/copy_kernel.hpp"

#include <algorithm>

#include "crosswarp/device/memory.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::flow::impl {
namespace {

struct copy_bytes {
  CW_FN void operator()(const device::kernel_context& ctx, void* dst, const void* src,
                        std::size_t bytes) const {
    device::copy_part(ctx, dst, src, bytes);
  }
};

}  // namespace

void queue_copy(stream& s, void* dst, const void* src, std::size_t bytes) {
  if (s.device().kind() == device_kind::cpu) {
    launch(s, {}, copy_bytes{}, dst, src, bytes);
    return;
  }
  constexpr std::size_t per_block = 128U << 10U;  // see copy_part()
  const auto blocks = std::clamp<std::size_t>((bytes + per_block - 1) / per_block, 1, 32);
  launch(s, {.blocks = static_cast<int>(blocks), .threads = 512}, copy_bytes{}, dst, src, bytes);
}

}  // namespace crosswarp::flow::impl
