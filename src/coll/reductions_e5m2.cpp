#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_e5m2(stream& on, const launch_shape& shape, const call& c) {
  queue_reduction<device::fp8_e5m2>(on, shape, c);
}

}  // namespace crosswarp::coll_impl
