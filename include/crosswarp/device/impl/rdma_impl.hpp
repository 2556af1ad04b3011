// Bodies of rdma.hpp: what does not depend on the provider.
#pragma once

#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

namespace impl {

// Locks of an endpoint are held for a few instructions, and never while something is waited for.
[[nodiscard]] CW_FN inline bool try_lock(std::uint64_t& lock) noexcept {
  const device_atomic<std::uint64_t> word(lock);
  return word.load(order::relaxed) == 0 && word.exchange(1, order::acquire) == 0;  // unlock()
}
CW_FN inline void unlock(std::uint64_t& lock) noexcept {
  device_atomic<std::uint64_t>(lock).store(0, order::release);  // pairs with try_lock()
}
/// For locks: a user's short deadline must not leave an entry that nobody rings for.
[[nodiscard]] CW_FN inline wait_limits patient(const wait_limits& l) noexcept {
  constexpr std::uint64_t least = 10'000'000'000;
  return l.within(l.timeout_ns > least ? l.timeout_ns : least);
}

[[nodiscard]] CW_FN inline std::uint64_t done_of(const work_queue& q) noexcept {
  // pairs with drain_sent(), take_received(): the adapter has read the places before it
  return device_atomic<std::uint64_t>(q.state->done).load(order::acquire);
}

/// The first failure stays. By the thread that holds the lock of the completion queue.
CW_FN inline void latch(const work_queue& q, const completion& c) noexcept {
  const device_atomic<std::uint64_t> word(q.state->fault);
  if (word.load(order::relaxed) != 0) return;
  q.state->fault_index = c.index;
  word.store(static_cast<std::uint64_t>(c.why) | static_cast<std::uint64_t>(c.vendor) << 8U,
             order::release);  // pairs with fault_of()
}
[[nodiscard]] CW_FN inline std::uint64_t fault_of(const work_queue& q) noexcept {
  return device_atomic<std::uint64_t>(q.state->fault).load(order::acquire);  // pairs with latch()
}

}  // namespace impl

/// Of a queue that has failed.
template <class P>
CW_FN inline completion basic_endpoint<P>::first_failure(const work_queue& q) noexcept {
  const std::uint64_t fault = impl::fault_of(q);
  completion c;
  c.index = q.state->fault_index;
  c.why = static_cast<syndrome>(fault & 0xffU);
  c.vendor = static_cast<std::uint8_t>(fault >> 8U);
  c.outcome = status_of(c.why);
  return c;
}

/// What the entry at `first` ends with in a queue that has failed.
template <class P>
CW_FN inline completion basic_endpoint<P>::failure(const work_queue& q,
                                                   std::uint64_t first) noexcept {
  completion c = first_failure(q);
  if (c.index == first) return c;
  c = {};
  c.index = first;
  c.why = syndrome::flushed;
  c.outcome = status_of(c.why);
  return c;
}

// ---- posting

template <class P>
CW_FN inline bool basic_endpoint<P>::fits(const request& r) const noexcept {
  const std::uint32_t units = P::units(r);
  return units != 0 && (r.inline_data == nullptr || r.bytes <= p_.inline_bytes);
}

/// Takes places next to each other once they are free. Only then: so a wait that ends early leaves
/// nothing behind that others would have to step over.
template <class P>
template <class Drain>
CW_FN inline typename basic_endpoint<P>::place basic_endpoint<P>::reserve(
    const work_queue& q, std::uint32_t blocks, Drain&& drain) const noexcept {
  // More could wait for an entry that is not signalled.
  if (blocks == 0 || blocks > q.depth / 2) return {status::invalid, 0};
  const device_atomic<std::uint64_t> reserved(q.state->reserved);
  place got{status::ok, 0};
  const auto take = [&] {
    std::uint64_t next = reserved.load(order::relaxed);
    while (impl::fault_of(q) == 0) {
      const std::uint64_t free_until = impl::done_of(q) + q.depth;
      if (!reached(free_until, next + blocks)) {
        drain();
        return false;
      }
      got.first = next;
      if (reserved.compare_exchange(next, next + blocks, order::relaxed)) return true;
    }
    got.outcome = status_of(syndrome::flushed);
    return true;
  };
  const status waited = poll_until(take, p_.limits);
  if (waited != status::ok) got.outcome = waited;
  return got;
}

