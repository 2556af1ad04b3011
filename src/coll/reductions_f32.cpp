#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_f32(stream& on, const launch_shape& shape, const call& c) {
  queue_reduction<float>(on, shape, c);
}

}  // namespace crosswarp::coll_impl
