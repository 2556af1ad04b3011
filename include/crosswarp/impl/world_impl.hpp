// Bodies of world.hpp.
#pragma once

#include <cstring>

#include "crosswarp/world.hpp"

namespace crosswarp {

template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> world::allgather(const T& mine) {
  const auto all = allgather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> values(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].size() != sizeof(T)) {
      throw error(errc::asymmetric, "allgather", "sent a value of another size",
                  static_cast<int>(r));
    }
    std::memcpy(&values[r], all[r].data(), sizeof(T));
  }
  return values;
}

namespace world_impl {
/// Where a rank's heap is mapped here, as the host names it; null when it is not.
[[nodiscard]] std::byte* heap_base(const state& s, int pe);
/// From there to its end, with what the world keeps for itself.
[[nodiscard]] std::size_t heap_bytes(const state& s);
}  // namespace world_impl

template <class T>
requires std::is_trivially_copyable_v<T> T* symmetric_buffer<T>::data() const noexcept {
  return data(world_impl::rank_of(block_.owner()));
}

template <class T>
requires std::is_trivially_copyable_v<T> T* symmetric_buffer<T>::data(int pe) const {
  std::byte* const base = world_impl::heap_base(block_.owner(), pe);
  return base == nullptr ? nullptr : reinterpret_cast<T*>(base + block_.offset());
}

template <class T>
requires std::is_trivially_copyable_v<T>
void symmetric_buffer<T>::write(std::span<const T> values, std::size_t first) {
  if (first > size_ || values.size() > size_ - first) {
    throw error(errc::invalid_argument, "symmetric_buffer::write", "beyond the end");
  }
  exec::copy_now(world_impl::device_of(block_.owner()), data() + first, values.data(),
                 values.size_bytes());
}

template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> symmetric_buffer<T>::read()
const {
  std::vector<T> values(size_);
  exec::copy_now(world_impl::device_of(block_.owner()), values.data(), data(), size_ * sizeof(T));
  return values;
}

}  // namespace crosswarp
