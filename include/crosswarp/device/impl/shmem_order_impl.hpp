// Bodies of shmem.hpp: fence, quiet, locks.
#pragma once

#include "crosswarp/device/impl/shmem_proxied.hpp"
#include "crosswarp/device/impl/shmem_wait_impl.hpp"
#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

// ---- order

template <group G>
CW_FN inline status shmem::fence(const G& g) const noexcept {
  const auto noted = note(g, proxy_call::fence, 0, -1, p_.all_mapped);
  g.sync();
  if (!p_.all_mapped) {
    if (const status s = impl::proxied_fence(p_.proxy, p_.queue, g); s != status::ok) return s;
  }
  // By each thread: any of them may make the next store.
  device::fence(p_.reach);
  return status::ok;
}

template <group G>
CW_FN inline status shmem::quiet(const G& g) const noexcept {
  const auto noted = note(g, proxy_call::quiet, 0, -1, p_.all_mapped);
  g.sync();
  device::full_fence(p_.reach);
  return p_.all_mapped ? status::ok : impl::proxied_quiet(p_.proxy, p_.queue, g);
}

template <group G>
CW_FN inline status shmem::pe_quiet(const G& g, int pe) const noexcept {
  if (!p_.team.has(pe)) return status::invalid;
  if (p_.all_mapped || p_.heap.peers.base(p_.team.world_pe(pe)) != nullptr) {
    g.sync();
    device::full_fence(p_.reach);
    return status::ok;
  }
  return impl::proxied_quiet(p_.proxy, p_.queue, g);
}

// ---- locks: a queue of PEs. The word of PE 0 holds the last in it; each one's own word holds who
// comes next and whether it is its turn, each with one writer, and zero while it is not in the
// queue.

namespace impl {

struct lock_parts {
  std::uint32_t last;  ///< at PE 0: the last in the queue, PE + 1; 0: free
  std::uint16_t next;  ///< who comes next, PE + 1
  std::uint16_t turn;
};
CW_FN inline lock_parts* parts_of(std::uint64_t* lock) noexcept {
  return reinterpret_cast<lock_parts*>(lock);
}
CW_FN inline void clear_word(std::uint16_t* word) noexcept {
  system_atomic<std::uint16_t>(*word).store(0, order::relaxed);
}

}  // namespace impl

template <group G>
CW_FN inline status shmem::set_lock(const G& g, std::uint64_t* lock) const noexcept {
  g.sync();
  const status s = leader_of(g, [&] {
    const thread_group me;
    impl::lock_parts* const l = impl::parts_of(lock);
    const auto self = static_cast<std::uint32_t>(my_pe()) + 1;
    std::uint32_t before = 0;
    status mine = atomic_fetch(me, amo::swap, &l->last, self, 0U, 0, before);
    if (mine != status::ok || before == 0) return mine;
    mine = p(me, &l->next, static_cast<std::uint16_t>(self), static_cast<int>(before) - 1);
    if (mine == status::ok) {
      mine = poll_until([&] { return impl::read_word(&l->turn) != 0; }, p_.limits);
    }
    impl::clear_word(&l->turn);
    return mine;
  });
  device::fence(p_.reach);  // what the last holder did is before what this one does
  return s;
}

template <group G>
CW_FN inline status shmem::clear_lock(const G& g, std::uint64_t* lock) const noexcept {
  if (const status s = quiet(g); s != status::ok) return s;
  return leader_of(g, [&] {
    const thread_group me;
    impl::lock_parts* const l = impl::parts_of(lock);
    const auto self = static_cast<std::uint32_t>(my_pe()) + 1;
    std::uint16_t heir = impl::read_word(&l->next);
    if (heir == 0) {
      std::uint32_t seen = 0;
      const status s = atomic_fetch(me, amo::compare_swap, &l->last, 0U, self, 0, seen);
      if (s != status::ok || seen == self) return s;
      // Somebody is about to say that it comes next.
      const status w =
          poll_until([&] { return (heir = impl::read_word(&l->next)) != 0; }, p_.limits);
      if (w != status::ok) return w;
    }
    impl::clear_word(&l->next);
    device::fence(p_.reach);  // before this PE is in the queue again
    return p(me, &l->turn, std::uint16_t{1}, static_cast<int>(heir) - 1);
  });
}

template <group G>
CW_FN inline status shmem::test_lock(const G& g, std::uint64_t* lock, bool& taken) const noexcept {
  struct outcome {
    status s = status::ok;
    bool taken = false;
  };
  g.sync();
  const outcome o = leader_of(g, [&] {
    const auto self = static_cast<std::uint32_t>(my_pe()) + 1;
    outcome mine;
    std::uint32_t seen = 0;
    mine.s = atomic_fetch(thread_group{}, amo::compare_swap, &impl::parts_of(lock)->last, self, 0U,
                          0, seen);
    mine.taken = mine.s == status::ok && seen == 0;
    return mine;
  });
  taken = o.taken;
  device::fence(p_.reach);
  return o.s;
}

}  // namespace crosswarp::device
