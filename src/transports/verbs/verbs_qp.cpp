#include "transports/verbs/verbs_qp.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "transports/verbs/patience.hpp"

namespace crosswarp::verbs {

using mlx5::cqe_opcode;
using mlx5::opcode;
using mlx5::syndrome;

namespace {

constexpr int completions_at_once = 16;

syndrome syndrome_of(ibv_wc_status s) noexcept {
  switch (s) {
    case IBV_WC_SUCCESS:
      return syndrome::none;
    case IBV_WC_LOC_LEN_ERR:
      return syndrome::local_length;
    case IBV_WC_LOC_QP_OP_ERR:
      return syndrome::local_qp_operation;
    case IBV_WC_LOC_PROT_ERR:
      return syndrome::local_protection;
    case IBV_WC_WR_FLUSH_ERR:
      return syndrome::flushed;
    case IBV_WC_LOC_ACCESS_ERR:
      return syndrome::local_access;
    case IBV_WC_REM_INV_REQ_ERR:
      return syndrome::remote_invalid_request;
    case IBV_WC_REM_ACCESS_ERR:
      return syndrome::remote_access;
    case IBV_WC_REM_OP_ERR:
      return syndrome::remote_operation;
    case IBV_WC_RETRY_EXC_ERR:
      return syndrome::retries_exceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return syndrome::receiver_not_ready;
    case IBV_WC_REM_ABORT_ERR:
      return syndrome::remote_aborted;
    default:  // what has no name here is an error all the same
      return syndrome::bad_response;
  }
}

/// Verbs have neither masks nor words of 4 bytes. A masked entry that means no more than a plain
/// one is one.
bool is_plain(const word_operation& w) noexcept {
  constexpr auto all = ~std::uint64_t{0};
  if (w.width != 8) return false;
  return w.swaps ? w.mask == all && w.compare_mask == all : w.mask << 1U == 0;
}

ibv_wr_opcode opcode_of(const entry& e) noexcept {
  switch (e.op) {
    case opcode::rdma_write:
      return IBV_WR_RDMA_WRITE;
    case opcode::rdma_write_imm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case opcode::send:
      return IBV_WR_SEND;
    case opcode::send_imm:
      return IBV_WR_SEND_WITH_IMM;
    case opcode::rdma_read:
      return IBV_WR_RDMA_READ;
    default:
      return e.word.swaps ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
}

std::uint32_t at_most(int device, std::uint32_t wanted) noexcept {
  return std::min(static_cast<std::uint32_t>(std::max(device, 1)), wanted);
}

}  // namespace

// ---- making

verbs_qp::verbs_qp(std::shared_ptr<verbs_context> c, const qp_setup& s, const verbs_shared* shared)
    : context_(std::move(c)),
      setup_(s),
      shares_(shared != nullptr),
      bell_(s.kernels, 1, memory_kind::pinned),
      inline_region_(nullptr, context_->library.dereg_mr),
      send_queue_(nullptr, context_->library.destroy_cq),
      receive_queue_(nullptr, context_->library.destroy_cq),
      pair_(nullptr, context_->library.destroy_qp),
      sent_(s.queues.sent, s.events, completion_writer::of::sends),
      received_(s.queues.received, s.events, completion_writer::of::receives) {
  const ibverbs& l = context_->library;
  const ibv_device_attr& limits = context_->limits();
  auto& o = setup_.options;
  o.gid_index = context_->gid_index(o.port, o.gid_index);
  most_sends_ = at_most(limits.max_qp_wr, s.send_depth);
  most_receives_ = shares_ ? shared->depth() : at_most(limits.max_qp_wr, s.receive_depth);
  if (o.sge > limits.max_sge) {
    throw error(errc::invalid_argument, "rdma endpoint",
                "sge " + std::to_string(o.sge) + ": " + context_->name() + " has " +
                    std::to_string(limits.max_sge) + " at most");
  }
  most_segments_ = static_cast<std::uint32_t>(o.sge);
  most_pieces_ = at_most(limits.max_sge, s.queues.receive_pieces);

  inline_place_ = static_cast<std::size_t>(o.inline_bytes);
  if (inline_place_ > 0) {
    inline_data_.resize(inline_place_ * most_sends_);
    inline_region_ = context_->register_memory(
        {inline_data_.data(), inline_data_.size(), device_ref::cpu(), true}, access::none);
  }
  const auto make_cq = [&](std::uint32_t depth) {
    return own(l.create_cq(context_->context(), static_cast<int>(depth), nullptr, nullptr, 0),
               l.destroy_cq, "ibv_create_cq", context_->name());
  };
  send_queue_ = make_cq(most_sends_);
  receive_queue_ = make_cq(most_receives_);
  ibv_qp_init_attr a{};
  a.qp_type = IBV_QPT_RC;
  a.send_cq = send_queue_.get();
  a.recv_cq = receive_queue_.get();
  a.sq_sig_all = 1;  // so that each end is known; the kernel hears of those that it asked for
  a.cap.max_send_wr = most_sends_;
  a.cap.max_send_sge = most_segments_;
  if (shares_) {
    a.srq = shared->queue();
  } else {
    a.cap.max_recv_wr = most_receives_;
    a.cap.max_recv_sge = most_pieces_;
  }
  pair_ = own(l.create_qp(context_->domain(), &a), l.destroy_qp, "ibv_create_qp", context_->name());
  self_ = address_of(*context_, qpn(), o, random_number());
  modify(to_init(o), "ibv_modify_qp to INIT");
}

void verbs_qp::modify(const transition& t, const char* what) {
  ibv_qp_attr to = t.to;
  check(context_->library.modify_qp(pair_.get(), &to, t.mask), what, context_->name());
}

void verbs_qp::connect(const endpoint_address& peer) {
  check_peer(peer);
  if (state_ != endpoint_state::made) {
    throw error(
        errc::invalid_argument, "connect",
        "the endpoint is connected already, or has failed; reset() it, or make another one");
  }
  modify(to_receive(*context_, setup_.options, self_, peer), "ibv_modify_qp to RTR");
  try {
    modify(to_send(*context_, setup_.options, self_), "ibv_modify_qp to RTS");
  } catch (...) {
    mark_failed();  // half connected: from there no device comes back but by reset()
    throw;
  }
  state_ = endpoint_state::ready;
}

bool verbs_qp::step() {
  bool moved = hear_bell();
  moved = forward_receives() || moved;
  moved = forward_entries() || moved;
  moved = take_sent() || moved;
  moved = end_what_was_not_forwarded() || moved;
  moved = take_received() || moved;
  if (state_ == endpoint_state::failed) {
    moved = flush_entries() || moved;
    moved = flush_receives() || moved;
  }
  return moved;
}

void verbs_qp::mark_failed() {
  if (state_ == endpoint_state::failed) return;
  state_ = endpoint_state::failed;
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  // Has the device flush what it has. It may be there already; then this does nothing.
  if (const int why = context_->library.modify_qp(pair_.get(), &to, IBV_QP_STATE); why != 0) {
    log::warn(-1, "rdma: ", context_->name(), ", queue pair ", qpn(),
              ": ibv_modify_qp to ERR: ", std::strerror(why));
  }
}

// ---- entries

bool verbs_qp::hear_bell() {
  const std::atomic_ref<std::uint64_t> word(*bell_.data());
  const std::uint64_t bell =
      word.load(std::memory_order_acquire);  // pairs with mlx5_provider::ring()
  if (bell == bell_seen_) return false;
  bell_seen_ = bell;
  const auto rung = rung_until(bell, setup_.queues, qpn(), done_, setup_.send_depth);
  // What was rung for before may be at the device already.
  const bool sound = rung && *rung >= target_;
  if (sound) target_ = *rung;
  if (state_ == endpoint_state::failed) return true;
  if (!sound || state_ != endpoint_state::ready) refuse_next();
  return true;
}

/// Ends the next entry, or, where there is none, says so in its place.
void verbs_qp::refuse_next() {
  pending p;
  p.index = head_;
  p.blocks = 0;
  p.refused = syndrome::local_qp_operation;
  if (head_ != target_) {
    (void)read_entry(setup_.queues.send, setup_.send_depth, head_, target_ - head_, qpn(), now_);
    p.blocks = now_.blocks;
    p.op = now_.op;
  }
  head_ += p.blocks;
  refused_ = true;
  pending_.push_back(p);
}

bool verbs_qp::forward_entries() {
  bool any = false;
  while (head_ != target_ && !refused_ && state_ == endpoint_state::ready &&
         at_device_ < most_sends_) {
    any = true;
    pending p;
    p.index = head_;
    const bool sound =
        read_entry(setup_.queues.send, setup_.send_depth, head_, target_ - head_, qpn(), now_);
    p.blocks = now_.blocks;
    p.op = now_.op;
    p.signalled = now_.signalled;
    p.bytes = now_.bytes;
    if (!sound) {
      p.refused = syndrome::local_qp_operation;
    } else if (now_.op != opcode::nop) {
      p.refused = forward(now_);
      p.forwarded = p.refused == syndrome::none;
    }
    refused_ = p.refused != syndrome::none;
    head_ += p.blocks;
    at_device_ += p.forwarded ? 1 : 0;
    pending_.push_back(p);
  }
  return any;
}

/// Gives it to the device; or says why that cannot be.
syndrome verbs_qp::forward(const entry& e) {
  std::array<ibv_sge, entry::most_segments> segments{};
  ibv_send_wr r{};
  r.wr_id = head_;
  r.sg_list = segments.data();
  r.opcode = opcode_of(e);
  r.imm_data = e.imm;
  r.send_flags = e.fenced ? IBV_SEND_FENCE : 0;
  if (e.inlined) {
    if (e.bytes > inline_place_) return syndrome::local_qp_operation;
    segments[0] = {keep_inline(e), e.bytes, inline_place_ == 0 ? 0 : inline_region_->lkey};
    r.num_sge = e.bytes == 0 ? 0 : 1;
  } else {
    for (std::size_t i = 0; i < e.segments; ++i) {
      if (e.data[i].bytes == 0) continue;
      segments[static_cast<std::size_t>(r.num_sge++)] = {e.data[i].address, e.data[i].bytes,
                                                         e.data[i].key};
    }
  }
  if (r.num_sge > static_cast<int>(most_segments_)) return syndrome::local_qp_operation;
  if (is_atomic(e.op)) {
    if (!is_plain(e.word)) return syndrome::local_qp_operation;
    // What the other end would say; some devices do not even take it.
    if (e.remote % sizeof(std::uint64_t) != 0) return syndrome::remote_invalid_request;
    r.wr.atomic = {e.remote, e.word.swaps ? e.word.comparand : e.word.operand, e.word.operand,
                   e.rkey};
  } else {
    r.wr.rdma = {e.remote, e.rkey};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair_.get(), &r, &bad) == 0 ? syndrome::none : syndrome::local_qp_operation;
}

/// Inline data stays in memory of its own until the entry ends: not every device takes as much of
/// it in a request as mlx5 does.
std::uint64_t verbs_qp::keep_inline(const entry& e) {
  std::byte* const place = inline_data_.data() + forwarded_++ % most_sends_ * inline_place_;
  std::copy_n(e.inline_data.data(), e.bytes, place);
  return reinterpret_cast<std::uintptr_t>(place);
}

bool verbs_qp::take_sent() {
  if (at_device_ == 0) return false;
  std::array<ibv_wc, completions_at_once> all;
  const int count = ibv_poll_cq(send_queue_.get(), completions_at_once, all.data());
  for (int i = 0; i < count; ++i) {
    const ibv_wc& w = all[static_cast<std::size_t>(i)];
    end_what_was_not_forwarded();
    --at_device_;
    end_oldest(syndrome_of(w.status), static_cast<std::uint8_t>(w.vendor_err));
  }
  return count > 0;
}

/// Those that it is the turn of.
bool verbs_qp::end_what_was_not_forwarded() {
  bool any = false;
  while (!pending_.empty() && !pending_.front().forwarded) {
    end_oldest(state_ == endpoint_state::failed ? syndrome::flushed : pending_.front().refused, 0);
    any = true;
  }
  return any;
}

void verbs_qp::end_oldest(syndrome why, std::uint8_t vendor) {
  const pending p = pending_.front();
  pending_.pop_front();
  done_ = p.index + p.blocks;
  if (why != syndrome::none) {
    mark_failed();
    complete(sent_, {.what = cqe_opcode::requester_error,
                     .of = p.op,
                     .index = p.index,
                     .why = why,
                     .vendor = vendor});
  } else if (p.signalled) {
    complete(sent_, {.of = p.op, .index = p.index, .bytes = p.bytes});
  }
}

/// Those that were never given to the device, once it has told of those that were.
bool verbs_qp::flush_entries() {
  if (!pending_.empty() || head_ == target_) return false;
  while (head_ != target_) {
    (void)read_entry(setup_.queues.send, setup_.send_depth, head_, target_ - head_, qpn(), now_);
    complete(sent_, {.what = cqe_opcode::requester_error,
                     .of = now_.op,
                     .index = head_,
                     .why = syndrome::flushed});
    head_ += now_.blocks;
    done_ = head_;
  }
  return true;
}

// ---- receives

bool verbs_qp::forward_receives() {
  if (shares_ || state_ == endpoint_state::failed) return false;
  const std::uint64_t posted =
      posted_until(*setup_.queues.record, receives_done_, setup_.receive_depth);
  bool any = false;
  while (next_receive_ < posted && next_receive_ - receives_done_ < most_receives_) {
    const auto* const at = setup_.queues.receive_at(next_receive_ & (setup_.receive_depth - 1));
    device_receive r(next_receive_, read_receive(at, most_pieces_));
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(pair_.get(), &r.request, &bad) != 0) {
      mark_failed();  // it is flushed, with all others
      return true;
    }
    ++next_receive_;
    any = true;
  }
  return any;
}

bool verbs_qp::take_received() {
  if (!shares_ && next_receive_ == receives_done_) return false;
  std::array<ibv_wc, completions_at_once> all;
  const int count = ibv_poll_cq(receive_queue_.get(), completions_at_once, all.data());
  for (int i = 0; i < count; ++i) {
    const ibv_wc& w = all[static_cast<std::size_t>(i)];
    cqe_values v;
    v.index = shares_ ? w.wr_id : receives_done_++;
    v.why = syndrome_of(w.status);
    if (v.why != syndrome::none) {
      v.what = cqe_opcode::responder_error;
      v.vendor = static_cast<std::uint8_t>(w.vendor_err);
      mark_failed();
    } else {
      const bool imm = (w.wc_flags & IBV_WC_WITH_IMM) != 0;
      v.what = w.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? cqe_opcode::responder_write_imm
               : imm                                 ? cqe_opcode::responder_send_imm
                                                     : cqe_opcode::responder_send;
      v.bytes = w.byte_len;
      v.imm = imm ? w.imm_data : 0;
    }
    complete(received_, v);
  }
  return count > 0;
}

bool verbs_qp::flush_receives() {
  if (shares_) return end_shared();
  if (next_receive_ != receives_done_) return false;  // the device flushes those that it has
  const std::uint64_t posted =
      posted_until(*setup_.queues.record, receives_done_, setup_.receive_depth);
  const bool any = receives_done_ != posted;
  while (receives_done_ != posted) {
    complete(
        received_,
        {.what = cqe_opcode::responder_error, .index = receives_done_++, .why = syndrome::flushed});
  }
  next_receive_ = receives_done_;
  return any;
}

/// The device has flushed what it had here of shared ones, if any: its queue was empty just now.
bool verbs_qp::end_shared() {
  if (told_last_ || take_received()) return false;
  told_last_ = true;
  std::atomic_ref<std::uint64_t>(setup_.events->no_receives)
      .store(1, std::memory_order_release);  // pairs with hears_no_receives()
  return true;
}

// ---- completions

void verbs_qp::complete(completion_writer& to, const cqe_values& v) {
  if (!to.tell(qpn(), v)) mark_failed();
}

}  // namespace crosswarp::verbs
