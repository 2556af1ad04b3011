#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_f64(stream& on, const launch_shape& shape, reduction_kind kind, const call& c) {
  queue_reduction<double>(on, shape, kind, c);
}

}  // namespace crosswarp::coll_impl
