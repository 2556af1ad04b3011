// Matrix products by a kernel, for whoever sends matrices: matmul.hpp has the protocol.
//
//   matmul_server --device cpu|cuda --port 7000 [--host ADDRESS] [--blocks N] [--threads N]
//                 [--idle SECONDS]
#include "conversation.hpp"
#include "matmul.hpp"

namespace {

struct no_state {};

/// The engine keeps nothing of a connection.
struct stateless {
  servers::matmul engine;

  template <class G>
  CW_FN servers::step_result step(const G& g, no_state&, servers::text in, char* out,
                                  std::size_t room) const {
    return engine.step(g, in, out, room);
  }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace servers;
  return guarded([&] {
    const settings s = parse(argc, argv, {.blocks = 16, .threads = 256, .idle = 0});
    const matmul_options options;
    return serve_with<no_state>(s, stateless{matmul(options)}, options.request_bytes,
                                options.answer_bytes);
  });
}
