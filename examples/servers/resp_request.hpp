// Requests of RESP, the protocol of redis: arrays of strings, and lines of words.
#pragma once

#include "bytes.hpp"

namespace servers {

struct resp_options {
  /// Longest request, and longest answer. `in` and `out` must come to have as much room.
  std::uint32_t request_bytes = 64 * 1024;
  std::uint32_t answer_bytes = 64 * 1024;
  /// Longest line of a request, a number in an array, or words: at most 9999.
  std::uint32_t line_bytes = 1024;
};

/// What an engine keeps of a connection: how far it has looked at a request that is not complete
/// yet. Zeroes at the start of each.
struct resp_connection {
  std::uint32_t at;     ///< bytes that were looked at; 0: none
  std::uint32_t count;  ///< arguments that the request has
  std::uint32_t seen;   ///< arguments that were complete
};

/// The arguments of a request. The first ones are at hand, all of them can be walked over.
struct arguments {
  static constexpr std::uint32_t kept = 4;
  std::uint32_t count = 0;
  text first[kept];
  const char* rest = nullptr;  ///< where those after these begin
};

/// Reads "$<n>\r\n<n bytes>\r\n" in what was found to be right.
CW_FN inline text next_bulk(const char*& at) noexcept {
  std::size_t size = 0;
  for (++at; *at != '\r'; ++at) size = size * 10 + static_cast<std::size_t>(*at - '0');
  const text t(at + 2, size);
  at = t.data + size + 2;
  return t;
}

/// Walks over the arguments from the one given on.
class argument_cursor {
 public:
  CW_FN argument_cursor(const arguments& a, std::uint32_t index) noexcept
      : arguments_(&a), index_(index), at_(a.rest) {
    for (std::uint32_t i = arguments::kept; i < index && i < a.count; ++i) (void)next_bulk(at_);
  }
  [[nodiscard]] CW_FN bool more() const noexcept { return index_ < arguments_->count; }
  [[nodiscard]] CW_FN text next() noexcept {
    const std::uint32_t i = index_++;
    return i < arguments::kept ? arguments_->first[i] : next_bulk(at_);
  }

 private:
  const arguments* arguments_;
  std::uint32_t index_;
  const char* at_;
};

enum class parse_state : std::uint8_t {
  complete,
  incomplete,
  wrong,    ///< `error` says why; the connection is to be closed
  no_room,  ///< `out` is too small to work in
};

struct request {
  parse_state state = parse_state::incomplete;
  std::size_t bytes = 0;  ///< its length when it is complete
  arguments args;
  text error;
  char unexpected = 0;  ///< for an error about a byte: that byte

  [[nodiscard]] CW_FN static request wrong(text why, char byte = 0) noexcept {
    request r;
    r.state = parse_state::wrong;
    r.error = why;
    r.unexpected = byte;
    return r;
  }
};

enum class line_state : std::uint8_t { found, incomplete, too_long, no_number };

/// parse_line() for what most lines are: a few digits, and all of the line is there. False for
/// others.
CW_FN inline bool parse_short_line(text in, std::size_t& at, std::int64_t& value) noexcept {
  const std::size_t begin = at + 1;
  const std::size_t end = begin + 6 < in.size ? begin + 6 : in.size;
  std::uint32_t sum = 0;
  std::size_t i = begin;
  for (; i < end && is_digit(in[i]); ++i) sum = sum * 10 + static_cast<std::uint32_t>(in[i] - '0');
  if (i + 1 >= in.size || in[i] != '\r' || i == begin) return false;
  if (in[begin] == '0' && i != begin + 1) return false;
  at = i + 2;
  value = sum;
  return true;
}

/// The number in the line after `at`, which is its first byte. Then `at` is behind the line.
CW_FN inline line_state parse_line(text in, std::uint32_t limit, std::size_t& at,
                                   std::int64_t& value) noexcept {
  if (parse_short_line(in, at, value)) return line_state::found;
  const std::size_t begin = at + 1;
  std::size_t end = begin;
  while (end < in.size && in[end] != '\r') {
    if (end - begin >= limit) return line_state::too_long;
    ++end;
  }
  if (end + 1 >= in.size) return line_state::incomplete;
  at = end + 2;
  return parse_integer({in.data + begin, end - begin}, value) ? line_state::found
                                                              : line_state::no_number;
}

/// Looks for the arguments of an array from where `c` says. On success they are complete.
CW_FN inline request scan_arguments(text in, const resp_options& o, resp_connection& c) noexcept {
  request r;
  r.args.count = c.count;
  const bool from_start = c.seen == 0;
  std::size_t at = c.at;
  while (c.seen < c.count) {
    if (at >= in.size) break;
    if (in[at] != '$') return request::wrong("expected '$', got '", in[at]);
    std::int64_t size = 0;
    std::size_t data = at;
    const line_state line = parse_line(in, o.line_bytes, data, size);
    if (line == line_state::too_long) return request::wrong("too big bulk count string");
    if (line == line_state::incomplete) break;
    if (line == line_state::no_number || size < 0 || size > o.request_bytes) {
      return request::wrong("invalid bulk length");
    }
    const std::size_t end = data + static_cast<std::size_t>(size) + 2;
    if (end > o.request_bytes) return request::wrong("too big request");
    if (end > in.size) break;
    if (c.seen < arguments::kept) {
      r.args.first[c.seen] = {in.data + data, static_cast<std::size_t>(size)};
      r.args.rest = in.data + end;
    }
    at = end;
    c.at = static_cast<std::uint32_t>(at);
    ++c.seen;
  }
  if (c.seen < c.count) {
    if (in.size >= o.request_bytes) return request::wrong("too big request");
    return r;
  }
  r.state = parse_state::complete;
  r.bytes = at;
  if (!from_start) {  // what earlier steps saw is at another place by now
    const char* p = in.data;
    while (*p != '\r') ++p;
    p += 2;
    for (std::uint32_t i = 0; i < r.args.count && i < arguments::kept; ++i) {
      r.args.first[i] = next_bulk(p);
    }
    r.args.rest = p;
  }
  c = {};
  return r;
}

CW_COLD CW_FN inline request parse_array(text in, const resp_options& o,
                                         resp_connection& c) noexcept {
  if (c.at == 0) {
    std::int64_t count = 0;
    std::size_t at = 0;
    switch (parse_line(in, o.line_bytes, at, count)) {
      case line_state::too_long:
        return request::wrong("too big mbulk count string");
      case line_state::incomplete:
        return {};
      case line_state::no_number:
        return request::wrong("invalid multibulk length");
      case line_state::found:
        break;
    }
    if (count > o.request_bytes) return request::wrong("invalid multibulk length");
    c.at = static_cast<std::uint32_t>(at);
    c.count = count < 0 ? 0 : static_cast<std::uint32_t>(count);
  }
  return scan_arguments(in, o, c);
}

// ---- lines of words

CW_FN constexpr bool is_blank(char c) noexcept {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0;
}
CW_FN constexpr int hex_digit(char c) noexcept {
  if (is_digit(c)) return c - '0';
  return lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10 : -1;
}

/// What stands for the bytes after a backslash in double quotes; `at` is then behind them.
CW_FN inline char parse_escape(text line, std::size_t& at) noexcept {
  const char c = line[at];
  if (c == 'x' && at + 2 < line.size && hex_digit(line[at + 1]) >= 0 &&
      hex_digit(line[at + 2]) >= 0) {
    at += 3;
    return static_cast<char>(hex_digit(line[at - 2]) * 16 + hex_digit(line[at - 1]));
  }
  ++at;
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'b':
      return '\b';
    case 'a':
      return '\a';
    default:
      return c;
  }
}

