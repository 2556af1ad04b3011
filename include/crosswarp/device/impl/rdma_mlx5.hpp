// Bodies of rdma.hpp: mlx5's entries, records and completions.
#pragma once

#include <bit>
#include <cstring>

#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

namespace impl {

[[nodiscard]] CW_FN constexpr bool has_remote(operation op) noexcept {
  return op != operation::nop && op != operation::send && op != operation::send_imm;
}
[[nodiscard]] CW_FN constexpr bool is_atomic(operation op) noexcept {
  return op == operation::fetch_add || op == operation::compare_swap;
}
/// Atomics on 4 bytes exist masked only.
[[nodiscard]] CW_FN constexpr bool is_masked(const request& r) noexcept {
  return r.masked || r.width == 4;
}

[[nodiscard]] CW_FN constexpr mlx5::opcode opcode_of(const request& r) noexcept {
  switch (r.op) {
    case operation::write:
      return mlx5::opcode::rdma_write;
    case operation::write_imm:
      return mlx5::opcode::rdma_write_imm;
    case operation::send:
      return mlx5::opcode::send;
    case operation::send_imm:
      return mlx5::opcode::send_imm;
    case operation::read:
      return mlx5::opcode::rdma_read;
    case operation::fetch_add:
      return is_masked(r) ? mlx5::opcode::atomic_masked_fa : mlx5::opcode::atomic_fa;
    case operation::compare_swap:
      return is_masked(r) ? mlx5::opcode::atomic_masked_cs : mlx5::opcode::atomic_cs;
    case operation::nop:
      break;
  }
  return mlx5::opcode::nop;
}

[[nodiscard]] CW_FN constexpr std::uint8_t opmod_of(const request& r) noexcept {
  if (!is_atomic(r.op) || !is_masked(r)) return 0;
  return r.width == 4 ? mlx5::opmod_atomic_4_bytes : mlx5::opmod_atomic_8_bytes;
}

[[nodiscard]] CW_FN constexpr std::uint32_t atomic_units(const request& r) noexcept {
  return r.op == operation::compare_swap && is_masked(r) && r.width == 8 ? 2 : 1;
}

/// The units of one entry, which may go round the end of the queue.
class entry_writer {
 public:
  CW_FN entry_writer(std::byte* queue, std::uint32_t depth, std::uint64_t index) noexcept
      : queue_(queue), first_(static_cast<std::uint32_t>(index)), mask_(depth - 1) {}
  template <class Segment>
  CW_FN void put(const Segment& s) noexcept {
    static_assert(sizeof(Segment) == mlx5::unit_bytes);
    // Of a block they are next to each other: its place is computed once.
    std::byte* const block = queue_ + ((first_ + written_ / mlx5::units_per_block) & mask_) *
                                          std::size_t{mlx5::block_bytes};
    const std::uint32_t unit = written_++ % mlx5::units_per_block;
    // As words, so that it is one store.
    *reinterpret_cast<words*>(block + unit * std::size_t{mlx5::unit_bytes}) =
        __builtin_bit_cast(words, s);  // std's is none of a GPU's
  }

 private:
  struct alignas(mlx5::unit_bytes) words {
    std::uint32_t all[4];
  };
  std::byte* queue_;
  std::uint32_t first_;  ///< block
  std::uint32_t mask_;
  std::uint32_t written_ = 0;
};

CW_FN inline void put_inline(entry_writer& w, const void* from, std::uint32_t bytes) noexcept {
  struct alignas(mlx5::unit_bytes) unit {
    std::uint32_t words[4];
  };
  const auto* source = static_cast<const unsigned char*>(from);
  const bool by_words = reinterpret_cast<std::uintptr_t>(from) % sizeof(std::uint32_t) == 0;
  std::uint32_t at = 0;
  for (std::uint32_t u = 0; u < mlx5::inline_units(bytes); ++u) {
    unit held{};
    for (std::uint32_t i = u == 0 ? 1 : 0; i < 4; ++i) {
      if (by_words && bytes - at >= sizeof(std::uint32_t)) {
        std::memcpy(&held.words[i], __builtin_assume_aligned(source + at, 4), 4);
        at += 4;
        continue;
      }
      for (std::uint32_t shift = 0; shift < 32 && at < bytes; shift += 8) {
        held.words[i] |= static_cast<std::uint32_t>(source[at++]) << shift;
      }
    }
    if (u == 0) held.words[0] = mlx5::swapped(bytes | mlx5::inline_flag);
    w.put(held);
  }
}

CW_FN inline void put_atomic(entry_writer& w, const request& r) noexcept {
  using mlx5::swapped;
  const bool swaps = r.op == operation::compare_swap;
  // One that is not masked and takes a masked entry: swaps and compares all bits, adds one field.
  const std::uint64_t mask = r.masked ? r.mask : swaps ? ~std::uint64_t{0} : 0;
  const std::uint64_t compare_mask = r.masked ? r.compare_mask : ~std::uint64_t{0};
  const std::uint64_t second = swaps ? r.comparand : mask;
  if (r.width == 4) {
    w.put(mlx5::atomic4_segment{swapped(static_cast<std::uint32_t>(r.operand)),
                                swapped(static_cast<std::uint32_t>(second)),
                                swaps ? swapped(static_cast<std::uint32_t>(mask)) : 0,
                                swaps ? swapped(static_cast<std::uint32_t>(compare_mask)) : 0});
    return;
  }
  w.put(mlx5::atomic_segment{swapped(r.operand), swapped(second)});
  if (atomic_units(r) == 2) w.put(mlx5::atomic_mask_segment{swapped(mask), swapped(compare_mask)});
}

/// A receive, where there is room for `room` pieces.
CW_FN inline void put_receive(mlx5::data_segment* at, std::uint32_t room,
                              const segment_list& to) noexcept {
  for (std::uint32_t i = 0; i < to.count; ++i) {
    const segment& s = to.all[i];
    at[i] = mlx5::make_data(s.bytes, s.at.lkey, s.at.address);
  }
  if (to.count < room) at[to.count] = mlx5::make_data(0, mlx5::invalid_lkey, 0);
}

/// Where the word is that holds a completion's field.
CW_FN inline std::uint64_t& cqe_word(mlx5::cqe64& e, std::size_t offset) noexcept {
  return e.words[offset / sizeof(std::uint64_t)];
}

}  // namespace impl

