// The life of a command in its queue: it is read and judged, started (see start.cpp), counted and
// answered.
#include <algorithm>

#include "core/log.hpp"
#include "operation.hpp"

namespace crosswarp {

using device::proxy_command;
using device::proxy_op;
using namespace proxy_impl;

namespace {

constexpr std::size_t operations_at_once = 1024;
constexpr int commands_per_visit = 32;

template <class T>
std::atomic_ref<T> shared(T& word) noexcept {
  return std::atomic_ref<T>(word);
}

}  // namespace

bool proxy::work() noexcept {
  return keep_going([this] {
    if (news_.load(std::memory_order_acquire)) hear_news();
    if (!tails_seen_.empty()) fetch_entries();
    bool moved = false;
    unread_ = false;
    // Another one first each time, so that all have their share when something is scarce.
    first_queue_ = first_queue_ + 1 < queues_.size() ? first_queue_ + 1 : 0;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      const std::size_t at = first_queue_ + i;
      queue& q = *queues_[at < queues_.size() ? at : at - queues_.size()];
      if (drain(q)) {
        moved = true;
        last_active_ = &q;
      }
      // Whoever asked last is likely to ask next, and waits for an answer meanwhile.
      constexpr std::size_t often = 16;
      if (i % often == often - 1 && last_active_ != nullptr) {
        moved = drain(*last_active_) || moved;
      }
    }
    moved = flush_quiets() || moved;
    return engine_->progress() || moved;
  });
}

// ---- reading commands

void proxy::find_next(queue& q) const noexcept {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  const std::uint64_t slot = q.head % depth;
  q.next = q.fetched.empty() ? entries_.data() + q.index * depth + slot : q.fetched.data() + slot;
  q.next_tag = static_cast<std::uint32_t>(q.head / depth + 1);
}

/// A quick look: most queues are empty most of the time.
bool proxy::has_next(const queue& q) noexcept {
  auto& word = const_cast<std::uint64_t&>(q.next->words[0]);
  return static_cast<std::uint32_t>(shared(word).load(std::memory_order_relaxed) >> 32U) ==
         q.next_tag;
}

bool proxy::commands_wait() const noexcept {
  return std::any_of(queues_.begin(), queues_.end(), [](const auto& q) { return has_next(*q); });
}

bool proxy::drain(queue& q) {
  if (q.current == nullptr && !has_next(q)) return false;
  bool moved = false;
  const std::uint64_t before = q.head;
  if (q.current != nullptr) recheck(*q.current);
  int i = 0;
  for (; i < commands_per_visit; ++i) {
    if (q.current == nullptr && !read_next(q)) break;
    moved = true;
    if (q.current == nullptr) continue;  // done already
    operation& op = *q.current;
    if (!start(op)) break;
    q.current = nullptr;
    part_done(op, status::ok);
  }
  unread_ = unread_ || i == commands_per_visit;
  if (q.head != before) {
    // In one go for all that were read. pairs with proxy_queue::is_free()
    shared(heads_.data()[q.index].consumed).store(q.head, std::memory_order_release);
  }
  return moved;
}

/// A command that waited for room: what it names may be gone.
void proxy::recheck(operation& op) {
  set_worse(op.outcome, validate(op.c, bounds_));
  set_worse(op.outcome, refusal_.load(std::memory_order_relaxed));
  if (names_rank(op.c.op) && dead_[static_cast<std::size_t>(op.c.pe)]) {
    set_worse(op.outcome, status::peer_lost);
  }
}

bool proxy::read_next(queue& q) {
  const auto c = read_command(*q.next, q.next_tag);
  if (!c) return false;
  operation* const op = free_operation();
  if (op == nullptr) return false;
  op->from = &q;
  op->ticket = q.head++;
  find_next(q);
  op->c = *c;
  op->started = 0;
  op->data_started = false;
  op->parts = 1;
  op->outcome = status::ok;
  if (timed_) op->read = std::chrono::steady_clock::now();
  if (trace_ != nullptr) op->began = device::trace_ticks();
  op->active = true;
  op->answered = false;
  op->result = 0;
  admit(q, *op);
  return true;
}

