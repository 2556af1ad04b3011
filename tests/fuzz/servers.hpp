// Inputs of the example servers' engines, from a fuzzer or from a seed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fuzz {

/// Has an engine answer: the first byte says which one, and how the rest is cut into pieces.
/// Returns what is wrong with the answers, empty when nothing is: they must be the same in pieces
/// as at once, no step may take or give more than there is, and no memory may be lost.
std::string ask_engine(std::span<const std::byte> input);

}  // namespace fuzz