CW_FN inline std::uint32_t mlx5_provider::units(const request& r) noexcept {
  if (r.op == operation::nop) return 1;
  if (impl::is_atomic(r.op)) {
    if ((r.width != 4 && r.width != 8) || r.list.count != 0) return 0;
    return 3 + impl::atomic_units(r);
  }
  const std::uint32_t head = impl::has_remote(r.op) ? 2 : 1;
  if (r.list.count != 0) {
    const bool sound = r.inline_data == nullptr && impl::are_pieces<mlx5_provider>(r.list);
    return sound ? head + r.list.count : 0;
  }
  // A piece of no bytes would be one of 2 GiB.
  if (r.inline_data == nullptr) return head + (r.bytes == 0 ? 0 : 1);
  return r.op == operation::read ? 0 : head + mlx5::inline_units(r.bytes);
}

CW_FN inline void mlx5_provider::write_entry(const queues& q, std::uint32_t depth,
                                             std::uint64_t index, const request& r,
                                             bool signalled) noexcept {
  impl::entry_writer w(q.send, depth, index);
  const bool imm = r.op == operation::write_imm || r.op == operation::send_imm;
  const auto flags = static_cast<std::uint8_t>((signalled ? mlx5::ctrl_cq_update : 0U) |
                                               (r.fenced ? mlx5::ctrl_fence : 0U));
  w.put(mlx5::make_ctrl(static_cast<std::uint16_t>(index), impl::opcode_of(r), impl::opmod_of(r),
                        q.qpn, flags, units(r), imm ? mlx5::swapped(r.imm) : 0));
  if (r.op == operation::nop) return;
  if (impl::has_remote(r.op)) w.put(mlx5::make_raddr(r.remote.address, r.remote.rkey));
  if (impl::is_atomic(r.op)) {
    impl::put_atomic(w, r);
    w.put(mlx5::make_data(r.width, r.local.lkey, r.local.address));
  } else if (r.inline_data != nullptr) {
    impl::put_inline(w, r.inline_data, r.bytes);
  } else if (r.list.count != 0) {
    for (std::uint32_t i = 0; i < r.list.count; ++i) {
      const segment& s = r.list.all[i];
      w.put(mlx5::make_data(s.bytes, s.at.lkey, s.at.address));
    }
  } else if (r.bytes != 0) {
    w.put(mlx5::make_data(r.bytes, r.local.lkey, r.local.address));
  }
}

CW_FN inline void mlx5_provider::write_receive(const queues& q, std::uint32_t depth,
                                               std::uint64_t index,
                                               const segment_list& to) noexcept {
  impl::put_receive(q.receive_at(index & (depth - 1)), q.receive_pieces, to);
}

CW_FN inline void mlx5_provider::write_shared_receive(const shared_queue& q, std::uint32_t depth,
                                                      std::uint64_t index,
                                                      const segment_list& to) noexcept {
  // Not the link: places are used in a ring, so it stays what it is.
  impl::put_receive(q.receive_at(index & (depth - 1)), q.pieces, to);
}

