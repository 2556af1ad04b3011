// Bodies of rdma.hpp: what was posted to the send queue is told to the adapter.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

/// With the lock: somebody rang for that, or nothing was ever posted.
template <class P>
CW_FN inline bool basic_endpoint<P>::is_told(std::uint64_t ready) const noexcept {
  return device_atomic<std::uint64_t>(p_.send.state->told).load(order::relaxed) == ready;
}
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
    return impl::tell(p_.send, impl::untold(p_.send), p_.limits, [&](std::uint64_t& ready) {
      ready = impl::collect(p_.send, ready);
      P::write_send_record(p_.queues, ready);
    });
  });
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::ring_doorbell(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return impl::tell(p_.send, impl::untold(p_.send), p_.limits, [&](std::uint64_t ready) {
      if (!is_told(ready)) ring(ready);
    });
  });
}
/// By one thread, whatever was posted and rung for before.
template <class P>
CW_COLD CW_FN status basic_endpoint<P>::submit_behind(std::uint64_t end) const noexcept {
  return impl::tell(p_.send, end, p_.limits, [&](std::uint64_t& ready) {
    ready = impl::collect(p_.send, ready);
    if (is_told(ready)) return;
    P::write_send_record(p_.queues, ready);
    ring(ready);
  });
}
/// By one who posts alone: for what it posted, which is all there is.
template <class P>
CW_FN inline status basic_endpoint<P>::submit_alone() const noexcept {
  const std::uint64_t ready = p_.send.state->ready;
  P::write_send_record(p_.queues, ready);
  ring(ready);
  return status::ok;
}
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::submit([[maybe_unused]] const G& g,
                                              std::uint64_t end) const noexcept {
  if constexpr (impl::is_sole<G>) {
    // What others posted before is not in `ready`.
    return reached(p_.send.state->ready, end) ? submit_alone() : submit_behind(end);
  } else {
    g.sync();
    return leader_of(g, [&] { return submit_behind(end); });
  }
}

/// With the lock, behind a ring for what ends at `ready`: for what others posted meanwhile, and
/// found a gap before it. Returns where that ends.
template <class P>
CW_COLD CW_FN std::uint64_t basic_endpoint<P>::ring_for_more(std::uint64_t ready) const noexcept {
  const std::uint64_t end = impl::collect(p_.send, ready);
  if (end != ready) {
    P::write_send_record(p_.queues, end);
    ring(end);
  }
  return end;
}

template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::submit(const G& g, const posted& p) const noexcept {
  if (p.outcome != status::ok) return p.outcome;
  if constexpr (impl::is_sole<G>) {
    return submit_alone();  // its own: to look whether it is would make each post longer
  } else {
    g.sync();
    return leader_of(g, [&] {
      // All before it was told, and nobody is at it: what is next is known.
      if (!impl::try_lock_at(p_.send, p.index)) return submit_behind(p.end);
      ring_at(p);
      return status::ok;
    });
  }
}

/// With the lock, for what was posted last: it is unlocked behind that.
template <class P>
CW_FN inline void basic_endpoint<P>::ring_at(const posted& p) const noexcept {
  P::write_send_record(p_.queues, p.end);
  ring(p.end);
  impl::unlock(p_.send, ring_for_more(p.end));
}

/// publish() and submit() for an entry that nobody else has seen. Who gets the lock at once needs
/// no release for the one, since all others begin behind it: what is left are those that adapters
/// want. And the lock is on its way while the entry is.
template <class P>
template <group G>
CW_FN inline status basic_endpoint<P>::publish_and_submit([[maybe_unused]] const G& g,
                                                          const posted& p) const noexcept {
  if constexpr (impl::is_sole<G>) {
    P::write_send_record(p_.queues, p.end);  // nothing was posted behind it
    ring(p.end);
    return status::ok;
  } else {
    return leader_of(g, [&] {
      if (!impl::try_lock_at(p_.send, p.index)) {
        publish(thread_group{}, p, p.end);
        return submit_behind(p.end);
      }
      // Before the record: who reads the completion needs it.
      device_atomic<std::uint64_t>(p_.send.end_of(p.index)).store(p.end, order::relaxed);
      ring_at(p);
      return status::ok;
    });
  }
}

}  // namespace crosswarp::device::rdma
