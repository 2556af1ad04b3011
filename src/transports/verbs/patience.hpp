// How long adapters wait and how often they try, in their own codes; and addresses that they share.
#pragma once

#include "transports/verbs/backend.hpp"

namespace crosswarp::verbs {

/// A number of waits: those of the options when adapters count so far, else fewer that are longer.
struct patience {
  std::uint8_t count = 0;
  std::chrono::nanoseconds each{0};
};
/// With those that do not answer.
[[nodiscard]] patience answer_patience(const rdma::endpoint_options& o) noexcept;
/// With those that are not ready to receive.
[[nodiscard]] patience receiver_patience(const rdma::endpoint_options& o) noexcept;

/// The code for a wait of at least that long: 4.096 us * 2^code.
[[nodiscard]] std::uint8_t timeout_code(std::chrono::nanoseconds at_least) noexcept;
/// The code of a receiver that is not ready: one of 32 waits from 10 us to 655 ms.
[[nodiscard]] std::uint8_t not_ready_code(std::chrono::nanoseconds at_least) noexcept;
/// How many reads and atomics may be under way, where the adapter can do `most`.
[[nodiscard]] std::uint8_t reads_at_once(int most) noexcept;

/// When the options do not say.
inline constexpr std::chrono::nanoseconds adapters_retry_after = std::chrono::milliseconds(67);

/// What addresses of adapters have in the place of a fabric's number.
inline constexpr std::uint64_t adapters_id = 0x7362726576;  // "verbs"
/// Throws error(invalid_argument), error(not_supported).
void check_peer(const endpoint_address& peer);

}  // namespace crosswarp::verbs
