// The soft NIC's responders: they answer requests, and write completions.
#include <algorithm>

#include "transports/verbs/soft_parts.hpp"

namespace crosswarp::verbs {

using mlx5::cqe_opcode;
using mlx5::opcode;
using mlx5::swapped;
using mlx5::syndrome;

answer soft_nic::respond(const request& r) {
  qp* const q = find(r.to.qpn);
  // Another psn: one before it was not carried out, and comes again; or it was carried out.
  const bool expected = q != nullptr && q->state == endpoint_state::ready && has_link() &&
                        q->peer == r.from && q->expected == r.psn;
  answer a;
  if (expected) {
    if (is_send(r.op)) {
      a = answer_send(*q, r);
    } else if (r.op == opcode::rdma_read) {
      a = answer_read(*q, r);
    } else if (is_atomic(r.op)) {
      a = answer_atomic(*q, r);
    } else {
      a = answer_write(*q, r);
    }
  }
  if (a.what == answer::kind::done) ++q->expected;
  a.from = r.to;
  a.to = r.from;
  a.psn = r.psn;
  return a;
}

/// This end has failed, too: nobody answers for it any more.
answer soft_nic::refuse(qp& q, syndrome why) {
  mark_failed(q);
  if (q.under_way() == 0) flush(q);  // else when its own answer has come
  return {.what = answer::kind::refused, .why = why};
}

// ---- receives: a queue pair's own, or those that it shares

bool soft_nic::has_receive(const qp& q) {
  if (q.held) return true;
  if (q.shared == nullptr) {
    return posted_until(*q.setup.queues.record, q.next_receive, q.setup.receive_depth) !=
           q.next_receive;
  }
  const shared_setup& s = q.shared->setup;
  return posted_until(*s.queue.record, q.shared->taken, s.depth) != q.shared->taken;
}

/// The index of the one for the message that comes: the same until it ends. Only when there is one.
std::uint64_t soft_nic::take_receive(qp& q) {
  if (q.shared == nullptr) return q.next_receive;
  if (!q.held) {
    shared_queue& from = *q.shared;
    q.held = from.place;
    // A link is a kernel's word, too.
    from.place = swapped(from.setup.queue.link_at(from.place).next) & (from.setup.depth - 1);
    ++from.taken;
  }
  return *q.held;
}

/// What is in it, now: a kernel may change it while a long message comes.
receive_entry soft_nic::next_receive(qp& q) {
  const std::uint64_t index = take_receive(q);
  if (q.shared != nullptr) {
    const auto& from = q.shared->setup.queue;
    return read_receive(from.receive_at(index), from.pieces);
  }
  const auto& from = q.setup.queues;
  return read_receive(from.receive_at(index & (q.setup.receive_depth - 1)), from.receive_pieces);
}

/// Finds the memory for a part of a message; false when it may not be written.
bool soft_nic::aim(const receive_entry& at, std::uint64_t offset, std::uint64_t bytes) {
  aimed_.clear();
  for (std::size_t i = 0; i < at.count && bytes > 0; ++i) {
    const entry::segment& s = at.pieces[i];
    const std::uint64_t skipped = std::min<std::uint64_t>(offset, s.bytes);
    const std::uint64_t part = std::min(s.bytes - skipped, bytes);
    offset -= skipped;
    bytes -= part;
    if (part == 0) continue;
    aimed_.emplace_back();
    if (keys_.find(s.key, s.address + skipped, part, access::local_write, aimed_.back()) !=
        key_table::verdict::ok) {
      return false;
    }
  }
  return true;
}

/// Whatever became of it, it was used; its index.
std::uint64_t soft_nic::end_receive(qp& q) {
  const std::uint64_t index = take_receive(q);
  if (q.shared == nullptr) ++q.next_receive;
  q.held.reset();
  return index;
}

/// Of a queue pair that has failed: all of its own. Of shared ones it has no more than that for a
/// message that has begun.
bool soft_nic::flush_receives(qp& q) {
  if (q.shared != nullptr) return end_shared(q);
  bool any = false;
  for (; has_receive(q); any = true) {
    complete(
        q, q.received,
        {.what = cqe_opcode::responder_error, .index = end_receive(q), .why = syndrome::flushed});
  }
  return any;
}

/// It takes none any more, and says so.
bool soft_nic::end_shared(qp& q) {
  if (q.shared == nullptr || q.told_last) return false;
  if (q.held) {
    complete(
        q, q.received,
        {.what = cqe_opcode::responder_error, .index = end_receive(q), .why = syndrome::flushed});
  }
  q.told_last = true;
  shared(q.setup.events->no_receives)
      .store(1, std::memory_order_release);  // pairs with hears_no_receives()
  return true;
}

// ---- requests

answer soft_nic::answer_write(qp& q, const request& r) {
  const bool imm = has_imm(r.op);
  if (imm && (!has_receive(q) || chance(options_.not_ready))) {
    return {.what = answer::kind::not_ready};
  }
  if (r.bytes > 0) {
    piece to;
    if (keys_.find(r.rkey, r.address, r.bytes, access::remote_write, to) !=
        key_table::verdict::ok) {
      return refuse(q, syndrome::remote_access);
    }
    if (!copy_pieces(std::span(&to, 1), r.payload)) return refuse(q, syndrome::remote_operation);
  }
  return imm ? finish_receive(q, r) : answer{.what = answer::kind::done};
}

answer soft_nic::answer_send(qp& q, const request& r) {
  if (!has_receive(q) || (r.offset == 0 && chance(options_.not_ready))) {
    return {.what = answer::kind::not_ready};
  }
  const receive_entry to = next_receive(q);
  if (std::uint64_t{r.offset} + r.bytes > to.bytes) {
    return fail_receive(q, syndrome::local_length, syndrome::remote_invalid_request);
  }
  if (!aim(to, r.offset, r.bytes) || !copy_pieces(aimed_, r.payload)) {
    return fail_receive(q, syndrome::local_protection, syndrome::remote_operation);
  }
  return r.last ? finish_receive(q, r) : answer{.what = answer::kind::done};
}

answer soft_nic::finish_receive(qp& q, const request& r) {
  const cqe_opcode what = r.op == opcode::send       ? cqe_opcode::responder_send
                          : r.op == opcode::send_imm ? cqe_opcode::responder_send_imm
                                                     : cqe_opcode::responder_write_imm;
  complete(q, q.received,
           {.what = what,
            .of = r.op,
            .index = end_receive(q),
            .bytes = r.offset + r.bytes,
            .imm = r.imm});
  return {.what = answer::kind::done};
}

/// The receive that was posted is no good: both ends hear of it, in other words.
answer soft_nic::fail_receive(qp& q, syndrome here, syndrome there) {
  complete(q, q.received,
           {.what = cqe_opcode::responder_error, .index = end_receive(q), .why = here});
  return refuse(q, there);
}

answer soft_nic::answer_read(qp& q, const request& r) {
  answer a{.what = answer::kind::done};
  if (r.bytes == 0) return a;
  if (keys_.find(r.rkey, r.address, r.bytes, access::remote_read, answered_) !=
      key_table::verdict::ok) {
    return refuse(q, syndrome::remote_access);
  }
  a.payload = std::span(&answered_, 1);
  return a;
}

answer soft_nic::answer_atomic(qp& q, const request& r) {
  const auto width = static_cast<std::uint64_t>(r.word.width);
  if (r.address % width != 0) return refuse(q, syndrome::remote_invalid_request);
  piece at;
  if (keys_.find(r.rkey, r.address, width, access::remote_atomic, at) != key_table::verdict::ok) {
    return refuse(q, syndrome::remote_access);
  }
  const auto before = update(at, r.word);
  if (!before) return refuse(q, syndrome::remote_operation);
  return {.what = answer::kind::done, .word = *before};
}

// ---- completions

void soft_nic::complete(qp& q, completion_writer& to, const cqe_values& v) {
  if (!to.tell(q.qpn, v)) mark_failed(q);
}

}  // namespace crosswarp::verbs
