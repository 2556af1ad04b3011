// A filter over several devices, as Groute's paper has it: the host's input is dealt out in packets
// to whichever device is free, and what they keep is gathered. Compare docs/coming_from_groute.md.
//
//   ./13_filter                          two virtual devices on the CPU
//   CROSSWARP_DEVICE=cuda ./13_filter    two on one GPU
#include <algorithm>
#include <cstdio>
#include <thread>

#include "crosswarp/buffer.hpp"
#include "crosswarp/flow.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/world.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace flow = crosswarp::flow;

constexpr std::size_t input_size = 1U << 20U;
constexpr std::size_t packet_size = (64U << 10U) * sizeof(int);

CW_FN inline bool keep(int x) {
  return x % 3 == 0;
}

struct filter {
  CW_FN void operator()(const dev::kernel_context& ctx, const int* in, std::size_t n, int* out,
                        std::uint64_t* out_size) const {
    const auto step = static_cast<std::size_t>(ctx.grid().size());
    for (auto i = static_cast<std::size_t>(ctx.grid().rank()); i < n; i += step) {
      if (!keep(in[i])) continue;
      // Relaxed: the stream's order makes both visible to who waits for the kernel.
      out[dev::device_atomic<std::uint64_t>(*out_size).fetch_add(1, dev::order::relaxed)] = in[i];
    }
  }
};

void worker(cw::device_ref device, flow::link in, flow::link out) {
  cw::stream stream(device);
  const cw::launch_shape shape{.blocks = device.kind() == cw::device_kind::cpu ? 1 : 16,
                               .threads = device.kind() == cw::device_kind::cpu ? 1 : 256};
  const cw::buffer<std::uint64_t> out_size(device, 1);
  const cw::buffer<std::uint64_t> zero(device, 1);
  const cw::buffer<std::uint64_t> size(device, 1, cw::memory_kind::pinned);

  while (true) {
    const flow::pending_segment seg = in.receive().get();  // each packet when it is matched
    if (seg.empty()) break;                                // all senders have shut down
    seg.wait(stream);                                      // the stream waits, the host does not
    auto* s_out = reinterpret_cast<int*>(out.send_buffer(stream).data());
    stream.copy(out_size.data(), zero.data(), sizeof(std::uint64_t));
    const auto values = seg.as<int>();
    cw::launch(stream, shape, filter{}, static_cast<const int*>(values.data()), values.size(),
               s_out, out_size.data());
    in.release(seg, stream);  // its buffer is free when the kernel is done
    stream.copy(size.data(), out_size.data(), sizeof(std::uint64_t));
    stream.sync();  // the host has to know how much to send
    (void)out.send({s_out, *size.data() * sizeof(int)}, stream);
  }
  out.shutdown();
  stream.sync();
}

int main() {
  try {
    const cw::device_ref device = cw::world_options::from_environment().device;
    const cw::buffer<int> input(device, input_size, cw::memory_kind::pinned);
    for (std::size_t i = 0; i < input_size; ++i) input.data()[i] = static_cast<int>(i);
    std::vector<int> output;

    flow::context ctx({device, device});
    const auto all_gpus = ctx.devices();
    const int num_gpus = static_cast<int>(all_gpus.size());

    const flow::router h2gpus = ctx.router(1, num_gpus, flow::any_available());  // scatters
    const flow::router gpus2h = ctx.router(num_gpus, 1, flow::any_available());  // gathers

    flow::link dist = ctx.link(flow::host, h2gpus, packet_size, 1);
    flow::link collect = ctx.link(gpus2h, flow::host, packet_size, 2);  // double buffering

    std::vector<std::thread> workers;
    workers.reserve(all_gpus.size());
    for (const flow::endpoint gpu : all_gpus) {
      workers.emplace_back([&ctx, where = ctx.device(gpu),
                            in = ctx.link(h2gpus, gpu, packet_size, 2),
                            out = ctx.link(gpu, gpus2h, packet_size, 2)] {
        try {
          worker(where, in, out);
        } catch (const std::exception& e) {
          ctx.abort(e.what());  // the others wait no longer
        }
      });
    }

    std::string failed;
    try {
      (void)dist.send({input.data(), input_size * sizeof(int)});
      dist.shutdown();
      while (true) {
        const flow::pending_segment out_seg = collect.receive().get();
        if (out_seg.empty()) break;
        out_seg.sync();
        const auto kept = out_seg.as<int>();
        output.insert(output.end(), kept.begin(), kept.end());
        collect.release(out_seg);
      }
    } catch (const cw::error& e) {
      failed = e.what();
      ctx.abort(failed);
    }
    for (auto& t : workers) t.join();
    if (!failed.empty()) throw cw::error(cw::errc::aborted, "13_filter", failed);

    std::sort(output.begin(), output.end());
    std::vector<int> expected;
    std::copy_if(input.data(), input.data() + input_size, std::back_inserter(expected), keep);
    if (output != expected) throw cw::error(cw::errc::system, "13_filter", "the output is wrong");
    std::printf("%zu of %zu numbers kept by %d devices on %s\n%s", output.size(), input_size,
                num_gpus, device.name().c_str(), ctx.to_dot().c_str());
  } catch (const cw::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
