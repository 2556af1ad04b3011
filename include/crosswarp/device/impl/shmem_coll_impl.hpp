// Bodies of shmem.hpp: collectives. All are made of puts and gets and of signals between pairs.
#pragma once

#include "crosswarp/device/impl/shmem_impl.hpp"
#include "crosswarp/device/impl/shmem_proxied.hpp"
#include "crosswarp/device/impl/shmem_wait_impl.hpp"
#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

namespace impl {

/// What tells one collective call from another, so that PEs that disagree find out: its kind and
/// what must be equal at all of them.
enum class coll : std::uint8_t { sync, broadcast, collect, fcollect, alltoall, reduce, scan };
CW_FN constexpr std::uint16_t mark_of(coll kind, std::uint64_t what = 0) noexcept {
  what ^= what >> 32U;
  what ^= what >> 16U;
  what ^= what >> 8U;
  return static_cast<std::uint16_t>(static_cast<std::uint64_t>(kind) << 8U | (what & 0xffU));
}

// A signal's word: the count of signals so far, and the marks of all of them, so that who has
// missed one finds out from a later one.
inline constexpr unsigned mark_bits = 16;
inline constexpr std::uint64_t all_marks = (1U << mark_bits) - 1;
CW_FN constexpr std::uint64_t next_signal(std::uint64_t last, std::uint16_t mark) noexcept {
  const std::uint64_t marks = (last * 0x6f4dU + mark) & all_marks;
  return ((last | all_marks) + 1) | marks;
}

/// PEs in an order that differs from PE to PE, so that not all go to one at once: the k-th is not
/// this PE for k from 1 to n - 1.
CW_FN constexpr int peer_of(int me, int k, int n) noexcept {
  return me + k < n ? me + k : me + k - n;
}

/// More PEs than this meet in rounds.
inline constexpr int direct_pes = 16;

}  // namespace impl

// ---- signals between two

CW_FN inline status shmem::tell(int pe, std::uint16_t mark) const noexcept {
  shmem_sync::counts& with = p_.sync.with[slot_of(pe)];
  const std::uint64_t word = impl::next_signal(with.sent, mark);
  with.sent = word;
  std::uint64_t* const line = &p_.sync.in[slot_of(my_pe())].word;
  const place to = find(line, sizeof(word), pe);
  if (to.mapped != nullptr) {
    signal(*reinterpret_cast<std::uint64_t*>(to.mapped), p_.reach).set(word);  // pairs with hear()
    return status::ok;
  }
  return impl::proxied_tell(p_.proxy, p_.queue, to.rank, to.remote, word);
}

CW_FN inline status shmem::hear(int pe, std::uint16_t mark) const noexcept {
  shmem_sync::counts& with = p_.sync.with[slot_of(pe)];
  const std::uint64_t want = impl::next_signal(with.received, mark);
  with.received = want;
  const signal in(p_.sync.in[slot_of(pe)], p_.reach);
  deadline by(p_.limits.for_peer(p_.team.world_pe(pe)));
  std::uint64_t word = 0;
  // pairs with tell()
  if (const status s = in.wait(want & ~impl::all_marks, by, word); s != status::ok) return s;
  // Of a PE that is ahead the marks are compared when this one has caught up.
  return word == want || word > (want | impl::all_marks) ? status::ok : status::invalid;
}

/// All of them, and hears from all.
template <group G>
CW_FN inline status shmem::meet_directly(const G& g, std::uint16_t mark) const noexcept {
  g.sync();  // what all threads did before is ahead of each thread's signals
  status s = status::ok;
  for (int k = 1 + g.rank(); k < n_pes() && s == status::ok; k += g.size()) {
    s = tell(impl::peer_of(my_pe(), k, n_pes()), mark);
  }
  for (int k = 1 + g.rank(); k < n_pes() && s == status::ok; k += g.size()) {
    s = hear(impl::peer_of(my_pe(), k, n_pes()), mark);  // the same, whose counts are at hand
  }
  return agree(g, s);
}

/// All wait for all: at once, or in rounds in which everybody has heard from twice as many.
template <group G>
CW_FN inline status shmem::meet(const G& g, std::uint16_t mark) const noexcept {
  if (n_pes() <= impl::direct_pes) return meet_directly(g, mark);
  g.sync();
  return leader_of(g, [&] {
    status s = status::ok;
    for (int distance = 1; distance < n_pes() && s == status::ok; distance *= 2) {
      s = tell(impl::peer_of(my_pe(), distance, n_pes()), mark);
      if (s == status::ok) s = hear(impl::peer_of(my_pe(), n_pes() - distance, n_pes()), mark);
    }
    return s;
  });
}

// ---- the collectives

template <group G>
CW_FN inline status shmem::sync(const G& g, std::uint8_t purpose) const noexcept {
  const auto noted = note(g, proxy_call::barrier, 0, -1);
  return meet(g, impl::mark_of(impl::coll::sync, purpose));
}

template <group G>
CW_FN inline status shmem::barrier(const G& g) const noexcept {
  if (!p_.all_mapped) {
    if (const status s = quiet(g); s != status::ok) return s;
  }
  return sync(g);
}

