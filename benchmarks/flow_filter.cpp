// The seed's filter as a benchmark: numbers are dealt out in packets to devices, and what these
// keep is gathered. Beside it: std::copy_if by one thread for each core, without any communication.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "bench.hpp"
#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/flow.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t packet = 64U << 10U;  // numbers: what of it is under way stays in a cache

struct is_kept {
  CW_FN constexpr bool operator()(int x) const noexcept { return x % 3 == 0; }
};

/// For one thread: what a packet keeps stays in its order.
struct filter {
  CW_FN void operator()(const device::kernel_context&, const int* in, std::size_t n, int* out,
                        std::size_t* kept) const {
    *kept = static_cast<std::size_t>(std::copy_if(in, in + n, out, is_kept{}) - out);
  }
};

void work(device_ref on, flow::link in, flow::link out) {
  stream s(on);
  const buffer<std::size_t> kept(on, 1, memory_kind::pinned);
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    got.wait(s);
    auto* const into = reinterpret_cast<int*>(out.send_buffer(s).data());
    launch(s, {}, filter{}, static_cast<const int*>(got.data()), got.as<int>().size(), into,
           kept.data());
    in.release(got, s);
    s.sync();  // the host has to know how much to send
    (void)out.send({into, *kept.data() * sizeof(int)});
  }
  out.shutdown();
}

/// Returns how many are in `output`.
std::size_t by_dataflow(const setup& s, int workers, const buffer<int>& input,
                        std::vector<int>& output) {
  flow::context ctx(std::vector<device_ref>(static_cast<std::size_t>(workers), s.device));
  const auto deal = ctx.router(1, workers, flow::any_available());
  const auto gather = ctx.router(workers, 1, flow::any_available());
  constexpr std::size_t bytes = packet * sizeof(int);
  flow::link source = ctx.link(flow::host, deal, bytes, 1);
  flow::link sink = ctx.link(gather, flow::host, bytes, 4);
  std::vector<std::thread> threads;
  for (const auto d : ctx.devices()) {
    threads.emplace_back([&ctx, on = s.device, in = ctx.link(deal, d, bytes, 2),
                          out = ctx.link(d, gather, bytes, 2)] {
      try {
        work(on, in, out);
      } catch (const std::exception& e) {
        ctx.abort(e.what());
      }
    });
  }
  std::size_t count = 0;
  std::exception_ptr failed;
  try {
    (void)source.send({input.data(), input.size() * sizeof(int)});
    source.shutdown();
    for (;;) {
      const auto got = sink.receive().get();
      if (got.empty()) break;
      got.sync();
      const auto values = got.as<int>();
      std::copy(values.begin(), values.end(), output.begin() + static_cast<std::ptrdiff_t>(count));
      count += values.size();
      sink.release(got);
    }
  } catch (const error& e) {
    failed = std::current_exception();
    ctx.abort(e.what());
  }
  for (auto& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
  return count;
}

/// Each thread has a part of the input, and as much room in the output.
std::size_t by_threads(int threads, const buffer<int>& input, std::vector<int>& output) {
  std::vector<std::thread> all;
  std::atomic<std::size_t> count{0};
  const std::size_t each =
      (input.size() + static_cast<std::size_t>(threads) - 1) / static_cast<std::size_t>(threads);
  for (std::size_t begin = 0; begin < input.size(); begin += each) {
    all.emplace_back([&, begin] {
      const std::size_t end = std::min(input.size(), begin + each);
      int* const into = output.data() + begin;
      const int* const last =
          std::copy_if(input.data() + begin, input.data() + end, into, is_kept{});
      count += static_cast<std::size_t>(last - into);
    });
  }
  for (auto& t : all) t.join();
  return count;
}

}  // namespace

row bench_flow_filter(const setup& s) {
  const std::size_t count = (s.quick ? 8U : 256U) << 20U;
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const buffer<int> input(s.device, count, memory_kind::pinned);
  std::iota(input.data(), input.data() + count, 0);
  std::vector<int> output(count);
  const std::size_t expected = (count + 2) / 3;
  samples rate;
  samples bound;
  const auto measure = [&](samples& to, const auto& run) {
    const auto begin = steady_clock::now();
    const std::size_t kept = run();
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    if (kept != expected) {
      throw error(
          errc::system, "bench flow",
          "the filter kept " + std::to_string(kept) + " numbers, not " + std::to_string(expected));
    }
    to.add(static_cast<double>(count) / took.count() * 1e-6);
  };
  for (int i = 0; i < (s.quick ? 3 : 7); ++i) {
    measure(rate, [&] { return by_dataflow(s, threads, input, output); });
    measure(bound, [&] { return by_threads(threads, input, output); });
  }
  row r;
  r.bench = "flow";
  r.what = "filter of " + std::to_string(count >> 20U) + " Mi numbers (limit: copy_if by " +
           std::to_string(threads) + " threads)";
  r.ranks = threads;
  r.device = s.device.name();
  r.path = "two routers, any-available";
  r.unit = "M/s";
  r.bytes = packet * sizeof(int);
  rate.fill(r);
  r.limit = bound.median();
  return r;
}

}  // namespace crosswarp::bench
