// Bodies of shmem.hpp: waiting for this PE's own words.
#pragma once

#include "crosswarp/device/shmem.hpp"

namespace crosswarp::device {

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
  // The look that succeeds is made again with acquire, see signal::wait().
  return leader_of(g, [&] {
    const system_atomic<T> seen(*word);
    return poll_until(
        [&] {
          if (!holds(seen.load(order::relaxed), how, value)) return false;
          (void)impl::read_word(word);
          return true;
        },
        p_.limits);
  });
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

}  // namespace crosswarp::device
