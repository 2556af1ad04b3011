// What the servers' engines read and write: spans of bytes, and numbers in them.
//
// An engine is a device object with one function, step(connection, in, out): it carries out the
// complete requests at the start of `in` whose answers fit into `out`. It never blocks, never reads
// past `in`, and goes on where it stopped when it is called again with what it left of `in`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/memory.hpp"

namespace servers {

namespace dev = crosswarp::device;

/// Bytes that somebody else owns.
struct text {
  const char* data = nullptr;
  std::size_t size = 0;

  text() = default;
  CW_FN constexpr text(const char* d, std::size_t n) noexcept : data(d), size(n) {}
  /// A literal, without its end.
  template <std::size_t N>
  CW_FN constexpr text(const char (&literal)[N]) noexcept : data(literal), size(N - 1) {}
  CW_FN constexpr char operator[](std::size_t i) const noexcept { return data[i]; }
  [[nodiscard]] CW_FN constexpr text from(std::size_t at) const noexcept {
    return {data + at, size - at};
  }
  [[nodiscard]] CW_FN constexpr text first(std::size_t n) const noexcept {
    return {data, n < size ? n : size};
  }
};

/// What became of a step.
struct step_result {
  std::size_t consumed = 0;  ///< bytes of `in` that are done with
  std::size_t produced = 0;  ///< bytes of `out` that are to be sent
  bool close = false;        ///< send them, then close: nothing more is read here
  /// A complete request waits for room in `out`, or for others who use what it needs, or there is
  /// something to tidy up: call again even if nothing comes.
  bool waits = false;
};

// Functions that are called from many places are not in line (CW_COLD): engines are large, and
// compilers for GPUs would make one function of all that they call.

CW_COLD CW_FN inline void copy_bytes(char* to, const char* from, std::size_t n) noexcept {
  dev::copy(dev::thread_group{}, to, from, n);
}

CW_FN inline bool equal(text a, text b) noexcept {
  if (a.size != b.size) return false;
  std::size_t i = 0;
  for (; i + 8 <= a.size; i += 8) {
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    memcpy(&x, a.data + i, sizeof(x));
    memcpy(&y, b.data + i, sizeof(y));
    if (x != y) return false;
  }
  for (; i < a.size; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

CW_FN constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
CW_COLD CW_FN inline bool equal_in_any_case(text a, text b) noexcept {
  if (a.size != b.size) return false;
  for (std::size_t i = 0; i < a.size; ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

/// Where bytes differ, the smaller one is first; else the shorter one.
CW_COLD CW_FN inline bool comes_before(text a, text b) noexcept {
  for (std::size_t i = 0; i < a.size && i < b.size; ++i) {
    if (a[i] != b[i]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[i]);
  }
  return a.size < b.size;
}

CW_FN constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// What may stand in a line: all but control bytes, and the tab.
CW_FN constexpr bool is_text_byte(char c) noexcept {
  return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
}

/// The whole of `t` as a decimal number as redis writes it: no sign but '-', no zero before other
/// digits. False when it is none, or out of range.
CW_COLD CW_FN inline bool parse_integer(text t, std::int64_t& value) noexcept {
  const bool negative = t.size > 0 && t[0] == '-';
  const text digits = t.from(negative ? 1 : 0);
  if (digits.size == 0 || digits.size > 19) return false;
  if (digits[0] == '0' && t.size > 1) return false;
  std::uint64_t sum = 0;  // 19 digits fit
  for (std::size_t i = 0; i < digits.size; ++i) {
    if (!is_digit(digits[i])) return false;
    sum = sum * 10 + static_cast<std::uint64_t>(digits[i] - '0');
  }
  const std::uint64_t most = (std::uint64_t{1} << 63U) - (negative ? 0 : 1);
  if (sum > most) return false;
  value = static_cast<std::int64_t>(negative ? 0 - sum : sum);
  return true;
}

/// Decimal digits of a number, in place.
struct decimal_digits {
  char digits[20];
  int first = 20;

  CW_FN explicit decimal_digits(std::uint64_t n, bool negative = false) noexcept {
    do {
      digits[--first] = static_cast<char>('0' + n % 10);
      n /= 10;
    } while (n != 0);
    if (negative) digits[--first] = '-';
  }
  [[nodiscard]] CW_FN text view() const noexcept {
    return {digits + first, static_cast<std::size_t>(20 - first)};
  }
};
CW_FN inline decimal_digits digits_of(std::int64_t n) noexcept {
  const auto bits = static_cast<std::uint64_t>(n);
  return n < 0 ? decimal_digits(0 - bits, true) : decimal_digits(bits);
}

/// Writes into a span. Counts on beyond its end without writing, so that who asks for too much
/// learns how much it was.
class writer {
 public:
  CW_FN writer(char* out, std::size_t room) noexcept : out_(out), room_(room) {}

  CW_FN void put(char c) noexcept {
    if (at_ < room_) out_[at_] = c;
    ++at_;
  }
  CW_COLD CW_FN void put(text t) noexcept {
    if (t.size <= left()) copy_bytes(out_ + at_, t.data, t.size);
    at_ += t.size;
  }
  CW_COLD CW_FN void put_number(std::int64_t n) noexcept {
    if (n >= 0 && n < 10) return put(static_cast<char>('0' + n));
    put(digits_of(n).view());
  }

  [[nodiscard]] CW_FN std::size_t written() const noexcept { return at_; }
  [[nodiscard]] CW_FN std::size_t left() const noexcept { return at_ < room_ ? room_ - at_ : 0; }
  [[nodiscard]] CW_FN bool overrun() const noexcept { return at_ > room_; }
  /// Forgets what was written after `at`.
  CW_FN void back_to(std::size_t at) noexcept { at_ = at; }

 private:
  char* out_;
  std::size_t room_;
  std::size_t at_ = 0;
};

}  // namespace servers
