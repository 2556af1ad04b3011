// Bodies that come in chunks, as HTTP/1.1 has them: where they end, and what in them is data.
#pragma once

#include "bytes.hpp"

namespace servers {

/// A place in such a body.
enum class chunk_part : std::uint8_t {
  none,  ///< at no such body, or behind it
  first_digit,
  digits,
  blanks,     ///< before an extension
  extension,  ///< is not looked at
  size_end,
  data,
  data_cr,
  data_lf,
  line,     ///< the start of a line behind the last chunk: of a field, or the empty one
  trailer,  ///< a field, not looked at
  trailer_lf,
  last_lf,
  wrong,
};

/// What is kept of a body whose bytes come in pieces. Zeroes: there is none.
struct chunks {
  std::uint32_t left;  ///< of a chunk's data
  chunk_part part;

  [[nodiscard]] CW_FN static constexpr chunks at_start() noexcept {
    return {0, chunk_part::first_digit};
  }
  [[nodiscard]] CW_FN constexpr bool inside() const noexcept {
    return part != chunk_part::none && part != chunk_part::wrong;
  }

  /// The data at the start of `in`, or a byte of what is around data. `used`: how much of `in` that
  /// was. Callers: where inside(), with bytes.
  [[nodiscard]] CW_FN text next(text in, std::size_t& used) noexcept {
    used = 1;
    if (part != chunk_part::data) {
      part = after(in[0]);
      return {};
    }
    const text data = in.first(left);
    used = data.size;
    left -= static_cast<std::uint32_t>(data.size);
    if (left == 0) part = chunk_part::data_cr;
    return data;
  }

 private:
  static constexpr std::uint32_t most = 1U << 28U;  ///< of a chunk

  CW_FN static constexpr int digit(char c) noexcept {
    if (is_digit(c)) return c - '0';
    return lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10 : -1;
  }
  CW_FN static constexpr chunk_part only(bool right, chunk_part next) noexcept {
    return right ? next : chunk_part::wrong;
  }
  [[nodiscard]] CW_FN constexpr chunk_part take_digit(char c) noexcept {
    left = left * 16 + static_cast<std::uint32_t>(digit(c));
    return only(left < most, chunk_part::digits);
  }

  [[nodiscard]] CW_FN constexpr chunk_part after(char c) noexcept {
    switch (part) {
      case chunk_part::first_digit:
        left = 0;
        return digit(c) >= 0 ? take_digit(c) : chunk_part::wrong;
      case chunk_part::digits:
        if (digit(c) >= 0) return take_digit(c);
        if (c == '\r') return chunk_part::size_end;
        [[fallthrough]];
      case chunk_part::blanks:
        if (c == ';') return chunk_part::extension;
        return only(c == ' ' || c == '\t', chunk_part::blanks);
      case chunk_part::extension:
        return c == '\r' ? chunk_part::size_end : only(is_text_byte(c), part);
      case chunk_part::size_end:
        return only(c == '\n', left == 0 ? chunk_part::line : chunk_part::data);
      case chunk_part::data_cr:
        return only(c == '\r', chunk_part::data_lf);
      case chunk_part::data_lf:
        return only(c == '\n', chunk_part::first_digit);
      case chunk_part::line:
        return c == '\r' ? chunk_part::last_lf : only(is_text_byte(c), chunk_part::trailer);
      case chunk_part::trailer:
        return c == '\r' ? chunk_part::trailer_lf : only(is_text_byte(c), part);
      case chunk_part::trailer_lf:
        return only(c == '\n', chunk_part::line);
      case chunk_part::last_lf:
        return only(c == '\n', chunk_part::none);
      default:
        return chunk_part::wrong;
    }
  }
};

}  // namespace servers
