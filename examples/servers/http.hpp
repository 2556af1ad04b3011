// The engine of the HTTP/1.1 server: pages from device memory, and one that is computed.
#pragma once

#include "http_chunks.hpp"
#include "http_request.hpp"

namespace servers {

/// A page of a site: where its parts lie.
struct http_page {
  const char* path;
  const char* type;
  const char* body;
  std::uint32_t path_bytes;
  std::uint32_t type_bytes;
  std::uint64_t body_bytes;
};

/// What an engine keeps of a connection. Zeroes at the start.
struct http_connection {
  std::uint64_t left;     ///< bytes of a page that are still to be sent
  const char* body;       ///< where they are
  std::uint32_t skip;     ///< bytes of a request's body that are still to come
  std::uint32_t allowed;  ///< bytes that a body in chunks may still have, all in all
  std::uint32_t scanned;  ///< bytes of a head that was not complete
  chunks coded;           ///< how far that body has come
  bool closing;
};

class http {
 public:
  http() = default;
  /// `pages`: in memory of the device, as all that they refer to.
  CW_FN http(const http_page* pages, std::uint32_t count, const http_options& o) noexcept
      : pages_(pages), count_(count), options_(o) {}

  /// Answers the complete requests at the start of `in` whose answers fit into `out`; a page that
  /// does not fit is sent in parts.
  /// `in`:    what came and was not consumed yet, up to options().head_bytes of it.
  /// `out`:   heads of answers wait until it has `least_room` bytes.
  /// Callers: one thread for each connection.
  CW_FN step_result step(http_connection& c, text in, char* out, std::size_t room) const noexcept {
    step_result r;
    writer answers(out, room);
    for (;;) {
      send_page(c, answers);
      if (c.left > 0) break;
      if (c.closing) {
        r.close = true;
        r.consumed = in.size;
        break;
      }
      skip_body(c, in, r);
      if (c.closing) continue;
      if (c.skip > 0 || r.consumed == in.size || answers.left() < least_room) break;
      if (!answer_one(c, in, r, answers)) break;
    }
    r.produced = answers.written();
    return r;
  }
  [[nodiscard]] CW_FN const http_options& options() const noexcept { return options_; }

  static constexpr std::size_t least_room = 512;

 private:
  CW_FN static void send_page(http_connection& c, writer& out) noexcept {
    const std::size_t n = c.left < out.left() ? static_cast<std::size_t>(c.left) : out.left();
    out.put(text(c.body, n));
    c.body += n;
    c.left -= n;
  }
  CW_FN static void skip_body(http_connection& c, text in, step_result& r) noexcept {
    const std::size_t there = in.size - r.consumed;
    const std::size_t n = c.skip < there ? c.skip : there;
    r.consumed += n;
    c.skip -= static_cast<std::uint32_t>(n);
    while (c.coded.inside() && r.consumed < in.size) {
      std::size_t used = 0;
      (void)c.coded.next(in.from(r.consumed), used);
      r.consumed += used;
      c.closing = c.coded.part == chunk_part::wrong || used > c.allowed;
      if (c.closing) return;  // the answer was given; where the next request begins is not known
      c.allowed -= static_cast<std::uint32_t>(used);
    }
  }
  /// Bytes of the empty line at the start, which is let pass; 0: there is none.
  CW_FN static std::size_t empty_line(text in) noexcept {
    if (in[0] == '\n') return 1;
    return in[0] == '\r' && in.size > 1 && in[1] == '\n' ? 2 : 0;
  }

