// SHMEM by the proxy: all arguments by value, so that nothing else of the caller's must be in
// memory.
#pragma once

#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

namespace impl {

template <group G>
CW_COLD CW_FN inline status proxied_put(proxy by, int queue, G g, int rank, remote_address to,
                                        const void* source, std::size_t bytes,
                                        bool blocking) noexcept {
  auto q = by.queue(queue);
  return blocking ? q.put(g, rank, to, source, bytes) : q.put_nbi(g, rank, to, source, bytes);
}
template <group G>
CW_COLD CW_FN inline status proxied_get(proxy by, int queue, G g, int rank, remote_address from,
                                        void* dest, std::size_t bytes, bool blocking) noexcept {
  auto q = by.queue(queue);
  return blocking ? q.get(g, rank, from, dest, bytes) : q.get_nbi(g, rank, from, dest, bytes);
}
/// One value of a few bytes, by words that hold it: the host cannot reach a kernel's own variables.
CW_COLD CW_FN inline status proxied_value(proxy by, int queue, int rank, remote_address from,
                                          std::byte* value, std::size_t bytes) noexcept {
  auto q = by.queue(queue);
  for (std::size_t done = 0; done < bytes;) {
    const std::uint64_t at = from.offset + done;
    const auto skip = static_cast<std::size_t>(at % 8);
    const std::size_t here = bytes - done < 8 - skip ? bytes - done : 8 - skip;
    std::uint64_t word = 0;
    const status s =
        q.atomic(thread_group{}, amo::fetch, 8, rank, {at - skip, from.region}, 0, 0, word);
    if (s != status::ok) return s;
    for (std::size_t i = 0; i < here; ++i) {
      value[done + i] = static_cast<std::byte>(word >> (8 * (skip + i)));
    }
    done += here;
  }
  return status::ok;
}
template <group G>
CW_COLD CW_FN inline status proxied_put_signal(proxy by, int queue, G g, int rank,
                                               remote_address to, const void* source,
                                               std::size_t bytes, remote_address signal,
                                               std::uint64_t value, signal_op how,
                                               bool blocking) noexcept {
  auto q = by.queue(queue);
  return blocking ? q.put_signal(g, rank, to, source, bytes, signal, value, how)
                  : q.put_signal_nbi(g, rank, to, source, bytes, signal, value, how);
}
template <group G>
CW_COLD CW_FN inline status proxied_put_strided(proxy by, int queue, G g, int rank,
                                                remote_address to, const void* source,
                                                proxy_queue::strides s) noexcept {
  return by.queue(queue).put_strided(g, rank, to, source, s);
}
template <group G>
CW_COLD CW_FN inline status proxied_get_strided(proxy by, int queue, G g, int rank,
                                                remote_address from, void* dest,
                                                proxy_queue::strides s) noexcept {
  return by.queue(queue).get_strided(g, rank, from, dest, s);
}
/// An atomic operation; `operand` and `comparand` are the words' bits.
struct proxied_update {
  amo op;
  int width;
  std::uint64_t operand;
  std::uint64_t comparand;
};
template <group G>
CW_COLD CW_FN inline status proxied_atomic(proxy by, int queue, G g, int rank, remote_address at,
                                           proxied_update u) noexcept {
  return by.queue(queue).atomic_nbi(g, u.op, u.width, rank, at, u.operand, u.comparand);
}
struct fetched {
  status s;
  std::uint64_t bits;
};
template <group G>
CW_COLD CW_FN inline fetched proxied_fetch(proxy by, int queue, G g, int rank, remote_address at,
                                           proxied_update u) noexcept {
  fetched f{status::ok, 0};
  f.s = by.queue(queue).atomic(g, u.op, u.width, rank, at, u.operand, u.comparand, f.bits);
  return f;
}
template <group G>
CW_COLD CW_FN inline status proxied_fetch_nbi(proxy by, int queue, G g, int rank, remote_address at,
                                              proxied_update u, void* old) noexcept {
  return by.queue(queue).atomic_fetch_nbi(g, u.op, u.width, rank, at, u.operand, u.comparand, old);
}
template <group G>
CW_COLD CW_FN inline status proxied_fence(proxy by, int queue, G g) noexcept {
  return by.queue(queue).fence(g);
}
template <group G>
CW_COLD CW_FN inline status proxied_quiet(proxy by, int queue, G g) noexcept {
  return by.queue(queue).quiet(g);
}
/// A signal after all that was put before.
CW_COLD CW_FN inline status proxied_tell(proxy by, int queue, int rank, remote_address at,
                                         std::uint64_t word) noexcept {
  auto q = by.queue(queue);
  const thread_group me;
  if (const status s = q.fence(me); s != status::ok) return s;
  return q.put_value(me, rank, at, word, sizeof(word));
}

}  // namespace impl

}  // namespace crosswarp::device
