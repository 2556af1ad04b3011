// A queue pair of an mlx5 adapter whose queues kernels drive themselves: no thread stands between.
#pragma once

#include "transports/verbs/backend.hpp"
#include "transports/verbs/mlx5_commands.hpp"

namespace crosswarp::verbs {

/// The adapter's control path: what makes queues, and knows addresses. One implementation talks to
/// an adapter, another, in tests, records what it was asked.
class mlx5_control {
 public:
  virtual ~mlx5_control() = default;

  /// A page of doorbells, mapped into this process.
  struct doorbell_page {
    std::uint32_t number = 0;
    void* base = nullptr;
    std::size_t offset = 0;  ///< of the doorbell
  };
  [[nodiscard]] virtual doorbell_page doorbells() const = 0;
  [[nodiscard]] virtual std::uint32_t domain() const = 0;
  [[nodiscard]] virtual std::uint32_t event_queue() const = 0;

  /// Something of the adapter's, by a number that the implementation chose.
  using handle = std::uint64_t;
  struct memory {
    handle it = 0;
    std::uint32_t number = 0;
  };
  /// Memory for queues. These throw error(system).
  virtual memory add_memory(void* p, std::size_t bytes) = 0;
  virtual void remove_memory(handle m) noexcept = 0;
  virtual handle create(const mlx5_command::bits& in, mlx5_command::bits& out) = 0;
  virtual void modify(handle it, const mlx5_command::bits& in, mlx5_command::bits& out) = 0;
  virtual void query(handle it, const mlx5_command::bits& in, mlx5_command::bits& out) = 0;
  virtual void destroy(handle it) noexcept = 0;

  struct port_facts {
    bool ethernet = false;
    int reads_at_once = 16;
  };
  [[nodiscard]] virtual port_facts port(int number) const = 0;
  /// Where that queue pair is, as verbs_context says it.
  [[nodiscard]] virtual endpoint_address address(std::uint32_t qpn,
                                                 const rdma::endpoint_options& o) const = 0;
  [[nodiscard]] virtual int gid_index(int port, int wish) const = 0;
  /// The network card behind an address.
  [[nodiscard]] virtual std::array<std::uint8_t, 6> mac_of(
      const endpoint_address& peer, const rdma::endpoint_options& o) const = 0;
  /// Where kernels of `d` see the doorbell.
  [[nodiscard]] virtual std::uint64_t* map_doorbell(device_ref d) = 0;
};

/// What was made of an adapter, undone in reverse.
class mlx5_objects {
 public:
  explicit mlx5_objects(std::shared_ptr<mlx5_control> c) : control_(std::move(c)) {}
  ~mlx5_objects();
  mlx5_objects(const mlx5_objects&) = delete;
  mlx5_objects& operator=(const mlx5_objects&) = delete;

  [[nodiscard]] mlx5_control& control() const noexcept { return *control_; }
  [[nodiscard]] mlx5_command::place add_memory(void* p, std::size_t bytes);
  /// Its number. Throws error(system) with the adapter's own words.
  [[nodiscard]] std::uint32_t make(const mlx5_command::bits& command);
  [[nodiscard]] mlx5_control::handle last() const noexcept { return objects_.back(); }

 private:
  std::shared_ptr<mlx5_control> control_;
  std::vector<mlx5_control::handle> memory_;
  std::vector<mlx5_control::handle> objects_;
};

class mlx5_shared final : public shared_receives {
 public:
  mlx5_shared(std::shared_ptr<mlx5_control> c, const shared_setup& s);
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

 private:
  mlx5_objects made_;
  std::uint32_t number_ = 0;
};

class mlx5_pair final : public queue_pair {
 public:
  /// `s.queues` are in one piece: receives, and sends behind them. `s.shared` is a mlx5_shared.
  mlx5_pair(std::shared_ptr<mlx5_control> c, const qp_setup& s);

  [[nodiscard]] std::uint32_t qpn() const noexcept override { return qpn_; }
  [[nodiscard]] std::uint64_t* doorbell() const noexcept override { return doorbell_; }
  [[nodiscard]] endpoint_address address() const noexcept override { return self_; }
  void connect(const endpoint_address& peer) override;
  [[nodiscard]] endpoint_state state() override;

 private:
  std::uint32_t make_completions(const device::rdma::mlx5_provider::completion_queue& q);

  mlx5_objects made_;  ///< the last one is the pair
  qp_setup setup_;
  std::uint32_t qpn_ = 0;
  std::uint64_t* doorbell_ = nullptr;
  endpoint_address self_;
};

}  // namespace crosswarp::verbs
