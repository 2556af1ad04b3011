// Bodies of rdma.hpp: what was posted to the send queue is told to the adapter.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

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

}  // namespace crosswarp::device::rdma
