#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_i64(stream& on, const launch_shape& shape, const call& c) {
  queue_reduction<std::int64_t>(on, shape, c);
}

}  // namespace crosswarp::coll_impl
