#include "transports/verbs/frames.hpp"

#include <cstring>

#include "transports/verbs/carrier.hpp"

namespace crosswarp::verbs {
namespace {

using mlx5::opcode;
using mlx5::syndrome;

constexpr std::uint32_t magic = 0x43575231;  // "1RWC": changes with the format

/// In front of the data; in this machine's byte order, as all machines have that run this.
struct head {
  std::uint32_t magic;
  frame::kind what;
  std::uint8_t op;
  std::uint8_t last;
  std::uint8_t outcome;
  std::uint8_t why;
  std::uint8_t swaps;
  std::uint8_t width;
  std::uint8_t reserved;
  std::uint32_t from;
  std::uint32_t to;
  std::uint32_t psn;
  std::uint32_t imm;
  std::uint32_t rkey;
  std::uint32_t offset;
  std::uint32_t bytes;
  std::uint64_t address;  ///< of a hello: its fabric
  std::uint64_t operand;  ///< of an answer: the word
  std::uint64_t comparand;
  std::uint64_t mask;
  std::uint64_t compare_mask;
};
static_assert(sizeof(head) == 80 && sizeof(head) + most_frame_data <= most_frame_bytes);

head head_of(frame::kind what) {
  head h{};
  h.magic = magic;
  h.what = what;
  return h;
}

std::optional<std::vector<std::byte>> packed(const head& h, std::span<const piece> payload) {
  std::size_t bytes = 0;
  for (const piece& p : payload) bytes += p.bytes;
  std::vector<std::byte> all(sizeof(h) + bytes);
  std::memcpy(all.data(), &h, sizeof(h));
  const piece to = own_piece(all.data() + sizeof(h), bytes);
  if (!copy_pieces(std::span(&to, 1), payload)) return {};
  return all;
}

bool is_syndrome(syndrome s) noexcept {
  return s != syndrome::none && std::strcmp(mlx5::to_string(s), "unknown") != 0;
}

}  // namespace

std::vector<std::byte> hello_frame(const station& who) {
  head h = head_of(frame::kind::hello);
  h.address = who.fabric;
  h.from = who.device;
  return *packed(h, {});
}

std::optional<std::vector<std::byte>> request_frame(const request& r) {
  head h = head_of(frame::kind::request);
  h.op = static_cast<std::uint8_t>(r.op);
  h.last = r.last ? 1 : 0;
  h.swaps = r.word.swaps ? 1 : 0;
  h.width = static_cast<std::uint8_t>(r.word.width);
  h.from = r.from.qpn;
  h.to = r.to.qpn;
  h.psn = r.psn;
  h.imm = r.imm;
  h.rkey = r.rkey;
  h.offset = r.offset;
  h.bytes = r.bytes;
  h.address = r.address;
  h.operand = r.word.operand;
  h.comparand = r.word.comparand;
  h.mask = r.word.mask;
  h.compare_mask = r.word.compare_mask;
  return packed(h, r.payload);
}

std::optional<std::vector<std::byte>> answer_frame(const answer& a) {
  head h = head_of(frame::kind::answer);
  h.outcome = static_cast<std::uint8_t>(a.what);
  h.why = static_cast<std::uint8_t>(a.why);
  h.to = a.to.qpn;
  h.psn = a.psn;
  h.operand = a.word;
  return packed(h, a.payload);
}

namespace {

bool read_request(const head& h, std::size_t data, request& r) noexcept {
  r.op = static_cast<opcode>(h.op);
  if (!is_known(r.op) || r.op == opcode::nop) return false;
  r.last = h.last != 0;
  r.from = {0, 0, h.from};
  r.to = {0, 0, h.to};
  r.psn = h.psn;
  r.imm = h.imm;
  r.address = h.address;
  r.rkey = h.rkey;
  r.offset = h.offset;
  r.bytes = h.bytes;
  if (h.bytes > most_frame_data || h.offset > 0x7fffffffU) return false;
  r.word = {h.swaps != 0, h.width, h.operand, h.comparand, h.mask, h.compare_mask};
  if (is_atomic(r.op)) return (h.width == 4 || h.width == 8) && h.last != 0 && data == 0;
  return data == (r.op == opcode::rdma_read ? 0 : h.bytes);
}

bool read_answer(const head& h, std::size_t data, answer& a) noexcept {
  if (h.outcome > static_cast<std::uint8_t>(answer::kind::none)) return false;
  a.what = static_cast<answer::kind>(h.outcome);
  a.why = static_cast<syndrome>(h.why);
  a.to = {0, 0, h.to};
  a.psn = h.psn;
  a.word = h.operand;
  if (a.what == answer::kind::refused && !is_syndrome(a.why)) return false;
  return data == 0 || (a.what == answer::kind::done && data <= most_frame_data);
}

}  // namespace

bool frame::read(std::span<const std::byte> bytes) noexcept {
  head h{};
  if (bytes.size() < sizeof(h)) return false;
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (h.magic != magic) return false;
  data = own_piece(bytes.data() + sizeof(h), bytes.size() - sizeof(h));
  what = h.what;
  switch (h.what) {
    case kind::hello:
      who = {h.address, h.from, 0};
      return data.bytes == 0;
    case kind::request:
      asked = {};
      if (!read_request(h, data.bytes, asked)) return false;
      if (data.bytes > 0) asked.payload = std::span(&data, 1);
      return true;
    case kind::answer:
      said = {};
      if (!read_answer(h, data.bytes, said)) return false;
      if (data.bytes > 0) said.payload = std::span(&data, 1);
      return true;
    case kind::none:
      break;
  }
  return false;
}

}  // namespace crosswarp::verbs
