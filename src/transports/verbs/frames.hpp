// Requests and answers as bytes. What comes from another process is believed no more than what a
// kernel writes.
#pragma once

#include <optional>
#include <vector>

#include "transports/verbs/wire.hpp"

namespace crosswarp::verbs {

/// Data in one frame.
inline constexpr std::uint32_t most_frame_data = 64 * 1024;

/// The first frame of a line: who opened it.
std::vector<std::byte> hello_frame(const station& who);
/// Nothing when the payload's memory could not be read.
std::optional<std::vector<std::byte>> request_frame(const request& r);
std::optional<std::vector<std::byte>> answer_frame(const answer& a);

/// A frame that was read. What `asked` or `said` point to is part of it and of the bytes it was
/// read from: it stays where it is.
struct frame {
  enum class kind : std::uint8_t { none, hello, request, answer };
  kind what = kind::none;
  station who;    ///< of a hello
  request asked;  ///< all but `from`'s NIC, which the line knows
  answer said;    ///< all but `to`'s NIC
  piece data;

  /// Reads bytes into it; false when they are no frame.
  bool read(std::span<const std::byte> bytes) noexcept;
  frame() = default;
  frame(const frame&) = delete;
  frame& operator=(const frame&) = delete;
};

}  // namespace crosswarp::verbs