/// Queues in a GPU's memory: the host cannot look there, so it copies what came since.
void proxy::fetch_entries() {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  exec::copy_now(device_, tails_seen_.data(), tails_.data(),
                 tails_seen_.size() * sizeof(device::proxy_tail));
  for (const auto& q : queues_) {
    // A ticket was taken for each of these; what is not written yet is copied again.
    const std::uint64_t end = std::min(tails_seen_[q->index].next, q->head + depth);
    for (std::uint64_t at = q->head; at < end;) {
      const std::uint64_t slot = at % depth;
      const std::uint64_t run = std::min(end - at, depth - slot);
      exec::copy_now(device_, q->fetched.data() + slot, entries_.data() + q->index * depth + slot,
                     run * sizeof(device::proxy_entry));
      at += run;
    }
  }
}

/// Into the order of its queue; refused commands end here.
void proxy::admit(queue& q, operation& op) {
  op.epoch = q.first_epoch + q.epochs.size() - 1;
  if (op.c.op == proxy_op::quiet) {
    q.epochs.back().quiet = &op;
    q.epochs.emplace_back();
    settle(q);
    return;
  }
  ++q.epochs.back().open;
  set_worse(op.outcome, validate(op.c, bounds_));
  if (op.outcome == status::ok) {
    const bool lost = is_collective(op.c.op)
                          ? std::find(dead_.begin(), dead_.end(), true) != dead_.end()
                          : names_rank(op.c.op) && dead_[static_cast<std::size_t>(op.c.pe)];
    if (lost) op.outcome = status::peer_lost;
    set_worse(op.outcome, refusal_.load(std::memory_order_relaxed));
  }
  if (op.outcome != status::ok) {
    finish(op);
    return;
  }
  q.current = &op;
}

proxy::operation* proxy::free_operation() {
  if (free_operations_.empty()) {
    if (operations_.size() == operations_at_once) return nullptr;
    auto made = std::make_unique<operation>();
    made->owner = this;
    made->done = [](completion& c, status s) {
      auto& op = static_cast<operation&>(c);
      --op.owner->under_way_;
      op.owner->part_done(op, s);
    };
    free_operations_.push_back(made.get());
    operations_.push_back(std::move(made));
  }
  operation* const op = free_operations_.back();
  free_operations_.pop_back();
  return op;
}

// ---- ending them

void proxy::part_done(operation& op, status s) {
  set_worse(op.outcome, s);
  if (--op.parts == 0) finish(op);
}

void proxy::finish(operation& op) {
  queue& q = *op.from;
  if (op.c.op == proxy_op::atomic && op.c.local != 0 && op.outcome == status::ok) {
    set_worse(op.outcome,
              write_local(op.c.local, reinterpret_cast<const std::byte*>(&op.result), op.c.width));
  }
  queue::epoch& e = q.epochs[static_cast<std::size_t>(op.epoch - q.first_epoch)];
  if ((op.c.flags & proxy_command::wants_reply) == 0) {
    set_worse(e.failure, op.outcome);
    if (op.outcome != status::ok) log_failure(op);
  } else if (!op.answered) {
    reply(q, op.ticket, op.result, op.outcome);
  }
  --e.open;
  count(op);
  op.active = false;
  free_operations_.push_back(&op);
  settle(q);
}

// ---- counting them

void proxy::count(const operation& op) {
  operation_stats& s = stats_[static_cast<std::size_t>(call_of(op.c))];
  ++s.count;
  if (op.outcome == status::ok) {
    s.bytes += bytes_of(op.c);
  } else {
    ++s.failures;
  }
  s.waited_for_slot += std::chrono::nanoseconds(op.c.waited_ns);
  if (timed_) s.to_completion += std::chrono::steady_clock::now() - op.read;
  if (trace_ != nullptr) note(op);
}

