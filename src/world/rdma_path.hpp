// The path `rdma` of a rank: endpoints to all ranks, keys of their memory, and what kernels need of
// both.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/proxy.hpp"
#include "crosswarp/rdma.hpp"
#include "crosswarp/stats.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp::world_impl {

/// Everybody's bytes, by rank; collective.
using meeting = std::function<std::vector<std::vector<std::byte>>(std::vector<std::byte>)>;

class rdma_path {
 public:
  struct setup {
    device_ref device = device_ref::cpu();
    int rank = 0;
    int size = 1;
    int queues = 1;
    bool machines = false;  ///< ranks are on several
    device::wait_limits limits;
    meeting meet;
  };
  /// Collective.
  explicit rdma_path(const setup& s);

  [[nodiscard]] device::proxy_memory memory() const noexcept;
  /// Makes memory reachable, on all ranks by the same number. Collective.
  std::uint16_t add_region(std::byte* base, std::size_t bytes);
  /// No entry speaks of it.
  void remove_region(std::uint16_t id);
  /// Everything that kernels asked for, which have ended, is done.
  void finish(stream& on);
  /// What kernels asked for; exact when they have ended.
  [[nodiscard]] std::vector<operation_stats> stats() const;
  void reset_stats();
  /// Of the adapter.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  static constexpr std::size_t landings = 256;
  struct region {
    bool used = false;
    std::unique_ptr<rdma::memory_region> memory;  // null: no bytes
  };
  void connect(const setup& s);
  void write_parts(std::uint16_t id, const std::vector<device::rdma_part>& all);

  device_ref device_;
  int size_;
  int queues_;
  meeting meet_;
  rdma::device_context adapter_;
  std::string name_;
  std::vector<rdma::endpoint> endpoints_;  // queues x ranks
  std::vector<region> regions_;
  buffer<device::rdma_landing> landings_;
  rdma::memory_region landing_region_;
  rdma::memory_region everything_;
  buffer<device::rdma_part> parts_;
  buffer<device::rdma_way_state> states_;
  buffer<device::rdma_counts> counts_;  // queues x calls
  buffer<device::rdma_way> ways_;
  buffer<device::rdma_path> view_;
};

/// Waits until all that was asked of these queues is done, by a kernel of one thread.
void launch_quiet(stream& on, const device::proxy& queues);

}  // namespace crosswarp::world_impl
