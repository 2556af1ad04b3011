#include "transports/local/atomic_kernel.hpp"

#include "crosswarp/launch.hpp"

namespace crosswarp::local {

struct update_kernel {
  CW_FN void operator()(const device::kernel_context& /*ctx*/, word_update u) const {
    const std::uint64_t old = update(u);
    if (u.old != nullptr) *u.old = old;
  }
};

void launch_update(stream& on, const word_update& u) {
  launch(on, {}, update_kernel{}, u);
}

}  // namespace crosswarp::local
