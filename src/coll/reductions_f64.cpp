#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_f64(stream& on, const launch_shape& shape, const call& c) {
  queue_reduction<double>(on, shape, c);
}

}  // namespace crosswarp::coll_impl
