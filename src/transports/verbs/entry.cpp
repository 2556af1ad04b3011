#include "transports/verbs/entry.hpp"

#include <algorithm>
#include <cstring>

namespace crosswarp::verbs {

using mlx5::opcode;
using mlx5::swapped;

bool is_atomic(opcode op) noexcept {
  return op == opcode::atomic_cs || op == opcode::atomic_fa || op == opcode::atomic_masked_cs ||
         op == opcode::atomic_masked_fa;
}
bool is_send(opcode op) noexcept {
  return op == opcode::send || op == opcode::send_imm;
}
bool has_imm(opcode op) noexcept {
  return op == opcode::send_imm || op == opcode::rdma_write_imm;
}

bool is_known(opcode op) noexcept {
  switch (op) {
    case opcode::nop:
    case opcode::rdma_write:
    case opcode::rdma_write_imm:
    case opcode::send:
    case opcode::send_imm:
    case opcode::rdma_read:
    case opcode::atomic_cs:
    case opcode::atomic_fa:
    case opcode::atomic_masked_cs:
    case opcode::atomic_masked_fa:
      return true;
  }
  return false;
}

namespace {

/// The units of an entry, copied out of the queue: the kernel may go on writing there.
class unit_reader {
 public:
  unit_reader(const std::byte* units, std::uint32_t count) noexcept : next_(units), left_(count) {}
  [[nodiscard]] std::uint32_t left() const noexcept { return left_; }
  template <class Segment>
  bool take(Segment& s) noexcept {
    static_assert(sizeof(Segment) == mlx5::unit_bytes);
    if (left_ == 0) return false;
    std::memcpy(&s, next_, sizeof(s));
    next_ += sizeof(s);
    --left_;
    return true;
  }
  [[nodiscard]] const std::byte* rest() const noexcept { return next_; }

