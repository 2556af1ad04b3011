// A web client inside a kernel: asks a server for a page and shows what came.
//
//   http_client --device cpu|cuda --host ADDRESS --port N [--path /...]
//
// Each thread of the block has its part in copying. Ends with 0 for a page that has come as a
// whole, with 1 for a status other than 200, with 2 where there is no page or only a part of one.
#include <algorithm>
#include <vector>

#include "http_chunks.hpp"
#include "http_request.hpp"
#include "server.hpp"

namespace {

using namespace servers;

constexpr std::size_t most_bytes = std::size_t{4} << 20U;

/// Where a page ends.
enum class ending : std::uint8_t { length, chunks, stream };

/// A head of an answer, and where its page begins.
struct answer_head {
  std::size_t bytes = 0;  ///< with those of interim answers before it; 0: not complete
  int status = 0;         ///< 0: this is no answer of HTTP/1
  ending by = ending::stream;
  std::uint64_t length = 0;
};

CW_FN void read_field(text line, answer_head& h) {
  std::size_t colon = 0;
  const text name = take_until(line, colon, ':');
  const text value = trim(line.from(colon));
  if (equal_in_any_case(name, "transfer-encoding")) {
    h.by = ending::chunks;
    if (!equal_in_any_case(value, "chunked")) h.status = 0;  // not asked for
  } else if (equal_in_any_case(name, "content-length") && h.by != ending::chunks) {
    h.by = ending::length;
    if (!parse_length(value, h.length)) h.status = 0;
  }
}

CW_FN answer_head read_head(text answer) {
  answer_head h;
  for (;;) {
    const text rest = answer.from(h.bytes);
    std::uint32_t scanned = 0;
    const std::size_t bytes = find_head_end(rest, scanned);
    if (bytes == 0) return {};
    std::size_t at = 0;
    const text first = take_line(rest.first(bytes), at);
    std::uint64_t status = 0;
    const bool right = first.size >= 12 && equal(first.first(7), "HTTP/1.") &&
                       parse_length({first.data + 9, 3}, status) && status >= 100;
    h = {h.bytes + bytes, right ? static_cast<int>(status) : 0, ending::stream, 0};
    if (right && status < 200) continue;  // the answer is still to come
    while (at < bytes && h.status != 0) read_field(take_line(rest.first(bytes), at), h);
    if (status == 204 || status == 304) {  // have no page, whatever the fields say
      h.by = ending::length;
      h.length = 0;
    }
    return h;
  }
}

struct outcome {
  std::int64_t error = 0;  ///< -errno
  answer_head head;
  std::size_t came = 0;   ///< bytes of the answer
  std::size_t page = 0;   ///< bytes of the page, which is behind the head
  bool complete = false;  ///< the page is all there
};

struct get_page {
  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& net,
                        const sock::address* where, const char* request, std::size_t request_bytes,
                        char* answer, outcome* result) const {
    const auto g = ctx.block();
    const sock::handle s = net.connect(g, *where);
    outcome o;
    o.error = s.error();
    if (s) {
      o = talk(g, net, s, request, request_bytes, answer);
      net.close(g, s);
    }
    if (g.rank() == 0) *result = o;
  }

  template <class G>
  static CW_FN outcome talk(const G& g, const sock::service& net, sock::handle s,
                            const char* request, std::size_t request_bytes, char* answer) {
    outcome o;
    chunks coded = chunks::at_start();
    std::size_t looked = 0;
    std::int64_t n = net.send(g, s, request, request_bytes);
    while (n >= 0 && o.came < most_bytes) {
      n = net.recv(g, s, answer + o.came, most_bytes - o.came);
      if (n > 0) o.came += static_cast<std::size_t>(n);
      if (o.head.bytes == 0) {
        o.head = read_head({answer, o.came});
        looked = o.head.bytes;
      }
      if (o.head.bytes != 0) {
        if (o.head.status == 0) return o;
        if (o.head.by == ending::chunks) {
          g.sync();  // all have read the head
          const auto page = dev::leader_of(g, [&] {
            return join_chunks(coded, {answer + looked, o.came - looked},
                               answer + o.head.bytes + o.page);
          });
          coded = page.state;
          o.page += page.bytes;
          looked = o.came;
          o.complete = coded.part == chunk_part::none;
          if (coded.part == chunk_part::wrong) return o;
        } else {
          o.page = o.came - o.head.bytes;
          o.complete = o.head.by == ending::length ? o.page >= o.head.length : n == 0;
        }
        if (o.complete) return o;
      }
      if (n == 0) break;
    }
    o.error = n < 0 ? n : 0;
    return o;
  }

  struct joined {
    chunks state;
    std::size_t bytes;
  };
  /// The data in `in`, without what is around it, to where it belongs: before `in`, or there.
  static CW_FN joined join_chunks(chunks state, text in, char* to) {
    joined j{state, 0};
    for (std::size_t at = 0; at < in.size && j.state.inside();) {
      std::size_t used = 0;
      const text data = j.state.next(in.from(at), used);
      for (std::size_t i = 0; i < data.size; ++i) to[j.bytes++] = data[i];
      at += used;
    }
    return j;
  }
};

std::uint64_t page_bytes(const outcome& o) {
  return o.head.by == ending::length ? o.head.length : o.page;
}

/// Throws unless all of the page has come.
void check(const outcome& o, const std::string& url) {
  if (o.error < 0) throw cw::error::from_errno(static_cast<int>(-o.error), "get", url);
  if (o.complete) return;
  std::string why = " gave no answer of HTTP/1";
  if (o.came == most_bytes) {
    why = " has more than " + std::to_string(most_bytes) + " bytes";
  } else if (o.head.status != 0) {
    why = " ended after " + std::to_string(o.page) + " bytes of the page";
    if (o.head.by == ending::length) why += ", which has " + std::to_string(o.head.length);
  }
  throw cw::error(cw::errc::system, "get", url + why);
}

int fetch(const settings& s, const std::string& path) {
  cw::socket::service net(s.device, {.threads = s.host_threads});
  cw::stream stream(s.device);
  const std::string host = s.host + ":" + std::to_string(s.port);
  const sock::address where = cw::socket::parse_address(host);
  const std::string url = "http://" + host + path;
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
  cw::buffer<sock::address> address(s.device, std::span(&where, 1));
  cw::buffer<char> asked(s.device, std::span<const char>(request));
  cw::buffer<char> answer(s.device, most_bytes);
  cw::buffer<outcome> result(s.device, 1);
  cw::launch(stream, {.threads = s.threads}, get_page{}, net.device(), address.data(), asked.data(),
             request.size(), answer.data(), result.data());
  stream.sync();
  const outcome o = result.read()[0];
  check(o, url);
  const auto bytes = answer.read();
  std::fwrite(bytes.data() + o.head.bytes, 1, std::min<std::uint64_t>(o.page, page_bytes(o)),
              stdout);
  return o.head.status == 200 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return guarded([&] {
    std::string path = "/";
    std::vector<char*> others;
    for (int i = 0; i < argc; ++i) {
      if (std::strcmp(argv[i], "--path") == 0 && i + 1 < argc) {
        path = argv[++i];
      } else {
        others.push_back(argv[i]);
      }
    }
    return fetch(parse(static_cast<int>(others.size()), others.data(), {.own = " [--path PATH]"}),
                 path);
  });
}
