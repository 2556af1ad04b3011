// Memory of a device.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "crosswarp/device_ref.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp {

enum class memory_kind {
  device,  ///< the device's own
  pinned,  ///< host memory that the device reads and writes directly
};

namespace exec {
/// Zeroed; throws error(out_of_memory).
void* allocate(device_ref d, memory_kind kind, std::size_t bytes);
void release(device_ref d, memory_kind kind, void* p) noexcept;
/// Between host memory and the device's memory, complete on return.
void copy_now(device_ref d, void* dst, const void* src, std::size_t bytes);
}  // namespace exec

/// `size()` elements in a device's memory, zero at the start, aligned to 256 bytes.
template <class T>
requires std::is_trivially_copyable_v<T>
class buffer {
 public:
  buffer(device_ref d, std::size_t count, memory_kind kind = memory_kind::device)
      : device_(d),
        kind_(kind),
        size_(count),
        data_(static_cast<T*>(exec::allocate(d, kind, bytes_of(count)))) {}
  buffer(device_ref d, std::span<const T> values, memory_kind kind = memory_kind::device)
      : buffer(d, values.size(), kind) {
    write(values);
  }
  ~buffer() { exec::release(device_, kind_, data_); }
  buffer(buffer&& o) noexcept
      : device_(o.device_),
        kind_(o.kind_),
        size_(std::exchange(o.size_, 0)),
        data_(std::exchange(o.data_, nullptr)) {}
  buffer& operator=(buffer&& o) noexcept {
    std::swap(device_, o.device_);
    std::swap(kind_, o.kind_);
    std::swap(size_, o.size_);
    std::swap(data_, o.data_);
    return *this;
  }

  /// The address, for kernels. The host may follow it only when the device is the CPU or the
  /// memory is pinned.
  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] device_ref device() const noexcept { return device_; }

  /// Host to device and back, complete on return. The caller orders them with its streams.
  void write(std::span<const T> values) {
    if (values.size() > size_) {
      throw error(errc::invalid_argument, "buffer::write", "more than the buffer holds");
    }
    exec::copy_now(device_, data_, values.data(), values.size_bytes());
  }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> out(size_);
    exec::copy_now(device_, out.data(), data_, size_ * sizeof(T));
    return out;
  }

 private:
  static std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) {
      throw error(errc::out_of_memory, "buffer", std::to_string(count) + " elements");
    }
    return count * sizeof(T);
  }
  device_ref device_;
  memory_kind kind_;
  std::size_t size_;
  T* data_;
};

}  // namespace crosswarp
