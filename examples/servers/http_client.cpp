// A web client inside a kernel: asks a server for a page and shows what came.
//
//   http_client --device cpu|cuda --host ADDRESS --port N [--path /...]
//
// Each thread of the block has its part in copying; the first one reads the answer's head.
#include <climits>
#include <vector>

#include "http_request.hpp"
#include "server.hpp"

namespace {

using namespace servers;

constexpr std::size_t most_bytes = std::size_t{4} << 20U;

struct outcome {
  std::int64_t bytes;  ///< of the answer, or -errno
  int status;          ///< of HTTP; 0 when that was no answer
  std::size_t head;    ///< where the page begins
};

/// The status line and the length that the fields tell; false: not complete, or no answer.
CW_FN bool read_head(text answer, outcome& o, std::int64_t& length) {
  std::uint32_t at = 0;
  o.head = find_head_end(answer, at);
  if (o.head == 0) return false;
  std::size_t line_end = 0;
  const text first = take_line(answer, line_end);
  std::int64_t status = 0;
  if (first.size < 12 || !equal(first.first(7), "HTTP/1.") ||
      !parse_integer({first.data + 9, 3}, status)) {
    return false;
  }
  o.status = static_cast<int>(status);
  length = INT64_MAX;  // up to the end of the stream
  while (line_end < o.head) {
    const text line = take_line(answer, line_end);
    std::size_t colon = 0;
    const text name = take_until(line, colon, ':');
    if (!equal_in_any_case(name, "content-length")) continue;
    if (!parse_integer(trim(line.from(colon)), length) || length < 0) return false;
  }
  return true;
}

struct get_page {
  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& net,
                        const sock::address* where, const char* request, std::size_t request_bytes,
                        char* answer, outcome* result) const {
    const auto g = ctx.block();
    const sock::handle s = net.connect(g, *where);
    outcome o{s.error(), 0, 0};
    if (s) {
      o = talk(g, net, s, request, request_bytes, answer);
      net.close(g, s);
    }
    if (g.rank() == 0) *result = o;
  }

  template <class G>
  static CW_FN outcome talk(const G& g, const sock::service& net, sock::handle s,
                            const char* request, std::size_t request_bytes, char* answer) {
    outcome o{net.send(g, s, request, request_bytes), 0, 0};
    std::int64_t length = 0;
    std::size_t came = 0;
    while (o.bytes >= 0 && came < most_bytes) {
      const std::int64_t n = net.recv(g, s, answer + came, most_bytes - came);
      if (n < 0) o.bytes = n;
      if (n <= 0) break;
      came += static_cast<std::size_t>(n);
      if (o.status == 0 && !read_head({answer, came}, o, length)) continue;
      if (static_cast<std::int64_t>(came - o.head) >= length) break;
    }
    if (o.bytes >= 0) o.bytes = static_cast<std::int64_t>(came);
    return o;
  }
};

int fetch(const settings& s, const std::string& path) {
  cw::socket::service net(s.device, {.threads = s.host_threads});
  cw::stream stream(s.device);
  const std::string host = s.host + ":" + std::to_string(s.port);
  const sock::address where = cw::socket::parse_address(host);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
  cw::buffer<sock::address> address(s.device, std::span(&where, 1));
  cw::buffer<char> asked(s.device, std::span<const char>(request));
  cw::buffer<char> answer(s.device, most_bytes);
  cw::buffer<outcome> result(s.device, 1);
  cw::launch(stream, {.threads = s.threads}, get_page{}, net.device(), address.data(), asked.data(),
             request.size(), answer.data(), result.data());
  stream.sync();
  const outcome o = result.read()[0];
  if (o.bytes < 0) {
    throw cw::error::from_errno(static_cast<int>(-o.bytes), "get", "http://" + host + path);
  }
  if (o.status == 0) {
    throw cw::error(cw::errc::system, "get", "http://" + host + path + " gave no answer of HTTP/1");
  }
  const auto bytes = answer.read();
  std::fwrite(bytes.data() + o.head, 1, static_cast<std::size_t>(o.bytes) - o.head, stdout);
  return o.status == 200 ? 0 : 1;
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
    return fetch(parse(static_cast<int>(others.size()), others.data()), path);
  });
}
