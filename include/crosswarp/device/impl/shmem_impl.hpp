// Bodies of shmem.hpp: everything but collectives.
#pragma once

#include <cstring>

#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

template <class T>
CW_FN constexpr bool holds(T seen, compare how, T value) noexcept {
  switch (how) {
    case compare::eq:
      return seen == value;
    case compare::ne:
      return seen != value;
    case compare::gt:
      return seen > value;
    case compare::ge:
      return seen >= value;
    case compare::lt:
      return seen < value;
    case compare::le:
      return seen <= value;
  }
  return false;
}

CW_FN inline int shmem_team::pe_of(int world_pe) const noexcept {
  if (list_ != nullptr) {
    for (int pe = 0; pe < size_; ++pe) {
      if (list_[pe] == world_pe) return pe;
    }
    return -1;
  }
  const int distance = world_pe - start_;
  if (stride_ == 0) return distance == 0 && size_ > 0 ? 0 : -1;
  if (distance % stride_ != 0) return -1;
  const int pe = distance / stride_;
  return has(pe) ? pe : -1;
}

// ---- where things are

namespace impl {

CW_FN inline bool lies_in(const shmem_segment& s, const void* object, std::size_t bytes) noexcept {
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(object) - s.base);  // wraps below base
  return offset <= s.bytes && bytes <= s.bytes - offset;
}

}  // namespace impl

CW_FN inline const shmem_segment* shmem::segment_of(const void* object,
                                                    std::size_t bytes) const noexcept {
  if (impl::lies_in(p_.heap, object, bytes)) return &p_.heap;
  for (int i = 0; i < p_.other_count; ++i) {
    if (impl::lies_in(p_.others[i], object, bytes)) return p_.others + i;
  }
  return nullptr;
}

CW_FN inline bool shmem::is_symmetric(const void* object) const noexcept {
  return segment_of(object, 1) != nullptr;
}

CW_FN inline shmem::place shmem::find(const void* object, std::size_t bytes,
                                      int pe) const noexcept {
  if (!p_.team.has(pe)) return {};
  const shmem_segment* const s = segment_of(object, bytes);
  if (s == nullptr) return {};
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(object) - s->base);
  const int rank = p_.team.world_pe(pe);
  std::byte* const base = s->peers[rank].base;
  return {base == nullptr ? nullptr : base + offset, {offset, s->region}, rank};
}

template <class T>
CW_FN inline T* shmem::ptr(const T* object, int pe) const noexcept {
  return reinterpret_cast<T*>(find(object, 1, pe).mapped);
}

// ---- by the proxy: all arguments by value, so that nothing else of the caller's must be in memory

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

// ---- put and get

namespace impl {

/// One value of the size of a machine word, stored or loaded whole.
template <class Word>
CW_FN inline void store_word(void* to, const void* from) noexcept {
  Word w;
  std::memcpy(&w, from, sizeof(w));
  system_atomic<Word>(*static_cast<Word*>(to)).store(w, order::fenced);
}
template <class Word>
CW_FN inline void load_word(void* to, const void* from) noexcept {
  const Word w =
      system_atomic<Word>(*static_cast<Word*>(const_cast<void*>(from))).load(order::fenced);
  std::memcpy(to, &w, sizeof(w));
}
CW_FN inline bool is_word(const void* p, std::size_t bytes) noexcept {
  return (bytes == 8 || bytes == 4 || bytes == 2 || bytes == 1) &&
         reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}
CW_FN inline void store_whole(void* to, const void* from, std::size_t bytes) noexcept {
  switch (bytes) {
    case 8:
      return store_word<std::uint64_t>(to, from);
    case 4:
      return store_word<std::uint32_t>(to, from);
    case 2:
      return store_word<std::uint16_t>(to, from);
    default:
      return store_word<std::uint8_t>(to, from);
  }
}
CW_FN inline void load_whole(void* to, const void* from, std::size_t bytes) noexcept {
  switch (bytes) {
    case 8:
      return load_word<std::uint64_t>(to, from);
    case 4:
      return load_word<std::uint32_t>(to, from);
    case 2:
      return load_word<std::uint16_t>(to, from);
    default:
      return load_word<std::uint8_t>(to, from);
  }
}

/// To a mapped place.
template <group G>
CW_FN inline void put_mapped(const G& g, void* to, const void* from, std::size_t bytes) noexcept {
  if (!is_word(to, bytes)) {
    copy(g, to, from, bytes);
  } else if (g.rank() == 0) {
    store_whole(to, from, bytes);
  }
}
template <group G>
CW_FN inline void get_mapped(const G& g, void* to, const void* from, std::size_t bytes) noexcept {
  if (!is_word(from, bytes)) {
    copy(g, to, from, bytes);
  } else if (g.rank() == 0) {
    load_whole(to, from, bytes);
  }
}

}  // namespace impl