template <group G, shmem_value T>
CW_FN inline status shmem::broadcast(const G& g, T* dest, const T* source, std::size_t n,
                                     int root) const noexcept {
  if (!p_.team.has(root)) return status::invalid;
  const auto noted = note(g, proxy_call::broadcast, n * sizeof(T), root);
  const std::uint16_t mark =
      impl::mark_of(impl::coll::broadcast, n * sizeof(T) + static_cast<unsigned>(root));
  if (my_pe() != root) return leader_of(g, [&] { return hear(root, mark); });
  status s = dest == source ? status::ok : put_nbi(g, dest, source, n, root);
  for (int k = 1; k < n_pes() && s == status::ok; ++k) {
    s = put_nbi(g, dest, source, n, impl::peer_of(root, k, n_pes()));
  }
  if (s != status::ok) return s;
  g.sync();
  for (int k = 1 + g.rank(); k < n_pes() && s == status::ok; k += g.size()) {
    s = tell(impl::peer_of(root, k, n_pes()), mark);
  }
  return leave(g, agree(g, s));
}

/// The end of a collective whose puts did not wait: its sources may be reused.
template <group G>
CW_FN inline status shmem::leave(const G& g, status s) const noexcept {
  return s != status::ok || p_.all_mapped ? s : quiet(g);
}

template <group G, shmem_value T>
CW_FN inline status shmem::fcollect(const G& g, T* dest, const T* source,
                                    std::size_t n) const noexcept {
  const auto noted = note(g, proxy_call::collect, n * sizeof(T), -1);
  T* const mine = dest + n * static_cast<std::size_t>(my_pe());
  for (int k = 0; k < n_pes(); ++k) {
    const status s = put_nbi(g, mine, source, n, impl::peer_of(my_pe(), k, n_pes()));
    if (s != status::ok) return s;
  }
  return leave(g, meet_directly(g, impl::mark_of(impl::coll::fcollect, n * sizeof(T))));
}

template <group G, shmem_value T>
CW_FN inline status shmem::collect(const G& g, T* dest, const T* source,
                                   std::size_t n) const noexcept {
  const auto noted = note(g, proxy_call::collect, n * sizeof(T), -1);
  const std::uint16_t mark = impl::mark_of(impl::coll::collect, sizeof(T));
  // Everybody's count, then the data.
  for (int k = 0; k < n_pes(); ++k) {
    const status s = p(g, p_.sync.values + slot_of(my_pe()), static_cast<std::uint64_t>(n),
                       impl::peer_of(my_pe(), k, n_pes()));
    if (s != status::ok) return s;
  }
  if (const status s = meet_directly(g, mark); s != status::ok) return s;
  std::uint64_t before = 0;
  for (int pe = 0; pe < my_pe(); ++pe) before += impl::read_word(p_.sync.values + slot_of(pe));
  for (int k = 0; k < n_pes(); ++k) {
    const status s = put_nbi(g, dest + before, source, n, impl::peer_of(my_pe(), k, n_pes()));
    if (s != status::ok) return s;
  }
  return leave(g, meet_directly(g, mark));
}

template <group G, shmem_value T>
CW_FN inline status shmem::alltoall(const G& g, T* dest, const T* source,
                                    std::size_t n) const noexcept {
  return alltoalls(g, dest, source, 1, 1, n);
}

template <group G, shmem_value T>
CW_FN inline status shmem::alltoalls(const G& g, T* dest, const T* source, std::ptrdiff_t dst,
                                     std::ptrdiff_t sst, std::size_t n) const noexcept {
  const auto noted = note(g, proxy_call::alltoall, n * sizeof(T), -1);
  const auto count = static_cast<std::ptrdiff_t>(n);
  T* const to = dest + my_pe() * count * dst;
  for (int k = 0; k < n_pes(); ++k) {
    const int pe = impl::peer_of(my_pe(), k, n_pes());
    const T* const from = source + pe * count * sst;
    const status s = dst == 1 && sst == 1 ? put_nbi(g, to, from, n, pe)
                                          : iput(g, to, from, {.dest = dst, .source = sst}, n, pe);
    if (s != status::ok) return s;
  }
  return leave(g, meet_directly(g, impl::mark_of(impl::coll::alltoall, n * sizeof(T))));
}

// ---- reductions and scans
//
// PE i works on slice i of everybody's arrays: it alone reads and writes there, so dest may be
// source, and every element is folded in the same order.

/// `f(begin, end)` works on this PE's slice.
template <group G, class T, class Work>
CW_FN inline status shmem::by_slices(const G& g, std::uint16_t mark, T* dest, const T* source,
                                     std::size_t n, const Work& f) const noexcept {
  const std::size_t bytes = impl::bytes_of<T>(n);
  if (find(dest, bytes, my_pe()).rank < 0 || find(source, bytes, my_pe()).rank < 0 ||
      sizeof(T) > p_.sync.work_bytes) {
    return status::invalid;
  }
  // The sources are as their owners left them.
  if (const status s = meet(g, mark); s != status::ok) return s;
  const auto pes = static_cast<std::size_t>(n_pes());
  const auto me = static_cast<std::size_t>(my_pe());
  const std::size_t begin = n / pes * me + (me < n % pes ? me : n % pes);
  const std::size_t end = begin + n / pes + (me < n % pes ? 1 : 0);
  if (const status s = f(begin, end); s != status::ok) return s;
  if (!p_.all_mapped) {
    if (const status s = quiet(g); s != status::ok) return s;
  }
  return meet(g, mark);
}

