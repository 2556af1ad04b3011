// The soft NIC's requesters: they read entries, send requests and take the answers.
#include "transports/verbs/soft_parts.hpp"

namespace crosswarp::verbs {

using mlx5::cqe_opcode;
using mlx5::opcode;
using mlx5::swapped;
using mlx5::syndrome;

namespace {

constexpr int entries_per_visit = 64;
/// An answer that takes longer does not come: the other end's process is stopped, or its machine
/// is. One whose process died is known at once.
constexpr std::chrono::seconds silence(20);

/// It brings something back.
bool fetches(opcode op) noexcept {
  return op == opcode::rdma_read || is_atomic(op);
}

/// The part of a message's memory that a request speaks of.
void cut(std::vector<piece>& pieces, std::size_t offset, std::size_t bytes) {
  std::size_t kept = 0;
  for (piece p : pieces) {
    const std::size_t skipped = std::min(offset, p.bytes);
    offset -= skipped;
    p.at += skipped;
    p.bytes = std::min(p.bytes - skipped, bytes);
    bytes -= p.bytes;
    if (p.bytes > 0) pieces[kept++] = p;
  }
  pieces.resize(kept);
}

}  // namespace

void soft_nic::hear_bell(qp& q, std::uint64_t bell) {
  // What a GPU wrote has to come from memory: the entry while the record does.
  __builtin_prefetch(q.setup.queues.send +
                     (q.next & (q.setup.send_depth - 1)) * std::uint64_t{mlx5::block_bytes});
  const auto rung = rung_until(bell, q.setup.queues, q.qpn, q.head, q.setup.send_depth);
  const bool sound = rung && *rung >= q.target;
  if (sound) q.target = *rung;
  if (q.state == endpoint_state::failed) {
    if (sound && q.under_way() == 0) flush(q);
    return;
  }
  if (!sound || q.state != endpoint_state::ready) {
    fail(q, syndrome::local_qp_operation);
    return;
  }
  if (!q.active) {
    q.active = true;
    active_.push_back(&q);
  }
}

/// Hostile: not yet.
bool soft_nic::is_late(qp& q) {
  if (options_.delay.count() == 0 || q.delayed) return false;
  q.delayed = true;
  const auto wait = random_() % static_cast<std::uint64_t>(options_.delay.count());
  q.not_before = clock::now() + std::chrono::nanoseconds(wait);
  return true;
}

bool soft_nic::serve(qp& q) {
  if (q.head == q.target) return false;
  if (q.under_way() > 0 && q.answer_by < clock::now()) {
    fail(q, syndrome::retries_exceeded);
    return true;
  }
  if (q.state == endpoint_state::failed) {
    if (q.under_way() > 0) return false;
    flush(q);
    return true;
  }
  if (q.not_before != clock::time_point{}) {
    if (clock::now() < q.not_before) return false;
    q.not_before = {};
  }
  const int entries = options_.shuffle ? static_cast<int>(random_() % 4) + 1 : entries_per_visit;
  bool moved = false;
  for (int i = 0; i < entries && q.next != q.target && q.under_way() < qp::window &&
                  q.state == endpoint_state::ready;
       ++i) {
    if (is_late(q)) break;
    if (!start(q)) break;
    moved = true;
    if (q.not_before != clock::time_point{}) break;
  }
  return moved;
}

/// `now_` is the entry at `index`; false when that is none.
bool soft_nic::read(qp& q, std::uint64_t index) {
  if (now_of_ == &q && now_index_ == index) return true;
  const bool sound =
      read_entry(q.setup.queues.send, q.setup.send_depth, index, q.target - index, q.qpn, now_);
  now_of_ = sound ? &q : nullptr;
  now_index_ = index;
  return sound;
}

/// Sends the next request; false when it has to wait for those before it, or for room.
bool soft_nic::start(qp& q) {
  // Part of it may have been sent, and it may be another since: it lies in a kernel's memory.
  const bool sound = read(q, q.next) && (q.offset == 0 || q.offset < now_.bytes);
  // Failures are told in order, and what does nothing ends after all before it.
  if (q.under_way() > 0 && (!sound || now_.op == opcode::nop || must_wait(q))) return false;
  if (!sound) {
    fail(q, syndrome::local_qp_operation);
    return true;
  }
  if (now_.op == opcode::nop) {
    q.next += now_.blocks;
    q.delayed = false;
    succeed(q, {.index = q.head, .blocks = now_.blocks, .signalled = now_.signalled});
    return true;
  }
  // Again with each try: memory may be gone, and a write's data is what it is when it is sent.
  if (!gather()) {
    if (q.under_way() > 0) return false;
    fail(q, syndrome::local_protection);
    return true;
  }
  return transmit(q);
}

/// Whether what was read before must be here first.
bool soft_nic::must_wait(qp& q) {
  if (!now_.fenced) return false;
  for (std::uint32_t n = q.oldest; n != q.psn; ++n) {
    if (fetches(q.at(n).op)) return true;
  }
  return false;
}

/// The entry's own memory, as far as it may be used so.
bool soft_nic::gather() {
  const entry& e = now_;
  pieces_.clear();
  if (e.inlined) {
    pieces_.push_back(own_piece(e.inline_data.data(), e.bytes));
    return true;
  }
  const access want = fetches(e.op) ? access::local_write : access::none;
  return std::all_of(e.data.begin(), e.data.begin() + static_cast<std::ptrdiff_t>(e.segments),
                     [&](const entry::segment& s) {
                       if (s.bytes == 0) return true;
                       pieces_.emplace_back();
                       return keys_.find(s.key, s.address, s.bytes, want, pieces_.back()) ==
                              key_table::verdict::ok;
                     });
}

/// Sends the entry's next request; false when there is no room for it.
bool soft_nic::transmit(qp& q) {
  const entry& e = now_;
  request r;
  r.from = q.self;
  r.to = q.peer;
  r.psn = q.psn;
  r.op = e.op;
  r.imm = e.imm;
  r.rkey = e.rkey;
  r.offset = q.offset;
  r.bytes = std::min(e.bytes - q.offset, wire_->most_bytes(q.peer));
  r.last = q.offset + r.bytes == e.bytes;
  r.address = e.remote + q.offset;
  // Only the end of a message tells of it.
  if (!r.last && e.op == opcode::rdma_write_imm) r.op = opcode::rdma_write;
  r.word = e.word;
  if (r.bytes < e.bytes) cut(pieces_, q.offset, r.bytes);
  if (!fetches(e.op)) r.payload = pieces_;

  if (q.under_way() == 0) q.answer_by = {};
  q.at(q.psn++) = {q.next, e.blocks, e.op, e.signalled, r.last, e.bytes, q.offset, r.bytes};
  q.offset = r.last ? 0 : q.offset + r.bytes;
  if (r.last) {
    q.next += e.blocks;
    q.delayed = false;
  }
  if (!has_link() || chance(options_.lost)) {
    deliver({.to = q.self, .psn = r.psn});
    return true;
  }
  if (!wire_->send(r)) {
    go_back(q, r.psn);
    return false;
  }
  // Most of them were answered in place.
  if (q.under_way() > 0 && q.answer_by == clock::time_point{}) q.answer_by = clock::now() + silence;
  return true;
}

/// As if that request and those after it had not been sent.
void soft_nic::go_back(qp& q, std::uint32_t psn) {
  const flight& f = q.at(psn);
  q.next = f.index;
  q.offset = f.offset;
  q.psn = psn;
}

void soft_nic::deliver(const answer& a) {
  qp* const q = find(a.to.qpn);
  // It is gone, or has failed meanwhile.
  if (q == nullptr) return;
  // Not from who was asked; or to a request that was or will be sent again, see go_back(): an
  // answer to that is still to come.
  const bool from_here = a.from == station{};
  if (!from_here && (a.from.nic() != q->peer.nic() || a.psn != q->oldest)) return;
  if (a.psn - q->oldest >= q->under_way()) return;
  const auto& o = q->setup.options;
  switch (a.what) {
    case answer::kind::done:
      finish_oldest(*q, a);
      break;
    case answer::kind::not_ready:
      go_back(*q, a.psn);
      retry(*q, q->not_ready, o.not_ready_retries, o.not_ready_after, syndrome::receiver_not_ready);
      break;
    case answer::kind::refused:
      go_back(*q, a.psn);
      // Else it is told when those before it have ended: it is tried again then.
      if (q->under_way() == 0) fail(*q, a.why);
      break;
    case answer::kind::none:
      go_back(*q, a.psn);
      retry(*q, q->retries, o.retries, o.retry_after, syndrome::retries_exceeded);
      break;
  }
  // Its responder had failed before.
  if (q->state == endpoint_state::failed) abandon(*q);
}

void soft_nic::finish_oldest(qp& q, const answer& a) {
  const flight f = q.at(q.oldest);
  if (fetches(f.op) && !take_answer(q, f, a)) return;
  ++q.oldest;
  if (q.under_way() > 0) q.answer_by = clock::now() + silence;
  q.retries = 0;
  q.not_ready = 0;
  if (f.last) succeed(q, f);
}

void soft_nic::retry(qp& q, int& tried, int limit, clock::duration after, syndrome why) {
  if (++tried <= limit) {
    q.not_before = clock::now() + after;
  } else if (q.under_way() == 0) {
    fail(q, why);
  }  // else those before it end first, and it is tried once more
}

/// Puts what was fetched where the entry wants it; false when it has failed.
bool soft_nic::take_answer(qp& q, const flight& f, const answer& a) {
  // Read again, unless it was read last: so it may not be what it was.
  const bool same = read(q, f.index) && now_.op == f.op && gather();
  const bool is_read = f.op == opcode::rdma_read;
  std::size_t bytes = 0;
  for (const piece& p : a.payload) bytes += p.bytes;
  const std::uint32_t narrow = swapped(static_cast<std::uint32_t>(a.word));  // as adapters do
  const piece held = now_.word.width == 8 ? own_piece(&a.word, sizeof(a.word))
                                          : own_piece(&narrow, sizeof(narrow));
  if (same && is_read) cut(pieces_, f.offset, f.bytes);
  if (is_read && bytes != f.bytes) {
    fail(q, syndrome::bad_response);
  } else if (!same || !copy_pieces(pieces_, is_read ? a.payload : std::span(&held, 1))) {
    fail(q, syndrome::local_protection);
  } else {
    return true;
  }
  return false;
}

/// The entry at the head, whose last request that is.
void soft_nic::succeed(qp& q, const flight& f) {
  q.head = f.index + f.blocks;
  if (f.signalled) complete(q, q.sent, {.of = f.op, .index = f.index, .bytes = f.total});
}

void soft_nic::mark_failed(qp& q) {
  if (q.state == endpoint_state::failed) return;
  q.state = endpoint_state::failed;
  failed_.push_back(&q);
}

/// Ends the entry at the head with an error, and with it the queue pair. When there is no entry,
/// the doorbell made no sense.
void soft_nic::fail(qp& q, syndrome why) {
  mark_failed(q);
  q.oldest = q.psn;
  q.not_before = {};
  end_in_error(q, why);
  flush(q);
}

/// Nobody answers what is under way any more.
void soft_nic::abandon(qp& q) {
  q.oldest = q.psn;
  q.not_before = {};
  flush(q);
}

void soft_nic::lose(const station& nic) {
  for (qp* q : by_number_) {
    if (q == nullptr || q->peer.nic() != nic || q->under_way() == 0) continue;
    fail(*q, syndrome::retries_exceeded);
  }
}

/// An entry that is not carried out. Only how long it is matters.
void soft_nic::end_in_error(qp& q, syndrome why) {
  const std::uint64_t index = q.head;
  now_.op = opcode::nop;
  if (q.head != q.target) {
    (void)read_entry(q.setup.queues.send, q.setup.send_depth, index, q.target - index, q.qpn, now_);
    q.head += now_.blocks;
  }
  now_of_ = nullptr;
  q.next = q.head;
  complete(q, q.sent,
           {.what = cqe_opcode::requester_error, .of = now_.op, .index = index, .why = why});
}

void soft_nic::flush(qp& q) {
  while (q.head != q.target) end_in_error(q, syndrome::flushed);
}

}  // namespace crosswarp::verbs
