#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_i32(stream& on, const launch_shape& shape, reduction_kind kind, const call& c) {
  queue_reduction<std::int32_t>(on, shape, kind, c);
}

}  // namespace crosswarp::coll_impl
