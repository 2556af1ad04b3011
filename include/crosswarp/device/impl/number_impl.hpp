// Bodies of number.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "crosswarp/device/number.hpp"

namespace crosswarp::device::impl {

template <class To, class From>
CW_FN inline To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

inline constexpr std::uint32_t float_infinity = 0x7f800000U;
inline constexpr std::uint32_t float_sign = 0x80000000U;
inline constexpr int float_mantissa = 23;
inline constexpr int float_bias = 127;

/// A binary format of `Exponent` and `Mantissa` bits with IEEE's bias. `Finite`: as in FP8 E4M3,
/// the largest exponent is one more of numbers, and all ones are NaN.
template <int Exponent, int Mantissa, bool Finite>
struct short_format {
  static constexpr int bias = (1 << (Exponent - 1)) - 1;
  static constexpr int shift = float_mantissa - Mantissa;
  static constexpr std::uint32_t magnitude = (1U << (Exponent + Mantissa)) - 1;
  static constexpr std::uint32_t infinity = ((1U << Exponent) - 1) << Mantissa;
  static constexpr std::uint32_t nan = Finite ? magnitude : infinity | (1U << (Mantissa - 1));
  /// From here on floats are too large whatever way they are rounded: what follows the last
  /// number.
  static constexpr std::uint32_t beyond =
      (static_cast<std::uint32_t>((1 << Exponent) - 1 - bias + float_bias) << float_mantissa) |
      (Finite ? ((1U << Mantissa) - 1) << shift : 0);
  /// The smallest float that is a normal number here.
  static constexpr std::uint32_t smallest = static_cast<std::uint32_t>(1 - bias + float_bias)
                                            << float_mantissa;

  CW_FN static float widen(std::uint32_t bits) noexcept {
    const std::uint32_t value = bits & magnitude;
    // The exponent's place in a float, then its bias by a multiplication, which is right for
    // subnormal numbers as well.
    constexpr auto scale = static_cast<std::uint32_t>(2 * float_bias - bias) << float_mantissa;
    std::uint32_t wide = bits_as<std::uint32_t>(bits_as<float>(value << shift) *
                                                bits_as<float>(std::uint32_t{scale}));
    if constexpr (Finite) {
      if (value == magnitude) wide = float_infinity | (1U << (float_mantissa - 1));
    } else {
      if (value >= infinity) wide = float_infinity | (value << shift);
    }
    return bits_as<float>(wide | ((bits & (magnitude + 1)) << (31 - Exponent - Mantissa)));
  }

  /// What narrow() gives, made of what a GPU's own conversion gives: that saturates, so the largest
  /// number stands there for all that is too large.
  CW_FN static std::uint32_t unsaturated(float wide, std::uint32_t saturated) noexcept {
    return is_beyond(wide) ? too_large(wide) : saturated;
  }

  CW_FN static std::uint32_t narrow(float wide) noexcept {
    const auto all = bits_as<std::uint32_t>(wide);
    return sign_of(all) | narrow_magnitude(all & ~float_sign);
  }

