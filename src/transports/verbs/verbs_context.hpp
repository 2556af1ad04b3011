// An opened ibverbs device: its ports and their addresses, and its memory.
#pragma once

#include "transports/verbs/backend.hpp"
#include "transports/verbs/ibverbs.hpp"

namespace crosswarp::verbs {

class verbs_context {
 public:
  /// Throws error(system).
  verbs_context(const ibverbs& l, ibv_device* d);

  const ibverbs& library;
  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* domain() const noexcept { return domain_.get(); }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept { return limits_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Throws error(system).
  [[nodiscard]] ibv_port_attr port(int number) const;
  /// Which entry of a port's table of addresses to use: the wish, or, when that is negative, the
  /// one that leads farthest: RoCE v2 by IPv4, then RoCE v2, then the first.
  /// Throws error(invalid_argument) when there is none.
  [[nodiscard]] int gid_index(int port, int wish) const;
  [[nodiscard]] ibv_gid gid(int port, int index) const;

  /// Throws error(not_supported) for memory of a GPU that the device cannot reach.
  [[nodiscard]] owned<ibv_mr> register_memory(const memory_range& m, access allowed) const;

 private:
  std::string name_;
  owned<ibv_context> context_;
  owned<ibv_pd> domain_;
  ibv_device_attr limits_{};
};

/// All devices that open; those that do not are logged.
std::vector<std::shared_ptr<verbs_context>> open_all(const ibverbs& library);

/// What a device made for a range; it is no longer registered when this is destroyed.
class verbs_registered final : public registered {
 public:
  verbs_registered(std::shared_ptr<verbs_context> c, const memory_range& m, access allowed)
      : context_(std::move(c)), region_(context_->register_memory(m, allowed)) {}
  [[nodiscard]] std::uint32_t lkey() const noexcept override { return region_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept override { return region_->rkey; }

 private:
  std::shared_ptr<verbs_context> context_;
  owned<ibv_mr> region_;
};

// ---- addresses, and how queue pairs are connected; `o` has the gid_index that was chosen

/// Where a queue pair of that port is.
endpoint_address address_of(const verbs_context& c, std::uint32_t qpn,
                            const rdma::endpoint_options& o, std::uint32_t first_number);
/// A first packet's number that nobody can guess.
std::uint32_t random_number();
/// Throws error(invalid_argument), error(not_supported).
void check_peer(const endpoint_address& peer);

struct transition {
  ibv_qp_attr to{};
  int mask = 0;
};
transition to_init(const rdma::endpoint_options& o);
/// Ready to receive from `peer`, and to send to it.
transition to_receive(const verbs_context& c, const rdma::endpoint_options& o,
                      const endpoint_address& self, const endpoint_address& peer);
transition to_send(const verbs_context& c, const rdma::endpoint_options& o,
                   const endpoint_address& self);

/// The adapter's code for a wait of at least that long: 4.096 us * 2^code.
std::uint8_t timeout_code(std::chrono::nanoseconds at_least) noexcept;
/// The code of a receiver that is not ready: one of 32 waits from 10 us to 655 ms.
std::uint8_t not_ready_code(std::chrono::nanoseconds at_least) noexcept;

}  // namespace crosswarp::verbs