/// Writes one word without its quotes. False: a quote is not closed, or not at the word's end.
CW_FN inline bool parse_word(text line, std::size_t& at, writer& word) noexcept {
  char quote = 0;
  while (at < line.size) {
    const char c = line[at];
    if (quote == 0) {
      if (is_blank(c)) return true;
      ++at;
      if (c == '"' || c == '\'') {
        quote = c;
      } else {
        word.put(c);
      }
    } else if (c == quote) {
      ++at;
      if (at < line.size && !is_blank(line[at])) return false;
      quote = 0;
    } else if (c == '\\' && quote == '"' && at + 1 < line.size) {
      ++at;
      word.put(parse_escape(line, at));
    } else if (c == '\\' && quote == '\'' && at + 1 < line.size && line[at + 1] == '\'') {
      at += 2;
      word.put('\'');
    } else {
      ++at;
      word.put(c);
    }
  }
  return quote == 0;
}

/// How much room a line takes when it is written as arguments.
CW_FN constexpr std::size_t room_for_words(std::size_t line) noexcept {
  return 5 * line + 16;
}

/// A line of words. They are written into `room`, as the arguments of an array are.
CW_COLD CW_FN inline request parse_words(text in, const resp_options& o, char* room,
                                         std::size_t room_bytes) noexcept {
  request r;
  std::size_t end = 0;
  while (end < in.size && in[end] != '\n') {
    if (end >= o.line_bytes) return request::wrong("too big inline request");
    ++end;
  }
  if (end == in.size) return r;
  r.bytes = end + 1;
  const text line = in.first(end > 0 && in[end - 1] == '\r' ? end - 1 : end);
  if (room_for_words(line.size) > room_bytes) {
    r.state = parse_state::no_room;
    return r;
  }
  // A word's length is known when it has been written: four digits are kept free before it.
  writer out(room, room_bytes);
  std::size_t at = 0;
  for (;;) {
    while (at < line.size && is_blank(line[at])) ++at;
    if (at == line.size) break;
    const std::size_t head = out.written();
    out.put("$0000\r\n");
    const std::size_t begin = out.written();
    if (!parse_word(line, at, out)) return request::wrong("unbalanced quotes in request");
    std::size_t size = out.written() - begin;
    for (int digit = 4; digit > 0; --digit, size /= 10) {
      room[head + static_cast<std::size_t>(digit)] = static_cast<char>('0' + size % 10);
    }
    out.put("\r\n");
    ++r.args.count;
  }
  const char* p = room;
  for (std::uint32_t i = 0; i < r.args.count && i < arguments::kept; ++i) {
    r.args.first[i] = next_bulk(p);
  }
  r.args.rest = p;
  r.state = parse_state::complete;
  return r;
}

/// The request at the start of `in`, which is not empty. `room`: for words, as long as the request
/// is used.
CW_FN inline request parse_request(text in, const resp_options& o, resp_connection& c, char* room,
                                   std::size_t room_bytes) noexcept {
  if (in[0] == '*') return parse_array(in, o, c);
  return parse_words(in, o, room, room_bytes);
}

}  // namespace servers
