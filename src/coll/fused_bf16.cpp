#include "coll/fused.hpp"

namespace crosswarp::coll_impl {

template void queue_fused(stream& on, const launch_shape& shape,
                          const fused_call<device::bfloat16>& c);

}  // namespace crosswarp::coll_impl
