// Arbitrary bytes as what a kernel leaves in an endpoint's queues. The soft NIC must survive them,
// and change nothing but registered memory that may be written.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fuzz {

/// Has a soft NIC take what `input` says. What went wrong; empty: nothing.
std::string post_entries(std::span<const std::byte> input);

}  // namespace fuzz
