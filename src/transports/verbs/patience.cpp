#include "transports/verbs/patience.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"

namespace crosswarp::verbs {

namespace {

/// 7 would be for ever: of receivers that are not ready, and on some devices (rxe) also of answers.
constexpr int most_retries = 6;

patience patience_of(int count, std::chrono::nanoseconds each) noexcept {
  if (count <= most_retries) return {static_cast<std::uint8_t>(count), each};
  return {static_cast<std::uint8_t>(most_retries), each * count / most_retries};
}

}  // namespace

patience answer_patience(const rdma::endpoint_options& o) noexcept {
  return patience_of(o.retries, o.retry_after);
}
patience receiver_patience(const rdma::endpoint_options& o) noexcept {
  return patience_of(o.not_ready_retries, o.not_ready_after);
}

std::uint8_t reads_at_once(int most) noexcept {
  return static_cast<std::uint8_t>(std::clamp(most, 1, 16));
}

std::uint8_t timeout_code(std::chrono::nanoseconds at_least) noexcept {
  std::uint8_t code = 1;  // 0 is for ever
  while (code < 31 && std::chrono::nanoseconds(4096ULL << code) < at_least) ++code;
  return code;
}

std::uint8_t not_ready_code(std::chrono::nanoseconds at_least) noexcept {
  // In units of 10 us, from code 1 on; code 0 is the longest, 655.36 ms.
  constexpr int waits[31] = {1,    2,    3,    4,    6,     8,     12,    16,    24,   32,   48,
                             64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536, 2048,
                             3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  for (std::size_t i = 0; i < std::size(waits); ++i) {
    if (waits[i] * std::chrono::microseconds(10) >= at_least)
      return static_cast<std::uint8_t>(i + 1);
  }
  return 0;
}

void check_peer(const endpoint_address& peer) {
  if (peer.qpn == 0) {
    throw error(errc::invalid_argument, "connect", "the address is of no endpoint");
  }
  if (peer.fabric != adapters_id) {
    throw error(errc::not_supported, "connect",
                "that endpoint is of another backend; both ends need backend::verbs or mlx5");
  }
}

}  // namespace crosswarp::verbs
