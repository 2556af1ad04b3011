// An opened ibverbs device: its ports and their addresses, and its memory.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transports/verbs/backend.hpp"
#include "transports/verbs/ibverbs.hpp"

namespace crosswarp::verbs {

class verbs_context {
 public:
  /// `opened` is ended by this, and null when it could not be: then this throws error(system).
  verbs_context(const ibverbs& l, std::string name, ibv_context* opened);

  const ibverbs& library;
  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* domain() const noexcept { return domain_.get(); }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept { return limits_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Throws error(system).
  [[nodiscard]] ibv_port_attr port(int number) const;
  [[nodiscard]] bool is_active(int port) const;
  /// Which entry of a port's table of addresses to use: the wish, or, when that is negative, the
  /// one that leads farthest: RoCE v2 by IPv4, then RoCE v2, then the first.
  /// Throws error(invalid_argument) when there is none.
  [[nodiscard]] int gid_index(int port, int wish) const;
  [[nodiscard]] ibv_gid gid(int port, int index) const;

  /// Throws error(not_supported) for memory of a GPU that the device cannot reach, and where it has
  /// no key of all memory.
  [[nodiscard]] owned<ibv_mr> register_memory(const memory_range& m, access allowed) const;

 private:
  [[nodiscard]] owned<ibv_mr> register_everything(const memory_range& m, access allowed) const;
  [[nodiscard]] owned<ibv_mr> register_dmabuf(const memory_range& m, access allowed) const;

  std::string name_;
  owned<ibv_context> context_;
  owned<ibv_pd> domain_;
  ibv_device_attr limits_{};
};

/// All devices that are wanted and that `open` opens; those that it does not are logged.
std::vector<std::shared_ptr<verbs_context>> open_all(
    const ibverbs& library, const std::function<bool(ibv_device*)>& wanted,
    const std::function<ibv_context*(ibv_device*)>& open);

/// Opened devices as adapters of one kind; one for all who ask at a time.
template <class Adapter>
class fabric_of final : public fabric {
 public:
  using contexts = std::vector<std::shared_ptr<verbs_context>>;
  /// `open` is called when nobody has the one before any more.
  static std::shared_ptr<fabric> get(const std::function<contexts()>& open) {
    static std::mutex mutex;
    static std::weak_ptr<fabric_of> living;
    const std::scoped_lock lock(mutex);
    auto f = living.lock();
    if (f == nullptr) {
      f = std::make_shared<fabric_of>(open());
      living = f;
    }
    return f;
  }
  explicit fabric_of(contexts opened) {
    for (auto& c : opened) adapters_.push_back(std::make_shared<Adapter>(std::move(c)));
  }
  [[nodiscard]] std::vector<std::shared_ptr<adapter>> adapters() override { return adapters_; }

 private:
  std::vector<std::shared_ptr<adapter>> adapters_;
};

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
/// The way to that address.
ibv_ah_attr path_to(const endpoint_address& peer, const rdma::endpoint_options& o);
/// Cables of adapters are real.
[[noreturn]] void refuse_link(const std::string& name);

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

}  // namespace crosswarp::verbs
