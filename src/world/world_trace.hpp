// The trace of a world: one file for all ranks, on rank 0's clock.
#pragma once

#include <memory>
#include <string>

#include "bootstrap.hpp"
#include "trace/recorder.hpp"

namespace crosswarp {
class proxy;
}

namespace crosswarp::world_impl {

class world_trace {
 public:
  /// Null unless CROSSWARP_TRACE names a file. Throws when rank 0 could not write it.
  static std::unique_ptr<world_trace> begin(device_ref d, const bootstrap& boot);
  world_trace(device_ref d, std::string path, std::uint64_t capacity);

  [[nodiscard]] trace::recorder& events() noexcept { return events_; }

  /// Rank 0 writes what all ranks noted. Collective; no kernel runs. Throws as collectives do; a
  /// file that cannot be written is logged and harms nobody.
  void finish(bootstrap& boot, crosswarp::proxy* p, nanoseconds timeout);
  /// Unless it has been finished: the world is broken, and each rank writes a file of its own.
  void finish_alone(int rank, crosswarp::proxy* p) noexcept;

 private:
  trace::recorder::events take(crosswarp::proxy* p);

  device_ref device_;
  std::string path_;
  trace::recorder events_;
  bool finished_ = false;
};

}  // namespace crosswarp::world_impl
