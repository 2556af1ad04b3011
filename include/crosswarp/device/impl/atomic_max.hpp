// Part of the seam, as atomic.hpp, for the few that need it.
#pragma once

#include "crosswarp/device/atomic.hpp"

namespace crosswarp::device::impl {

/// `word` is at least `value` afterwards. It does not say what it was: so that on a GPU nobody
/// waits for that.
template <scope S, updatable_word T, update_order O>
CW_FN inline void raise(T& word, T value, O o) noexcept {
  observe<S>(&word, access::update);
  const native_ref<T, S> at(word);
  if constexpr (requires { at.fetch_max(value, native(o)); }) {
    at.fetch_max(value, native(o));
  } else {  // std's has it from C++26 on
    T seen = at.load(native_failure(o));
    while (seen < value && !at.compare_exchange_weak(seen, value, native(o), native_failure(o))) {
    }
  }
}

}  // namespace crosswarp::device::impl
