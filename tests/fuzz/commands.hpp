// Arbitrary bytes as commands of a kernel. The proxy must survive them, answer those that ask for
// it, and change nothing but the memory that commands may name.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fuzz {

/// Has the decoder, or a small proxy, take what `input` says. What went wrong; empty: nothing.
std::string carry_out(std::span<const std::byte> input);

}  // namespace fuzz
