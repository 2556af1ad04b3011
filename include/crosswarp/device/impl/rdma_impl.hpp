// Bodies of rdma.hpp: what does not depend on the provider.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

namespace impl {
template <group G>
inline constexpr bool is_sole = std::is_same_v<G, sole_producer>;
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

/// What entries from `first` to `end` end with in a queue that has failed.
template <class P>
CW_FN inline completion basic_endpoint<P>::failure(const work_queue& q, std::uint64_t first,
                                                   std::uint64_t end) noexcept {
  const completion c = first_failure(q);
  if (c.index - first < end - first) return c;
  return impl::flushed_at(first);
}

/// What waits say of a post that left no entry.
template <class P>
CW_FN inline completion basic_endpoint<P>::not_posted(const posted& p) noexcept {
  completion c;
  c.index = p.index;
  c.outcome = p.outcome;
  c.why = p.outcome == status_of(syndrome::flushed) ? syndrome::flushed : syndrome::none;
  return c;
}

// ---- posting

template <class P>
CW_FN inline bool basic_endpoint<P>::fits(const request& r) const noexcept {
  return P::units(r) != 0 && r.list.count <= p_.sge &&
         (r.inline_data == nullptr || r.bytes <= p_.inline_bytes);
}
template <class P>
CW_FN inline bool basic_endpoint<P>::has_length(const request& r) noexcept {
  return r.inline_data != nullptr || r.bytes == 0 || P::is_piece(r.bytes);
}

/// Out of line: what is seldom does not make posts longer.
template <class P>
CW_COLD CW_FN impl::place basic_endpoint<P>::wait_for_room(std::uint32_t blocks) const noexcept {
  return impl::reserve(p_.send, blocks, p_.limits, [&] { drain_sent(nullptr); });
}

/// `count` entries of `blocks` blocks each; either is 1. Not `sound`: none, and invalid; looked at
/// together with the room, since a branch of its own makes each post longer.
template <class P>
template <group G, class F>
CW_FN inline posted basic_endpoint<P>::write_entries(const G& g, std::uint32_t count,
                                                     std::uint32_t blocks, bool sound,
                                                     F&& make) const noexcept {
  g.sync();  // what all of them wrote into sources comes before
  const std::uint32_t total = count * blocks;
  const impl::place at = leader_of(g, [&]() -> impl::place {
    std::uint64_t first = 0;
    if (impl::reserve_at_once(p_.send, total, impl::is_sole<G>, sound, first)) {
      return {status::ok, first};
    }
    return wait_for_room(sound ? total : 0);
  });
  if (at.outcome != status::ok) return {at.outcome, 0, 0};
  const std::uint64_t part = p_.send.depth / 4;
  for (auto i = static_cast<std::uint32_t>(g.rank()); i < count;
       i += static_cast<std::uint32_t>(g.size())) {
    const request r = make(i);
    const std::uint64_t first = at.first + i;
    const std::uint64_t end = first + blocks;
    const bool at_least = ((first ^ end) & ~(part - 1)) != 0;
    P::write_entry(p_.queues, p_.send.depth, first, r, r.signalled || at_least);
    if (i > 0 || impl::is_sole<G>) {
      device_atomic<std::uint64_t>(p_.send.end_of(first)).store(end, order::relaxed);
    }
  }
  if constexpr (impl::is_sole<G>) {
    p_.send.state->ready = at.first + total;  // nobody else collects
  } else {
    g.sync();
    if (g.rank() == 0) {
      // pairs with collect()
      device_atomic<std::uint64_t>(p_.send.end_of(at.first))
          .store(at.first + blocks, order::release);
    }
  }
  return {status::ok, at.first, at.first + total};
}

template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post(const G& g, const request& r) const noexcept {
  if (!fits(r)) return {status::invalid, 0, 0};
  return write_entries(g, 1, P::blocks_of(P::units(r)), has_length(r),
                       [&](std::uint32_t) { return r; });
}

template <class P>
template <group G, class F>
CW_FN inline posted basic_endpoint<P>::post_batch(const G& g, std::uint32_t count,
                                                  F&& make) const noexcept {
  bool bad = count == 0 || count > p_.send.depth / 2;
  for (auto i = static_cast<std::uint32_t>(g.rank()); i < count && !bad;
       i += static_cast<std::uint32_t>(g.size())) {
    const request r = make(i);
    bad = !fits(r) || !has_length(r) || P::blocks_of(P::units(r)) != 1;
  }
  if (g.any(bad)) return {status::invalid, 0, 0};
  return write_entries(g, count, 1, true, make);
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
CW_FN inline posted basic_endpoint<P>::post_write(const G& g, const segment_list& from,
                                                  remote_memory to, bool signalled) const noexcept {
  return post(g, {.op = operation::write, .signalled = signalled, .list = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write_imm(const G& g, const segment_list& from,
                                                      remote_memory to, std::uint32_t imm,
                                                      bool signalled) const noexcept {
  return post(
      g,
      {.op = operation::write_imm, .signalled = signalled, .imm = imm, .list = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_read(const G& g, const segment_list& to,
                                                 remote_memory from,
                                                 bool signalled) const noexcept {
  return post(g, {.op = operation::read, .signalled = signalled, .list = to, .remote = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_send(const G& g, const segment_list& from,
                                                 bool signalled) const noexcept {
  return post(g, {.op = operation::send, .signalled = signalled, .list = from});
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
  const segment one{to, bytes};
  return post_recv(g, segment_list{&one, bytes != 0 ? 1U : 0U});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_recv(const G& g,
                                                 const segment_list& to) const noexcept {
  return leader_of(g, [&]() -> posted {
    if (p_.shared.state != nullptr || to.count > p_.sge || !impl::are_pieces<P>(to))
      return {status::invalid, 0, 0};
    // Receives are not taken from here: somebody has to, so that their places become free.
    const impl::place at = impl::reserve(p_.receive, 1, p_.limits, [] {});
    if (at.outcome != status::ok) return {at.outcome, 0, 0};
    P::write_receive(p_.queues, p_.receive.depth, at.first, to);
    device_atomic<std::uint64_t>(p_.receive.end_of(at.first))
        .store(at.first + 1, order::release);  // pairs with collect()
    return {status::ok, at.first, at.first + 1};
  });
}

// ---- telling the adapter

/// With the lock; the record says so already.
template <class P>
CW_FN inline void basic_endpoint<P>::ring(std::uint64_t ready) const noexcept {
  P::ring(p_.queues, ready);
  device_atomic<std::uint64_t>(p_.send.state->told).store(ready, order::relaxed);
  call_host<verbs::call_nic>(p_.nic);
}

template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::update_send_dbr_record(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return impl::tell(p_.send, impl::untold(p_.send), p_.limits, [&] {
      impl::collect(p_.send);
      P::write_send_record(p_.queues, p_.send.state->ready);
    });
  });
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::ring_doorbell(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return impl::tell(p_.send, impl::untold(p_.send), p_.limits,
                      [&] { ring(p_.send.state->ready); });
  });
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::submit([[maybe_unused]] const G& g,
                                              [[maybe_unused]] std::uint64_t end) const noexcept {
  if constexpr (impl::is_sole<G>) {
    const std::uint64_t ready = p_.send.state->ready;
    P::write_send_record(p_.queues, ready);
    ring(ready);
    return status::ok;
  } else {
    g.sync();
    return leader_of(g, [&] {
      return impl::tell(p_.send, end, p_.limits, [&] {
        impl::collect(p_.send);
        const std::uint64_t ready = p_.send.state->ready;
        if (device_atomic<std::uint64_t>(p_.send.state->told).load(order::relaxed) == ready) return;
        P::write_send_record(p_.queues, ready);
        ring(ready);
      });
    });
  }
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::update_recv_dbr_record(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return impl::tell(p_.receive, impl::untold(p_.receive), p_.limits, [&] {
      impl::collect(p_.receive);
      P::write_receive_record(p_.queues, p_.receive.state->ready);
    });
  });
}

// ---- completions

/// Why nothing completes any more, where no completion says so; 0: it does.
template <class P>
CW_FN inline std::uint64_t basic_endpoint<P>::failed_event() const noexcept {
  // Relaxed: it orders no data, it only ends waits.
  return system_atomic<std::uint64_t>(const_cast<std::uint64_t&>(p_.events->failed))
      .load(order::relaxed);
}

/// A failure that has no completion ends all that is not complete. With the lock.
template <class P>
CW_FN inline void basic_endpoint<P>::hear_event(std::uint64_t done) const noexcept {
  const std::uint64_t event = failed_event();
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
  const device_atomic<std::uint64_t> index_word(s.index);
  std::uint64_t done = done_word.load(order::relaxed);
  std::uint64_t index = index_word.load(order::relaxed);
  bool any = false;
  typename P::found raw;
  // A collapsed queue keeps on showing a failure.
  while (!(p_.queues.sent.collapsed && impl::fault_of(q) != 0) &&
         P::look(p_.queues.sent, index, done, raw)) {
    any = true;
    ++index;
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
    P::write_cq_record(p_.queues.sent, index);  // before places are used again
  }
  if (any) {
    s.idle = 0;
    index_word.store(index, order::relaxed);
    done_word.store(done, order::release);  // pairs with done_of()
  } else if (++s.idle % 32 == 0) {          // it may lie across a bus
    hear_event(done);
  }
  impl::unlock(s.lock);
  return any;
}

/// Whether it is worth to take the lock: a look costs no more than to read the completion. It may
/// be wrong when another thread reads at this moment.
template <class P>
CW_FN inline bool basic_endpoint<P>::shows_completion(std::uint64_t done) const noexcept {
  typename P::found raw;
  return P::look(p_.queues.sent, device_atomic<std::uint64_t>(p_.sent->index).load(order::relaxed),
                 done, raw);
}

template <class P>
CW_FN inline completion basic_endpoint<P>::await(std::uint64_t first,
                                                 std::uint64_t end) const noexcept {
  std::uint32_t looks = 0;
  const status waited = poll_until(
      [&] {
        const std::uint64_t done = impl::done_of(p_.send);
        if (reached(done, end) || impl::fault_of(p_.send) != 0) return true;
        // Now and then in any case: it hears of events, too.
        if (!shows_completion(done) && ++looks % 32 != 0) return false;
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
    c = failure(p_.send, first, end);
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
  return leader_of(g,
                   [&] { return p.outcome == status::ok ? await(p.index, p.end) : not_posted(p); });
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
  const bool shared = p_.shared.state != nullptr;
  // Before the look: what completed before it was told is seen.
  const bool ended = ++s.idle % 32 == 0 && hears_no_receives();
  const device_atomic<std::uint64_t> done_word(p_.receive.state->done);
  std::uint64_t done = done_word.load(order::relaxed);
  typename P::found raw;
  const bool any = P::look(p_.queues.received, s.index, done, raw);
  if (any) {
    ++s.index;
    s.idle = 0;
    if (shared) done = impl::done_of(p_.shared);
    c = P::decode(raw, done);
    if (shared) c.index = done + ((c.index - done) & (p_.shared.depth - 1));
    if (c.outcome != status::ok) impl::latch(p_.receive, c);
    P::write_cq_record(p_.queues.received, s.index);  // before the place is used again
    if (shared) {
      impl::give_back(p_.shared, c.index);
    } else {
      done_word.store(c.index + 1, order::release);  // pairs with done_of()
    }
  } else if (ended) {
    impl::latch(p_.receive, impl::flushed_at(0));
    device_atomic<std::uint64_t>(s.ended).store(1, order::relaxed);  // it only ends waits
  }
  impl::unlock(s.lock);
  return any;
}

/// None completes here any more.
template <class P>
CW_FN inline bool basic_endpoint<P>::hears_no_receives() const noexcept {
  // pairs with the adapter's store: all completions came before
  return system_atomic<std::uint64_t>(const_cast<std::uint64_t&>(p_.events->no_receives))
             .load(order::acquire) != 0;
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

/// After a failure every receive that was posted completes; then none comes any more. Of shared
/// ones none was posted here, and it is told when none comes.
/// `looks`: also at what may lie across a bus.
template <class P>
CW_FN inline bool basic_endpoint<P>::no_more_receives(bool looks) const noexcept {
  if (device_atomic<std::uint64_t>(p_.received->ended).load(order::relaxed) != 0) return true;
  const bool failed = impl::fault_of(p_.receive) != 0 ||
                      (p_.shared.state == nullptr &&
                       (impl::fault_of(p_.send) != 0 || (looks && failed_event() != 0)));
  if (!failed) return false;
  const device_atomic<std::uint64_t> reserved(p_.receive.state->reserved);
  return reached(impl::done_of(p_.receive), reserved.load(order::relaxed));
}

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::wait_recv(const G& g) const noexcept {
  return leader_of(g, [&] {
    completion c;
    bool any = false;
    std::uint32_t looks = 0;
    const status waited = poll_until(
        [&] {
          any = take_received(c);
          return any || no_more_receives(++looks % 32 == 0);
        },
        p_.limits);
    if (any) return c;
    c.outcome = waited;
    if (waited == status::ok) c = impl::flushed_at(impl::done_of(p_.receive));
    return c;
  });
}

// ---- in one call

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::perform(const G& g, const request& r) const noexcept {
  const posted p = post(g, r);
  if (p.outcome != status::ok) return not_posted(p);
  completion c;
  c.index = p.index;
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
