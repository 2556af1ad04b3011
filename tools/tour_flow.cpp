// The tour's scene of dataflow: what the host sends is dealt out to devices that keep a part of it.
#include <thread>

#include "crosswarp/buffer.hpp"
#include "crosswarp/flow.hpp"
#include "crosswarp/launch.hpp"
#include "run_benchmarks.hpp"
#include "tour_scenes.hpp"

namespace crosswarp::tool {

namespace dev = crosswarp::device;

namespace {

constexpr int numbers = 1 << 18;
constexpr std::size_t packet_bytes = (8U << 10U) * sizeof(int);

/// Zero in place of what is not kept, so that the length is known beforehand.
struct keep_multiples {
  CW_FN void operator()(const dev::kernel_context& ctx, const int* in, int* out,
                        std::size_t n) const {
    const auto step = static_cast<std::size_t>(ctx.grid().size());
    for (auto i = static_cast<std::size_t>(ctx.grid().rank()); i < n; i += step) {
      out[i] = in[i] % 3 == 0 ? in[i] : 0;
    }
  }
};

void keep_all(device_ref device, flow::link in, flow::link out) {
  stream s(device);
  for (;;) {
    const flow::pending_segment got = in.receive().get();
    if (got.empty()) break;
    got.wait(s);
    auto* to = reinterpret_cast<int*>(out.send_buffer(s).data());
    launch(s, {.threads = 32}, keep_multiples{}, static_cast<const int*>(got.as<int>().data()), to,
           got.as<int>().size());
    in.release(got, s);
    (void)out.send({to, got.bytes()}, s);
  }
  out.shutdown();
  s.sync();
}

/// The sum of what comes back.
long collect(flow::link& from) {
  long sum = 0;
  for (;;) {
    const flow::pending_segment got = from.receive().get();
    if (got.empty()) return sum;
    got.sync();
    for (const int x : got.as<int>()) sum += x;
    from.release(got);
  }
}

}  // namespace

scene flow_scene(device_ref d) {
  constexpr int devices = 3;
  scene s{.name = "flow",
          .story =
              "the host's numbers are dealt out in packets to 3 devices, to whichever is free; "
              "what these keep is gathered. The drawing shows who got how much",
          .ranks = devices,
          .device = d.name()};
  const buffer<int> input(d, numbers, memory_kind::pinned);
  long expected = 0;
  for (int i = 0; i < numbers; ++i) {
    input.data()[i] = i;
    expected += i % 3 == 0 ? i : 0;
  }
  flow::context ctx(std::vector<device_ref>(devices, d));
  const flow::router spread = ctx.router(1, devices, flow::any_available());
  const flow::router gather = ctx.router(devices, 1, flow::gather());
  flow::link in = ctx.link(flow::host, spread, packet_bytes, 1);
  flow::link out = ctx.link(gather, flow::host, packet_bytes, 2);
  std::vector<std::thread> workers;
  for (const flow::endpoint at : ctx.devices()) {
    const flow::link from = ctx.link(spread, at, packet_bytes, 2);
    s.path = from.explain();
    workers.emplace_back([&ctx, d, from, to = ctx.link(at, gather, packet_bytes, 2)] {
      try {
        keep_all(d, from, to);
      } catch (const std::exception& e) {
        ctx.abort(e.what());
      }
    });
  }
  try {
    (void)in.send({input.data(), numbers * sizeof(int)});
    in.shutdown();
    s.verified = collect(out) == expected;
  } catch (const error& e) {
    ctx.abort(e.what());
    s.story += std::string(". It failed: ") + e.what();
  }
  for (auto& w : workers) w.join();
  s.drawing = ctx.to_svg();
  bench::setup how;
  how.device = d;
  how.quick = true;
  s.rows = bench::bench_flow(how, run_ranks);
  return s;
}

}  // namespace crosswarp::tool
