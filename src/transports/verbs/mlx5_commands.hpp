// Commands of an mlx5 adapter that make queues and connect them, as bytes.
//
// A command is an array of bits, the highest of its first byte being bit 0; its fields are what the
// adapter's manual says. Not yet run on hardware: tests hold the bytes against what rdma-core's
// layout makes of the same values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace crosswarp::verbs::mlx5_command {

/// The bytes of a command, all 0 at first.
class bits {
 public:
  explicit bits(std::size_t bytes) : bytes_(bytes) {}
  /// A field of up to 64 bits that begins at bit `at`.
  void set(std::size_t at, std::size_t width, std::uint64_t value) noexcept;
  [[nodiscard]] std::uint64_t get(std::size_t at, std::size_t width) const noexcept;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Where something lies in memory that was registered for queues.
struct place {
  std::uint32_t memory = 0;
  std::uint64_t offset = 0;
};

struct completion_queue {
  std::uint32_t depth = 0;  ///< a power of two
  bool collapsed = false;
  std::uint32_t doorbell_page = 0;
  std::uint32_t event_queue = 0;
  place entries;
  place record;
};
[[nodiscard]] bits create(const completion_queue& q);

struct queue_pair {
  std::uint32_t domain = 0;
  std::uint32_t doorbell_page = 0;
  std::uint32_t send_depth = 0;      ///< powers of two
  std::uint32_t receive_depth = 0;   ///< 0: it has none
  std::uint32_t receive_bytes = 16;  ///< of an entry
  std::uint32_t shared = 0;          ///< then: the number of receives that it shares
  std::uint32_t sent = 0;            ///< numbers of completion queues
  std::uint32_t received = 0;
  place queues;  ///< the receive queue, if any, and the send queue behind it
  place record;
};
[[nodiscard]] bits create(const queue_pair& q);

/// Receives that queue pairs share.
struct shared_receives {
  std::uint32_t domain = 0;
  std::uint32_t depth = 0;  ///< powers of two
  std::uint32_t entry_bytes = 32;
  place entries;
  place record;
};
[[nodiscard]] bits create(const shared_receives& q);

/// How to get to the other end.
struct path {
  int port = 1;
  std::uint8_t mtu = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t first_number = 0;  ///< of the packets that come
  std::uint8_t not_ready_code = 0;
  std::uint8_t log_reads = 0;  ///< at once, to here
  bool ethernet = false;
  std::uint16_t lid = 0;
  std::uint8_t gid_index = 0;
  std::array<std::uint8_t, 16> gid{};
  std::array<std::uint8_t, 6> mac{};
};
struct sending {
  std::uint32_t first_number = 0;
  std::uint8_t timeout_code = 0;
  std::uint8_t retries = 0;
  std::uint8_t not_ready_retries = 0;
  std::uint8_t log_reads = 0;  ///< at once, from here
};
[[nodiscard]] bits to_init(std::uint32_t qpn, int port);
[[nodiscard]] bits to_receive(std::uint32_t qpn, const path& p);
[[nodiscard]] bits to_send(std::uint32_t qpn, const sending& s);
[[nodiscard]] bits query(std::uint32_t qpn);

// ---- answers

[[nodiscard]] bits answer_of_create();
[[nodiscard]] bits answer_of_modify();
[[nodiscard]] bits answer_of_query();
/// Of what was made.
[[nodiscard]] std::uint32_t number(const bits& answer) noexcept;
enum class state : std::uint8_t { reset, init, receives, sends, send_error, drained, error };
[[nodiscard]] state state_of(const bits& answer_of_query) noexcept;
[[nodiscard]] std::uint32_t status(const bits& answer) noexcept;
[[nodiscard]] std::uint32_t syndrome(const bits& answer) noexcept;

}  // namespace crosswarp::verbs::mlx5_command