 private:
  CW_FN static std::uint32_t sign_of(std::uint32_t wide) noexcept {
    return (wide & float_sign) >> (31 - Exponent - Mantissa);
  }
  /// Too large for any number here once it is rounded, or a NaN. In the middle between the last
  /// number and what would follow it the even one is taken: the last where all ones are NaN.
  CW_FN static bool is_beyond(float wide) noexcept {
    constexpr std::uint32_t middle = beyond - (1U << (shift - 1));
    const std::uint32_t value = bits_as<std::uint32_t>(wide) & ~float_sign;
    return Finite ? value > middle : value >= middle;
  }
  /// What narrow() makes of those.
  CW_FN static std::uint32_t too_large(float wide) noexcept {
    const auto all = bits_as<std::uint32_t>(wide);
    return sign_of(all) | ((all & ~float_sign) > float_infinity || Finite ? nan : infinity);
  }
  CW_FN static std::uint32_t narrow_magnitude(std::uint32_t wide) noexcept {
    if (wide > float_infinity) return nan;
    if (wide >= beyond) return Finite ? nan : infinity;
    if (wide < smallest) {
      // The sum has its last bit where the result has; the addition rounds.
      constexpr auto unit = static_cast<std::uint32_t>(1 - bias + shift + float_bias)
                            << float_mantissa;
      return bits_as<std::uint32_t>(bits_as<float>(wide) + bits_as<float>(std::uint32_t{unit})) -
             unit;
    }
    const std::uint32_t odd = (wide >> shift) & 1U;
    const std::uint32_t rounded = wide + ((1U << (shift - 1)) - 1) + odd;
    // A carry out of the mantissa is the next exponent, and the last of those is what is beyond.
    return (rounded - (static_cast<std::uint32_t>(float_bias - bias) << float_mantissa)) >> shift;
  }
};

using half_format = short_format<5, 10, false>;
using e4m3_format = short_format<4, 3, true>;
using e5m2_format = short_format<5, 2, false>;

CW_FN inline float widen_short(half h) noexcept {
#if CW_ON_GPU
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(h.bits));
  return wide;
#else
  return half_format::widen(h.bits);
#endif
}
CW_FN inline float widen_short(bfloat16 b) noexcept {
  return bits_as<float>(static_cast<std::uint32_t>(b.bits) << 16U);
}
CW_FN inline float widen_short(fp8_e4m3 f) noexcept {
  return e4m3_format::widen(f.bits);
}
CW_FN inline float widen_short(fp8_e5m2 f) noexcept {
  return e5m2_format::widen(f.bits);
}

CW_FN inline void narrow_short(float wide, half& to) noexcept {
#if CW_ON_GPU
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(wide));
  if (wide != wide) to.bits = static_cast<std::uint16_t>(half_format::narrow(wide));
#else
  to.bits = static_cast<std::uint16_t>(half_format::narrow(wide));
#endif
}
CW_FN inline void narrow_short(float wide, bfloat16& to) noexcept {
  const auto all = bits_as<std::uint32_t>(wide);
  const std::uint32_t rounded = (all + 0x7fffU + ((all >> 16U) & 1U)) >> 16U;
  const bool is_nan = (all & ~float_sign) > float_infinity;
  to.bits = static_cast<std::uint16_t>(is_nan ? ((all & float_sign) >> 16U) | 0x7fc0U : rounded);
}
CW_FN inline void narrow_short(float wide, fp8_e4m3& to) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(wide));
  to.bits = static_cast<std::uint8_t>(e4m3_format::unsaturated(wide, pair));
#else
  to.bits = static_cast<std::uint8_t>(e4m3_format::narrow(wide));
#endif
}
CW_FN inline void narrow_short(float wide, fp8_e5m2& to) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair = 0;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(wide));
  to.bits = static_cast<std::uint8_t>(e5m2_format::unsaturated(wide, pair));
#else
  to.bits = static_cast<std::uint8_t>(e5m2_format::narrow(wide));
#endif
}

}  // namespace crosswarp::device::impl

namespace crosswarp::device {

template <number T>
CW_FN inline accumulator_t<T> widen(T value) noexcept {
  if constexpr (std::is_same_v<T, accumulator_t<T>>) {
    return value;
  } else {
    return impl::widen_short(value);
  }
}

template <number T>
CW_FN inline T narrow(accumulator_t<T> value) noexcept {
  if constexpr (std::is_same_v<T, accumulator_t<T>>) {
    return value;
  } else {
    T to;
    impl::narrow_short(value, to);
    return to;
  }
}

CW_FN inline float rounded_product(float a, float b) noexcept {
#if CW_ON_GPU
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
CW_FN inline float rounded_quotient(float a, float b) noexcept {
#if CW_ON_GPU
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
CW_FN inline float rounded_root(float a) noexcept {
#if CW_ON_GPU
  return __fsqrt_rn(a);
#else
  return std::sqrt(a);
#endif
}

}  // namespace crosswarp::device
