// A web server inside a kernel: `curl http://127.0.0.1:7000/`.
//
//   http_server --device cpu|cuda --port 7000 [--host ADDRESS] [--blocks N] [--threads N]
//               [--idle SECONDS]
#include "conversation.hpp"
#include "http_site.hpp"

namespace {

/// What it shows: a page of text, and one that is longer than a ring.
std::vector<servers::http_content> pages() {
  std::string numbers;
  for (int i = 0; i < 200'000; ++i) numbers += std::to_string(i) + "\n";
  return {{"/", "text/html",
           "<!doctype html><title>Crosswarp</title><p>This page was sent by a kernel.</p>"
           "<p><a href=\"/compute?n=90\">This one</a> it computes.</p>\n"},
          {"/numbers", "text/plain", numbers}};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace servers;
  return guarded([&] {
    const settings s = parse(argc, argv, {.blocks = 64, .threads = 32, .idle = 60});
    const http_site site(s.device, pages());
    const http engine = site.engine();
    return serve_with<http_connection>(s, by_leader<http>{engine}, engine.options().head_bytes,
                                       64 * 1024);
  });
}
