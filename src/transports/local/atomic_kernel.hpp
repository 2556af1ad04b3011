// One atomic operation on a word that only the device can reach.
#pragma once

#include "crosswarp/stream.hpp"
#include "proxy/engine.hpp"

namespace crosswarp::local {

struct word_update {
  device::amo op = device::amo::fetch;
  int width = 8;
  void* at = nullptr;
  std::uint64_t operand = 0;
  std::uint64_t comparand = 0;
  std::uint64_t* old = nullptr;  ///< memory of the host that the device reaches; may be null
};

/// Carries it out by a kernel of one thread, in order with the stream.
void launch_update(stream& on, const word_update& u);

/// Carries it out now.
CW_FN inline std::uint64_t update(const word_update& u) noexcept;

}  // namespace crosswarp::local

#include "transports/local/atomic_kernel_impl.hpp"
