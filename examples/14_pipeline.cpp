// A pipeline with a router in its middle: two devices square numbers, a router sends each packet to
// the device that its tag names, and that one adds up.
//
//   ./14_pipeline                          four virtual devices on the CPU
//   CROSSWARP_DEVICE=cuda ./14_pipeline    four on one GPU
#include <cstdio>
#include <thread>

#include "crosswarp/buffer.hpp"
#include "crosswarp/flow.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/world.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace flow = crosswarp::flow;

constexpr std::size_t packet_size = 256 * sizeof(long);
constexpr long packets = 100;

struct square {
  CW_FN void operator()(const dev::kernel_context& ctx, const long* in, long* out,
                        std::size_t n) const {
    const auto step = static_cast<std::size_t>(ctx.grid().size());
    for (auto i = static_cast<std::size_t>(ctx.grid().rank()); i < n; i += step) {
      out[i] = in[i] * in[i];
    }
  }
};

struct add_up {
  CW_FN void operator()(const dev::kernel_context&, const long* in, std::size_t n,
                        long* sum) const {
    for (std::size_t i = 0; i < n; ++i) *sum += in[i];
  }
};

/// Squares what comes and sends it on with its tag. Nothing here waits for a kernel.
void square_all(cw::device_ref device, flow::link in, flow::link out) {
  cw::stream stream(device);
  while (true) {
    const flow::pending_segment seg = in.receive().get();
    if (seg.empty()) break;
    seg.wait(stream);
    auto* to = reinterpret_cast<long*>(out.send_buffer(stream).data());
    const auto values = seg.as<long>();
    cw::launch(stream, {.threads = 64}, square{}, static_cast<const long*>(values.data()), to,
               values.size());
    in.release(seg, stream);
    (void)out.send({to, seg.bytes(), seg.tag()}, stream);
  }
  out.shutdown();
  stream.sync();
}

/// Adds up what comes, and sends the sum at the end.
void add_all(cw::device_ref device, flow::link in, flow::link out) {
  cw::stream stream(device);
  auto* sum = reinterpret_cast<long*>(out.send_buffer(stream).data());  // zero at the start
  while (true) {
    const flow::pending_segment seg = in.receive().get();
    if (seg.empty()) break;
    seg.wait(stream);
    const auto values = seg.as<long>();
    cw::launch(stream, {}, add_up{}, static_cast<const long*>(values.data()), values.size(), sum);
    in.release(seg, stream);
  }
  (void)out.send({sum, sizeof(long)}, stream);
  out.shutdown();
  stream.sync();
}

int main() {
  try {
    const cw::device_ref device = cw::world_options::from_environment().device;
    const cw::buffer<long> input(device, packets * packet_size / sizeof(long),
                                 cw::memory_kind::pinned);
    long expected[2] = {0, 0};
    for (long i = 0; i < static_cast<long>(input.size()); ++i) {
      input.data()[i] = i;
      expected[i * static_cast<long>(sizeof(long)) / static_cast<long>(packet_size) % 2] += i * i;
    }

    flow::context ctx({device, device, device, device});
    const auto all = ctx.devices();
    const flow::router spread = ctx.router(1, 2, flow::any_available());
    const flow::router by_tag = ctx.router(
        2, 2,
        flow::user_defined([](const flow::segment& s, int /*source*/, const std::vector<int>& to) {
          return std::vector{to[s.tag % to.size()]};
        }));
    const flow::router sums = ctx.router(2, 1, flow::gather());
    flow::link in = ctx.link(flow::host, spread, packet_size, 1);
    flow::link out = ctx.link(sums, flow::host, packet_size, 2);
    std::vector<std::thread> threads;
    const auto start = [&](auto work, int i, const flow::router& from, const flow::router& to) {
      const flow::endpoint at = all[static_cast<std::size_t>(i)];
      threads.emplace_back([&ctx, work, where = ctx.device(at),
                            receives = ctx.link(from, at, packet_size, 2),
                            sends = ctx.link(at, to, packet_size, 2)] {
        try {
          work(where, receives, sends);
        } catch (const std::exception& e) {
          ctx.abort(e.what());  // the others wait no longer
        }
      });
    };
    for (int i = 0; i < 2; ++i) start(square_all, i, spread, by_tag);
    for (int i = 2; i < 4; ++i) start(add_all, i, by_tag, sums);

    long got[2] = {0, 0};
    std::string failed;
    try {
      for (long p = 0; p < packets; ++p) {
        const std::byte* at = reinterpret_cast<const std::byte*>(input.data()) +
                              static_cast<std::size_t>(p) * packet_size;
        (void)in.send({at, packet_size, static_cast<std::uint64_t>(p)});
      }
      in.shutdown();
      while (true) {
        const flow::pending_segment seg = out.receive().get();
        if (seg.empty()) break;
        seg.sync();
        got[seg.source()] = seg.as<long>()[0];
        out.release(seg);
      }
    } catch (const cw::error& e) {
      failed = e.what();
      ctx.abort(failed);
    }
    for (auto& t : threads) t.join();
    if (!failed.empty()) throw cw::error(cw::errc::aborted, "14_pipeline", failed);
    if (got[0] != expected[0] || got[1] != expected[1]) {
      throw cw::error(cw::errc::system, "14_pipeline", "a sum is wrong");
    }
    std::printf("squares of even packets: %ld, of odd ones: %ld\n%s\n%s", got[0], got[1],
                by_tag.explain().c_str(), ctx.to_dot().c_str());
  } catch (const cw::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
