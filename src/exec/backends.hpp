// What each kind of device implements.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::exec {

class backend {
 public:
  virtual ~backend() = default;
  virtual std::unique_ptr<stream_backend> make_stream(device_ref d) = 0;
  /// Around a stream of somebody else, see stream::borrow().
  virtual std::unique_ptr<stream_backend> borrow_stream(device_ref d, void* native);
  virtual std::unique_ptr<event_backend> make_event(device_ref d) = 0;
  virtual void* allocate(device_ref d, memory_kind kind, std::size_t bytes) = 0;
  virtual void release(device_ref d, memory_kind kind, void* p) noexcept = 0;
  virtual void copy_now(device_ref d, void* dst, const void* src, std::size_t bytes) = 0;
  /// The range is memory that was allocated for this device; else the host's own, or nobody's.
  [[nodiscard]] virtual bool owns(device_ref /*d*/, const void* /*p*/,
                                  std::size_t /*bytes*/) noexcept {
    return false;
  }
  /// The host may follow addresses of the range.
  [[nodiscard]] virtual bool on_host(device_ref /*d*/, const void* /*p*/,
                                     std::size_t /*bytes*/) noexcept {
    return true;
  }
  /// Copies and kernels of `d` get at memory of `other` without a detour through the host; of its
  /// own kind. Makes it so where it has to be asked for.
  [[nodiscard]] virtual bool reaches(device_ref /*d*/, device_ref /*other*/) { return true; }
  /// Some stream of the device has work to do. CPUs need not know.
  [[nodiscard]] virtual bool busy(device_ref /*d*/) noexcept { return true; }
};

namespace cpu {
backend& instance();
}

namespace cuda {
/// Throws error(not_supported) in a build without CUDA.
backend& instance();
int device_count() noexcept;
std::string absence_reason();
std::vector<device_info> list();
/// Lets the GPU read and write host memory that is mapped already.
void pin(device_ref d, void* p, std::size_t bytes);
void unpin(void* p) noexcept;
/// Memory of the GPU as network adapters want it; the descriptor is the caller's to close.
struct dmabuf {
  int descriptor = -1;
  std::uint64_t offset = 0;  ///< of the memory in it
};
/// Throws error(not_supported) that says what is missing.
dmabuf export_dmabuf(device_ref d, const void* p, std::size_t bytes);
/// Lets the GPU write the doorbell at `offset` of an adapter's page: where it is for kernels, until
/// unpin(page). Throws error(not_supported) that says what is missing.
std::uint64_t* map_doorbell(device_ref d, void* page, std::size_t bytes, std::size_t offset);
}  // namespace cuda

backend& backend_of(device_ref d);
inline bool owns(device_ref d, const void* p, std::size_t bytes) noexcept {
  return backend_of(d).owns(d, p, bytes);
}
inline bool on_host(device_ref d, const void* p, std::size_t bytes) noexcept {
  return backend_of(d).on_host(d, p, bytes);
}
inline bool reaches(device_ref d, device_ref other) {
  return d.kind() == other.kind() && backend_of(d).reaches(d, other);
}
inline bool busy(device_ref d) noexcept {
  return backend_of(d).busy(d);
}

/// `f` is called after each launch on the device, while what is returned lives. On CPUs never.
std::shared_ptr<void> on_launch(device_ref d, std::function<void()> f);

}  // namespace crosswarp::exec
