// The soft NIC's responders: they answer requests, and write completions.
#include <cstring>

#include "core/log.hpp"
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

std::uint64_t soft_nic::posted_receives(const qp& q) const {
  return posted_until(q.setup.queues, q.next_receive, q.setup.receive_depth);
}

answer soft_nic::answer_write(qp& q, const request& r) {
  const bool imm = has_imm(r.op);
  if (imm && (posted_receives(q) == q.next_receive || chance(options_.not_ready))) {
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
  if (posted_receives(q) == q.next_receive || (r.offset == 0 && chance(options_.not_ready))) {
    return {.what = answer::kind::not_ready};
  }
  mlx5::data_segment s{};
  std::memcpy(&s, q.setup.queues.receive + (q.next_receive & (q.setup.receive_depth - 1)),
              sizeof(s));
  if (std::uint64_t{r.offset} + r.bytes > swapped(s.byte_count)) {
    return fail_receive(q, syndrome::local_length, syndrome::remote_invalid_request);
  }
  piece to;
  if (r.bytes > 0 && keys_.find(swapped(s.lkey), swapped(s.addr) + r.offset, r.bytes,
                                access::local_write, to) != key_table::verdict::ok) {
    return fail_receive(q, syndrome::local_protection, syndrome::remote_operation);
  }
  if (!copy_pieces(std::span(&to, 1), r.payload)) {
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
            .index = q.next_receive++,
            .bytes = r.offset + r.bytes,
            .imm = r.imm});
  return {.what = answer::kind::done};
}

/// The receive that was posted is no good: both ends hear of it, in other words.
answer soft_nic::fail_receive(qp& q, syndrome here, syndrome there) {
  complete(q, q.received,
           {.what = cqe_opcode::responder_error, .index = q.next_receive++, .why = here});
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
  if (q.overrun) return;
  if (to.is_full()) {
    // There is no place to say it in: kernels look at the event now and then.
    q.overrun = true;
    shared(*q.setup.event)
        .store(static_cast<std::uint64_t>(syndrome::local_qp_operation), std::memory_order_relaxed);
    log::error(-1, "soft nic: a completion queue of endpoint ", q.qpn,
               " is full: completions are not read, or update_cq_dbr_record() is missing");
    mark_failed(q);
    return;
  }
  to.write(q.qpn, v);
}

}  // namespace crosswarp::verbs
