#include "transports/verbs/mlx5_commands.hpp"

#include <bit>

namespace crosswarp::verbs::mlx5_command {

void bits::set(std::size_t at, std::size_t width, std::uint64_t value) noexcept {
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t bit = at + i;
    const auto mask = static_cast<std::byte>(0x80U >> (bit % 8));
    if ((value >> (width - 1 - i) & 1U) != 0) {
      bytes_[bit / 8] |= mask;
    } else {
      bytes_[bit / 8] &= ~mask;
    }
  }
}

std::uint64_t bits::get(std::size_t at, std::size_t width) const noexcept {
  std::uint64_t value = 0;
  for (std::size_t bit = at; bit < at + width; ++bit) {
    const unsigned byte = std::to_integer<unsigned>(bytes_[bit / 8]);
    value = value << 1U | (byte >> (7 - bit % 8) & 1U);
  }
  return value;
}

namespace {

enum class operation : std::uint16_t {
  create_cq = 0x400,
  create_qp = 0x500,
  reset_to_init = 0x502,
  init_to_receive = 0x503,
  receive_to_send = 0x504,
  query_qp = 0x50b,
  create_shared_receives = 0x90c,
};

bits begin(operation op, std::size_t bytes) {
  bits b(bytes);
  b.set(0, 16, static_cast<std::uint64_t>(op));
  return b;
}

std::uint64_t log2_of(std::uint32_t power_of_two) noexcept {
  return static_cast<std::uint64_t>(std::countr_zero(power_of_two));
}

// Commands about a queue pair: its number, then from here on its context.
constexpr std::size_t qpn_at = 0x48;
constexpr std::size_t context_at = 0xc0;
constexpr std::size_t path_at = context_at + 0xc0;
constexpr std::size_t modify_bytes = 0x880 / 8;

constexpr std::uint64_t migrated = 3;  // the only path state that is used
constexpr std::uint64_t receives_are_shared = 1;
constexpr std::uint64_t atomics_8_bytes = 3;  // up to 64 bits

bits begin_modify(operation op, std::uint32_t qpn) {
  bits b = begin(op, modify_bytes);
  b.set(qpn_at, 24, qpn);
  return b;
}

}  // namespace

bits create(const completion_queue& q) {
  bits b = begin(operation::create_cq, 0x880 / 8);
  constexpr std::size_t context = 0x80;
  b.set(context + 0x6, 1, 1);  // the record is in registered memory
  b.set(context + 0xb, 1, q.collapsed ? 1 : 0);
  b.set(context + 0xe, 1, q.collapsed ? 1 : 0);  // then it cannot overrun
  b.set(context + 0x20, 32, q.record.memory);
  b.set(context + 0x63, 5, log2_of(q.depth));
  b.set(context + 0x68, 24, q.doorbell_page);
  b.set(context + 0xb8, 8, q.event_queue);
  b.set(context + 0x1c0, 64, q.record.offset);
  b.set(0x280, 64, q.entries.offset);
  b.set(0x2c0, 32, q.entries.memory);
  b.set(0x2e0, 1, 1);  // the entries are in registered memory
  return b;
}

bits create(const queue_pair& q) {
  bits b = begin(operation::create_qp, 0x880 / 8);
  b.set(context_at + 0x13, 2, migrated);
  b.set(context_at + 0x28, 24, q.domain);
  if (q.receive_depth > 0) {
    b.set(context_at + 0x49, 4, log2_of(q.receive_depth));
    b.set(context_at + 0x4d, 3, log2_of(q.receive_bytes / 16));
  } else {
    b.set(context_at + 0x565, 3, receives_are_shared);
    b.set(context_at + 0x568, 24, q.shared);
  }
  b.set(context_at + 0x51, 4, log2_of(q.send_depth));
  b.set(context_at + 0x68, 24, q.doorbell_page);
  b.set(context_at + 0x3e8, 24, q.sent);
  b.set(context_at + 0x4e8, 24, q.received);
  b.set(context_at + 0x500, 64, q.record.offset);
  b.set(context_at + 0x683, 1, 1);  // the record is in registered memory
  b.set(context_at + 0x720, 32, q.record.memory);
  b.set(0x800, 64, q.queues.offset);
  b.set(0x840, 32, q.queues.memory);
  b.set(0x860, 1, 1);  // the queues are in registered memory
  return b;
}

