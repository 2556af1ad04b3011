// A kernel that runs on the CPU and on a GPU: the device is a run-time choice.
//
//   ./01_kernel            on CPU threads
//   ./01_kernel cuda       on a GPU
#include <cstdio>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"

namespace cw = crosswarp;

struct scale {
  CW_FN void operator()(const cw::device::kernel_context& ctx, float* x, int n, float by) const {
    for (int i = ctx.grid().rank(); i < n; i += ctx.grid().size()) x[i] *= by;
  }
};

int main(int argc, char** argv) {
  try {
    const auto device = cw::device_ref::parse(argc > 1 ? argv[1] : "cpu");
    const std::vector<float> ones(1000, 1.0F);
    cw::stream stream(device);
    cw::buffer<float> x(device, std::span<const float>(ones));
    cw::launch(stream, {.blocks = 4, .threads = 64}, scale{}, x.data(), 1000, 42.0F);
    stream.sync();
    for (const float v : x.read()) {
      if (v != 42.0F) return std::puts("wrong"), 1;
    }
    std::printf("1000 values scaled on %s\n", device.name().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
