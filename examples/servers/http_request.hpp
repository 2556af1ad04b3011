// Heads of HTTP/1.x requests.
#pragma once

#include "bytes.hpp"

namespace servers {

struct http_options {
  std::uint32_t line_bytes = 2048;       ///< longest request line
  std::uint32_t head_bytes = 8192;       ///< longest head; `in` must come to hold as much
  std::uint32_t body_bytes = 1U << 20U;  ///< longest body, which is skipped
};

/// A head, and what is wrong with it: `status` is 0 when nothing is.
struct http_request {
  int status = 0;
  text method;
  text target;
  bool keep_alive = false;
  bool old = false;      ///< HTTP/1.0
  bool chunked = false;  ///< the body comes in chunks
  std::uint64_t body = 0;
};

CW_FN constexpr bool is_token_byte(char c) noexcept {
  if (is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z')) return true;
  switch (c) {
    case '!':
    case '#':
    case '$':
    case '%':
    case '&':
    case '\'':
    case '*':
    case '+':
    case '-':
    case '.':
    case '^':
    case '_':
    case '`':
    case '|':
    case '~':
      return true;
    default:
      return false;
  }
}
CW_FN inline bool is_token(text t) noexcept {
  for (std::size_t i = 0; i < t.size; ++i) {
    if (!is_token_byte(t[i])) return false;
  }
  return t.size > 0;
}

/// Up to `stop` or the end; `at` is then behind the stop.
CW_FN inline text take_until(text t, std::size_t& at, char stop) noexcept {
  const std::size_t begin = at;
  while (at < t.size && t[at] != stop) ++at;
  const text found(t.data + begin, at - begin);
  if (at < t.size) ++at;
  return found;
}
/// The next line, without its end.
CW_FN inline text take_line(text t, std::size_t& at) noexcept {
  text line = take_until(t, at, '\n');
  if (line.size > 0 && line[line.size - 1] == '\r') --line.size;
  return line;
}
CW_FN inline text trim(text t) noexcept {
  while (t.size > 0 && (t[0] == ' ' || t[0] == '\t')) t = t.from(1);
  while (t.size > 0 && (t[t.size - 1] == ' ' || t[t.size - 1] == '\t')) --t.size;
  return t;
}

CW_FN inline bool is_text(text t) noexcept {
  for (std::size_t i = 0; i < t.size; ++i) {
    if (!is_text_byte(t[i])) return false;
  }
  return true;
}
/// A length as fields tell it: digits. False when it is none; what is too long for any body is only
/// known to be so.
CW_FN inline bool parse_length(text t, std::uint64_t& length) noexcept {
  constexpr std::uint64_t most = std::uint64_t{1} << 58U;
  length = 0;
  for (std::size_t i = 0; i < t.size; ++i) {
    if (!is_digit(t[i])) return false;
    length = length * 10 + static_cast<std::uint64_t>(t[i] - '0');
    if (length > most) length = most;
  }
  return t.size > 0;
}

/// A host as Host and targets name it, with or without a port; also an empty one.
CW_FN inline bool is_host(text t) noexcept {
  for (std::size_t i = 0; i < t.size; ++i) {
    const char c = t[i];
    const bool other = c == ':' || c == '[' || c == ']' || c == '(' || c == ')' || c == ',' ||
                       c == ';' || c == '=';
    // Of a token's bytes these are not a host's.
    const bool no = c == '#' || c == '^' || c == '`' || c == '|';
    if (no || !(is_token_byte(c) || other)) return false;
  }
  return true;
}

/// Whether one of the words between commas is `word`, in any case.
CW_FN inline bool lists_word(text words, text word) noexcept {
  for (std::size_t at = 0; at < words.size;) {
    if (equal_in_any_case(trim(take_until(words, at, ',')), word)) return true;
  }
  return false;
}

/// A request's target in its parts.
struct http_target {
  text host;  ///< where the target names it
  text path;
  text query;  ///< behind the '?'
  bool right = true;
};

/// From "/path?query", or "http://host/path?query", as a proxy is asked and a server must take it.
CW_FN inline http_target split_target(text t) noexcept {
  http_target r;
  std::size_t at = 0;
  const bool plain = equal_in_any_case(t.first(7), "http://");
  if (plain || equal_in_any_case(t.first(8), "https://")) {
    const std::size_t host = plain ? 7 : 8;
    for (at = host; at < t.size && t[at] != '/' && t[at] != '?';) ++at;
    r.host = t.first(at).from(host);
    r.right = r.host.size > 0 && is_host(r.host);
  }
  const bool names_host = at > 0;
  r.path = take_until(t, at, '?');
  if (names_host && r.path.size == 0) r.path = "/";
  r.query = t.from(at);
  return r;
}

CW_FN inline void parse_request_line(text line, http_request& r) noexcept {
  std::size_t at = 0;
  r.method = take_until(line, at, ' ');
  r.target = take_until(line, at, ' ');
  const text version = line.from(at);
  const bool well_formed = version.size == 8 && equal(version.first(5), "HTTP/") &&
                           is_digit(version[5]) && version[6] == '.' && is_digit(version[7]);
  const bool target = r.target.size > 0 && split_target(r.target).right;
  if (!is_token(r.method) || !target || !well_formed) {
    r.status = 400;
  } else if (version[5] != '1') {
    r.status = 505;
  }
  for (std::size_t i = 0; i < r.target.size; ++i) {
    if (r.target[i] <= ' ' || r.target[i] == 0x7f) r.status = 400;
  }
  r.old = well_formed && version[7] == '0';
  r.keep_alive = !r.old;
}

/// What the fields say that matter here.
struct http_fields {
  int hosts = 0;
  bool has_length = false;
  bool has_coding = false;
  int chunked = 0;     ///< how often the body is in chunks,
  bool last = false;   ///< and whether that is the last that was done to it
  bool other = false;  ///< something else was done to it, too
  bool expects = false;
};

/// What was done to the body, from first to last; also in several fields.
CW_FN inline void parse_codings(text value, http_fields& seen) noexcept {
  seen.has_coding = true;
  for (std::size_t at = 0; at < value.size;) {
    const text coding = trim(take_until(value, at, ','));
    if (coding.size == 0) continue;
    seen.last = equal_in_any_case(coding, "chunked");
    seen.chunked += seen.last ? 1 : 0;
    seen.other = seen.other || !seen.last;
  }
}

/// The status that refuses what the fields say together; 0 when nothing does.
CW_FN inline int judge(const http_fields& seen, bool old) noexcept {
  if (seen.hosts > 1 || (seen.hosts == 0 && !old)) return 400;
  if (!seen.has_coding) return 0;
  // A body with two lengths, or with none, ends here for one server and there for another.
  if (seen.has_length || old || !seen.last || seen.chunked > 1) return 400;
  return seen.other ? 501 : 0;
}

CW_FN inline void parse_field(text line, const http_options& o, http_request& r,
                              http_fields& seen) noexcept {
  std::size_t at = 0;
  const text name = take_until(line, at, ':');
  if (name.size == line.size || !is_token(name)) {
    r.status = 400;
    return;
  }
  const text value = trim(line.from(at));
  if (!is_text(value)) {
    r.status = 400;
  } else if (equal_in_any_case(name, "host")) {
    ++seen.hosts;
    if (!is_host(value)) r.status = 400;
  } else if (equal_in_any_case(name, "connection")) {
    if (lists_word(value, "close")) r.keep_alive = false;
    if (r.old && lists_word(value, "keep-alive")) r.keep_alive = true;
  } else if (equal_in_any_case(name, "expect")) {
    seen.expects = true;
  } else if (equal_in_any_case(name, "transfer-encoding")) {
    parse_codings(value, seen);
  } else if (equal_in_any_case(name, "content-length")) {
    std::uint64_t length = 0;
    const bool number = parse_length(value, length);
    const bool same = !seen.has_length || r.body == length;
    if (!number || !same) r.status = 400;
    seen.has_length = true;
    r.body = length;
    if (r.body > o.body_bytes && r.status == 0) r.status = 413;
  }
}

/// `head`: from the request line to the empty line.
CW_COLD CW_FN inline http_request parse_head(text head, const http_options& o) noexcept {
  http_request r;
  http_fields seen;
  std::size_t at = 0;
  const text first = take_line(head, at);
  if (first.size > o.line_bytes) {
    r.status = 414;
    return r;
  }
  parse_request_line(first, r);
  while (at < head.size && r.status == 0) {
    const text line = take_line(head, at);
    if (line.size == 0) break;
    parse_field(line, o, r, seen);
  }
  if (r.status == 0) r.status = judge(seen, r.old);
  r.chunked = seen.has_coding;
  // Who waits for a leave to send a body may send it or not: no request can follow.
  if (r.status != 0 || (seen.expects && (r.body > 0 || r.chunked))) r.keep_alive = false;
  return r;
}

/// The length of the head at the start of `in` with the empty line that ends it, or 0. `at`: where
/// to look from, and where to go on with more.
CW_FN inline std::size_t find_head_end(text in, std::uint32_t& at) noexcept {
  for (std::size_t i = at; i < in.size; ++i) {
    if (in[i] != '\n') continue;
    const std::size_t next = i + 1 < in.size && in[i + 1] == '\r' ? i + 2 : i + 1;
    if (next < in.size && in[next] == '\n') return next + 1;
    if (next >= in.size) {
      at = static_cast<std::uint32_t>(i);
      return 0;
    }
  }
  at = static_cast<std::uint32_t>(in.size);
  return 0;
}

}  // namespace servers
