// Receives of an ibverbs device that its queue pairs share: forwards those that kernels post.
//
// Used by one thread at a time.
#pragma once

#include "transports/verbs/nic_queues.hpp"
#include "transports/verbs/verbs_context.hpp"

namespace crosswarp::verbs {

class verbs_shared {
 public:
  /// Throws error(system), error(invalid_argument) for more than the device has.
  verbs_shared(std::shared_ptr<verbs_context> c, const shared_setup& s);

  [[nodiscard]] ibv_srq* queue() const noexcept { return queue_.get(); }
  [[nodiscard]] std::uint32_t depth() const noexcept { return setup_.depth; }
  /// Gives the device what was posted; false when there was nothing.
  bool step();

 private:
  std::shared_ptr<verbs_context> context_;
  shared_setup setup_;
  owned<ibv_srq> queue_;
  std::uint64_t forwarded_ = 0;
  std::uint32_t place_ = 0;  ///< of the next
};

}  // namespace crosswarp::verbs
