// Decimal text of floating-point numbers and back, exact, without a library: what kernels lack.
#pragma once

#include "arena.hpp"

namespace servers {

/// A natural number of up to 1536 bits: enough for every double times every power of ten that
/// brings it near one.
class big_number {
 public:
  CW_FN explicit big_number(std::uint64_t n) noexcept {
    words_[0] = static_cast<std::uint32_t>(n);
    words_[1] = static_cast<std::uint32_t>(n >> 32U);
    used_ = words_[1] != 0 ? 2 : words_[0] != 0 ? 1 : 0;
  }
  CW_COLD CW_FN void multiply_add(std::uint32_t factor, std::uint32_t more) noexcept {
    std::uint64_t carry = more;
    for (int i = 0; i < used_; ++i) {
      carry += std::uint64_t{words_[i]} * factor;
      words_[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
    if (carry != 0) words_[used_++] = static_cast<std::uint32_t>(carry);
  }
  CW_FN void multiply_by_power_of_ten(int n) noexcept {
    for (; n >= 9; n -= 9) multiply_add(1'000'000'000, 0);
    for (; n > 0; --n) multiply_add(10, 0);
  }
  /// Returns whether something was lost.
  CW_FN bool divide_by_power_of_ten(int n) noexcept {
    bool lost = false;
    for (; n >= 9; n -= 9) lost |= divide(1'000'000'000) != 0;
    for (; n > 0; --n) lost |= divide(10) != 0;
    return lost;
  }
  CW_FN void shift_left(int bits) noexcept {
    const int words = bits / 32;
    if (used_ > 0 && words > 0) {
      for (int i = used_; i-- > 0;) words_[i + words] = words_[i];
      for (int i = 0; i < words; ++i) words_[i] = 0;
      used_ += words;
    }
    multiply_add(std::uint32_t{1} << static_cast<unsigned>(bits % 32), 0);
  }
  /// The number without its lowest bits, of which at most 64 are left; `lost`: one of those was 1.
  [[nodiscard]] CW_FN std::uint64_t above(int bits, bool& lost) const noexcept {
    std::uint64_t value = 0;
    for (int i = 0; i < bits && i / 32 < used_; ++i) lost |= bit(i) != 0;
    for (int i = length(); i-- > bits;) value = value << 1U | bit(i);
    return value;
  }
  /// In bits.
  [[nodiscard]] CW_FN int length() const noexcept {
    return used_ == 0 ? 0 : used_ * 32 - 31 + static_cast<int>(highest_bit(words_[used_ - 1]));
  }

 private:
  CW_FN std::uint32_t divide(std::uint32_t by) noexcept {
    std::uint64_t rest = 0;
    for (int i = used_; i-- > 0;) {
      rest = rest << 32U | words_[i];
      words_[i] = static_cast<std::uint32_t>(rest / by);
      rest %= by;
    }
    while (used_ > 0 && words_[used_ - 1] == 0) --used_;
    return static_cast<std::uint32_t>(rest);
  }
  [[nodiscard]] CW_FN std::uint32_t bit(int i) const noexcept {
    return words_[i / 32] >> static_cast<unsigned>(i % 32) & 1U;
  }

  std::uint32_t words_[48];
  int used_;
};

CW_FN inline std::uint64_t bits_of(double d) noexcept {
  std::uint64_t bits = 0;
  memcpy(&bits, &d, sizeof(bits));
  return bits;
}
CW_FN inline double double_of(std::uint64_t bits) noexcept {
  double d = 0;
  memcpy(&d, &bits, sizeof(d));
  return d;
}
inline constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63U;
inline constexpr std::uint64_t infinity_bits = std::uint64_t{0x7ff} << 52U;

/// `n` halved, to the nearest, to even when two are as near; `more`: there was more below.
CW_FN constexpr std::uint64_t halve_and_round(std::uint64_t n, bool more) noexcept {
  const std::uint64_t down = n >> 1U;
  return (n & 1U) != 0 && (more || (down & 1U) != 0) ? down + 1 : down;
}

/// The bits of the double next to `n` * 2^`exponent`; `more`: a little is to be added to it.
/// False when it is too large, or so small that it becomes 0.
CW_FN inline bool nearest_double(const big_number& n, int exponent, bool more,
                                 std::uint64_t& bits) noexcept {
  const int top = n.length() - 1 + exponent;
  if (top > 1023 || top < -1075) return false;
  const int lowest = top >= -1022 ? top - 52 : -1074;  // exponent of its last bit
  const int drop = lowest - 1 - exponent;              // one bit more is kept, to round by
  std::uint64_t twice = 0;
  if (drop >= 0) {
    twice = n.above(drop, more);
  } else {
    bool none = false;
    twice = n.above(0, none) << static_cast<unsigned>(-drop);
  }
  const std::uint64_t fraction = halve_and_round(twice, more);
  // A fraction of 53 bits counts its highest one into the exponent's field.
  const auto field = static_cast<unsigned>(lowest + 1074);
  bits = (std::uint64_t{field} << 52U) + fraction;
  return fraction != 0 && bits < infinity_bits;
}

/// What a decimal number says: digits * 10^exponent.
struct decimal_parts {
  bool negative = false;
  big_number digits{0};
  int exponent = 0;
  int count = 0;  ///< digits that were kept
};

/// Reads digits, of which more than 30 count as one more.
CW_FN inline bool parse_digits(text t, std::size_t& i, decimal_parts& d) noexcept {
  bool any = false;
  bool point = false;
  bool cut = false;
  for (; i < t.size; ++i) {
    if (t[i] == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(t[i])) break;
    any = true;
    const auto digit = static_cast<std::uint32_t>(t[i] - '0');
    if (d.count < 30) {
      if (d.count > 0 || digit != 0) {
        if (d.count++ == 0) {
          d.digits = big_number(digit);
        } else {
          d.digits.multiply_add(10, digit);
        }
      }
      if (point) --d.exponent;
    } else {
      cut |= digit != 0;
      if (!point) ++d.exponent;
    }
  }
  if (cut) {
    d.digits.multiply_add(10, 1);
    --d.exponent;
    ++d.count;
  }
  return any;
}

/// The exponent after an 'e', if there is one, up to the end.
CW_FN inline bool parse_exponent(text t, std::size_t i, decimal_parts& d) noexcept {
  if (i == t.size) return true;
  if (lower(t[i++]) != 'e' || i == t.size) return false;
  const bool negative = t[i] == '-';
  if (t[i] == '-' || t[i] == '+') ++i;
  if (i == t.size) return false;
  int value = 0;
  for (; i < t.size; ++i) {
    if (!is_digit(t[i])) return false;
    if (value < 100'000) value = value * 10 + (t[i] - '0');
  }
  d.exponent += negative ? -value : value;
  return true;
}

/// The whole of `t` as a decimal number or an infinity. False when it is none, or does not fit.
CW_COLD CW_FN inline bool parse_double(text t, double& value) noexcept {
  decimal_parts d;
  std::size_t i = 0;
  if (t.size > 0 && (t[0] == '-' || t[0] == '+')) {
    d.negative = t[0] == '-';
    i = 1;
  }
  std::uint64_t bits = 0;
  if (equal_in_any_case(t.from(i), "inf") || equal_in_any_case(t.from(i), "infinity")) {
    bits = infinity_bits;
  } else {
    if (!parse_digits(t, i, d) || !parse_exponent(t, i, d)) return false;
    if (d.count > 0) {
      if (d.count + d.exponent > 310 || d.count + d.exponent < -330) return false;
      int shift = 0;
      bool more = false;
      if (d.exponent >= 0) {
        d.digits.multiply_by_power_of_ten(d.exponent);
      } else {
        shift = -d.exponent * 10 / 3 + 64;  // leaves at least 64 bits
        d.digits.shift_left(shift);
        more = d.digits.divide_by_power_of_ten(-d.exponent);
      }
      if (!nearest_double(d.digits, -shift, more, bits)) return false;
    }
  }
  value = double_of(bits | (d.negative ? sign_bit : 0));
  return true;
}

/// 17 digits of a positive number m * 2^e, rounded. `power` is a guess at the first one's power of
/// ten that is not too low; it is corrected.
CW_COLD CW_FN inline std::uint64_t seventeen_digits(std::uint64_t m, int e, int& power) noexcept {
  constexpr std::uint64_t smallest = 10'000'000'000'000'000;
  for (;; --power) {
    const int k = power - 16;
    big_number n(m);
    bool more = false;
    if (k < 0) n.multiply_by_power_of_ten(-k);
    if (e >= -1) n.shift_left(e + 1);  // twice the number, to round by
    if (k > 0) more = n.divide_by_power_of_ten(k);
    const std::uint64_t twice = n.above(e < -1 ? -e - 1 : 0, more);
    if (twice < 2 * smallest) continue;
    const std::uint64_t digits = halve_and_round(twice, more);
    if (digits < 10 * smallest) return digits;
    ++power;
    return smallest;
  }
}

/// As printf's %.17g writes it.
CW_COLD CW_FN inline void put_double(writer& out, double d) noexcept {
  const std::uint64_t bits = bits_of(d);
  if ((bits & sign_bit) != 0) out.put('-');
  const std::uint64_t positive = bits & ~sign_bit;
  if (positive == infinity_bits) return out.put("inf");
  if (positive == 0) return out.put('0');
  const auto field = static_cast<int>(positive >> 52U);
  const std::uint64_t fraction = positive & ((std::uint64_t{1} << 52U) - 1);
  const std::uint64_t m = field == 0 ? fraction : fraction | std::uint64_t{1} << 52U;
  const int e = (field == 0 ? 1 : field) - 1075;
  int power = (e + 53) * 30103 / 100'000;  // never too low
  const decimal_digits all(seventeen_digits(m, e, power));
  text shown = all.view();
  while (shown.size > 1 && shown[shown.size - 1] == '0') --shown.size;
  if (power < -4 || power >= 17) {
    out.put(shown[0]);
    if (shown.size > 1) out.put('.');
    out.put(shown.from(1));
    out.put(power < 0 ? text("e-") : text("e+"));
    const int size = power < 0 ? -power : power;
    if (size < 10) out.put('0');
    return out.put_number(size);
  }
  if (power < 0) {
    out.put("0.");
    for (int i = -1; i > power; --i) out.put('0');
    return out.put(shown);
  }
  const auto whole = static_cast<std::size_t>(power) + 1;
  out.put(shown.first(whole));
  for (std::size_t i = shown.size; i < whole; ++i) out.put('0');
  if (shown.size <= whole) return;
  out.put('.');
  out.put(shown.from(whole));
}

}  // namespace servers