template <group G>
CW_FN inline status shmem::put_bytes(const G& g, void* dest, const void* source, std::size_t bytes,
                                     int pe, bool blocking) const noexcept {
  if (bytes == 0 && p_.team.has(pe)) return status::ok;
  const place to = find(dest, bytes, pe);
  if (to.rank < 0) return status::invalid;
  if (to.mapped != nullptr) {
    g.sync();
    impl::put_mapped(g, to.mapped, source, bytes);
    if (blocking) g.sync();
    return status::ok;
  }
  return impl::proxied_put(p_.proxy, p_.queue, g, to.rank, to.remote, source, bytes, blocking);
}

template <group G>
CW_FN inline status shmem::get_bytes(const G& g, void* dest, const void* source, std::size_t bytes,
                                     int pe, bool blocking) const noexcept {
  if (bytes == 0 && p_.team.has(pe)) return status::ok;
  const place from = find(source, bytes, pe);
  if (from.rank < 0) return status::invalid;
  if (from.mapped != nullptr) {
    g.sync();
    impl::get_mapped(g, dest, from.mapped, bytes);
    if (blocking) g.sync();
    return status::ok;
  }
  return impl::proxied_get(p_.proxy, p_.queue, g, from.rank, from.remote, dest, bytes, blocking);
}

template <group G, shmem_value T>
CW_FN inline status shmem::put(const G& g, T* dest, const T* source, std::size_t n,
                               int pe) const noexcept {
  return put_bytes(g, dest, source, n * sizeof(T), pe, true);
}
template <group G, shmem_value T>
CW_FN inline status shmem::put_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                   int pe) const noexcept {
  return put_bytes(g, dest, source, n * sizeof(T), pe, false);
}
template <group G, shmem_value T>
CW_FN inline status shmem::get(const G& g, T* dest, const T* source, std::size_t n,
                               int pe) const noexcept {
  return get_bytes(g, dest, source, n * sizeof(T), pe, true);
}
template <group G, shmem_value T>
CW_FN inline status shmem::get_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                   int pe) const noexcept {
  return get_bytes(g, dest, source, n * sizeof(T), pe, false);
}

template <group G, shmem_value T>
CW_FN inline status shmem::p(const G& g, T* dest, T value, int pe) const noexcept {
  const place to = find(dest, sizeof(T), pe);
  if (to.rank < 0) return status::invalid;
  if (to.mapped != nullptr) {
    g.sync();
    // By one thread: each has its own copy of the value, and no source to share.
    if (g.rank() == 0) impl::put_mapped(thread_group{}, to.mapped, &value, sizeof(T));
    return status::ok;
  }
  // Up to 16 bytes travel in the command.
  static_assert(sizeof(T) <= 16);
  return impl::proxied_put(p_.proxy, p_.queue, g, to.rank, to.remote, &value, sizeof(T), true);
}