template <group G, shmem_value T, class Op>
CW_FN inline status shmem::reduce(const G& g, Op op, T* dest, const T* source,
                                  std::size_t n) const noexcept {
  const auto noted = note(g, proxy_call::reduce, n * sizeof(T), -1);
  const std::uint16_t mark = impl::mark_of(impl::coll::reduce, n * sizeof(T));
  const auto rank = static_cast<std::size_t>(g.rank());
  const auto step = static_cast<std::size_t>(g.size());
  // Many threads: each has its elements in registers.
  const auto by_elements = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin + rank; i < end; i += step) {
      T acc = *ptr(source + i, 0);
      for (int pe = 1; pe < n_pes(); ++pe) acc = op(acc, *ptr(source + i, pe));
      for (int pe = 0; pe < n_pes(); ++pe) *ptr(dest + i, pe) = acc;
    }
    return status::ok;
  };
  // One thread, or PEs behind the proxy: a piece rests while PE after PE is added to it.
  const auto by_pieces = [&](std::size_t begin, std::size_t end) {
    T* const acc = reinterpret_cast<T*>(p_.sync.work);
    T* const in = reinterpret_cast<T*>(p_.sync.work + p_.sync.work_bytes);
    const std::size_t room = p_.sync.work_bytes / sizeof(T);
    status s = status::ok;
    for (std::size_t at = begin; at < end && s == status::ok; at += room) {
      const std::size_t count = end - at < room ? end - at : room;
      for (int pe = 0; pe < n_pes() && s == status::ok; ++pe) {
        const T* from = ptr(source + at, pe);
        if (from == nullptr) {
          s = get(g, in, source + at, count, pe);
          from = in;
        }
        if (pe == 0) {
          for (std::size_t i = rank; i < count; i += step) acc[i] = from[i];
        } else {
          for (std::size_t i = rank; i < count; i += step) acc[i] = op(acc[i], from[i]);
        }
      }
      for (int k = 0; k < n_pes() && s == status::ok; ++k) {
        s = put(g, dest + at, acc, count, impl::peer_of(my_pe(), k, n_pes()));
      }
    }
    return s;
  };
  if (g.size() > 1 && p_.all_mapped) return by_slices(g, mark, dest, source, n, by_elements);
  return by_slices(g, mark, dest, source, n, by_pieces);
}

template <group G, class T, class Op>
CW_FN inline status shmem::scan(const G& g, Op op, const T* first, T* dest, const T* source,
                                std::size_t n) const noexcept {
  const auto noted = note(g, proxy_call::scan, n * sizeof(T), -1);
  const std::uint16_t mark = impl::mark_of(impl::coll::scan, n * sizeof(T));
  const auto rank = static_cast<std::size_t>(g.rank());
  const auto step = static_cast<std::size_t>(g.size());
  return by_slices(g, mark, dest, source, n, [&](std::size_t begin, std::size_t end) {
    T* const acc = reinterpret_cast<T*>(p_.sync.work);
    T* const in = reinterpret_cast<T*>(p_.sync.work + p_.sync.work_bytes);
    const std::size_t room = p_.sync.work_bytes / sizeof(T);
    status s = status::ok;
    for (std::size_t at = begin; at < end && s == status::ok; at += room) {
      const std::size_t count = end - at < room ? end - at : room;
      for (int pe = 0; pe < n_pes() && s == status::ok; ++pe) {
        // Before dest is written, which may be source.
        s = get(g, in, source + at, count, pe);
        if (s != status::ok) break;
        if (first != nullptr) {
          if (pe == 0) {
            for (std::size_t i = rank; i < count; i += step) acc[i] = *first;
          }
          s = put(g, dest + at, acc, count, pe);
        }
        for (std::size_t i = rank; i < count; i += step) {
          acc[i] = pe == 0 && first == nullptr ? in[i] : op(acc[i], in[i]);
        }
        if (first == nullptr) s = put(g, dest + at, acc, count, pe);
      }
    }
    return s;
  });
}

template <group G, shmem_value T, class Op>
CW_FN inline status shmem::inclusive_scan(const G& g, Op op, T* dest, const T* source,
                                          std::size_t n) const noexcept {
  return scan(g, op, static_cast<const T*>(nullptr), dest, source, n);
}
template <group G, shmem_value T, class Op>
CW_FN inline status shmem::exclusive_scan(const G& g, Op op, T first, T* dest, const T* source,
                                          std::size_t n) const noexcept {
  return scan(g, op, &first, dest, source, n);
}

}  // namespace crosswarp::device
