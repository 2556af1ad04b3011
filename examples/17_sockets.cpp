// Two ranks that talk through a socket, once by TCP alone and once by the way around it that a
// world's service finds: the kernels are the same.
//
//   ./17_sockets                              two ranks as threads of this process
//   crosswarp run -n 2 ./17_sockets           two processes
//   CROSSWARP_DEVICE=cuda ./17_sockets        two ranks that share a GPU
#include <chrono>
#include <cstdio>

#include "socket_pair.hpp"

namespace cw = crosswarp;

void rank_main(cw::world& w) {
  if (w.size() != 2) throw cw::error(cw::errc::invalid_argument, "sockets", "takes two ranks");
  for (const int lanes : {0, 8}) {
    socket_pair::talk talk(w, {.lanes = lanes});
    talk.exchange_bytes(10, 64);  // the ends find each other meanwhile
    constexpr int rounds = 200;
    const auto begin = std::chrono::steady_clock::now();
    talk.exchange_bytes(rounds, 64);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (w.rank() != 0) continue;
    std::printf("64 bytes there and back %s: %.1f us\n",
                talk.goes_around() ? "around TCP" : "by TCP", took.count() / rounds);
  }
}

int main() {
  try {
    cw::run(2, rank_main);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