bits create(const shared_receives& q) {
  constexpr std::size_t context = 0x100;
  constexpr std::size_t queue = context + 0x180;
  constexpr std::uint64_t ready = 1;
  bits b = begin(operation::create_shared_receives, 0x880 / 8);
  b.set(context + 0x8, 4, ready);
  // The kind of queue stays 0: a list, by links in its entries.
  b.set(queue + 0x48, 24, q.domain);
  b.set(queue + 0x80, 64, q.record.offset);
  b.set(queue + 0x10c, 4, log2_of(q.entry_bytes));
  b.set(queue + 0x11b, 5, log2_of(q.depth));
  b.set(queue + 0x120, 2, 3);  // record and entries are in registered memory
  b.set(queue + 0x140, 32, q.record.memory);
  b.set(queue + 0x160, 32, q.entries.memory);
  b.set(queue + 0x180, 64, q.entries.offset);
  return b;
}

bits to_init(std::uint32_t qpn, int port) {
  bits b = begin_modify(operation::reset_to_init, qpn);
  b.set(context_at + 0x13, 2, migrated);
  b.set(path_at + 0x128, 8, static_cast<std::uint64_t>(port));
  b.set(context_at + 0x48c, 4, atomics_8_bytes);
  b.set(context_at + 0x490, 3, 7);  // the other end may read, write, and do atomics
  return b;
}

bits to_receive(std::uint32_t qpn, const path& p) {
  constexpr std::uint64_t hops = 64;
  constexpr std::uint64_t longest_message = 30;  // 1 GiB
  bits b = begin_modify(operation::init_to_receive, qpn);
  b.set(context_at + 0x40, 3, p.mtu);
  b.set(context_at + 0x43, 5, longest_message);
  b.set(context_at + 0xa8, 24, p.remote_qpn);
  b.set(context_at + 0x488, 3, p.log_reads);
  b.set(context_at + 0x4a3, 5, p.not_ready_code);
  b.set(context_at + 0x4a8, 24, p.first_number);
  b.set(path_at + 0x48, 8, p.gid_index);
  b.set(path_at + 0x58, 8, hops);
  for (std::size_t i = 0; i < p.gid.size(); ++i) b.set(path_at + 0x80 + 8 * i, 8, p.gid[i]);
  b.set(path_at + 0x128, 8, static_cast<std::uint64_t>(p.port));
  if (p.ethernet) {
    constexpr std::uint64_t first_port_of_roce = 0xc000;
    b.set(path_at + 0x110, 16, first_port_of_roce);
    for (std::size_t i = 0; i < p.mac.size(); ++i) b.set(path_at + 0x130 + 8 * i, 8, p.mac[i]);
  } else {
    b.set(path_at + 0x28, 1, 1);  // with the gid
    b.set(path_at + 0x30, 16, p.lid);
  }
  return b;
}

bits to_send(std::uint32_t qpn, const sending& s) {
  bits b = begin_modify(operation::receive_to_send, qpn);
  b.set(path_at + 0x40, 5, s.timeout_code);
  b.set(context_at + 0x388, 3, s.log_reads);
  b.set(context_at + 0x38d, 3, s.retries);
  b.set(context_at + 0x390, 3, s.not_ready_retries);
  b.set(context_at + 0x3c8, 24, s.first_number);
  return b;
}

bits query(std::uint32_t qpn) {
  bits b = begin(operation::query_qp, 0x80 / 8);
  b.set(qpn_at, 24, qpn);
  return b;
}

bits answer_of_create() {
  return bits(0x80 / 8);
}
bits answer_of_modify() {
  return bits(0x80 / 8);
}
bits answer_of_query() {
  return bits(0x880 / 8);
}
std::uint32_t number(const bits& answer) noexcept {
  return static_cast<std::uint32_t>(answer.get(0x48, 24));
}
state state_of(const bits& answer) noexcept {
  return static_cast<state>(answer.get(context_at, 4));
}
std::uint32_t status(const bits& answer) noexcept {
  return static_cast<std::uint32_t>(answer.get(0, 8));
}
std::uint32_t syndrome(const bits& answer) noexcept {
  return static_cast<std::uint32_t>(answer.get(0x20, 32));
}

}  // namespace crosswarp::verbs::mlx5_command
