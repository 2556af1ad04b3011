// What every backend of rdma does: devices, memory, queue pairs. The queues themselves are made by
// src/rdma, in memory that kernels and the backend reach.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crosswarp/rdma.hpp"

namespace crosswarp::verbs {

using rdma::access;
using rdma::endpoint_address;
using rdma::endpoint_state;

/// Memory that kernels of `device` use; `on_host` when the host may follow addresses in it. Without
/// a base: all memory there is; error(not_supported) where an adapter has no key for that.
struct memory_range {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  device_ref device = device_ref::cpu();
  bool on_host = true;
};

/// Receives that queue pairs share; no longer when it is destroyed, after all of them.
class shared_receives {
 public:
  virtual ~shared_receives() = default;
};

struct shared_setup {
  device_ref kernels = device_ref::cpu();
  /// Its places are linked to a ring.
  device::rdma::mlx5_provider::shared_queue queue;
  std::uint32_t depth = 0;
  int sge = 1;  ///< that were asked for
};

struct qp_setup {
  device_ref kernels = device_ref::cpu();
  /// All but qpn and doorbell. The send queue lies right behind the receive queue: adapters want it
  /// so.
  device::rdma::mlx5_provider::queues queues;
  std::uint32_t send_depth = 0;
  std::uint32_t receive_depth = 0;  ///< 0: receives are shared
  /// Made by the same adapter; null: none.
  shared_receives* shared = nullptr;
  device::rdma::endpoint_events* events = nullptr;
  rdma::endpoint_options options;
};

/// Registered memory; no longer when it is destroyed.
class registered {
 public:
  virtual ~registered() = default;
  [[nodiscard]] virtual std::uint32_t lkey() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t rkey() const noexcept = 0;
};

/// A queue pair; its queues are not touched any more when it is destroyed.
class queue_pair {
 public:
  virtual ~queue_pair() = default;
  [[nodiscard]] virtual std::uint32_t qpn() const noexcept = 0;
  /// Where kernels ring, mapped for them.
  [[nodiscard]] virtual std::uint64_t* doorbell() const noexcept = 0;
  [[nodiscard]] virtual endpoint_address address() const noexcept = 0;
  /// What is to be called after a ring, by kernels on CPU threads; null: nothing.
  [[nodiscard]] virtual nic_call* nic() const noexcept { return nullptr; }
  virtual void connect(const endpoint_address& peer) = 0;
  [[nodiscard]] virtual endpoint_state state() = 0;
};

/// A device. Members may be called by any thread.
class adapter {
 public:
  virtual ~adapter() = default;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual int ports() const noexcept = 0;
  [[nodiscard]] virtual bool is_active(int port) = 0;
  /// After how long a request is sent again when the options do not say.
  [[nodiscard]] virtual std::chrono::nanoseconds retry_after() const noexcept {
    return std::chrono::microseconds(100);
  }
  virtual std::unique_ptr<registered> register_memory(const memory_range& m, access allowed) = 0;
  virtual std::unique_ptr<queue_pair> make_queue_pair(const qp_setup& s) = 0;
  virtual std::unique_ptr<shared_receives> make_shared_receives(const shared_setup& s) = 0;
  /// Throws error(not_supported) where cables are real.
  virtual void set_link(bool up) = 0;
};

/// All devices of a backend.
class fabric {
 public:
  virtual ~fabric() = default;
  [[nodiscard]] virtual std::vector<std::shared_ptr<adapter>> adapters() = 0;
};

/// The soft NIC's, one for all who ask at a time.
std::shared_ptr<fabric> soft_fabric(const rdma::soft_options& o);
/// ibverbs devices. Throws error(not_supported) that says what to install.
std::shared_ptr<fabric> verbs_fabric();
/// mlx5 adapters whose queues kernels drive. Throws as above.
std::shared_ptr<fabric> mlx5_fabric();

/// For a fabric that is no backend's own: devices of it behave as its author wants.
rdma::context context_over(std::shared_ptr<fabric> f);

}  // namespace crosswarp::verbs
