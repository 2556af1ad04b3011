// Arbitrary bytes as frames from another process. The soft NIC must refuse them or understand them;
// what it understands says the same when it is written again.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fuzz {

/// What went wrong; empty: nothing.
std::string read_frame(std::span<const std::byte> input);

}  // namespace fuzz
