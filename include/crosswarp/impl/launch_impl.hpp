// Bodies of launch.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "crosswarp/error.hpp"
#include "crosswarp/launch.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace crosswarp::exec {

/// One rank's grid on the CPU.
struct cpu_grid {
  launch_shape shape;
  std::function<void(const device::kernel_context&)> body;
  std::uint32_t owner = 0;  ///< the rank it runs for, for the scope checker; 0: none
};

/// What a stream's device does; one implementation for each kind of device.
class stream_backend {
 public:
  virtual ~stream_backend() = default;
  virtual void sync() = 0;
  virtual void record(event_backend& e) = 0;
  virtual void wait(const event_backend& e) = 0;
  virtual void copy(void* dst, const void* src, std::size_t bytes) = 0;
  [[nodiscard]] virtual void* native() const noexcept { return nullptr; }
  /// CPU only: queues a grid.
  virtual void run(cpu_grid grid);
  /// CPU only: for which rank this stream's grids run, see cpu_grid::owner.
  virtual void set_owner(std::uint32_t /*owner*/) {}
  /// From here to end_recording() what is queued is kept, and does not run.
  virtual void begin_recording() = 0;
  virtual std::unique_ptr<recording_backend> end_recording() = 0;
  [[nodiscard]] virtual bool is_recording() const = 0;
  /// GPU only: zeroed words for a grid barrier, in order with the stream, for `grids` grids.
  virtual device::grid_words* grid_barrier(int grids);
};

/// What a stream recorded.
class recording_backend {
 public:
  virtual ~recording_backend() = default;
  virtual void replay(stream_backend& on) = 0;
};

class event_backend {
 public:
  virtual ~event_backend() = default;
  [[nodiscard]] virtual bool ready() const = 0;
  virtual void sync() const = 0;
  [[nodiscard]] virtual std::chrono::nanoseconds since(const event_backend& earlier) const = 0;
};

/// Throws error(invalid_argument) unless the shape is one that some device could run.
void check_shape(const launch_shape& shape);

namespace cuda {

/// Throws error(device_fault or out_of_memory) unless `code` is cudaSuccess.
void check(int code, const char* call);
/// Throws error(does_not_fit) unless that many blocks fit on the device at once; prepares the
/// kernel for its shared memory.
void check_resident(int device, const void* function, const launch_shape& shape, int grids);

/// Tells those who work for kernels that there is one.
void note_launch(int device);

#if defined(__CUDACC__)

/// The most threads that blocks of a kernel have: its own `max_threads`, for which the compiler
/// then leaves enough registers to each. 0: it does not say.
template <class Kernel>
consteval int max_threads_of() {
  if constexpr (requires { Kernel::max_threads; }) {
    return Kernel::max_threads;
  } else {
    return 0;
  }
}

/// Whether a kernel can be launched with launch_shape::place_early.
template <class Kernel>
consteval bool places_early() {
  if constexpr (requires { Kernel::place_early; }) {
    return Kernel::place_early;
  } else {
    return false;
  }
}

/// Whether blocks may be placed before the kernel ahead of them has ended.
bool can_place_early(int device);

// The parameters are grid constants, so that a kernel which takes a reference to one reads it where
// it is.
template <class Kernel, class... Args>
__global__ void __launch_bounds__(max_threads_of<Kernel>())
    entry(device::grid_words* grid, const __grid_constant__ device::wait_limits limits,
          [[maybe_unused]] bool early, const __grid_constant__ Kernel kernel,
          const __grid_constant__ Args... args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (places_early<Kernel>()) {
    // The first waits until the kernel before has ended and all it wrote is there, so that at most
    // two are on the device; then the next may be placed.
    if (early) asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
  }
#endif
  const device::kernel_context ctx({.block_index = static_cast<int>(blockIdx.x),
                                    .block_count = static_cast<int>(gridDim.x),
                                    .grid = grid,
                                    .limits = limits});
  kernel(ctx, args...);
}

inline void start(stream& s, const void* function, const launch_shape& shape, int grids,
                  void** args) {
  check(cudaSetDevice(s.device().ordinal()), "cudaSetDevice");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks * grids));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(s.native());
  cudaLaunchAttribute how{};
  config.attrs = &how;
  if (shape.resident) {
    how.id = cudaLaunchAttributeCooperative;
    how.val.cooperative = 1;
    config.numAttrs = 1;
  } else if (shape.place_early && can_place_early(s.device().ordinal())) {
    how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
  }
  check(cudaLaunchKernelExC(&config, function, args), "cudaLaunchKernelExC");
  note_launch(s.device().ordinal());
}

template <class Kernel, class... Args>
void launch(stream& s, const launch_shape& shape, Kernel kernel, Args... args) {
  const auto* function = reinterpret_cast<const void*>(&entry<Kernel, Args...>);
  check_resident(s.device().ordinal(), function, shape, 1);
  device::grid_words* grid = shape.resident ? s.backend().grid_barrier(1) : nullptr;
  device::wait_limits limits = shape.limits;
  bool early = shape.place_early;
  if (early && !places_early<Kernel>()) {
    throw error(errc::invalid_argument, "launch", "place_early of a kernel that does not say so");
  }
  void* packed[] = {&grid, &limits, &early, &kernel, &args...};
  start(s, function, shape, 1, packed);
}

#endif

}  // namespace cuda

[[noreturn]] inline void throw_not_compiled_for_cuda(const char* call) {
  throw error(errc::not_supported, call,
              "the stream is on a GPU, but this file was compiled for the CPU alone; list it in "
              "crosswarp_add_kernels() and configure with CUDA");
}

/// A launch that nobody watches.
template <class Kernel, class... Args>
void launch(stream& s, const launch_shape& shape, Kernel kernel, Args... args) {
  if (s.device().kind() == device_kind::cuda) {
#if defined(__CUDACC__)
    cuda::launch(s, shape, kernel, args...);
#else
    throw_not_compiled_for_cuda("launch");
#endif
    return;
  }
  s.backend().run({shape, [=](const device::kernel_context& ctx) { kernel(ctx, args...); }});
}

}  // namespace crosswarp::exec

namespace crosswarp {

template <class Kernel, class... Args>
requires std::invocable<const Kernel&, const device::kernel_context&, const Args&...>
void launch(stream& s, const launch_shape& shape, Kernel kernel, Args... args) {
  static_assert(std::is_trivially_copyable_v<Kernel> && (std::is_trivially_copyable_v<Args> && ...),
                "kernels and their arguments are copied to the device byte by byte");
  exec::check_shape(shape);
  s.begin_launch(s);
  exec::launch(s, shape, kernel, args...);
  s.end_launch(s);
}

}  // namespace crosswarp
