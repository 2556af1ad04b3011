// The seed's filter as a benchmark: the host's numbers are dealt out in packets to devices, and
// what these keep is gathered. Beside it the same without any communication: on a CPU std::copy_if
// by one thread for each core, on a GPU the way of all numbers over the bus, in one copy.
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

bool on_gpu(device_ref d) {
  return d.kind() == device_kind::cuda;
}
/// Numbers: on a CPU what of it is under way stays in a cache; on a GPU it is long enough that the
/// host's part in it does not matter.
std::size_t packet_of(device_ref d) {
  return on_gpu(d) ? 4U << 20U : 64U << 10U;
}

struct is_kept {
  CW_FN constexpr bool operator()(int x) const noexcept { return x % 3 == 0; }
};

/// One thread keeps the order; of several, those of a warp take their places together.
struct filter {
  CW_FN void operator()(const device::kernel_context& ctx, const int* in, std::size_t n, int* out,
                        std::uint64_t* kept) const {
    if (ctx.grid().size() == 1) {
      std::uint64_t count = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (is_kept{}(in[i])) out[count++] = in[i];
      }
      *kept = count;
      return;
    }
    const auto warp = ctx.warp();
    const auto step = static_cast<std::size_t>(ctx.grid().size());
    const auto first = static_cast<std::size_t>(ctx.grid().rank() - warp.rank());
    for (std::size_t i = first; i < n; i += step) {
      const std::size_t at = i + static_cast<std::size_t>(warp.rank());
      const int value = at < n ? in[at] : 0;
      const std::uint32_t keep = warp.ballot(at < n && is_kept{}(value));
      const std::uint64_t place = device::leader_of(warp, [&] {
        // Relaxed: the stream's order makes it visible to who waits for the kernel.
        return device::device_atomic<std::uint64_t>(*kept).fetch_add(
            static_cast<std::uint64_t>(device::count_bits(keep)), device::order::relaxed);
      });
      const std::uint32_t mine = 1U << static_cast<unsigned>(warp.rank());
      if ((keep & mine) != 0) {
        out[place + static_cast<std::uint64_t>(device::count_bits(keep & (mine - 1)))] = value;
      }
    }
  }
};

void work(device_ref on, flow::link in, flow::link out) {
  stream s(on);
  const launch_shape shape =
      on_gpu(on) ? launch_shape{.blocks = 264, .threads = 512} : launch_shape{};
  const buffer<std::uint64_t> zero(on, 1);
  const buffer<std::uint64_t> kept(on, 1);
  const buffer<std::uint64_t> told(on, 1, memory_kind::pinned);
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    got.wait(s);
    auto* const into = reinterpret_cast<int*>(out.send_buffer(s).data());
    s.copy(kept.data(), zero.data(), sizeof(std::uint64_t));
    launch(s, shape, filter{}, static_cast<const int*>(got.data()), got.as<int>().size(), into,
           kept.data());
    in.release(got, s);
    s.copy(told.data(), kept.data(), sizeof(std::uint64_t));
    s.sync();  // the host has to know how much to send
    (void)out.send({into, *told.data() * sizeof(int)});
  }
  out.shutdown();
}

/// Returns how many are in `output`.
std::size_t by_dataflow(const setup& s, int workers, const buffer<int>& input,
                        std::vector<int>& output) {
  flow::context ctx(std::vector<device_ref>(static_cast<std::size_t>(workers), s.device));
  const auto deal = ctx.router(1, workers, flow::any_available());
  const auto gather = ctx.router(workers, 1, flow::any_available());
  const std::size_t bytes = packet_of(s.device) * sizeof(int);
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
      // What a GPU kept is in the host's memory now, as what a CPU kept is behind this.
      if (!on_gpu(s.device)) {
        std::copy(values.begin(), values.end(),
                  output.begin() + static_cast<std::ptrdiff_t>(count));
      }
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

/// As many as there are, but they only come over the bus.
std::size_t by_one_copy(const setup& s, const buffer<int>& input, const buffer<int>& there) {
  stream on(s.device);
  on.copy(there.data(), input.data(), input.size() * sizeof(int));
  on.sync();
  return (input.size() + 2) / 3;
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
  const bool gpu = on_gpu(s.device);
  const int workers = gpu ? 2 : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const buffer<int> input(s.device, count, memory_kind::pinned);
  std::iota(input.data(), input.data() + count, 0);
  std::vector<int> output(gpu ? 0 : count);
  const buffer<int> there(s.device, gpu ? count : 1);
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
    measure(rate, [&] { return by_dataflow(s, workers, input, output); });
    measure(bound, [&] {
      return gpu ? by_one_copy(s, input, there) : by_threads(workers, input, output);
    });
  }
  row r;
  r.bench = "flow";
  r.what = "filter of " + std::to_string(count >> 20U) + " Mi numbers (limit: " +
           (gpu ? "their way over the bus" : "copy_if by " + std::to_string(workers) + " threads") +
           ")";
  r.ranks = workers;
  r.device = s.device.name();
  r.path = "two routers, any-available";
  r.unit = "M/s";
  r.bytes = packet_of(s.device) * sizeof(int);
  rate.fill(r);
  r.limit = bound.median();
  return r;
}

}  // namespace crosswarp::bench