template <group G, shmem_value T>
CW_FN inline status shmem::g(const G& g, T& value, const T* source, int pe) const noexcept {
  const place from = find(source, sizeof(T), pe);
  if (from.rank < 0) return status::invalid;
  T seen{};
  status s = status::ok;
  g.sync();
  if (g.rank() == 0) {
    if (from.mapped != nullptr) {
      impl::get_mapped(thread_group{}, &seen, from.mapped, sizeof(T));
    } else {
      s = impl::proxied_value(p_.proxy, p_.queue, from.rank, from.remote,
                              reinterpret_cast<std::byte*>(&seen), sizeof(T));
    }
  }
  value = g.broadcast(seen);
  return g.broadcast(s);
}

// ---- strided

namespace impl {

/// Element `i` of `blocks` blocks by the group's threads in turn.
template <group G, class T>
CW_FN inline void copy_strided(const G& g, T* to, const T* from, const shmem::strides& s,
                               std::size_t blocks) noexcept {
  const std::size_t count = blocks * s.block;
  for (auto i = static_cast<std::size_t>(g.rank()); i < count;
       i += static_cast<std::size_t>(g.size())) {
    const auto block = static_cast<std::ptrdiff_t>(i / s.block);
    const auto rest = static_cast<std::ptrdiff_t>(i % s.block);
    to[block * s.dest + rest] = from[block * s.source + rest];
  }
}

/// The bytes from the first to the last that strided access touches.
struct extent {
  std::ptrdiff_t first;
  std::size_t bytes;
};
CW_FN inline extent extent_of(std::ptrdiff_t stride, std::size_t block, std::size_t blocks,
                              std::size_t element) noexcept {
  const std::ptrdiff_t last = stride * (static_cast<std::ptrdiff_t>(blocks) - 1);
  const std::ptrdiff_t low = last < 0 ? last : 0;
  const std::ptrdiff_t high = last < 0 ? 0 : last;
  const auto size = static_cast<std::ptrdiff_t>(element);
  return {low * size, static_cast<std::size_t>(high - low) * element + block * element};
}

}  // namespace impl

template <group G, shmem_value T>
CW_FN inline status shmem::iput(const G& g, T* dest, const T* source, const strides& s,
                                std::size_t blocks, int pe) const noexcept {
  if (!p_.team.has(pe)) return status::invalid;
  if (blocks == 0 || s.block == 0) return status::ok;
  const impl::extent e = impl::extent_of(s.dest, s.block, blocks, sizeof(T));
  const place low = find(reinterpret_cast<std::byte*>(dest) + e.first, e.bytes, pe);
  if (low.rank < 0) return status::invalid;
  if (low.mapped != nullptr) {
    g.sync();
    impl::copy_strided(g, reinterpret_cast<T*>(low.mapped - e.first), source, s, blocks);
    g.sync();
    return status::ok;
  }
  const auto size = static_cast<std::ptrdiff_t>(sizeof(T));
  const remote_address first{low.remote.offset - static_cast<std::uint64_t>(e.first),
                             low.remote.region};
  return impl::proxied_put_strided(p_.proxy, p_.queue, g, low.rank, first, source,
                                   {s.block * sizeof(T), blocks, s.dest * size, s.source * size});
}

template <group G, shmem_value T>
CW_FN inline status shmem::iget(const G& g, T* dest, const T* source, const strides& s,
                                std::size_t blocks, int pe) const noexcept {
  if (!p_.team.has(pe)) return status::invalid;
  if (blocks == 0 || s.block == 0) return status::ok;
  const impl::extent e = impl::extent_of(s.source, s.block, blocks, sizeof(T));
  const place low = find(reinterpret_cast<const std::byte*>(source) + e.first, e.bytes, pe);
  if (low.rank < 0) return status::invalid;
  if (low.mapped != nullptr) {
    g.sync();
    impl::copy_strided(g, dest, reinterpret_cast<const T*>(low.mapped - e.first), s, blocks);
    g.sync();
    return status::ok;
  }
  const auto size = static_cast<std::ptrdiff_t>(sizeof(T));
  const remote_address first{low.remote.offset - static_cast<std::uint64_t>(e.first),
                             low.remote.region};
  return impl::proxied_get_strided(p_.proxy, p_.queue, g, low.rank, first, dest,
                                   {s.block * sizeof(T), blocks, s.source * size, s.dest * size});
}

