// Reading entries: bytes that a kernel wrote, of which nothing is believed.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "crosswarp/device/mlx5.hpp"
#include "transports/verbs/keys.hpp"

namespace crosswarp::verbs {

namespace mlx5 = device::mlx5;

/// An entry as the NIC keeps it while it works on it.
struct entry {
  static constexpr std::size_t most_segments = 16;
  struct segment {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;
  };

  mlx5::opcode op = mlx5::opcode::nop;
  bool signalled = false;
  bool fenced = false;  ///< begins after the reads and atomics before it have ended
  std::uint32_t blocks = 1;
  std::uint32_t imm = 0;  ///< as in memory
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  word_operation word;
  std::uint32_t bytes = 0;  ///< of all data
  std::size_t segments = 0;
  std::array<segment, most_segments> data;
  bool inlined = false;
  std::array<std::byte, std::size_t{mlx5::most_units} * mlx5::unit_bytes> inline_data;
};

/// A receive, likewise.
struct receive_entry {
  /// As many as there is room for behind the link of a shared one.
  static constexpr std::size_t most_pieces = 2 * entry::most_segments - 1;
  std::uint64_t bytes = 0;  ///< of all pieces
  std::size_t count = 0;
  std::array<entry::segment, most_pieces> pieces;
};
/// Reads a receive that has room for `room` pieces.
[[nodiscard]] receive_entry read_receive(const mlx5::data_segment* at, std::uint32_t room) noexcept;

/// Whether there is such an opcode.
[[nodiscard]] bool is_known(mlx5::opcode op) noexcept;
[[nodiscard]] bool is_atomic(mlx5::opcode op) noexcept;
[[nodiscard]] bool is_send(mlx5::opcode op) noexcept;
[[nodiscard]] bool has_imm(mlx5::opcode op) noexcept;

/// Reads the entry at `index` of a queue of `depth` blocks, of which `available` are filled.
/// False when it is no entry that queue pair `qpn` could have; then only `op` and `blocks` hold:
/// what is left over is to be skipped.
bool read_entry(const std::byte* queue, std::uint32_t depth, std::uint64_t index,
                std::uint64_t available, std::uint32_t qpn, entry& e) noexcept;

}  // namespace crosswarp::verbs
