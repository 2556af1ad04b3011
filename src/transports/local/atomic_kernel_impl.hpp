// Bodies of atomic_kernel.hpp.
#pragma once

#include "transports/local/atomic_kernel.hpp"

namespace crosswarp::local {

template <class T>
CW_FN inline T update_word(const word_update& u) noexcept {
  const device::system_atomic<T> word(*static_cast<T*>(u.at));
  const auto value = static_cast<T>(u.operand);
  // Both ways: a signal releases the data put before it, and a fetched value may acquire some.
  constexpr auto order = device::order::acq_rel;
  switch (u.op) {
    case device::amo::fetch:
      return word.load(device::order::acquire);
    case device::amo::set:
      word.store(value, device::order::release);
      return 0;
    case device::amo::add:
      return word.fetch_add(value, order);
    case device::amo::bit_and:
      return word.fetch_and(value, order);
    case device::amo::bit_or:
      return word.fetch_or(value, order);
    case device::amo::bit_xor:
      return word.fetch_xor(value, order);
    case device::amo::swap:
      return word.exchange(value, order);
    case device::amo::compare_swap: {
      T expected = static_cast<T>(u.comparand);
      word.compare_exchange(expected, value, order);
      return expected;
    }
  }
  return 0;
}

CW_FN inline std::uint64_t update(const word_update& u) noexcept {
  return u.width == 4 ? update_word<std::uint32_t>(u) : update_word<std::uint64_t>(u);
}

}  // namespace crosswarp::local