// ---- signals

template <group G>
CW_FN inline status shmem::put_signal_bytes(const G& g, void* dest, const void* source,
                                            std::size_t bytes, std::uint64_t* signal,
                                            std::uint64_t value, signal_op how, int pe,
                                            bool blocking) const noexcept {
  const place flag = find(signal, sizeof(*signal), pe);
  const place to = bytes == 0 ? flag : find(dest, bytes, pe);  // no data may be anywhere
  if (to.rank < 0 || flag.rank < 0) return status::invalid;
  if (to.mapped != nullptr && flag.mapped != nullptr) {
    g.sync();
    copy(g, to.mapped, source, bytes);
    g.sync();  // before the signal; and the source may be reused
    if (g.rank() == 0) {
      const device::signal s(*reinterpret_cast<std::uint64_t*>(flag.mapped));
      if (how == signal_op::set) s.set(value);
      if (how == signal_op::add) s.add(value);
    }
    return status::ok;
  }
  return impl::proxied_put_signal(p_.proxy, p_.queue, g, to.rank, to.remote, source, bytes,
                                  flag.remote, value, how, blocking);
}

template <group G, shmem_value T>
CW_FN inline status shmem::put_signal(const G& g, T* dest, const T* source, std::size_t n,
                                      std::uint64_t* signal, std::uint64_t value, signal_op how,
                                      int pe) const noexcept {
  return put_signal_bytes(g, dest, source, n * sizeof(T), signal, value, how, pe, true);
}
template <group G, shmem_value T>
CW_FN inline status shmem::put_signal_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                          std::uint64_t* signal, std::uint64_t value, signal_op how,
                                          int pe) const noexcept {
  return put_signal_bytes(g, dest, source, n * sizeof(T), signal, value, how, pe, false);
}

template <group G>
CW_FN inline status shmem::signal_set(const G& g, std::uint64_t* signal, std::uint64_t value,
                                      int pe) const noexcept {
  return atomic(g, amo::set, signal, value, pe);
}
template <group G>
CW_FN inline status shmem::signal_add(const G& g, std::uint64_t* signal, std::uint64_t value,
                                      int pe) const noexcept {
  return atomic(g, amo::add, signal, value, pe);
}

CW_FN inline std::uint64_t shmem::signal_fetch(const std::uint64_t* signal) const noexcept {
  // pairs with put_signal_bytes()
  return system_atomic<std::uint64_t>(*const_cast<std::uint64_t*>(signal)).load(order::acquire);
}

template <group G>
CW_FN inline status shmem::signal_wait_until(const G& g, std::uint64_t* signal, compare how,
                                             std::uint64_t value) const noexcept {
  return wait_until(g, signal, how, value);
}
template <group G>
CW_FN inline status shmem::signal_wait_until(const G& g, std::uint64_t* signal, compare how,
                                             std::uint64_t value,
                                             std::uint64_t& seen) const noexcept {
  struct outcome {
    status s = status::ok;
    std::uint64_t seen = 0;
  };
  const outcome o = leader_of(g, [&] {
    outcome mine;
    mine.s = poll_until(
        [&] {
          mine.seen = signal_fetch(signal);
          return holds(mine.seen, how, value);
        },
        p_.limits);
    return mine;
  });
  seen = o.seen;
  return o.s;
}

// ---- atomics