// Who reads a record or the doorbell sees the entries that it speaks of, and who reads the doorbell
// sees the record.
CW_FN inline void mlx5_provider::write_send_record(const queues& q, std::uint64_t index) noexcept {
  // pairs with the adapter's read of the record
  system_atomic<std::uint32_t>(q.record->counter[mlx5::qp_record::send])
      .store(mlx5::record_of_queue(index), order::release);
}
CW_FN inline void mlx5_provider::write_receive_record(const queues& q,
                                                      std::uint64_t index) noexcept {
  // pairs with the adapter's read of the record
  system_atomic<std::uint32_t>(q.record->counter[mlx5::qp_record::receive])
      .store(mlx5::record_of_queue(index), order::release);
}
CW_FN inline void mlx5_provider::write_shared_record(const shared_queue& q,
                                                     std::uint64_t index) noexcept {
  // pairs with the adapter's read of the record
  system_atomic<std::uint32_t>(q.record->counter[mlx5::qp_record::receive])
      .store(mlx5::record_of_queue(index), order::release);
}
CW_FN inline void mlx5_provider::ring(const queues& q, std::uint64_t index) noexcept {
  // pairs with the adapter's look at its doorbells
  system_atomic<std::uint64_t>(*q.doorbell)
      .store(mlx5::make_doorbell(index, q.qpn), order::release);
}
CW_FN inline void mlx5_provider::write_cq_record(const completion_queue& q,
                                                 std::uint64_t index) noexcept {
  // pairs with the adapter's look for room: the completions before it have been read
  system_atomic<std::uint32_t>(q.record->counter[mlx5::cq_record::consumer_index])
      .store(mlx5::record_of_completions(index), order::release);
}

CW_FN inline bool mlx5_provider::look(const completion_queue& q, std::uint64_t index,
                                      std::uint64_t done, found& f) noexcept {
  namespace field = mlx5::cqe_offset;
  mlx5::cqe64& e = q.entries[q.collapsed ? 0 : index & (q.depth - 1)];
  const system_atomic<std::uint64_t> last(impl::cqe_word(e, field::op_own));
  const auto is_new = [&](std::uint64_t word) {
    const auto own = mlx5::cqe_field<std::uint8_t>(word, field::op_own);
    if (static_cast<mlx5::cqe_opcode>(own >> 4U) == mlx5::cqe_opcode::invalid) return false;
    if (!q.collapsed) return (own & mlx5::cqe_owner_bit) == ((index & q.depth) != 0 ? 1 : 0);
    // The last to end stays there: it is old when it lies behind.
    const auto counter = mlx5::cqe_field<std::uint16_t>(word, field::wqe_counter);
    return mlx5::extended(counter, done) - done < mlx5::most_blocks;
  };
  // With acquire at each look, unlike signal::wait(): to look again once it is there would be one
  // more trip across the bus, which is far longer than what an acquire takes.
  f.last_word = last.load(order::acquire);  // pairs with the adapter's write of a completion
  if (!is_new(f.last_word)) return false;
  const auto read = [&](std::size_t at) {
    return system_atomic<std::uint64_t>(impl::cqe_word(e, at)).load(order::relaxed);
  };
  if (mlx5::cqe_field<std::uint8_t>(f.last_word, field::op_own) >> 4U !=
      static_cast<unsigned>(mlx5::cqe_opcode::requester)) {
    f.error_word = read(field::syndrome);
    f.imm_word = read(field::imm);
    f.count_word = read(field::byte_cnt);
  }
  return true;
}

CW_FN inline completion mlx5_provider::decode(const found& f, std::uint64_t done) noexcept {
  namespace field = mlx5::cqe_offset;
  const auto op = static_cast<mlx5::cqe_opcode>(
      mlx5::cqe_field<std::uint8_t>(f.last_word, field::op_own) >> 4U);
  completion c;
  c.index = mlx5::extended(mlx5::cqe_field<std::uint16_t>(f.last_word, field::wqe_counter), done);
  switch (op) {
    case mlx5::cqe_opcode::requester:
      break;
    case mlx5::cqe_opcode::responder_write_imm:
    case mlx5::cqe_opcode::responder_send_imm:
      c.has_imm = true;
      c.imm = mlx5::cqe_field<std::uint32_t>(f.imm_word, field::imm);
      [[fallthrough]];
    case mlx5::cqe_opcode::responder_send:
      c.bytes = mlx5::cqe_field<std::uint32_t>(f.count_word, field::byte_cnt);
      break;
    default:  // an error, or what we do not know: never taken for a success
      c.why =
          static_cast<mlx5::syndrome>(mlx5::cqe_field<std::uint8_t>(f.error_word, field::syndrome));
      c.vendor = mlx5::cqe_field<std::uint8_t>(f.error_word, field::vendor_syndrome);
      if (c.why == mlx5::syndrome::none) c.why = mlx5::syndrome::bad_response;
      c.outcome = status_of(c.why);
      break;
  }
  return c;
}

}  // namespace crosswarp::device::rdma
