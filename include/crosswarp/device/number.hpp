// Numbers that are shorter than a float: how they are stored, and how one calculates with them.
//
// A short number is only stored; sums are made in float. widen() is exact, narrow() rounds to the
// nearest, ties to even, the same bits on a CPU and on a GPU. Infinities and NaNs stay what they
// are; what is too large becomes infinite, or NaN where the format has no infinity.
#pragma once

#include <cstdint>
#include <type_traits>

#include "crosswarp/device/platform.hpp"

namespace crosswarp::device {

/// IEEE 754 binary16; the layout of CUDA's __half and of torch.float16.
struct half {
  std::uint16_t bits;
};
/// The upper half of a float; the layout of __nv_bfloat16 and of torch.bfloat16.
struct bfloat16 {
  std::uint16_t bits;
};
/// Open Compute's FP8 with 4 bits of exponent: up to 448, NaN but no infinity. torch.float8_e4m3fn.
struct fp8_e4m3 {
  std::uint8_t bits;
};
/// With 5 bits of exponent: a binary16 with a shorter mantissa. torch.float8_e5m2.
struct fp8_e5m2 {
  std::uint8_t bits;
};

/// What one calculates with instead of T: float for those above, else T itself.
template <class T>
struct accumulator {
  using type = T;
};
template <>
struct accumulator<half> {
  using type = float;
};
template <>
struct accumulator<bfloat16> {
  using type = float;
};
template <>
struct accumulator<fp8_e4m3> {
  using type = float;
};
template <>
struct accumulator<fp8_e5m2> {
  using type = float;
};
template <class T>
using accumulator_t = typename accumulator<T>::type;

template <class T>
concept number =
    std::is_arithmetic_v<accumulator_t<T>> && !std::is_same_v<T, bool> && sizeof(T) <= 8;

template <number T>
[[nodiscard]] CW_FN inline accumulator_t<T> widen(T value) noexcept;
template <number T>
[[nodiscard]] CW_FN inline T narrow(accumulator_t<T> value) noexcept;

// Each rounded by itself, as IEEE 754 says: a GPU's compiler may join a product with the sum behind
// it, or take an approximation, and the bits would be others than elsewhere.
[[nodiscard]] CW_FN inline float rounded_product(float a, float b) noexcept;
[[nodiscard]] CW_FN inline float rounded_quotient(float a, float b) noexcept;
[[nodiscard]] CW_FN inline float rounded_root(float a) noexcept;

}  // namespace crosswarp::device

#include "crosswarp/device/impl/number_impl.hpp"
