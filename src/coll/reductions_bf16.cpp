#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_bf16(stream& on, const launch_shape& shape, const call& c) {
  queue_reduction<device::bfloat16>(on, shape, c);
}

}  // namespace crosswarp::coll_impl
