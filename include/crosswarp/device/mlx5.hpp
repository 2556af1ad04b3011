// The formats that mlx5 network adapters read and write: work queue entries, completions,
// doorbells.
//
// Plain structs of our own, so that kernels can use them; tests/unit/mlx5_format.cpp holds them
// against <infiniband/mlx5dv.h>. All fields of more than one byte are big-endian in memory; the
// functions below take and give values of this machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/bytes.hpp"
#include "crosswarp/device/platform.hpp"

namespace crosswarp::device::mlx5 {

// ---- byte order: the machines that this runs on are little-endian

[[nodiscard]] CW_FN constexpr std::uint16_t swapped(std::uint16_t v) noexcept {
  return static_cast<std::uint16_t>((v << 8U) | (v >> 8U));
}
[[nodiscard]] CW_FN constexpr std::uint32_t swapped(std::uint32_t v) noexcept {
  return swap_bytes(v);
}
[[nodiscard]] CW_FN constexpr std::uint64_t swapped(std::uint64_t v) noexcept {
  return (static_cast<std::uint64_t>(swapped(static_cast<std::uint32_t>(v))) << 32U) |
         swapped(static_cast<std::uint32_t>(v >> 32U));
}

// ---- work queue entries

enum class opcode : std::uint8_t {
  nop = 0x00,
  rdma_write = 0x08,
  rdma_write_imm = 0x09,
  send = 0x0a,
  send_imm = 0x0b,
  rdma_read = 0x10,
  atomic_cs = 0x11,
  atomic_fa = 0x12,
  atomic_masked_cs = 0x14,
  atomic_masked_fa = 0x15,
};

/// `opmod` of masked atomics: the width of their word.
inline constexpr std::uint8_t opmod_atomic_4_bytes = 0x08;
inline constexpr std::uint8_t opmod_atomic_8_bytes = 0x09;

/// Send entries are made of units; a queue is a ring of blocks, and each entry begins at a block.
inline constexpr std::uint32_t unit_bytes = 16;
inline constexpr std::uint32_t block_bytes = 64;
inline constexpr std::uint32_t units_per_block = block_bytes / unit_bytes;
/// What the field `ds` can say.
inline constexpr std::uint32_t most_units = 63;
/// A queue's 16-bit counters tell old from new up to here.
inline constexpr std::uint32_t most_blocks = 32768;

[[nodiscard]] CW_FN constexpr std::uint32_t blocks_of(std::uint32_t units) noexcept {
  return (units + units_per_block - 1) / units_per_block;
}

struct alignas(unit_bytes) ctrl_segment {
  std::uint32_t opmod_idx_opcode;
  std::uint32_t qpn_ds;
  std::uint8_t signature;
  std::uint8_t dci_stream_channel_id[2];
  std::uint8_t fm_ce_se;
  std::uint32_t imm;
};
/// Bits of ctrl_segment::fm_ce_se.
inline constexpr std::uint8_t ctrl_cq_update = 2U << 2U;  ///< the entry is signalled
inline constexpr std::uint8_t ctrl_solicited = 1U << 1U;
inline constexpr std::uint8_t ctrl_fence = 4U << 5U;  ///< after reads and atomics before it

struct alignas(unit_bytes) raddr_segment {
  std::uint64_t raddr;
  std::uint32_t rkey;
  std::uint32_t reserved;
};

struct alignas(unit_bytes) data_segment {
  std::uint32_t byte_count;
  std::uint32_t lkey;
  std::uint64_t addr;
};
/// A receive entry is as many data segments as its queue has for each; where it has fewer pieces,
/// one of no bytes with this key ends it.
inline constexpr std::uint32_t invalid_lkey = 0x100;
/// What a byte_count of 0 means otherwise.
inline constexpr std::uint32_t longest_piece = 1U << 31U;

/// Before the data segments of a receive that is shared: adapters go from place to place as these
/// say.
struct alignas(unit_bytes) next_segment {
  std::uint8_t reserved[2];
  std::uint16_t next;
  std::uint8_t signature;
  std::uint8_t reserved_too[11];
};

struct alignas(unit_bytes) atomic_segment {
  std::uint64_t swap_add;
  std::uint64_t compare;  ///< of a masked fetch-add: its field boundaries
};
struct alignas(unit_bytes) atomic_mask_segment {
  std::uint64_t swap_mask;
  std::uint64_t compare_mask;
};
/// A masked atomic on 4 bytes.
struct alignas(unit_bytes) atomic4_segment {
  std::uint32_t swap_add;
  std::uint32_t compare;  ///< of a fetch-add: its field boundaries
  std::uint32_t swap_mask;
  std::uint32_t compare_mask;
};

/// An inline segment is this word and the data behind it; it replaces the data segments.
struct inline_segment {
  std::uint32_t byte_count;
};
inline constexpr std::uint32_t inline_flag = 0x80000000U;

[[nodiscard]] CW_FN constexpr std::uint32_t inline_units(std::uint32_t bytes) noexcept {
  return (bytes + static_cast<std::uint32_t>(sizeof(inline_segment)) + unit_bytes - 1) / unit_bytes;
}

/// `imm` is what is to be in memory: of the opcodes with immediate data in network order.
[[nodiscard]] CW_FN constexpr ctrl_segment make_ctrl(std::uint16_t index, opcode op,
                                                     std::uint8_t opmod, std::uint32_t qpn,
                                                     std::uint8_t flags, std::uint32_t units,
                                                     std::uint32_t imm = 0) noexcept {
  return {swapped((static_cast<std::uint32_t>(opmod) << 24U) |
                  (static_cast<std::uint32_t>(index) << 8U) | static_cast<std::uint32_t>(op)),
          swapped((qpn << 8U) | units),
          0,
          {0, 0},
          flags,
          imm};
}
[[nodiscard]] CW_FN constexpr raddr_segment make_raddr(std::uint64_t address,
                                                       std::uint32_t rkey) noexcept {
  return {swapped(address), swapped(rkey), 0};
}
[[nodiscard]] CW_FN constexpr data_segment make_data(std::uint32_t bytes, std::uint32_t lkey,
                                                     std::uint64_t address) noexcept {
  return {swapped(bytes), swapped(lkey), swapped(address)};
}

// ---- completions

/// A completion as words, which is how it is written and read: the last one tells whether it is
/// there, and all that a successful send needs.
struct alignas(block_bytes) cqe64 {
  std::uint64_t words[8];
};

/// Where fields of a completion are.
namespace cqe_offset {
inline constexpr std::size_t imm = 36;
inline constexpr std::size_t byte_cnt = 44;
inline constexpr std::size_t vendor_syndrome = 54;  ///< of an error
inline constexpr std::size_t syndrome = 55;         ///< of an error
inline constexpr std::size_t sop_drop_qpn = 56;  ///< opcode of the entry, number of the queue pair
inline constexpr std::size_t wqe_counter = 60;
inline constexpr std::size_t op_own = 63;
}  // namespace cqe_offset

enum class cqe_opcode : std::uint8_t {
  requester = 0,
  responder_write_imm = 1,
  responder_send = 2,
  responder_send_imm = 3,
  requester_error = 13,
  responder_error = 14,
  invalid = 15,
};

enum class syndrome : std::uint8_t {
  none = 0,
  local_length = 0x01,
  local_qp_operation = 0x02,
  local_protection = 0x04,
  flushed = 0x05,
  bad_response = 0x10,
  local_access = 0x11,
  remote_invalid_request = 0x12,
  remote_access = 0x13,
  remote_operation = 0x14,
  retries_exceeded = 0x15,
  receiver_not_ready = 0x16,
  remote_aborted = 0x22,
};

/// A printable name, e.g. "remote_access".
constexpr const char* to_string(syndrome s) noexcept {
  switch (s) {
    case syndrome::none:
      return "none";
    case syndrome::local_length:
      return "local_length";
    case syndrome::local_qp_operation:
      return "local_qp_operation";
    case syndrome::local_protection:
      return "local_protection";
    case syndrome::flushed:
      return "flushed";
    case syndrome::bad_response:
      return "bad_response";
    case syndrome::local_access:
      return "local_access";
    case syndrome::remote_invalid_request:
      return "remote_invalid_request";
    case syndrome::remote_access:
      return "remote_access";
    case syndrome::remote_operation:
      return "remote_operation";
    case syndrome::retries_exceeded:
      return "retries_exceeded";
    case syndrome::receiver_not_ready:
      return "receiver_not_ready";
    case syndrome::remote_aborted:
      return "remote_aborted";
  }
  return "unknown";
}

/// Bits of the byte `op_own`.
inline constexpr std::uint8_t cqe_owner_bit = 1;
/// What every byte of a completion queue is before its first use: an invalid opcode.
inline constexpr std::uint8_t cqe_unused = 0xff;

/// A field of a completion, given the word that holds it.
template <class T>
[[nodiscard]] CW_FN constexpr T cqe_field(std::uint64_t word, std::size_t offset) noexcept {
  const auto raw = static_cast<T>(word >> (8 * (offset % 8)));
  if constexpr (sizeof(T) == 1) {
    return raw;
  } else {
    return swapped(raw);
  }
}

// ---- doorbells

/// A queue pair's doorbell record: how far its queues are filled.
struct alignas(8) qp_record {
  static constexpr int receive = 0;
  static constexpr int send = 1;
  std::uint32_t counter[2];
};
/// A completion queue's: how far it was read, and (not used here) when to raise an event.
struct alignas(8) cq_record {
  static constexpr int consumer_index = 0;
  std::uint32_t counter[2];
};

[[nodiscard]] CW_FN constexpr std::uint32_t record_of_queue(std::uint64_t index) noexcept {
  return swapped(static_cast<std::uint32_t>(index & 0xffffU));
}
[[nodiscard]] CW_FN constexpr std::uint32_t record_of_completions(std::uint64_t index) noexcept {
  return swapped(static_cast<std::uint32_t>(index & 0xffffffU));
}

/// The eight bytes of a doorbell: the first of a control segment, without what only entries need.
[[nodiscard]] CW_FN constexpr std::uint64_t make_doorbell(std::uint64_t index,
                                                          std::uint32_t qpn) noexcept {
  const std::uint32_t first = swapped(static_cast<std::uint32_t>(index & 0xffffU) << 8U);
  return (static_cast<std::uint64_t>(swapped(qpn << 8U)) << 32U) | first;
}
[[nodiscard]] CW_FN constexpr std::uint16_t doorbell_index(std::uint64_t bell) noexcept {
  return static_cast<std::uint16_t>(swapped(static_cast<std::uint32_t>(bell)) >> 8U);
}
[[nodiscard]] CW_FN constexpr std::uint32_t doorbell_qpn(std::uint64_t bell) noexcept {
  return swapped(static_cast<std::uint32_t>(bell >> 32U)) >> 8U;
}

/// A 16-bit counter in full, given a full one that is at most 65535 behind it.
[[nodiscard]] CW_FN constexpr std::uint64_t extended(std::uint16_t counter,
                                                     std::uint64_t behind) noexcept {
  return behind + static_cast<std::uint16_t>(counter - static_cast<std::uint16_t>(behind));
}

}  // namespace crosswarp::device::mlx5
