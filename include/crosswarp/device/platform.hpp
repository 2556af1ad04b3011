// What differs between the compilers that see a kernel. Nothing else in the library asks
// which compiler is running, except the few headers of the seam that include this one.
#pragma once

#if defined(__CUDACC__)
/// Marks a function that runs on the host, on CPU kernels and on GPU kernels.
#define CW_FN __host__ __device__
#else
#define CW_FN
#endif

/// For what is called seldom or takes long: once in a program instead of at each call.
#if defined(__CUDACC__)
#define CW_COLD __noinline__
#else
#define CW_COLD __attribute__((noinline))
#endif

// Before a loop whose rounds are not to be interleaved: a GPU would pay for it in registers. And
// before one that a GPU must not go round, so that an array stays in registers.
#if defined(__CUDA_ARCH__)
#define CW_IN_TURN _Pragma("unroll 1")
#define CW_UNROLLED _Pragma("unroll")
#else
#define CW_IN_TURN
#define CW_UNROLLED
#endif

/// 1 while the compiler generates GPU code, 0 while it generates host code.
#if defined(__CUDA_ARCH__)
#define CW_ON_GPU 1
#else
#define CW_ON_GPU 0
#endif

/// 1 when CPU kernels report every atomic operation to the scope checker and to the deterministic
/// scheduler. The build of the library decides it and exports it to its users.
#if !defined(CROSSWARP_CHECKED)
#define CROSSWARP_CHECKED 0
#endif

namespace crosswarp::device {

/// Bytes that two writers must keep between them. Two 64-byte lines: CPUs prefetch them in
/// pairs, GPUs fetch 128 bytes at once.
inline constexpr int line_bytes = 128;

/// Host(*whose, arguments...), a function of the host's, where a CPU's thread calls and there is
/// somebody; true when it was called. A GPU's thread cannot: its host looks by itself.
template <auto Host, class Object, class... Arguments>
CW_FN inline bool call_host([[maybe_unused]] Object* whose,
                            [[maybe_unused]] Arguments... arguments) noexcept {
#if !CW_ON_GPU
  if (whose != nullptr) {
    Host(*whose, arguments...);
    return true;
  }
#endif
  return false;
}

}  // namespace crosswarp::device
