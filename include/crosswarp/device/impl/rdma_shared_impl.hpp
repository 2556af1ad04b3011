// Bodies of rdma_shared.hpp.
#pragma once

#include "crosswarp/device/rdma_shared.hpp"

namespace crosswarp::device::rdma {

template <class P>
template <group G>
CW_FN inline posted basic_shared_receive_queue<P>::post_recv(const G& g, local_memory to,
                                                             std::uint32_t bytes) const noexcept {
  const segment one{to, bytes};
  return post_recv(g, segment_list{&one, bytes != 0 ? 1U : 0U});
}
template <class P>
template <group G>
CW_FN inline posted basic_shared_receive_queue<P>::post_recv(
    const G& g, const segment_list& to) const noexcept {
  return leader_of(g, [&]() -> posted {
    if (to.count > p_.sge || !impl::are_pieces<P>(to)) return {status::invalid, 0, 0};
    const impl::place at = impl::reserve(p_.posts, 1, p_.limits, [&] { collect_taken(); });
    if (at.outcome != status::ok) return {at.outcome, 0, 0};
    P::write_shared_receive(p_.queue, p_.posts.depth, at.first, to);
    device_atomic<std::uint64_t>(p_.posts.end_of(at.first))
        .store(at.first + 1, order::release);  // pairs with collect()
    return {status::ok, at.first, at.first + 1};
  });
}

template <class P>
template <group G>
CW_FN inline status basic_shared_receive_queue<P>::update_dbr_record(const G& g) const noexcept {
  g.sync();
  return leader_of(g, [&] {
    return impl::tell(p_.posts, impl::untold(p_.posts), p_.limits, [&](std::uint64_t& ready) {
      ready = impl::collect(p_.posts, ready);
      P::write_shared_record(p_.queue, ready);
    });
  });
}

/// Moves `done` over all places whose completions were read, without a gap: places are used in a
/// ring, whatever endpoint took them, and in whatever order they ended.
template <class P>
CW_FN inline void basic_shared_receive_queue<P>::collect_taken() const noexcept {
  std::uint64_t ready = 0;
  if (!impl::try_lock(p_.posts, ready)) return;
  const device_atomic<std::uint64_t> done_word(p_.posts.state->done);
  const std::uint64_t before = done_word.load(order::relaxed);
  std::uint64_t done = before;
  // No more than were posted and told: those behind have not been taken.
  for (; done != ready; ++done) {
    const system_atomic<std::uint64_t> taken(p_.taken[done & (p_.posts.depth - 1)]);
    if (taken.load(order::acquire) == 0) break;  // pairs with give_back()
    taken.store(0, order::relaxed);              // it is taken again only after it was posted again
  }
  if (done != before) done_word.store(done, order::release);  // pairs with done_of()
  impl::unlock(p_.posts, ready);
}

}  // namespace crosswarp::device::rdma
