// Bodies of rdma.hpp: completions of the send queue, and waits for them.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

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

}  // namespace crosswarp::device::rdma
