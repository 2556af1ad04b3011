// What travels between queue pairs: a request, and the answer to it. Neither end knows more of the
// other than what is in them.
#pragma once

#include <cstdint>
#include <span>

#include "transports/verbs/entry.hpp"

namespace crosswarp::verbs {

/// Carried out by the queue pair `to`.
struct request {
  endpoint_address from;
  endpoint_address to;
  mlx5::opcode op = mlx5::opcode::nop;
  std::uint32_t imm = 0;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t bytes = 0;
  word_operation word;
  /// Of a write or a send; valid until it was delivered.
  std::span<const piece> payload;
};

struct answer {
  enum class kind {
    done,
    not_ready,  ///< no receive was posted
    refused,    ///< `why`
    none,       ///< there is nobody, or nobody who would answer
  };
  endpoint_address to = {};
  kind what = kind::none;
  mlx5::syndrome why = mlx5::syndrome::none;
  std::uint64_t word = 0;  ///< the value before an atomic
  /// Of a read; valid until it was delivered.
  std::span<const piece> payload = {};
};

/// Brings requests to where they belong. What comes back is given to soft_nic::deliver(), on the
/// thread of the NIC that asked: before send() returns, or later.
class wire {
 public:
  virtual ~wire() = default;
  virtual void send(const request& r) = 0;
};

}  // namespace crosswarp::verbs
