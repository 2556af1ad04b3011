// Bodies of rdma.hpp: receives, from their post to their completion.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

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

template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::update_recv_dbr_record(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return impl::tell(p_.receive, impl::untold(p_.receive), p_.limits, [&](std::uint64_t& ready) {
      ready = impl::collect(p_.receive, ready);
      P::write_receive_record(p_.queues, ready);
    });
  });
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
  const std::uint64_t told =
      system_atomic<std::uint64_t>(const_cast<std::uint64_t&>(p_.events->no_receives))
          .load(order::acquire);  // unseen: completions are atomics
  return told != 0;
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

}  // namespace crosswarp::device::rdma
