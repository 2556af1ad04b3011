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
  // pairs with the adapter's store: all completions came before
  return system_atomic<std::uint64_t>(const_cast<std::uint64_t&>(p_.events->failed))
      .load(order::acquire);  // unseen: completions are atomics
}

/// A failure that has no completion ends all that is not complete. With the lock, by who found no
/// completion at `index`.
template <class P>
CW_FN inline void basic_endpoint<P>::hear_event(std::uint64_t index,
                                                std::uint64_t done) const noexcept {
  const std::uint64_t event = failed_event();
  if (event == 0) return;
  // Some may have come since that look; now none comes any more.
  typename P::found last;
  if (P::look(p_.queues.sent, index, done, last)) return;
  completion lost;
  lost.index = done;
  lost.why = static_cast<syndrome>(event & 0xffU);
  impl::latch(p_.send, lost);
}

/// What a look at the send queue's completions shows without the lock. What it needs is asked for
/// at once, and what lies across a bus last: so a look takes as long as that alone.
template <class P>
CW_FN inline auto basic_endpoint<P>::look_at_sent() const noexcept -> sent_look {
  sent_look l;
  const bool collapsed = p_.queues.sent.collapsed;  // one place: its index is of no use
  l.index = collapsed ? 0 : device_atomic<std::uint64_t>(p_.sent->index).load(order::relaxed);
  l.failed = impl::has_failed(p_.send);
  l.done = device_atomic<std::uint64_t>(p_.send.state->done).load(order::relaxed);
  l.any = P::look(p_.queues.sent, l.index, l.done, l.raw);
  return l;
}

/// Reads completions of the send queue, as far as `until`, and says so in the record; or `one` and
/// leaves the record to the caller. False when there is none, or when another thread is at it.
/// `before`: what a look showed, which is not made again. Out of line: long, and called from many
/// places.
template <class P>
CW_COLD CW_FN bool basic_endpoint<P>::drain_sent(completion* one, const sent_look* before,
                                                 std::uint64_t until) const noexcept {
  cq_state& s = *p_.sent;
  const work_queue& q = p_.send;
  if (!impl::try_lock(s.lock)) return false;
  const bool collapsed = p_.queues.sent.collapsed;
  const device_atomic<std::uint64_t> index_word(s.index);
  // Nothing orders `done` before the lock's word: with an old one a completion would be read again.
  std::uint64_t done = device_atomic<std::uint64_t>(q.state->done).load(order::relaxed);
  if (reached(s.done, done)) done = s.done;
  std::uint64_t index = index_word.load(order::relaxed);
  const bool failed = impl::has_failed(q);
  completion lost;  // the first that failed
  bool any = false;
  sent_look now;
  // What was seen before the lock is still there, unless somebody else has read it.
  now.any = before != nullptr && before->any && !collapsed && before->index == index;
  if (now.any) now.raw = before->raw;
  // A collapsed queue keeps on showing a failure, and has no more than one place to look at.
  while (!(collapsed && (any || failed)) &&
         (now.any || P::look(p_.queues.sent, index, done, now.raw))) {
    now.any = false;
    any = true;
    ++index;
    const completion c = P::decode(now.raw, done);
    if (c.outcome == status::ok) {
      done = impl::behind(q, c.index);
    } else if (!failed && lost.outcome == status::ok) {
      // Entries are carried out in order: those before it have succeeded. Where completions
      // replace each other, those before a flushed one are not known.
      if (!collapsed || c.why != syndrome::flushed) done = c.index;
      lost = c;
    }
    if (one != nullptr) *one = c;
    if (one != nullptr || reached(done, until)) break;
  }
  if (any && one == nullptr && !collapsed) {
    P::write_cq_record(p_.queues.sent, index);  // before places are used again
  }
  if (any) {
    s.idle = 0;
    s.done = done;
    index_word.store(index, order::relaxed);
  } else if (++s.idle % 32 == 0) {  // it may lie across a bus
    hear_event(index, done);
  }
  fence<scope::device>();  // one for both
  if (any) impl::raise_done(q, done, order::fenced);
  if (lost.outcome != status::ok) {
    impl::latch(q, lost);  // now: who sees it sees what was complete
    fence<scope::device>();
  }
  device_atomic<std::uint64_t>(s.lock).store(0, order::fenced);  // pairs with try_lock()
  return any;
}

/// Takes what a look showed. Where one place shows the last to end, that is all there is to know:
/// no lock is needed to say how far that is.
template <class P>
CW_FN inline bool basic_endpoint<P>::take_sent(const sent_look& l,
                                               std::uint64_t until) const noexcept {
  if (l.any && p_.queues.sent.collapsed) {
    const completion c = P::decode(l.raw, l.done);
    // The entry that begins in the last place ends there; a later one tells of those before it.
    if (c.outcome == status::ok && reached(c.index + 1, until)) {
      impl::raise_done(p_.send, c.index + 1 == until ? until : c.index, order::release);
      return true;
    }
  }
  drain_sent(nullptr, &l, until);
  return reached(impl::done_of(p_.send), until);
}

template <class P>
CW_FN inline completion basic_endpoint<P>::await(std::uint64_t first,
                                                 std::uint64_t end) const noexcept {
  std::uint32_t looks = 0;
  bool complete = false;
  const status waited = poll_until(
      [&] {
        const sent_look l = look_at_sent();
        if (l.failed || reached(l.done, end)) return true;
        // Now and then in any case: it hears of events, too.
        if (!l.any && ++looks % 32 != 0) return false;
        complete = take_sent(l, end);
        return complete || impl::has_failed(p_.send);
      },
      p_.limits);
  completion c;
  c.index = first;
  c.outcome = waited;
  const bool failed = !complete && impl::fault_of(p_.send) != 0;  // before the look at `done`
  if (complete || reached(impl::done_of(p_.send), end)) {
    c.outcome = status::ok;
  } else if (failed) {
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
    found.any = drain_sent(&found.c, nullptr, everything);
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
