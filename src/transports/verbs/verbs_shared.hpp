// Receives of an ibverbs device that its queue pairs share: forwards those that kernels post.
//
// Used by one thread at a time.
#pragma once

#include "transports/verbs/entry.hpp"
#include "transports/verbs/nic_queues.hpp"
#include "transports/verbs/verbs_context.hpp"

namespace crosswarp::verbs {

/// A kernel's receive as the device takes it; `id` comes back with its completion.
struct device_receive {
  device_receive(std::uint64_t id, const receive_entry& e) noexcept;
  device_receive(const device_receive&) = delete;
  device_receive& operator=(const device_receive&) = delete;
  std::array<ibv_sge, receive_entry::most_pieces> pieces;
  ibv_recv_wr request{};
};

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
  std::uint32_t most_pieces_ = 0;
  owned<ibv_srq> queue_;
  std::uint64_t forwarded_ = 0;
  std::uint32_t place_ = 0;  ///< of the next
};

}  // namespace crosswarp::verbs
