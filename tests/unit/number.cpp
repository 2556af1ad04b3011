// Short numbers against what the formats say, computed in double.
#include "crosswarp/device/number.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace dev = crosswarp::device;

namespace {

template <class T>
struct format;
template <>
struct format<dev::half> {
  static constexpr int exponent = 5, mantissa = 10;
  static constexpr bool has_infinity = true;
};
template <>
struct format<dev::bfloat16> {
  static constexpr int exponent = 8, mantissa = 7;
  static constexpr bool has_infinity = true;
};
template <>
struct format<dev::fp8_e4m3> {
  static constexpr int exponent = 4, mantissa = 3;
  static constexpr bool has_infinity = false;
};
template <>
struct format<dev::fp8_e5m2> {
  static constexpr int exponent = 5, mantissa = 2;
  static constexpr bool has_infinity = true;
};

/// What the bits of a magnitude mean.
template <class T>
double value_of(unsigned bits) {
  using f = format<T>;
  const unsigned e = bits >> f::mantissa;
  const unsigned m = bits & ((1U << f::mantissa) - 1);
  const int bias = (1 << (f::exponent - 1)) - 1;
  const bool last = e == (1U << f::exponent) - 1;
  if (last && f::has_infinity) {
    return m == 0 ? std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::quiet_NaN();
  }
  if (last && m == (1U << f::mantissa) - 1) return std::numeric_limits<double>::quiet_NaN();
  if (e == 0) return std::ldexp(m, 1 - bias - f::mantissa);
  return std::ldexp(m + (1U << f::mantissa), static_cast<int>(e) - bias - f::mantissa);
}

/// Magnitudes of all finite numbers, ascending: their index is their bits.
template <class T>
std::vector<double> all_finite() {
  std::vector<double> all;
  for (unsigned bits = 0; std::isfinite(value_of<T>(bits)); ++bits) {
    all.push_back(value_of<T>(bits));
    if (bits == (1U << (format<T>::exponent + format<T>::mantissa)) - 1) break;
  }
  return all;
}

/// The nearest by search; an even index wins a tie. Beyond the last comes one more step, which is
/// what overflows.
unsigned nearest(const std::vector<double>& all, double x) {
  const double step = all.back() - all[all.size() - 2];
  if (x >= all.back() + step) return static_cast<unsigned>(all.size());
  const auto above = std::lower_bound(all.begin(), all.end(), x);
  const double high = above == all.end() ? all.back() + step : *above;
  const auto i = static_cast<unsigned>(above - all.begin());
  if (high == x || i == 0) return i;
  const double low = all[i - 1];
  if (x - low == high - x) return i % 2 == 0 ? i : i - 1;
  return x - low < high - x ? i - 1 : i;
}

template <class T>
class Number : public testing::Test {};
using all_types = testing::Types<dev::half, dev::bfloat16, dev::fp8_e4m3, dev::fp8_e5m2>;
TYPED_TEST_SUITE(Number, all_types);

TYPED_TEST(Number, EveryValueWidensExactlyAndComesBack) {
  using T = TypeParam;
  const unsigned sign = 1U << (format<T>::exponent + format<T>::mantissa);
  for (unsigned bits = 0; bits < 2 * sign; ++bits) {
    T stored;
    stored.bits = static_cast<decltype(stored.bits)>(bits);
    const double want = (bits & sign) != 0 ? -value_of<T>(bits & ~sign) : value_of<T>(bits & ~sign);
    const float wide = dev::widen(stored);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_TRUE(std::isnan(dev::widen(dev::narrow<T>(wide)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(wide), want) << bits;
      ASSERT_EQ(std::signbit(wide), (bits & sign) != 0) << bits;
      ASSERT_EQ(dev::narrow<T>(wide).bits, bits);
    }
  }
}

TYPED_TEST(Number, NarrowingRoundsToTheNearestTiesToEven) {
  using T = TypeParam;
  const std::vector<double> all = all_finite<T>();
  std::vector<float> tries;
  for (std::size_t i = 0; i + 1 < all.size(); i += 1 + all.size() / 5000) {
    const auto middle = static_cast<float>((all[i] + all[i + 1]) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e38F)}) {
      tries.push_back(x);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random() & 0x7fffffffU);
    float x = 0;
    std::memcpy(&x, &bits, sizeof(x));
    if (std::isfinite(x)) tries.push_back(x);
  }
  const double step = all.back() - all[all.size() - 2];
  const auto edge = static_cast<float>(all.back() + step / 2);
  for (const float x : {edge, std::nextafter(edge, 0.0F), std::nextafter(edge, 1e38F)}) {
    if (std::isfinite(x)) tries.push_back(x);
  }
  for (const float x : tries) {
    const unsigned i = nearest(all, static_cast<double>(x));
    const float got = dev::widen(dev::narrow<T>(x));
    const float negative = dev::widen(dev::narrow<T>(-x));
    if (i < all.size()) {
      ASSERT_EQ(static_cast<double>(got), all[i]) << x;
      ASSERT_EQ(negative, -got) << x;
    } else if (format<T>::has_infinity) {
      ASSERT_TRUE(std::isinf(got) && std::isinf(negative) && negative < 0) << x;
    } else {
      ASSERT_TRUE(std::isnan(got) && std::isnan(negative)) << x;
    }
  }
}

