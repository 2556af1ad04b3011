#include "slot.hpp"

#include <algorithm>

namespace crosswarp::socket_impl {

namespace words = device::socket;

namespace {

namespace order = device::order;
constexpr auto relaxed = order::relaxed;

/// As kernels have it, so that the same schedules and mutants reach both sides.
device::system_atomic<std::uint64_t> shared(std::uint64_t& word) noexcept {
  return device::system_atomic<std::uint64_t>(word);
}

/// By how much a ring grows at a time.
constexpr unsigned growth_log2 = 2;

}  // namespace

// ---- rings

/// Memory for the two rings of who comes here, which those that grow leave.
void slot::keep(bool on) noexcept {
  if (on == keeps_) return;
  keeps_ = on;
  const std::int64_t both = std::int64_t{2} << limits_.first_log2;
  pool_->keep(on ? both : -both);
}

bool slot::take_first(ring& r, std::uint64_t from) {
  const auto offset = pool_->take(limits_.first_log2);
  if (!offset) return false;
  r = {*offset, limits_.first_log2, from, true};
  return true;
}

bool slot::take_larger(ring& r, unsigned log2, std::uint64_t from) {
  const auto offset = pool_->take_larger(log2);
  if (!offset) return false;
  r = {*offset, log2, from, true};
  return true;
}

void slot::give_back(ring& r) {
  if (r.there) pool_->give_back(r.offset, r.log2);
  r.there = false;
}

std::span<iovec> slot::cut(const ring& r, std::uint64_t at, std::uint64_t bytes) {
  const std::uint64_t offset = at & (r.bytes() - 1);
  const std::uint64_t first = std::min(bytes, r.bytes() - offset);
  std::byte* const base = pool_->at(r.offset);
  spans_ = {iovec{base + offset, first}, iovec{base, bytes - first}};
  return std::span(spans_).first(bytes == 0 ? 0 : bytes == first ? 1 : 2);
}

void slot::bring(const ring& r, std::uint64_t at, std::uint64_t bytes) {
  const std::uint64_t offset = at & (r.bytes() - 1);
  const std::uint64_t first = std::min(bytes, r.bytes() - offset);
  pool_->bring(r.offset + offset, first);
  pool_->bring(r.offset, bytes - first);
}

void slot::fetch(const ring& r, std::uint64_t at, std::uint64_t bytes) {
  const std::uint64_t offset = at & (r.bytes() - 1);
  const std::uint64_t first = std::min(bytes, r.bytes() - offset);
  pool_->fetch(r.offset + offset, first);
  pool_->fetch(r.offset, bytes - first);
}

// ---- lives

bool slot::begin(bool listener) {
  newest_ = 0;
  // Positions go on from where the life before ended: no word has to be set back.
  if (!take_first(receive_[0], received_)) return false;
  if (!listener && !take_first(send_, sent_)) {
    give_back(receive_[0]);
    return false;
  }
  keep(false);
  generation_ = generation_ == 0x7fffffff ? 1 : generation_ + 1;
  drained_ = received_;
  error_ = 0;
  receive_flags_ = 0;
  send_flags_ = 0;
  filled_ = false;
  refuses_ = false;
  moved_ = false;
  bell_ = mark(sent_, 0);
  fetched_ = sent_;
  epoch_ = (epoch_ + 1) & 0xffU;
  ++receive_rings_;
  words::news& n = m_->state[index_];
  // Relaxed, all of it: kernels learn of this life by something that is released later. Atomic what
  // one with a stale handle may look at.
  shared(n.received).store(mark(received_, words::ring_bits(receive_rings_)).word(), relaxed);
  shared(n.sent).store(mark(sent_, words::ring_bits(epoch_)).word(), relaxed);
  shared(n.error).store(0, relaxed);
  n.start = received_;
  shared(n.send_ring).store(words::ring_place(send_.offset, send_.log2, epoch_).word(), relaxed);
  for (std::size_t i = 0; i < 2; ++i) {
    shared(n.ring[i]).store(words::ring_place(receive_[0].offset, receive_[0].log2, 0).word(),
                            relaxed);
    shared(n.ring_from[i]).store(received_, relaxed);
  }
  return true;
}

void slot::end() {
  for (ring* r : {&receive_[0], &receive_[1], &send_, &next_}) give_back(*r);
  keep(true);
}

// ---- what a kernel said

bool slot::hear(mark bell) {
  if (is_closed()) return false;
  constexpr unsigned all_life_bits = words::life_bits(~0U);
  if ((bell.flags() & all_life_bits) != words::life_bits(generation_)) return true;  // not of it
  if (!send_.there) {  // a listener: the position is that of accept()
    bell_ = bell;
    return true;
  }
  const bool possible = is_broken() || is_possible(bell.position());
  // What is broken sends nothing: where the kernel believes to be is of no interest.
  const bool counts = possible && !is_broken();
  bell_ = mark(counts ? bell.position() : bell_.position(), bell.flags());
  if (!counts) return possible;
  settle_send_ring();
  if (!moved_ && bell_.position() - sent_ == send_.bytes()) offer_send_ring();
  return true;
}

/// Whether the kernel can have come to `head`; notes it when it has moved to another ring.
bool slot::is_possible(std::uint64_t head) {
  if (head < bell_.position()) return false;
  if (!moved_ && next_.there) {
    // Relaxed: the bell was read with acquire.
    const std::uint64_t word = shared(m_->moved[index_]).load(relaxed);
    const std::uint64_t from = word >> 8U;
    if ((word & 0xffU) == epoch_) {
      if (from < bell_.position() || from > head) return false;
      next_.from = from;
      moved_ = true;
    }
  }
  if (!moved_) return head - sent_ <= send_.bytes();
  return next_.from - sent_ <= send_.bytes() && head - next_.from <= next_.bytes();
}

// ---- receiving

bool slot::look_at_drained() {
  if (!is_taken()) return true;
  // pairs with service::consume(): the bytes were read, their place may be written
  const std::uint64_t tail = shared(m_->drained[index_]).load(order::acquire);
  if (tail > received_) return false;
  drained_ = std::max(drained_, tail);
  if (ring& old = receive_[1 - newest_]; old.there && drained_ >= receive_[newest_].from) {
    give_back(old);
  }
  return true;
}

std::span<iovec> slot::receive_space(std::uint64_t most) {
  if (receive_room() == 0 || filled_) grow_receive();
  filled_ = false;
  const std::uint64_t room = std::min(receive_room(), most);
  offered_ = room;
  return cut(receive_[newest_], received_, room);
}

std::uint64_t slot::receive_room() const noexcept {
  const ring& r = receive_[newest_];
  return r.bytes() - (received_ - std::max(drained_, r.from));
}

bool slot::is_full() const noexcept {
  return receive_room() == 0;
}

void slot::grow_receive() {
  const ring& now = receive_[newest_];
  ring& larger = receive_[1 - newest_];
  if (larger.there || now.log2 >= limits_.most_log2) return;
  const unsigned log2 = std::min(now.log2 + growth_log2, limits_.most_log2);
  if (!take_larger(larger, log2, received_)) return;
  newest_ = 1 - newest_;
  ++receive_rings_;
  words::news& n = m_->state[index_];
  // Relaxed: the next tell_received() passes this position, and orders.
  shared(n.ring[newest_]).store(words::ring_place(larger.offset, log2, 0).word(), relaxed);
  shared(n.ring_from[newest_]).store(received_, relaxed);
}

void slot::note_received(std::uint64_t bytes) {
  bring(receive_[newest_], received_, bytes);
  received_ += bytes;
  filled_ = bytes == offered_;
  tell_received();
}

void slot::end_received() {
  receive_flags_ |= error_ != 0 ? words::failed : words::ended;
  tell_received();
}

std::uint64_t slot::connections() const noexcept {
  return receive_[0].bytes() / sizeof(std::uint64_t);
}

std::uint64_t slot::push(handle connection) {
  auto* const entries = reinterpret_cast<std::uint64_t*>(pool_->at(receive_[0].offset));
  const std::uint64_t at = received_;
  const std::uint64_t place = at & (connections() - 1);
  shared(entries[place]).store(static_cast<std::uint64_t>(connection.value()), relaxed);
  pool_->bring(receive_[0].offset + place * sizeof(std::uint64_t), sizeof(std::uint64_t));
  ++received_;
  tell_received();
  return at;
}

void slot::tell_received() {
  const unsigned flags = receive_flags_ | words::ring_bits(receive_rings_);
  // pairs with service::wait_readable() and wait_connection(): bytes, error and entries are there
  shared(m_->state[index_].received).store(mark(received_, flags).word(), order::release);
  tell_activity();
}

// ---- sending

std::span<iovec> slot::to_send(std::uint64_t most) {
  const std::uint64_t end = moved_ ? next_.from : bell_.position();
  const std::uint64_t bytes = end > sent_ ? std::min(end - sent_, most) : 0;
  const std::uint64_t from = std::max(sent_, fetched_);
  fetched_ = std::max(fetched_, sent_ + bytes);
  if (from < fetched_) fetch(send_, from, fetched_ - from);
  return cut(send_, sent_, bytes);
}

void slot::note_sent(std::uint64_t bytes) {
  sent_ += bytes;
  settle_send_ring();
  tell_sent();
}

/// The old ring is empty: goes on with the one that the kernel has moved to.
void slot::settle_send_ring() {
  if (!moved_ || sent_ != next_.from) return;
  give_back(send_);
  send_ = next_;
  next_.there = false;
  moved_ = false;
}

/// The kernel has filled its ring: a larger one may let it run on.
void slot::offer_send_ring() {
  if (next_.there || send_.log2 >= limits_.most_log2) return;
  const unsigned log2 = std::min(send_.log2 + growth_log2, limits_.most_log2);
  if (!take_larger(next_, log2, 0)) return;
  epoch_ = (epoch_ + 1) & 0xffU;
  // Relaxed: told with its number.
  shared(m_->state[index_].send_ring)
      .store(words::ring_place(next_.offset, log2, epoch_).word(), relaxed);
  tell_sent();
}

void slot::note_connected() {
  send_flags_ |= words::connected;
  tell_sent();
}

void slot::break_send(int error) {
  set_error(error);
  send_flags_ |= words::broken;
  if (send_.there) sent_ = bell_.position();
  tell_sent();
}

bool slot::is_broken() const noexcept {
  return (send_flags_ & words::broken) != 0;
}

void slot::refuse_send() {
  refuses_ = true;
  tell_sent();
}

void slot::set_error(int error) {
  if (error_ != 0) return;
  error_ = error;
  // Relaxed: told with `failed` or `broken`, which release.
  shared(m_->state[index_].error).store(static_cast<std::uint64_t>(error), relaxed);
}

void slot::offer_lane(words::lane_link l) {
  // Relaxed: the marks are told with release.
  shared(m_->state[index_].lane).store(l.word(), relaxed);
  receive_flags_ |= words::around;
  send_flags_ |= words::around;
  tell_received();
  tell_sent();
}

void slot::tell_sent() {
  const unsigned flags = send_flags_ | (refuses_ ? words::broken : 0U) | words::ring_bits(epoch_);
  // pairs with service::wait_room(): the bytes have been read, names and error are there; and the
  // ring of this number: who had that memory before has done with it
  shared(m_->state[index_].sent).store(mark(sent_, flags).word(), order::release);
  tell_activity();
}

void slot::tell_activity() const {
  // An exchange, as other workers' slots tell it as well. Pairs with service::poll(): who sees it
  // sees the news.
  shared(*m_->activity).fetch_add(1, order::release);  // unseen: the news are atomics
}

}  // namespace crosswarp::socket_impl
