// Bodies of shmem.hpp: put, get, strided, put with signal.
#pragma once

#include <cstring>

#include "crosswarp/device/impl/shmem_impl.hpp"
#include "crosswarp/device/impl/shmem_proxied.hpp"
#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

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

/// One thread's, when a word is to stay whole; else the group's.
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

template <shmem::toward D, group G>
CW_FN inline status shmem::transfer(const G& g, const void* object, const void* here,
                                    std::size_t bytes, int pe, bool blocking) const noexcept {
  if (bytes == 0 && p_.team.has(pe)) return status::ok;
  const place there = find(object, bytes, pe);
  if (there.rank < 0) return status::invalid;
  void* const mine = const_cast<void*>(here);  // written by gets alone
  if (there.mapped != nullptr) {
    const auto noted = note(g, D == toward::pe ? proxy_call::put : proxy_call::get, bytes, pe);
    g.sync();
    if constexpr (D == toward::pe) impl::put_mapped(g, there.mapped, here, bytes);
    if constexpr (D == toward::here) impl::get_mapped(g, mine, there.mapped, bytes);
    if (blocking) g.sync();
    return status::ok;
  }
  if constexpr (D == toward::pe) {
    return impl::proxied_put(p_.proxy, p_.queue, g, there.rank, there.remote, here, bytes,
                             blocking);
  } else {
    return impl::proxied_get(p_.proxy, p_.queue, g, there.rank, there.remote, mine, bytes,
                             blocking);
  }
}

template <group G, shmem_value T>
CW_FN inline status shmem::put(const G& g, T* dest, const T* source, std::size_t n,
                               int pe) const noexcept {
  return transfer<toward::pe>(g, dest, source, impl::bytes_of<T>(n), pe, true);
}
template <group G, shmem_value T>
CW_FN inline status shmem::put_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                   int pe) const noexcept {
  return transfer<toward::pe>(g, dest, source, impl::bytes_of<T>(n), pe, false);
}
template <group G, shmem_value T>
CW_FN inline status shmem::get(const G& g, T* dest, const T* source, std::size_t n,
                               int pe) const noexcept {
  return transfer<toward::here>(g, source, dest, impl::bytes_of<T>(n), pe, true);
}
template <group G, shmem_value T>
CW_FN inline status shmem::get_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                   int pe) const noexcept {
  return transfer<toward::here>(g, source, dest, impl::bytes_of<T>(n), pe, false);
}

template <group G, shmem_value T>
CW_FN inline status shmem::p(const G& g, T* dest, T value, int pe) const noexcept {
  const place to = find(dest, sizeof(T), pe);
  if (to.rank < 0) return status::invalid;
  if (to.mapped != nullptr) {
    const auto noted = note(g, proxy_call::put_value, sizeof(T), pe);
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
  const auto noted = note(g, proxy_call::get, sizeof(T), pe, from.mapped != nullptr);
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
  const std::size_t step =
      stride < 0 ? 0 - static_cast<std::size_t>(stride) : static_cast<std::size_t>(stride);
  // What goes beyond this is beyond every segment, too.
  constexpr std::size_t most = ~std::size_t{0} >> 1U;
  if (block > most / element || (step > 0 && blocks - 1 > most / element / step)) return {0, most};
  const std::size_t span = step * (blocks - 1) * element;
  return {stride < 0 ? -static_cast<std::ptrdiff_t>(span) : 0, span + block * element};
}

}  // namespace impl

template <shmem::toward D, group G, class T>
CW_FN inline status shmem::transfer_strided(const G& g, T* dest, const T* source, const strides& s,
                                            std::size_t blocks, int pe) const noexcept {
  constexpr bool out = D == toward::pe;
  if (!p_.team.has(pe)) return status::invalid;
  if (blocks == 0 || s.block == 0) return status::ok;
  const auto size = static_cast<std::ptrdiff_t>(sizeof(T));
  const std::ptrdiff_t there = out ? s.dest : s.source;
  const T* const object = out ? dest : source;
  const impl::extent e = impl::extent_of(there, s.block, blocks, sizeof(T));
  const place low = find(reinterpret_cast<const std::byte*>(object) + e.first, e.bytes, pe);
  if (low.rank < 0) return status::invalid;
  if (low.mapped != nullptr) {
    T* const at = reinterpret_cast<T*>(low.mapped - e.first);
    const auto noted = note(g, out ? proxy_call::put_strided : proxy_call::get_strided,
                            blocks * s.block * sizeof(T), pe);
    g.sync();
    impl::copy_strided(g, out ? at : dest, out ? source : at, s, blocks);
    g.sync();
    return status::ok;
  }
  const remote_address first{low.remote.offset - static_cast<std::uint64_t>(e.first),
                             low.remote.region};
  const proxy_queue::strides by{s.block * sizeof(T), blocks, there * size,
                                (out ? s.source : s.dest) * size};
  if constexpr (out) {
    return impl::proxied_put_strided(p_.proxy, p_.queue, g, low.rank, first, source, by);
  } else {
    return impl::proxied_get_strided(p_.proxy, p_.queue, g, low.rank, first, dest, by);
  }
}

template <group G, shmem_value T>
CW_FN inline status shmem::iput(const G& g, T* dest, const T* source, const strides& s,
                                std::size_t blocks, int pe) const noexcept {
  return transfer_strided<toward::pe>(g, dest, source, s, blocks, pe);
}
template <group G, shmem_value T>
CW_FN inline status shmem::iget(const G& g, T* dest, const T* source, const strides& s,
                                std::size_t blocks, int pe) const noexcept {
  return transfer_strided<toward::here>(g, dest, source, s, blocks, pe);
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
    const auto noted = note(g, proxy_call::put_signal, bytes, pe);
    g.sync();
    copy(g, to.mapped, source, bytes);
    g.sync();  // before the signal; and the source may be reused
    if (g.rank() == 0) {
      const device::signal s(*reinterpret_cast<std::uint64_t*>(flag.mapped), p_.reach);
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
  return put_signal_bytes(g, dest, source, impl::bytes_of<T>(n), signal, value, how, pe, true);
}
template <group G, shmem_value T>
CW_FN inline status shmem::put_signal_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                          std::uint64_t* signal, std::uint64_t value, signal_op how,
                                          int pe) const noexcept {
  return put_signal_bytes(g, dest, source, impl::bytes_of<T>(n), signal, value, how, pe, false);
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

}  // namespace crosswarp::device
