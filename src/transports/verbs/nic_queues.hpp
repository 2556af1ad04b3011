// What a NIC in software does with the queues that kernels fill: it reads doorbells and their
// records, and writes completions.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "crosswarp/device/rdma.hpp"

namespace crosswarp::verbs {

namespace mlx5 = device::mlx5;

/// A word that kernels use at the same time.
template <class T>
std::atomic_ref<T> shared(T& word) noexcept {
  return std::atomic_ref<T>(word);
}

/// How far a doorbell that was just heard lets the send queue go. `done`: what is complete; no more
/// than `depth` blocks can be behind it. Nothing when the doorbell makes no sense.
[[nodiscard]] std::optional<std::uint64_t> rung_until(std::uint64_t bell,
                                                      const device::rdma::mlx5_provider::queues& q,
                                                      std::uint32_t qpn, std::uint64_t done,
                                                      std::uint32_t depth) noexcept;

/// How many receives were posted ever, as far as that makes sense. `done`: how many were used.
[[nodiscard]] std::uint64_t posted_until(mlx5::qp_record& record, std::uint64_t done,
                                         std::uint32_t depth) noexcept;

/// What a completion tells.
struct cqe_values {
  mlx5::cqe_opcode what = mlx5::cqe_opcode::requester;
  mlx5::opcode of = mlx5::opcode::nop;  ///< the entry's
  std::uint64_t index = 0;
  mlx5::syndrome why = mlx5::syndrome::none;
  std::uint8_t vendor = 0;  ///< the adapter's own code, of an error
  std::uint32_t bytes = 0;
  std::uint32_t imm = 0;  ///< as in memory
};

/// The NIC's end of a completion queue.
class completion_writer {
 public:
  enum class of { sends, receives };
  completion_writer(const device::rdma::mlx5_provider::completion_queue& q,
                    device::rdma::endpoint_events* events, of what) noexcept
      : queue_(q), events_(events), of_(what) {}
  /// False when it is full: then nothing more is told in it, the events say so, and the queue pair
  /// has failed.
  bool tell(std::uint32_t qpn, const cqe_values& v);

 private:
  [[nodiscard]] bool is_full() const noexcept;
  void write(std::uint32_t qpn, const cqe_values& v) noexcept;
  device::rdma::mlx5_provider::completion_queue queue_;
  device::rdma::endpoint_events* events_;
  of of_;
  bool overrun_ = false;
  std::uint64_t written_ = 0;
};

}  // namespace crosswarp::verbs