/// `count` entries of `blocks` blocks each; either is 1.
template <class P>
template <group G, class F>
CW_FN inline posted basic_endpoint<P>::write_entries(const G& g, std::uint32_t count,
                                                     std::uint32_t blocks,
                                                     F&& make) const noexcept {
  g.sync();  // what all of them wrote into sources comes before
  const std::uint32_t total = count * blocks;
  const place at =
      leader_of(g, [&] { return reserve(p_.send, total, [&] { drain_sent(nullptr); }); });
  if (at.outcome != status::ok) return {at.outcome, 0, 0};
  const std::uint64_t part = p_.send.depth / 4;
  for (auto i = static_cast<std::uint32_t>(g.rank()); i < count;
       i += static_cast<std::uint32_t>(g.size())) {
    const request r = make(i);
    const std::uint64_t first = at.first + i;
    const std::uint64_t end = first + blocks;
    const bool at_least = ((first ^ end) & ~(part - 1)) != 0;
    P::write_entry(p_.queues, p_.send.depth, first, r, r.signalled || at_least);
    if (i > 0) device_atomic<std::uint64_t>(p_.send.end_of(first)).store(end, order::relaxed);
  }
  g.sync();
  if (g.rank() == 0) {
    // pairs with collect()
    device_atomic<std::uint64_t>(p_.send.end_of(at.first)).store(at.first + blocks, order::release);
  }
  return {status::ok, at.first, at.first + total};
}

template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post(const G& g, const request& r) const noexcept {
  if (!fits(r)) return {status::invalid, 0, 0};
  return write_entries(g, 1, mlx5::blocks_of(P::units(r)), [&](std::uint32_t) { return r; });
}

template <class P>
template <group G, class F>
CW_FN inline posted basic_endpoint<P>::post_batch(const G& g, std::uint32_t count,
                                                  F&& make) const noexcept {
  bool bad = count == 0 || count > p_.send.depth / 2;
  for (auto i = static_cast<std::uint32_t>(g.rank()); i < count && !bad;
       i += static_cast<std::uint32_t>(g.size())) {
    const request r = make(i);
    bad = !fits(r) || mlx5::blocks_of(P::units(r)) != 1;
  }
  if (g.any(bad)) return {status::invalid, 0, 0};
  return write_entries(g, count, 1, make);
}

