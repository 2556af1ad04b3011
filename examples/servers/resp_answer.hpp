// Answers of RESP2, with the texts that redis has for them.
#pragma once

#include "number.hpp"

namespace servers {

CW_FN inline void put_line_end(writer& out) noexcept {
  out.put('\r');
  out.put('\n');
}
CW_FN inline void put_status(writer& out, text t) noexcept {
  out.put('+');
  out.put(t);
  put_line_end(out);
}
CW_COLD CW_FN inline void put_integer(writer& out, std::int64_t n) noexcept {
  out.put(':');
  out.put_number(n);
  put_line_end(out);
}
CW_COLD CW_FN inline void put_bulk(writer& out, text t) noexcept {
  out.put('$');
  out.put_number(static_cast<std::int64_t>(t.size));
  put_line_end(out);
  out.put(t);
  put_line_end(out);
}
CW_COLD CW_FN inline void put_array(writer& out, std::uint64_t count) noexcept {
  out.put('*');
  out.put_number(static_cast<std::int64_t>(count));
  put_line_end(out);
}
CW_FN inline void put_no_bulk(writer& out) noexcept {
  out.put("$-1\r\n");
}
CW_FN inline void put_no_array(writer& out) noexcept {
  out.put("*-1\r\n");
}
CW_FN inline void put_score(writer& out, double d) noexcept {
  char digits[32];
  writer shown(digits, sizeof(digits));
  put_double(shown, d);
  put_bulk(out, {digits, shown.written()});
}

/// What clients sent stands in an error up to a zero, and without line ends. Returns how much of
/// it.
CW_COLD CW_FN inline std::size_t put_shown(writer& out, text t) noexcept {
  std::size_t i = 0;
  for (; i < t.size && t[i] != 0; ++i) out.put(t[i] == '\r' || t[i] == '\n' ? ' ' : t[i]);
  return i;
}
/// `t` begins with its kind, e.g. "ERR ".
CW_COLD CW_FN inline void put_error(writer& out, text t) noexcept {
  out.put('-');
  out.put(t);
  out.put("\r\n");
}
CW_COLD CW_FN inline void put_arity_error(writer& out, text command) noexcept {
  out.put("-ERR wrong number of arguments for '");
  for (std::size_t i = 0; i < command.size; ++i) out.put(lower(command[i]));
  out.put("' command\r\n");
}
CW_FN inline void put_wrong_type(writer& out) noexcept {
  put_error(out, "WRONGTYPE Operation against a key holding the wrong kind of value");
}
CW_FN inline void put_out_of_memory(writer& out) noexcept {
  put_error(out, "OOM command not allowed when used memory > 'maxmemory'.");
}
CW_FN inline void put_no_integer(writer& out) noexcept {
  put_error(out, "ERR value is not an integer or out of range");
}
CW_FN inline void put_syntax_error(writer& out) noexcept {
  put_error(out, "ERR syntax error");
}

}  // namespace servers
