// A kernel that sends back what it receives, to any client: `nc 127.0.0.1 7000`.
//
//   echo_server --device cpu|cuda --port 7000 [--host ADDRESS] [--blocks N] [--threads N]
#include "echo.hpp"

using namespace servers;

int main(int argc, char** argv) {
  return guarded([&] {
    const settings s = parse(argc, argv);
    cw::buffer<sock::poll_item> items(s.device, static_cast<std::size_t>(s.blocks) * echo::places);
    return run(s, {},
               [&](cw::stream& stream, const cw::launch_shape& shape, const sock::service& net,
                   sock::handle listener) {
                 cw::launch(stream, shape, echo{}, net, listener, items.data());
               });
  });
}