// ---- a GPU's own conversion, which saturates

template <class T>
class Saturating : public testing::Test {};
using saturating_types = testing::Types<dev::fp8_e4m3, dev::fp8_e5m2>;
TYPED_TEST_SUITE(Saturating, saturating_types);

template <class T>
using short_format = std::conditional_t<std::is_same_v<T, dev::fp8_e4m3>, dev::impl::e4m3_format,
                                        dev::impl::e5m2_format>;

/// What cvt.rn.satfinite makes of x, of which narrow() makes `bits`: the largest number of what is
/// too large, a NaN of a NaN.
template <class T>
std::uint32_t saturated(float x, std::uint32_t bits, std::uint32_t last) {
  constexpr std::uint32_t sign = 1U << (format<T>::exponent + format<T>::mantissa);
  return std::isnan(x) ? sign - 1 : (bits & sign) | std::min(bits & (sign - 1), last);
}

// Floats between the largest number and what follows it are rounded up or down, and the largest
// number stayed for those that are rounded up.
TYPED_TEST(Saturating, WhatIsTooLargeIsPutRightForEveryFloatNearTheEnds) {
  using T = TypeParam;
  const std::vector<double> all = all_finite<T>();
  const auto last = static_cast<std::uint32_t>(all.size() - 1);
  const double step = all[last] - all[last - 1];
  const auto bits_of = [](double x) {
    return dev::impl::bits_as<std::uint32_t>(static_cast<float>(x));
  };
  std::uint32_t too_large = 0;
  const auto expect_right = [&](std::uint32_t wide) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const auto x = dev::impl::bits_as<float>(wide | sign);
      const std::uint32_t want = dev::narrow<T>(x).bits;
      const std::uint32_t gpu = saturated<T>(x, want, last);
      too_large += want != gpu ? 1 : 0;
      ASSERT_EQ(short_format<T>::unsaturated(x, gpu), want) << x;
    }
  };
  for (std::uint32_t wide = bits_of(all[last] - step); wide < bits_of(all[last] + 2 * step);
       ++wide) {
    ASSERT_NO_FATAL_FAILURE(expect_right(wide));
  }
  EXPECT_GT(too_large, 0U);
  // And others of every size, infinities and NaNs.
  for (std::uint32_t wide = 0; wide < 0x80000000U - 4099; wide += 4099) {
    ASSERT_NO_FATAL_FAILURE(expect_right(wide));
  }
  for (const std::uint32_t wide : {0x7f7fffffU, 0x7f800000U, 0x7f800001U, 0x7fffffffU}) {
    ASSERT_NO_FATAL_FAILURE(expect_right(wide));
  }
}

TYPED_TEST(Number, InfinitiesAndNaNsStay) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(dev::widen(dev::narrow<T>(nan))));
  EXPECT_TRUE(std::isnan(dev::widen(dev::narrow<T>(-nan))));
  if (format<T>::has_infinity) {
    EXPECT_EQ(dev::widen(dev::narrow<T>(infinity)), infinity);
    EXPECT_EQ(dev::widen(dev::narrow<T>(-infinity)), -infinity);
  } else {
    EXPECT_TRUE(std::isnan(dev::widen(dev::narrow<T>(infinity))));
  }
}

}  // namespace