 private:
  const std::byte* next_;
  std::uint32_t left_;
};

bool read_atomic4(unit_reader& units, bool swaps, word_operation& w) noexcept {
  mlx5::atomic4_segment s{};
  if (!units.take(s)) return false;
  w.operand = swapped(s.swap_add);
  w.comparand = swaps ? swapped(s.compare) : 0;
  w.mask = swaps ? swapped(s.swap_mask) : swapped(s.compare);
  w.compare_mask = swapped(s.compare_mask);
  return true;
}

bool read_atomic8(unit_reader& units, bool swaps, bool masked, word_operation& w) noexcept {
  mlx5::atomic_segment s{};
  if (!units.take(s)) return false;
  w.operand = swapped(s.swap_add);
  w.comparand = swaps ? swapped(s.compare) : 0;
  w.mask = swaps ? ~std::uint64_t{0} : masked ? swapped(s.compare) : 0;
  w.compare_mask = ~std::uint64_t{0};
  if (!swaps || !masked) return true;
  mlx5::atomic_mask_segment m{};
  if (!units.take(m)) return false;
  w.mask = swapped(m.swap_mask);
  w.compare_mask = swapped(m.compare_mask);
  return true;
}

bool read_atomic(unit_reader& units, std::uint8_t opmod, entry& e) noexcept {
  const bool masked = e.op == opcode::atomic_masked_cs || e.op == opcode::atomic_masked_fa;
  e.word.swaps = e.op == opcode::atomic_cs || e.op == opcode::atomic_masked_cs;
  e.word.width = masked && opmod == mlx5::opmod_atomic_4_bytes ? 4 : 8;
  if (opmod != 0 && !masked) return false;
  if (masked && opmod != mlx5::opmod_atomic_4_bytes && opmod != mlx5::opmod_atomic_8_bytes) {
    return false;
  }
  return e.word.width == 4 ? read_atomic4(units, e.word.swaps, e.word)
                           : read_atomic8(units, e.word.swaps, masked, e.word);
}

bool read_inline(unit_reader& units, std::uint32_t head, entry& e) noexcept {
  e.bytes = head & ~mlx5::inline_flag;
  // Longer than an entry can be: before units are counted, which could wrap.
  if (e.op == opcode::rdma_read || is_atomic(e.op) || e.bytes > e.inline_data.size()) return false;
  if (mlx5::inline_units(e.bytes) != units.left()) return false;
  e.inlined = true;
  std::memcpy(e.inline_data.data(), units.rest() + sizeof(mlx5::inline_segment), e.bytes);
  return true;
}

bool read_data(unit_reader& units, entry& e) noexcept {
  mlx5::inline_segment head{};
  if (units.left() > 0) std::memcpy(&head, units.rest(), sizeof(head));
  if ((swapped(head.byte_count) & mlx5::inline_flag) != 0) {
    return read_inline(units, swapped(head.byte_count), e);
  }
  constexpr std::uint64_t most = mlx5::longest_piece;
  std::uint64_t total = 0;
  mlx5::data_segment s{};
  while (units.take(s)) {
    if (e.segments == entry::most_segments) return false;
    e.data[e.segments++] = {swapped(s.addr), swapped(s.lkey), swapped(s.byte_count)};
    total += s.byte_count == 0 ? most : swapped(s.byte_count);  // as adapters read it
  }
  e.bytes = static_cast<std::uint32_t>(std::min(total, most));
  return total < most;
}

bool read_body(unit_reader& units, std::uint8_t opmod, entry& e) noexcept {
  if (e.op == opcode::nop) return units.left() == 0;
  if (!is_send(e.op)) {
    mlx5::raddr_segment r{};
    if (!units.take(r)) return false;
    e.remote = swapped(r.raddr);
    e.rkey = swapped(r.rkey);
  }
  if (!is_atomic(e.op)) return opmod == 0 && read_data(units, e);
  return read_atomic(units, opmod, e) && read_data(units, e) && e.segments == 1 &&
         e.bytes == static_cast<std::uint32_t>(e.word.width);
}

}  // namespace

receive_entry read_receive(const mlx5::data_segment* at, std::uint32_t room) noexcept {
  receive_entry e;
  for (; e.count < std::min<std::size_t>(room, receive_entry::most_pieces); ++e.count) {
    mlx5::data_segment s{};
    std::memcpy(&s, at + e.count, sizeof(s));
    if (s.byte_count == 0 && swapped(s.lkey) == mlx5::invalid_lkey) break;
    const std::uint32_t bytes = s.byte_count == 0 ? mlx5::longest_piece : swapped(s.byte_count);
    e.pieces[e.count] = {swapped(s.addr), swapped(s.lkey), bytes};
    e.bytes += bytes;
  }
  return e;
}

bool read_entry(const std::byte* queue, std::uint32_t depth, std::uint64_t index,
                std::uint64_t available, std::uint32_t qpn, entry& e) noexcept {
  const auto block = [&](std::uint64_t i) {
    return queue + (i & (depth - 1)) * std::uint64_t{mlx5::block_bytes};
  };
  mlx5::ctrl_segment head{};
  std::memcpy(&head, block(index), sizeof(head));
  const std::uint32_t first = swapped(head.opmod_idx_opcode);
  const std::uint32_t second = swapped(head.qpn_ds);
  const std::uint32_t units = second & 0xffU;
  e.op = static_cast<opcode>(first & 0xffU);
  e.blocks = 1;
  e.signalled = (head.fm_ce_se & mlx5::ctrl_cq_update) != 0;
  e.fenced = (head.fm_ce_se & mlx5::ctrl_fence) != 0;
  e.imm = head.imm;
  e.segments = 0;
  e.bytes = 0;
  e.inlined = false;
  if (units == 0 || units > mlx5::most_units || mlx5::blocks_of(units) > available) return false;
  if (((first >> 8U) & 0xffffU) != (index & 0xffffU)) return false;
  e.blocks = mlx5::blocks_of(units);
  if (second >> 8U != qpn || !is_known(e.op)) return false;
  std::array<std::byte, std::size_t{mlx5::most_units + 1} * mlx5::unit_bytes> copy;
  for (std::uint32_t i = 0; i < e.blocks; ++i) {
    std::memcpy(copy.data() + i * std::size_t{mlx5::block_bytes}, block(index + i),
                mlx5::block_bytes);
  }
  unit_reader reader(copy.data() + sizeof(head), units - 1);
  return read_body(reader, static_cast<std::uint8_t>(first >> 24U), e);
}

}  // namespace crosswarp::verbs
