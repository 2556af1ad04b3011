#include "memory/host_copy.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

namespace crosswarp::memory {
namespace {

template <class T>
void store_word(std::byte* to, const std::byte* from) noexcept {
  T value;
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) == 0) {
    // A word that kernels change while it is read. acquire: what they did before is read after it
    T& word = *reinterpret_cast<T*>(const_cast<std::byte*>(from));
    value = std::atomic_ref<T>(word).load(std::memory_order_acquire);
  } else {
    std::memcpy(&value, from, sizeof(T));
  }
  // release: a kernel that sees a word put after a fence sees what was put before it
  std::atomic_ref<T>(*reinterpret_cast<T*>(to)).store(value, std::memory_order_release);
}

}  // namespace

void copy_for_kernels(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const bool whole = bytes > 0 && reinterpret_cast<std::uintptr_t>(to) % bytes == 0;
  if (whole && bytes == 8) {
    store_word<std::uint64_t>(to, from);
  } else if (whole && bytes == 4) {
    store_word<std::uint32_t>(to, from);
  } else if (whole && bytes == 2) {
    store_word<std::uint16_t>(to, from);
  } else if (bytes == 1) {
    store_word<std::uint8_t>(to, from);
  } else if (bytes > 0) {
    std::memmove(to, from, bytes);  // a rank may copy within its own memory
  }
}

}  // namespace crosswarp::memory
