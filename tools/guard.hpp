// A process that outlives a killed launcher just long enough to end its ranks.
#pragma once

#include <sys/types.h>

#include "world/socket.hpp"

namespace crosswarp::tool {

/// Started before anything else. When this process ends without having said that a rank has ended,
/// the guard kills that rank's process group.
class guard {
 public:
  guard();
  ~guard();
  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;

  void started(pid_t group);
  void ended(pid_t group);

 private:
  world_impl::descriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace crosswarp::tool
