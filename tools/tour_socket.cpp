// The tour's scene of sockets: a kernel serves a client that knows nothing of kernels.
#include "tour_scenes.hpp"

namespace crosswarp::tool {

scene socket_scene(device_ref d) {
  scene s{.name = "socket",
          .story =
              "a kernel listens at a TCP port of this machine; a plain client connects, and all "
              "that it sends comes back",
          .device = d.name()};
  std::string letter;
  for (int i = 0; i < 1000; ++i) letter += "line " + std::to_string(i) + "\n";
  s.verified = bench::echoed_by_kernel(d, letter) == letter;
  return measured(std::move(s), d, false);
}

}  // namespace crosswarp::tool
