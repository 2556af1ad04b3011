// Arbitrary bytes as files of graphs. Readers must take them or say what is wrong, and what they
// take must be a graph.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fuzz {

/// Reads `input` as the format that its first byte names. What went wrong; empty: nothing.
std::string read_graph(std::span<const std::byte> input);

}  // namespace fuzz