  /// False: the head is not complete.
  [[nodiscard]] CW_FN bool answer_one(http_connection& c, text in, step_result& r,
                                      writer& out) const noexcept {
    const text rest = in.from(r.consumed);
    if (const std::size_t empty = empty_line(rest); empty > 0) {
      r.consumed += empty;
      c.scanned = 0;
      return true;
    }
    const std::size_t head = find_head_end(rest, c.scanned);
    http_request q;
    if (head == 0 || head > options_.head_bytes) {
      std::size_t at = 0;
      const bool long_line = take_line(rest, at).size > options_.line_bytes;
      if (!long_line && head == 0 && rest.size < options_.head_bytes) return false;
      q.status = long_line ? 414 : 431;
    } else {
      q = parse_head(rest.first(head), options_);
    }
    c.scanned = 0;
    r.consumed += head;
    c.closing = !q.keep_alive;
    c.skip = c.closing ? 0 : static_cast<std::uint32_t>(q.body);
    if (!c.closing && q.chunked) {
      c.coded = chunks::at_start();
      c.allowed = options_.body_bytes;
    }
    answer(c, q, out);
    return true;
  }

  CW_COLD CW_FN void answer(http_connection& c, const http_request& q, writer& out) const noexcept {
    const bool head_only = equal(q.method, "HEAD");
    if (q.status != 0) return put_status_page(q, q.status, false, out);
    if (!head_only && !equal(q.method, "GET")) return put_status_page(q, 405, false, out);
    const http_target target = split_target(q.target);
    const text path = target.path;
    if (equal(path, "/compute")) return compute(q, target.query, head_only, out);
    for (std::uint32_t i = 0; i < count_; ++i) {
      const http_page& p = pages_[i];
      if (!equal(path, {p.path, p.path_bytes})) continue;
      put_head(q, 200, {p.type, p.type_bytes}, p.body_bytes, out);
      c.body = p.body;
      c.left = head_only ? 0 : p.body_bytes;
      return;
    }
    put_status_page(q, 404, head_only, out);
  }

  /// The computed page: a number of Fibonacci's.
  CW_FN void compute(const http_request& q, text parameters, bool head_only,
                     writer& out) const noexcept {
    std::int64_t n = -1;
    const bool named = parameters.size > 2 && equal(parameters.first(2), "n=");
    if (!named || !parse_integer(parameters.from(2), n) || n < 0 || n > 93) {
      return put_status_page(q, 400, head_only, out);
    }
    std::uint64_t now = 0;
    std::uint64_t next = 1;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t sum = now + next;
      now = next;
      next = sum;
    }
    char page[64];
    writer body(page, sizeof(page));
    body.put("fibonacci(");
    body.put_number(n);
    body.put(") = ");
    body.put(decimal_digits(now).view());
    body.put('\n');
    put_head(q, 200, "text/plain", body.written(), out);
    if (!head_only) out.put(text(page, body.written()));
  }

  CW_FN static text reason(int status) noexcept {
    switch (status) {
      case 200:
        return "200 OK";
      case 400:
        return "400 Bad Request";
      case 404:
        return "404 Not Found";
      case 405:
        return "405 Method Not Allowed";
      case 413:
        return "413 Content Too Large";
      case 414:
        return "414 URI Too Long";
      case 431:
        return "431 Request Header Fields Too Large";
      case 501:
        return "501 Not Implemented";
      default:
        return "505 HTTP Version Not Supported";
    }
  }

  CW_COLD CW_FN static void put_head(const http_request& q, int status, text type,
                                     std::uint64_t bytes, writer& out) noexcept {
    out.put("HTTP/1.1 ");
    out.put(reason(status));
    out.put("\r\nContent-Type: ");
    out.put(type);
    out.put("\r\nContent-Length: ");
    out.put(decimal_digits(bytes).view());
    if (status == 405) out.put("\r\nAllow: GET, HEAD");
    if (!q.keep_alive) out.put("\r\nConnection: close");
    if (q.keep_alive && q.old) out.put("\r\nConnection: keep-alive");
    out.put("\r\n\r\n");
  }
  CW_FN static void put_status_page(const http_request& q, int status, bool head_only,
                                    writer& out) noexcept {
    put_head(q, status, "text/plain", reason(status).size + 1, out);
    if (head_only) return;
    out.put(reason(status));
    out.put('\n');
  }

  const http_page* pages_ = nullptr;
  std::uint32_t count_ = 0;
  http_options options_;
};

}  // namespace servers