void proxy::note(const operation& op) {
  device::trace_record r;
  r.begin = op.began;
  r.end = device::trace_ticks();
  r.bytes = bytes_of(op.c);
  r.id = device::trace_id(op.from->index, op.ticket);
  r.pe = op.c.pe;
  r.kind = device::trace_kind::proxy;
  r.what = static_cast<std::uint8_t>(call_of(op.c));
  r.outcome = static_cast<std::uint8_t>(op.outcome);
  trace_->note_in_turn(r);
}

/// Of a command that nobody waits for: somebody may ask for it at a quiet, or never. Once for each
/// rank and outcome, since a kernel may fail a million times.
void proxy::log_failure(const operation& op) noexcept {
  const bool named = names_rank(op.c.op) && op.c.pe >= 0 && op.c.pe < bounds_.size;
  const std::size_t to = static_cast<std::size_t>(named ? op.c.pe : bounds_.size);
  // A lost rank and a broken world have been told where they were first known.
  if (refusal_.load(std::memory_order_relaxed) != status::ok || (named && dead_[to])) return;
  const std::uint32_t bit = 1U << static_cast<unsigned>(op.outcome);
  if ((told_[to] & bit) != 0) return;
  told_[to] |= bit;
  const std::string why = op.outcome == status::invalid ? what_is_wrong(op.c, bounds_) : "";
  log::error(bounds_.rank, "proxy: ", name_of(call_of(op.c)), ": ", to_string(op.outcome),
             why.empty() ? "" : ": ", why, " (rank ", op.c.pe, " of ", bounds_.size, ", queue ",
             op.from->index, "); quiet tells, others like it are not logged");
}

/// Quiets before which nothing is under way any more can have their flush.
void proxy::settle(queue& q) {
  while (q.epochs.front().quiet != nullptr && q.epochs.front().open == 0) {
    operation& quiet = *q.epochs.front().quiet;
    set_worse(quiet.outcome, q.epochs.front().failure);
    quiets_.push_back(&quiet);
    q.epochs.pop_front();
    ++q.first_epoch;
  }
}

/// One flush for all quiets of this round.
bool proxy::flush_quiets() {
  if (quiets_.empty()) return false;
  if (free_flushes_.empty()) {
    flushes_.push_back(std::make_unique<flush>());
    free_flushes_.push_back(flushes_.back().get());
  }
  flush& f = *free_flushes_.back();
  f.owner = this;
  f.done = [](completion& c, status s) {
    auto& done = static_cast<flush&>(c);
    proxy& owner = *done.owner;
    --owner.under_way_;
    for (operation* op : done.quiets) {
      set_worse(op->outcome, s);
      set_worse(op->outcome, owner.refusal_.load(std::memory_order_relaxed));
      if (!op->answered && (op->c.flags & proxy_command::wants_reply) != 0) {
        owner.reply(*op->from, op->ticket, 0, op->outcome);
      }
      owner.count(*op);
      op->active = false;
      owner.free_operations_.push_back(op);
    }
    done.quiets.clear();
    owner.free_flushes_.push_back(&done);
  };
  free_flushes_.pop_back();
  f.quiets.swap(quiets_);
  ++under_way_;
  if (engine_->flush(f)) return true;
  --under_way_;
  f.quiets.swap(quiets_);
  free_flushes_.push_back(&f);
  return false;
}

void proxy::reply(const queue& q, std::uint64_t ticket, std::uint64_t value, status s) noexcept {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  device::proxy_reply& r = replies_.data()[q.index * depth + ticket % depth];
  const std::uint64_t lap = ticket / depth;
  shared(r.value).store(value, std::memory_order_relaxed);
  // pairs with proxy_queue::wait_reply(), is_free()
  shared(r.stamp).store((lap + 1) << 8U | static_cast<std::uint8_t>(s), std::memory_order_release);
}

}  // namespace crosswarp
