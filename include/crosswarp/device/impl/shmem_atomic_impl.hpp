// Bodies of shmem.hpp: atomics.
#pragma once

#include <cstring>

#include "crosswarp/device/impl/shmem_proxied.hpp"
#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

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
  const auto noted = note(g, call_of(op), sizeof(T), pe);
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
  const auto noted = note(g, call_of(op), sizeof(T), pe);
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
  const auto noted = note(g, call_of(op), sizeof(T), pe);
  g.sync();
  if (g.rank() == 0) *old = impl::update_mapped(at.mapped, op, value, comparand);
  return status::ok;
}

}  // namespace crosswarp::device
