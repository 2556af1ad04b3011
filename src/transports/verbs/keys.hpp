// Registered memory by key, and copies in it: nothing else is ever read or written for a peer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transports/verbs/backend.hpp"

namespace crosswarp::verbs {

/// A checked piece of memory.
struct piece {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  device_ref device = device_ref::cpu();
  bool on_host = true;
  bool believed = true;  ///< else the address may be anything
};
/// Memory of the NIC's own.
piece own_piece(const void* p, std::size_t bytes) noexcept;

/// Used by the NIC's thread alone.
class key_table {
 public:
  std::uint32_t add(const memory_range& m, access allowed);
  void remove(std::uint32_t key) noexcept;

  enum class verdict {
    ok,
    no_such_key,
    out_of_bounds,
    not_allowed,
  };
  /// Whether the range lies in that memory and may be used so; then `found` is it.
  verdict find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, access want,
               piece& found) const noexcept;

 private:
  struct slot {
    memory_range range;
    access allowed = access::none;
    std::uint8_t generation = 0;  ///< the key's last byte, so that an old key is not a new one
    bool used = false;
  };
  [[nodiscard]] verdict find_anywhere(const slot& all, std::uint64_t address, std::uint64_t bytes,
                                      piece& found) const noexcept;
  std::vector<slot> slots_;
};

/// Copies from one list to the other until either ends; false when memory could not be reached.
bool copy_pieces(std::span<const piece> to, std::span<const piece> from) noexcept;

/// An atomic operation of a peer.
struct word_operation {
  bool swaps = false;  ///< compare and swap; else fetch and add
  int width = 8;
  std::uint64_t operand = 0;
  std::uint64_t comparand = 0;
  std::uint64_t mask = 0;  ///< bits that are swapped in; or where fields end that carries stay in
  std::uint64_t compare_mask = 0;
};
/// What a word becomes.
std::uint64_t apply(const word_operation& op, std::uint64_t before) noexcept;
/// Carries it out on an aligned word, atomically to others on this NIC, and on host memory to
/// everybody. Nothing when the memory could not be reached.
std::optional<std::uint64_t> update(const piece& at, const word_operation& op) noexcept;

}  // namespace crosswarp::verbs
