// What travels between queue pairs: a request, and the answer to it. Neither end knows more of the
// other than what is in them.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>

#include "transports/verbs/entry.hpp"

namespace crosswarp::verbs {

/// A queue pair among all, or a NIC when `qpn` is 0.
struct station {
  std::uint64_t fabric = 0;
  std::uint32_t device = 0;
  std::uint32_t qpn = 0;
  [[nodiscard]] station nic() const noexcept { return {fabric, device, 0}; }
  friend bool operator==(const station&, const station&) = default;
  friend bool operator<(const station& a, const station& b) noexcept {
    return std::tie(a.fabric, a.device, a.qpn) < std::tie(b.fabric, b.device, b.qpn);
  }
};

/// Carried out by the queue pair `to`. A long message is several requests.
struct request {
  station from;
  station to;
  std::uint32_t psn = 0;  ///< counts requests of a queue pair
  mlx5::opcode op = mlx5::opcode::nop;
  bool last = true;  ///< of its message
  std::uint32_t imm = 0;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t offset = 0;  ///< of its data in the message
  std::uint32_t bytes = 0;
  word_operation word;
  /// Of a write or a send; valid until it was delivered.
  std::span<const piece> payload;
};

struct answer {
  enum class kind : std::uint8_t {
    done,
    not_ready,  ///< no receive was posted
    refused,    ///< `why`
    none,  ///< nothing was done: there is nobody, nobody who would answer, or another `psn` was
           ///< to come
  };
  station from = {};  ///< none: this end says so itself
  station to = {};
  std::uint32_t psn = 0;  ///< of the request
  kind what = kind::none;
  mlx5::syndrome why = mlx5::syndrome::none;
  std::uint64_t word = 0;  ///< the value before an atomic
  /// Of a read; valid until it was delivered.
  std::span<const piece> payload = {};
};

/// Brings requests to where they belong. What comes back is given to soft_nic::deliver(), on the
/// thread of the NIC that asked: before send() returns, or later. Belongs to that thread, and never
/// waits.
class wire {
 public:
  virtual ~wire() = default;
  /// How to reach that endpoint's NIC; before the first request to it.
  virtual void learn(const endpoint_address& /*peer*/) {}
  /// False when there is no room for it now: nothing was done.
  virtual bool send(const request& r) = 0;
  /// Data in one request at most.
  [[nodiscard]] virtual std::uint32_t most_bytes(const station& to) const noexcept = 0;
  /// Moves things on; true when something moved.
  virtual bool progress() { return false; }
  /// Readable when progress() has something to do, once arm() returned true; -1: has none.
  [[nodiscard]] virtual int descriptor() const noexcept { return -1; }
  virtual bool arm() { return true; }
};

}  // namespace crosswarp::verbs