namespace impl {

template <class T>
CW_FN inline std::uint64_t bits_of(T value) noexcept {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
CW_FN inline T value_of(std::uint64_t bits) noexcept {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// On a mapped word; returns the value before.
template <shmem_atomic T>
CW_FN inline T update_mapped(void* at, amo op, T value, T comparand) noexcept {
  const system_atomic<T> word(*static_cast<T*>(at));
  switch (op) {
    case amo::fetch:
      return word.load(order::fenced);
    case amo::set:
      word.store(value, order::fenced);
      return T{};
    case amo::swap:
      return word.exchange(value, order::fenced);
    case amo::compare_swap: {
      T seen = comparand;
      word.compare_exchange(seen, value, order::fenced);
      return seen;
    }
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case amo::add:
        return word.fetch_add(value, order::fenced);
      case amo::bit_and:
        return word.fetch_and(value, order::fenced);
      case amo::bit_or:
        return word.fetch_or(value, order::fenced);
      case amo::bit_xor:
        return word.fetch_xor(value, order::fenced);
      default:
        break;
    }
  }
  return T{};
}

/// Whether there is such an operation on such a word.
template <shmem_atomic T>
CW_FN constexpr bool knows(amo op) noexcept {
  return std::is_integral_v<T> || op == amo::fetch || op == amo::set || op == amo::swap;
}

}  // namespace impl

template <group G, shmem_atomic T>
CW_FN inline status shmem::atomic(const G& g, amo op, T* dest, T value, int pe) const noexcept {
  const place at = find(dest, sizeof(T), pe);
  if (at.rank < 0 || !impl::knows<T>(op)) return status::invalid;
  if (at.mapped == nullptr) {
    return impl::proxied_atomic(p_.proxy, p_.queue, g, at.rank, at.remote,
                                {op, sizeof(T), impl::bits_of(value), 0});
  }
  g.sync();
  if (g.rank() == 0) impl::update_mapped(at.mapped, op, value, T{});
  return status::ok;
}

template <group G, shmem_atomic T>
CW_FN inline status shmem::atomic_fetch(const G& g, amo op, T* dest, T value, T comparand, int pe,
                                        T& old) const noexcept {
  const place at = find(dest, sizeof(T), pe);
  if (at.rank < 0 || !impl::knows<T>(op)) return status::invalid;
  if (at.mapped == nullptr) {
    const impl::fetched f =
        impl::proxied_fetch(p_.proxy, p_.queue, g, at.rank, at.remote,
                            {op, sizeof(T), impl::bits_of(value), impl::bits_of(comparand)});
    old = impl::value_of<T>(f.bits);
    return f.s;
  }
  g.sync();
  old = g.broadcast(g.rank() == 0 ? impl::update_mapped(at.mapped, op, value, comparand) : T{});
  return status::ok;
}

template <group G, shmem_atomic T>
CW_FN inline status shmem::atomic_fetch_nbi(const G& g, amo op, T* old, T* dest, T value,
                                            T comparand, int pe) const noexcept {
  const place at = find(dest, sizeof(T), pe);
  if (at.rank < 0 || !impl::knows<T>(op)) return status::invalid;
  if (at.mapped == nullptr) {
    return impl::proxied_fetch_nbi(p_.proxy, p_.queue, g, at.rank, at.remote,
                                   {op, sizeof(T), impl::bits_of(value), impl::bits_of(comparand)},
                                   old);
  }
  g.sync();
  if (g.rank() == 0) *old = impl::update_mapped(at.mapped, op, value, comparand);
  return status::ok;
}

// ---- waiting

namespace impl {

template <shmem_word T>
CW_FN inline T read_word(T* word) noexcept {
  return system_atomic<T>(*word).load(order::acquire);  // pairs with stores of order fenced
}

}  // namespace impl

template <shmem_word T>
CW_FN inline bool shmem::test(T* word, compare how, T value) const noexcept {
  return holds(impl::read_word(word), how, value);
}

template <group G, shmem_word T>
CW_FN inline status shmem::wait_until(const G& g, T* word, compare how, T value) const noexcept {
  return poll_until(
      g, [&] { return test(word, how, value); }, p_.limits);
}

/// Words from index `from` on, around: the indices of those that hold go to `indices`, or the first
/// is returned when it is null. `counted`: words that count.
template <shmem_word T>
CW_FN inline std::size_t shmem::scan_words(const words<T>& w, std::size_t from,
                                           std::size_t& counted,
                                           std::size_t* indices) const noexcept {
  counted = 0;
  std::size_t found = 0;
  for (std::size_t k = 0; k < w.count; ++k) {
    std::size_t i = from + k;
    if (i >= w.count) i -= w.count;
    if (!w.counts(i)) continue;
    ++counted;
    if (!test(w.at + i, w.how, w.value(i))) continue;
    if (indices == nullptr) return i;
    indices[found++] = i;
  }
  return indices == nullptr ? none : found;
}

template <shmem_word T>
CW_FN inline bool shmem::test_all(const words<T>& w) const noexcept {
  for (std::size_t i = 0; i < w.count; ++i) {
    if (w.counts(i) && !test(w.at + i, w.how, w.value(i))) return false;
  }
  return true;
}
template <shmem_word T>
CW_FN inline std::size_t shmem::test_any(const words<T>& w) const noexcept {
  std::size_t counted = 0;
  return scan_words(w, 0, counted, nullptr);
}
template <shmem_word T>
CW_FN inline std::size_t shmem::test_some(const words<T>& w, std::size_t* indices) const noexcept {
  std::size_t counted = 0;
  return scan_words(w, 0, counted, indices);
}

template <group G, shmem_word T>
CW_FN inline status shmem::wait_until_all(const G& g, const words<T>& w) const noexcept {
  g.sync();
  deadline by(p_.limits);
  status s = status::ok;
  for (auto i = static_cast<std::size_t>(g.rank()); i < w.count && s == status::ok;
       i += static_cast<std::size_t>(g.size())) {
    if (w.counts(i)) s = poll_until([&] { return test(w.at + i, w.how, w.value(i)); }, by);
  }
  return agree(g, s);
}

template <group G, shmem_word T>
CW_FN inline status shmem::wait_until_any(const G& g, const words<T>& w,
                                          std::size_t& index) const noexcept {
  struct outcome {
    status s = status::ok;
    std::size_t index = none;
  };
  g.sync();
  const outcome o = leader_of(g, [&] {
    outcome mine;
    mine.s = poll_until(
        [&] {
          std::size_t counted = 0;
          mine.index = scan_words(w, 0, counted, nullptr);
          return mine.index != none || counted == 0;
        },
        p_.limits);
    return mine;
  });
  index = o.index;
  return o.s;
}

template <group G, shmem_word T>
CW_FN inline status shmem::wait_until_some(const G& g, const words<T>& w, std::size_t* indices,
                                           std::size_t& found) const noexcept {
  struct outcome {
    status s = status::ok;
    std::size_t found = 0;
  };
  g.sync();
  const outcome o = leader_of(g, [&] {
    outcome mine;
    mine.s = poll_until(
        [&] {
          std::size_t counted = 0;
          mine.found = scan_words(w, 0, counted, indices);
          return mine.found > 0 || counted == 0;
        },
        p_.limits);
    return mine;
  });
  found = o.found;
  return o.s;
}

// ---- order

template <group G>
CW_FN inline status shmem::fence(const G& g) const noexcept {
  g.sync();
  if (!p_.all_mapped) {
    if (const status s = impl::proxied_fence(p_.proxy, p_.queue, g); s != status::ok) return s;
  }
  // By each thread: any of them may make the next store.
  device::fence<scope::system>();
  return status::ok;
}

template <group G>
CW_FN inline status shmem::quiet(const G& g) const noexcept {
  g.sync();
  device::full_fence<scope::system>();
  return p_.all_mapped ? status::ok : impl::proxied_quiet(p_.proxy, p_.queue, g);
}

template <group G>
CW_FN inline status shmem::pe_quiet(const G& g, int pe) const noexcept {
  if (!p_.team.has(pe)) return status::invalid;
  if (p_.all_mapped || p_.heap.peers[p_.team.world_pe(pe)].base != nullptr) {
    g.sync();
    device::full_fence<scope::system>();
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
  device::fence<scope::system>();  // what the last holder did is before what this one does
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
    device::fence<scope::system>();  // before this PE is in the queue again
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
  device::fence<scope::system>();
  return o.s;
}

}  // namespace crosswarp::device
