#include "coll/reductions.hpp"

namespace crosswarp::coll_impl {

void queue_f16(stream& on, const launch_shape& shape, const call& c) {
  queue_reduction<device::half>(on, shape, c);
}

}  // namespace crosswarp::coll_impl
