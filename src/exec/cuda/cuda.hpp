// What the library's own CUDA code shares.
#pragma once

#include "crosswarp/launch.hpp"

namespace crosswarp::exec::cuda {

/// The calling thread's current device, for a while.
class device_scope {
 public:
  explicit device_scope(int ordinal);
  ~device_scope();
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace crosswarp::exec::cuda