template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write(const G& g, local_memory from, remote_memory to,
                                                  std::uint32_t bytes,
                                                  bool signalled) const noexcept {
  return post(g, {.op = operation::write,
                  .signalled = signalled,
                  .bytes = bytes,
                  .local = from,
                  .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write_inline(const G& g, const void* from,
                                                         remote_memory to, std::uint32_t bytes,
                                                         bool signalled) const noexcept {
  return post(g, {.op = operation::write,
                  .signalled = signalled,
                  .bytes = bytes,
                  .inline_data = from,
                  .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write_imm(const G& g, local_memory from,
                                                      remote_memory to, std::uint32_t bytes,
                                                      std::uint32_t imm,
                                                      bool signalled) const noexcept {
  return post(g, {.op = operation::write_imm,
                  .signalled = signalled,
                  .bytes = bytes,
                  .imm = imm,
                  .local = from,
                  .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_read(const G& g, local_memory to, remote_memory from,
                                                 std::uint32_t bytes,
                                                 bool signalled) const noexcept {
  return post(
      g,
      {.op = operation::read, .signalled = signalled, .bytes = bytes, .local = to, .remote = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_send(const G& g, local_memory from, std::uint32_t bytes,
                                                 bool signalled) const noexcept {
  return post(g, {.op = operation::send, .signalled = signalled, .bytes = bytes, .local = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_atomic(const G& g, const request& r) const noexcept {
  const bool atomic = r.op == operation::fetch_add || r.op == operation::compare_swap;
  if (!atomic) return {status::invalid, 0, 0};
  return post(g, r);
}

template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_recv(const G& g, local_memory to,
                                                 std::uint32_t bytes) const noexcept {
  return leader_of(g, [&]() -> posted {
    // Receives are not taken from here: somebody has to, so that their places become free.
    const place at = reserve(p_.receive, 1, [] {});
    if (at.outcome != status::ok) return {at.outcome, 0, 0};
    P::write_receive(p_.queues, p_.receive.depth, at.first, to, bytes);
    device_atomic<std::uint64_t>(p_.receive.end_of(at.first))
        .store(at.first + 1, order::release);  // pairs with collect()
    return {status::ok, at.first, at.first + 1};
  });
}

// ---- telling the adapter

/// Moves `ready` over everything that was posted without a gap. Who fills a gap comes here
/// afterwards, so nothing is left behind. With the lock.
template <class P>
CW_FN inline void basic_endpoint<P>::collect(const work_queue& q) noexcept {
  std::uint64_t ready = q.state->ready;
  for (;;) {
    // pairs with write_entries(), post_recv()
    const std::uint64_t end = device_atomic<std::uint64_t>(q.end_of(ready)).load(order::acquire);
    if (end <= ready) break;  // of an earlier lap
    ready = end;
  }
  q.state->ready = ready;
}

/// Runs `f` with the lock, unless `end` was told meanwhile.
template <class P>
template <class Tell>
CW_FN inline status basic_endpoint<P>::tell(const work_queue& q, std::uint64_t end,
                                            Tell&& f) const noexcept {
  bool locked = false;
  const device_atomic<std::uint64_t> told(q.state->told);
  const status waited = poll_until(
      [&] {
        if (reached(told.load(order::relaxed), end)) return true;
        locked = impl::try_lock(q.state->lock);
        return locked;
      },
      impl::patient(p_.limits));
  if (!locked) return waited;
  f();
  impl::unlock(q.state->lock);
  return status::ok;
}

namespace impl {
/// An end that was never told, so that the lock is taken.
CW_FN inline std::uint64_t untold(const work_queue& q) noexcept {
  return device_atomic<std::uint64_t>(q.state->told).load(order::relaxed) + q.depth + 1;
}
}  // namespace impl

template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::update_send_dbr_record(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return tell(p_.send, impl::untold(p_.send), [&] {
      collect(p_.send);
      P::write_send_record(p_.queues, p_.send.state->ready);
    });
  });
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::ring_doorbell(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return tell(p_.send, impl::untold(p_.send), [&] {
      P::ring(p_.queues, p_.send.state->ready);
      device_atomic<std::uint64_t>(p_.send.state->told).store(p_.send.state->ready, order::relaxed);
    });
  });
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::submit(const G& g, std::uint64_t end) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return tell(p_.send, end, [&] {
      const device_atomic<std::uint64_t> told(p_.send.state->told);
      collect(p_.send);
      const std::uint64_t ready = p_.send.state->ready;
      if (told.load(order::relaxed) == ready) return;
      P::write_send_record(p_.queues, ready);
      P::ring(p_.queues, ready);
      told.store(ready, order::relaxed);
    });
  });
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::update_recv_dbr_record(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return tell(p_.receive, impl::untold(p_.receive), [&] {
      collect(p_.receive);
      P::write_receive_record(p_.queues, p_.receive.state->ready);
    });
  });
}

// ---- completions

/// A failure that has no completion ends all that is not complete. With the lock.
template <class P>
CW_FN inline void basic_endpoint<P>::hear_event(std::uint64_t done) const noexcept {
  // Relaxed: it orders no data, it only ends waits.
  const std::uint64_t event =
      system_atomic<std::uint64_t>(const_cast<std::uint64_t&>(*p_.event)).load(order::relaxed);
  if (event == 0) return;
  completion lost;
  lost.index = done;
  lost.why = static_cast<syndrome>(event & 0xffU);
  impl::latch(p_.send, lost);
}

/// Reads completions of the send queue: all that are there and says so in the record, or `one` and
/// leaves the record to the caller. False when there is none, or when another thread is at it.
template <class P>
CW_FN inline bool basic_endpoint<P>::drain_sent(completion* one) const noexcept {
  cq_state& s = *p_.sent;
  const work_queue& q = p_.send;
  if (!impl::try_lock(s.lock)) return false;
  const device_atomic<std::uint64_t> done_word(q.state->done);
  std::uint64_t done = done_word.load(order::relaxed);
  bool any = false;
  typename P::found raw;
  // A collapsed queue keeps on showing a failure.
  while (!(p_.queues.sent.collapsed && impl::fault_of(q) != 0) &&
         P::look(p_.queues.sent, s.index, done, raw)) {
    any = true;
    ++s.index;
    const completion c = P::decode(raw, done);
    if (c.outcome == status::ok) {
      // Relaxed: the adapter has completed the entry, so it was posted before.
      done = device_atomic<std::uint64_t>(q.end_of(c.index)).load(order::relaxed);
    } else if (impl::fault_of(q) == 0) {
      // Entries are carried out in order: those before it have succeeded. Where completions
      // replace each other, those before a flushed one are not known.
      if (!p_.queues.sent.collapsed || c.why != syndrome::flushed) done = c.index;
      impl::latch(q, c);
    }
    if (one != nullptr) {
      *one = c;
      break;
    }
  }
  if (any && one == nullptr && !p_.queues.sent.collapsed) {
    P::write_cq_record(p_.queues.sent, s.index);  // before places are used again
  }
  if (any) {
    s.idle = 0;
    done_word.store(done, order::release);  // pairs with done_of()
  } else if (++s.idle % 32 == 0) {          // it may lie across a bus
    hear_event(done);
  }
  impl::unlock(s.lock);
  return any;
}

template <class P>
CW_FN inline completion basic_endpoint<P>::await(std::uint64_t first,
                                                 std::uint64_t end) const noexcept {
  const status waited = poll_until(
      [&] {
        if (reached(impl::done_of(p_.send), end) || impl::fault_of(p_.send) != 0) return true;
        drain_sent(nullptr);
        return reached(impl::done_of(p_.send), end) || impl::fault_of(p_.send) != 0;
      },
      p_.limits);
  completion c;
  c.index = first;
  c.outcome = waited;
  if (reached(impl::done_of(p_.send), end)) {
    c.outcome = status::ok;
  } else if (impl::fault_of(p_.send) != 0) {
    c = failure(p_.send, first);
  }
  return c;
}

template <class P>
template <group G>
CW_FN inline bool basic_endpoint<P>::poll_cq(const G& g, completion& c) const noexcept {
  struct result {
    bool any;
    completion c;
  };
  const result r = leader_of(g, [&] {
    result found{};
    found.any = drain_sent(&found.c);
    return found;
  });
  if (r.any) c = r.c;
  return r.any;
}

template <class P>
template <group G>
CW_FN inline void basic_endpoint<P>::update_cq_dbr_record(const G& g) const noexcept {
  if (p_.queues.sent.collapsed) return;
  g.sync();
  if (g.rank() == 0) {
    // Who reads completions at this moment writes the record, or another call does.
    if (!impl::try_lock(p_.sent->lock)) return;
    P::write_cq_record(p_.queues.sent, p_.sent->index);
    impl::unlock(p_.sent->lock);
  }
}

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::wait(const G& g, const posted& p) const noexcept {
  return leader_of(g, [&] { return await(p.index, p.end); });
}

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::quiet(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&]() -> completion {
    const thread_group me;
    const std::uint64_t end =
        device_atomic<std::uint64_t>(p_.send.state->reserved).load(order::relaxed);
    if (reached(impl::done_of(p_.send), end)) return {};
    // The last entry need not be signalled: one that does nothing is.
    const completion c = perform(me, {});
    return impl::fault_of(p_.send) != 0 ? first_failure(p_.send) : c;
  });
}

template <class P>
CW_FN inline bool basic_endpoint<P>::is_complete(std::uint64_t end) const noexcept {
  return reached(impl::done_of(p_.send), end);
}
template <class P>
CW_FN inline completion basic_endpoint<P>::first_failure() const noexcept {
  return impl::fault_of(p_.send) != 0 ? first_failure(p_.send) : completion{};
}

template <class P>
CW_FN inline bool basic_endpoint<P>::take_received(completion& c) const noexcept {
  cq_state& s = *p_.received;
  if (!impl::try_lock(s.lock)) return false;
  const device_atomic<std::uint64_t> done_word(p_.receive.state->done);
  const std::uint64_t done = done_word.load(order::relaxed);
  typename P::found raw;
  const bool any = P::look(p_.queues.received, s.index, done, raw);
  if (any) {
    ++s.index;
    c = P::decode(raw, done);
    if (c.outcome != status::ok) impl::latch(p_.receive, c);
    P::write_cq_record(p_.queues.received, s.index);  // before the place is used again
    done_word.store(c.index + 1, order::release);     // pairs with done_of()
  }
  impl::unlock(s.lock);
  return any;
}

template <class P>
template <group G>
CW_FN inline bool basic_endpoint<P>::poll_recv(const G& g, completion& c) const noexcept {
  struct result {
    bool any;
    completion c;
  };
  const result r = leader_of(g, [&] {
    result found{};
    found.any = take_received(found.c);
    return found;
  });
  if (r.any) c = r.c;
  return r.any;
}

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::wait_recv(const G& g) const noexcept {
  return leader_of(g, [&] {
    completion c;
    bool any = false;
    const status waited = poll_until(
        [&] {
          any = take_received(c);
          // After a failure every receive that was posted completes; then none comes any more.
          const auto posted_all = [&] {
            const device_atomic<std::uint64_t> reserved(p_.receive.state->reserved);
            return reached(impl::done_of(p_.receive), reserved.load(order::relaxed));
          };
          return any || (impl::fault_of(p_.receive) != 0 && posted_all());
        },
        p_.limits);
    if (any) return c;
    c.outcome = waited;
    if (waited == status::ok) c = failure(p_.receive, impl::done_of(p_.receive));
    return c;
  });
}

// ---- in one call

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::perform(const G& g, const request& r) const noexcept {
  const posted p = post(g, r);
  completion c;
  c.index = p.index;
  c.outcome = p.outcome;
  if (p.outcome != status::ok) {
    c.why = p.outcome == status_of(syndrome::flushed) ? syndrome::flushed : syndrome::none;
    return c;
  }
  c.outcome = submit(g, p.end);
  return c.outcome == status::ok ? wait(g, p) : c;
}

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::write(const G& g, local_memory from, remote_memory to,
                                                 std::uint32_t bytes) const noexcept {
  return perform(g, {.op = operation::write, .bytes = bytes, .local = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::write_imm(const G& g, local_memory from,
                                                     remote_memory to, std::uint32_t bytes,
                                                     std::uint32_t imm) const noexcept {
  return perform(
      g, {.op = operation::write_imm, .bytes = bytes, .imm = imm, .local = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::read(const G& g, local_memory to, remote_memory from,
                                                std::uint32_t bytes) const noexcept {
  return perform(g, {.op = operation::read, .bytes = bytes, .local = to, .remote = from});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::send(const G& g, local_memory from,
                                                std::uint32_t bytes) const noexcept {
  return perform(g, {.op = operation::send, .bytes = bytes, .local = from});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::fetch_add(const G& g, local_memory old, remote_memory at,
                                                     std::uint64_t add, int width) const noexcept {
  return perform(g, {.op = operation::fetch_add,
                     .width = static_cast<std::uint8_t>(width),
                     .local = old,
                     .remote = at,
                     .operand = add});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::compare_swap(const G& g, local_memory old,
                                                        remote_memory at, std::uint64_t expected,
                                                        std::uint64_t desired,
                                                        int width) const noexcept {
  return perform(g, {.op = operation::compare_swap,
                     .width = static_cast<std::uint8_t>(width),
                     .local = old,
                     .remote = at,
                     .operand = desired,
                     .comparand = expected});
}

}  // namespace crosswarp::device::rdma
