// Bodies of shmem.hpp: teams, and where things are.
#pragma once

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

/// The size of `n` elements, or more than any memory has.
template <class T>
CW_FN constexpr std::size_t bytes_of(std::size_t n) noexcept {
  constexpr std::size_t most = ~std::size_t{0};
  return n <= most / sizeof(T) ? n * sizeof(T) : most;
}

}  // namespace impl

CW_FN inline shmem::place shmem::find_in(const shmem_segment& s, const void* object,
                                         std::size_t bytes, int rank) noexcept {
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(object) - s.base);  // wraps below base
  if (offset > s.bytes || bytes > s.bytes - offset) return {};
  std::byte* const base = s.peers.base(rank);
  return {base == nullptr ? nullptr : base + offset, {offset, s.region}, rank};
}

CW_COLD CW_FN inline shmem::place shmem::find_anywhere(shmem_segment heap,
                                                       const shmem_segment* others, int count,
                                                       const void* object, std::size_t bytes,
                                                       int rank) noexcept {
  place found = find_in(heap, object, bytes, rank);
  for (int i = 0; i < count && found.rank < 0; ++i) {
    found = find_in(others[i], object, bytes, rank);
  }
  return found;
}

// No pointer to one segment or another: the view could not stay in registers then. What is most
// frequent takes few instructions, each of which a lone warp feels; the rest is not in line.
CW_FN inline shmem::place shmem::find(const void* object, std::size_t bytes,
                                      int pe) const noexcept {
  if (!p_.team.has(pe)) return {};
  const auto* const at = static_cast<const std::byte*>(object);
  const auto offset = static_cast<std::size_t>(at - p_.heap.base);
  if (p_.even && offset <= p_.heap.bytes && bytes <= p_.heap.bytes - offset) {
    place near;
    near.mapped = const_cast<std::byte*>(at) + (pe - p_.team.my_pe()) * p_.distance;
    near.rank = pe;  // any: what is mapped needs no more
    return near;
  }
  return find_anywhere(p_.heap, p_.others, p_.other_count, object, bytes, p_.team.world_pe(pe));
}

CW_FN inline bool shmem::is_symmetric(const void* object) const noexcept {
  return find(object, 1, 0).rank >= 0;
}

template <class T>
CW_FN inline T* shmem::ptr(const T* object, int pe) const noexcept {
  return reinterpret_cast<T*>(find(object, 1, pe).mapped);
}

}  // namespace crosswarp::device
