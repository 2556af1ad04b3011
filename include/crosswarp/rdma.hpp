// RDMA on the host: devices, endpoints and registered memory. What kernels do with them is in
// device/rdma.hpp.
//
//   rdma::context all;                                        // the soft NIC
//   const auto ports = rdma::active_ports(all.devices());
//   rdma::device_context d = ports.at(0).on.open();           // for kernels on CPU threads
//   rdma::endpoint a = d.make_endpoint();
//   a.connect(b.address());                                   // plain bytes, from anywhere
//   rdma::memory_region r = d.register_memory(p, bytes, rdma::access::remote_write);
//   launch(stream, {}, kernel{}, a.device(), r.device(), ...);
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "crosswarp/device/rdma.hpp"
#include "crosswarp/device/rdma_shared.hpp"
#include "crosswarp/device_ref.hpp"

namespace crosswarp::rdma {
class context;
}
namespace crosswarp::verbs {
class adapter;
class fabric;
rdma::context context_over(std::shared_ptr<fabric> f);
}  // namespace crosswarp::verbs

namespace crosswarp::rdma {

/// What stands behind the queues that kernels fill.
enum class backend {
  soft,   ///< a thread of this process that carries out what it finds in them; needs no hardware
  verbs,  ///< a thread of this process that hands it to any ibverbs device (RoCE, InfiniBand)
  mlx5,   ///< an mlx5 adapter, and no thread (libmlx5); not yet run on hardware
};

/// How many soft devices there are, whom they reach, and what they do to find faults in their
/// users, from a seed. All contexts of a process that live at a time ask for the same.
struct soft_options {
  int devices = 1;
  /// Other processes may be on other machines, and are reached by UCX. Else they are on this one,
  /// and reached by sockets. All ends agree in it; see CROSSWARP_RDMA_WIRE, too.
  bool machines = false;
  std::uint64_t seed = 0;
  /// Each entry is carried out up to so long after the doorbell; its source is read only then. What
  /// a read or an atomic brings is here up to so long after that.
  std::chrono::nanoseconds delay{0};
  /// Endpoints are served in no order, some entries at a time.
  bool shuffle = false;
  /// How many of 1000 requests get lost on their way, and are sent again.
  int lost = 0;
  /// How many of 1000 sends find that the receiver is not ready, though it is.
  int not_ready = 0;
  friend bool operator==(const soft_options&, const soft_options&) = default;
};

/// What peers may do with registered memory. This side may always read it.
enum class access : unsigned {
  none = 0,
  local_write = 1,  ///< results of reads and atomics, and receives, may go there
  remote_write = 2,
  remote_read = 4,
  remote_atomic = 8,
  all = 15,
};
constexpr access operator|(access a, access b) noexcept {
  return static_cast<access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// Whether `have` holds all of `want`.
constexpr bool allows(access have, access want) noexcept {
  return (static_cast<unsigned>(have) & static_cast<unsigned>(want)) == static_cast<unsigned>(want);
}

class shared_receive_queue;

struct endpoint_options {
  int port = 1;
  /// Blocks of 64 bytes that the send queue holds, and entries of the receive queue: powers of two,
  /// from 4 to 32768. Most entries take one block.
  int send_depth = 256;
  int receive_depth = 256;
  /// Completions that the send queue's completion queue holds, a power of two; 0: enough.
  int completions = 0;
  /// One place for all completions of the send queue, which shows the last one.
  bool collapsed = false;
  /// Data that may travel in an entry, up to 512 bytes.
  int inline_bytes = 60;
  /// Pieces of local memory in one entry, and in one receive, from 1 to 16.
  int sge = 1;
  /// Receives are taken from there, and not from a queue of its own: receive_depth is not used.
  /// Of the same device_context; it may end before the endpoint does.
  const shared_receive_queue* receives = nullptr;
  /// Which of the port's addresses is this end's; -1: chosen, RoCE v2 by IPv4 where there is one.
  /// Soft devices have none.
  int gid_index = -1;
  /// How often a request is sent again that was not answered, and after how long; 0: as it suits
  /// the device, 100 us for soft ones and 67 ms for others.
  int retries = 7;
  std::chrono::nanoseconds retry_after{0};
  /// The same for a receiver that had no receive posted: no number is for ever.
  int not_ready_retries = 7;
  std::chrono::nanoseconds not_ready_after = std::chrono::microseconds(100);
};

/// Where an endpoint is; plain bytes that may be sent anywhere, e.g. by world::allgather().
struct endpoint_address {
  std::uint64_t fabric = 0;
  std::uint32_t device = 0;
  std::uint32_t qpn = 0;
  // Of ibverbs devices.
  std::uint32_t first_number = 0;  ///< of the first packet
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  ///< as verbs count them: 1 is 256 bytes, 5 is 4096
  std::array<std::uint8_t, 16> gid{};
  /// How the backend's network finds it.
  std::uint32_t route_bytes = 0;
  std::array<std::byte, 500> route = {};
};

enum class endpoint_state {
  made,    ///< not connected
  ready,   ///< carries out what is posted
  failed,  ///< an entry failed; all others are flushed. Reset it, or make another one.
};
const char* to_string(endpoint_state s) noexcept;

/// A queue pair with its completion queues.
class endpoint {
 public:
  ~endpoint();
  endpoint(endpoint&&) noexcept;
  endpoint& operator=(endpoint&&) = delete;

  [[nodiscard]] std::uint32_t qpn() const noexcept;
  [[nodiscard]] endpoint_address address() const noexcept;
  /// Both ends connect to each other; before the first post, and once.
  /// Throws error(invalid_argument), error(not_supported) when nothing leads there.
  void connect(const endpoint_address& peer);
  [[nodiscard]] endpoint_state state() const;
  /// Makes it anew, whatever its state: its queues are empty, and it is not connected. It has
  /// another number and address, so its peer has to reset and connect, too. No kernel uses it, and
  /// what device() gave before is of no more use. When it throws, the endpoint has failed, posts
  /// to it are `aborted`, and it may be reset again.
  void reset();

  /// For kernels on the device of its context, by value; valid while this lives. `limits` end its
  /// waits: a world's, or by default 30 s.
  [[nodiscard]] device::rdma::endpoint device(
      const device::wait_limits& limits = {}) const noexcept;

 private:
  friend class device_context;
  struct state_type;
  explicit endpoint(std::unique_ptr<state_type> s) noexcept;
  std::unique_ptr<state_type> state_;
};

struct shared_receive_queue_options {
  int depth = 256;  ///< receives that it holds: a power of two, from 4 to 32768
  int sge = 1;      ///< pieces of memory in one receive, from 1 to 16
};

/// Receives for several endpoints, see endpoint_options::receives.
class shared_receive_queue {
 public:
  ~shared_receive_queue();
  shared_receive_queue(shared_receive_queue&&) noexcept;
  shared_receive_queue& operator=(shared_receive_queue&&) = delete;

  /// For kernels on the device of its context, by value; valid while this lives.
  [[nodiscard]] device::rdma::shared_receive_queue device(
      const device::wait_limits& limits = {}) const noexcept;

 private:
  friend class device_context;
  struct state_type;
  friend class endpoint;
  explicit shared_receive_queue(std::shared_ptr<state_type> s) noexcept;
  std::shared_ptr<state_type> state_;
};

/// Memory that endpoints of its context may use. The memory has to outlive it; nobody may use it
/// once it is gone.
class memory_region {
 public:
  ~memory_region();
  memory_region(memory_region&&) noexcept;
  memory_region& operator=(memory_region&&) = delete;

  /// For kernels and for peers, by value; plain bytes that may be sent anywhere.
  [[nodiscard]] device::rdma::region device() const noexcept { return region_; }

 private:
  friend class device_context;
  struct state_type;
  memory_region(std::unique_ptr<state_type> s, const device::rdma::region& as) noexcept;
  std::unique_ptr<state_type> state_;
  device::rdma::region region_;
};

/// A device that was opened for kernels of one processor. What it makes may outlive it.
class device_context {
 public:
  /// Throws error(invalid_argument) for options out of range.
  [[nodiscard]] endpoint make_endpoint(const endpoint_options& options = {}) const;
  /// Throws error(invalid_argument) for options out of range.
  [[nodiscard]] shared_receive_queue make_shared_receive_queue(
      const shared_receive_queue_options& options = {}) const;
  /// Memory of crosswarp::buffer, or any of the host's for kernels on CPU threads.
  /// Throws error(invalid_argument) for no memory.
  [[nodiscard]] memory_region register_memory(void* p, std::size_t bytes, access allowed) const;
  /// All memory that kernels use here, for this side's own part in entries: sources, and where
  /// results go. Throws error(not_supported) where an adapter has no such keys.
  [[nodiscard]] memory_region register_everything() const;

 private:
  friend class adapter;
  device_context(std::shared_ptr<verbs::adapter> a, std::shared_ptr<verbs::fabric> f,
                 device_ref kernels) noexcept
      : adapter_(std::move(a)), fabric_(std::move(f)), kernels_(kernels) {}
  std::shared_ptr<verbs::adapter> adapter_;
  std::shared_ptr<verbs::fabric> fabric_;
  device_ref kernels_;
};

/// A device of a backend, open or not.
class adapter {
 public:
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] int ports() const noexcept;
  [[nodiscard]] bool is_active(int port) const;
  /// For kernels that run there.
  [[nodiscard]] device_context open(device_ref kernels = device_ref::cpu()) const;
  /// Pulls the cable of a soft device, or plugs it in again: requests from and to it get lost.
  void set_link(bool up) const;

 private:
  friend class context;
  adapter(std::shared_ptr<verbs::adapter> a, std::shared_ptr<verbs::fabric> f) noexcept
      : adapter_(std::move(a)), fabric_(std::move(f)) {}
  std::shared_ptr<verbs::adapter> adapter_;
  std::shared_ptr<verbs::fabric> fabric_;
};
using device_list = std::vector<adapter>;

/// A port that is up.
struct active_port {
  adapter on;
  int port = 1;
};
/// Empty where no port of a device is up: `crosswarp doctor` says what is missing.
[[nodiscard]] std::vector<active_port> active_ports(const device_list& devices);

/// The way to a backend's devices.
class context {
 public:
  /// Throws error(invalid_argument) when a context of this process lives that has other options,
  /// error(not_supported) that says what to install when the backend's library is missing.
  explicit context(backend b = backend::soft, const soft_options& soft = {});
  [[nodiscard]] device_list devices() const;

 private:
  friend context verbs::context_over(std::shared_ptr<verbs::fabric> f);
  explicit context(std::shared_ptr<verbs::fabric> f) noexcept : fabric_(std::move(f)) {}
  std::shared_ptr<verbs::fabric> fabric_;
};

}  // namespace crosswarp::rdma
