// The seed's filter as a benchmark: the host's numbers are dealt out in packets to devices, and
// what these keep is gathered. Beside it the same without any communication: on a CPU std::copy_if
// by one thread for each core, on a GPU the way of all numbers over the bus, in one copy.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>
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
/// On a CPU all ends share memory, so that packets need not be copied.
flow::link_options way_on(device_ref d) {
  return {.how = on_gpu(d) ? flow::transport::automatic : flow::transport::lent};
}
/// Numbers: long enough that the host's part in it does not matter, and many packets for each core.
std::size_t packet_of(device_ref d) {
  return on_gpu(d) ? 4U << 20U : 1U << 20U;
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

/// What it keeps of a packet it sends from a buffer of its link.
void work_on_gpu(device_ref on, flow::link in, flow::link out) {
  stream s(on);
  const buffer<std::uint64_t> zero(on, 1);
  const buffer<std::uint64_t> kept(on, 1);
  const buffer<std::uint64_t> told(on, 1, memory_kind::pinned);
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    got.wait(s);
    auto* const into = reinterpret_cast<int*>(out.send_buffer(s).data());
    s.copy(kept.data(), zero.data(), sizeof(std::uint64_t));
    launch(s, {.blocks = 264, .threads = 512}, filter{}, static_cast<const int*>(got.data()),
           got.as<int>().size(), into, kept.data());
    in.release(got, s);
    s.copy(told.data(), kept.data(), sizeof(std::uint64_t));
    s.sync();  // the host has to know how much to send
    (void)out.send({into, *told.data() * sizeof(int)});
  }
  out.shutdown();
}

/// What it keeps of a packet has a place in the output, as each thread's part has beside it, and is
/// lent from there.
void work_on_cpu(flow::link in, flow::link out, std::span<int> output) {
  stream s;
  const buffer<std::uint64_t> kept(s.device(), 1);
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    got.wait(s);
    int* const into = output.data() + got.offset() / sizeof(int);
    launch(s, {}, filter{}, static_cast<const int*>(got.data()), got.as<int>().size(), into,
           kept.data());
    s.sync();  // the host has to know how much to send
    in.release(got);
    (void)out.send({into, *kept.data() * sizeof(int)});
  }
  out.shutdown();
}

/// What was kept: how many, and, where somebody looks at them, which.
struct kept_numbers {
  std::size_t count = 0;
  std::vector<std::span<const int>> pieces;
};
/// In any order.
std::uint64_t checksum(const std::vector<std::span<const int>>& pieces) {
  std::uint64_t sum = 0;
  for (const auto piece : pieces) {
    for (const int x : piece) {
      const auto n = static_cast<std::uint64_t>(x);
      sum += n * n + 1;
    }
  }
  return sum;
}

/// On a GPU what comes is copied to `output`, unless that is empty; on a CPU it is there already.
kept_numbers by_dataflow(const setup& s, int workers, const buffer<int>& input,
                         std::vector<int>& output) {
  flow::context ctx(std::vector<device_ref>(static_cast<std::size_t>(workers), s.device));
  const auto deal = ctx.router(1, workers, flow::any_available());
  const auto gather = ctx.router(workers, 1, flow::any_available());
  const std::size_t bytes = packet_of(s.device) * sizeof(int);
  flow::link source = ctx.link(flow::host, deal, bytes, 1);
  const flow::link_options way = way_on(s.device);
  flow::link sink = ctx.link(gather, flow::host, bytes, 4, way);
  std::vector<std::thread> threads;
  for (const auto d : ctx.devices()) {
    threads.emplace_back([&ctx, &output, on = s.device, in = ctx.link(deal, d, bytes, 2, way),
                          out = ctx.link(d, gather, bytes, 2)] {
      try {
        if (on_gpu(on)) {
          work_on_gpu(on, in, out);
        } else {
          work_on_cpu(in, out, output);
        }
      } catch (const std::exception& e) {
        ctx.abort(e.what());
      }
    });
  }
  kept_numbers kept;
  std::exception_ptr failed;
  try {
    (void)source.send({input.data(), input.size() * sizeof(int)});
    source.shutdown();
    for (;;) {
      const auto got = sink.receive().get();
      if (got.empty()) break;
      got.sync();
      const auto values = got.as<int>();
      // What was kept is in the host's memory now.
      if (!on_gpu(s.device)) {
        kept.pieces.push_back(values);
      } else if (!output.empty()) {
        const auto into = std::span(output).subspan(kept.count, values.size());
        std::copy(values.begin(), values.end(), into.begin());
        kept.pieces.push_back(into);
      }
      kept.count += values.size();
      sink.release(got);
    }
  } catch (const error& e) {
    failed = std::current_exception();
    ctx.abort(e.what());
  }
  for (auto& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
  return kept;
}

/// As many as there are, but they only come over the bus.
kept_numbers by_one_copy(const setup& s, const buffer<int>& input, const buffer<int>& there) {
  stream on(s.device);
  on.copy(there.data(), input.data(), input.size() * sizeof(int));
  on.sync();
  return {(input.size() + 2) / 3, {}};
}

/// Each thread has a part of the input, and as much room in the output.
kept_numbers by_threads(int threads, const buffer<int>& input, std::vector<int>& output) {
  std::vector<std::thread> all;
  const std::size_t each =
      (input.size() + static_cast<std::size_t>(threads) - 1) / static_cast<std::size_t>(threads);
  kept_numbers kept{0, std::vector<std::span<const int>>((input.size() + each - 1) / each)};
  for (std::size_t i = 0; i < kept.pieces.size(); ++i) {
    all.emplace_back([&, i] {
      const std::size_t begin = i * each;
      const std::size_t end = std::min(input.size(), begin + each);
      int* const into = output.data() + begin;
      const int* const last =
          std::copy_if(input.data() + begin, input.data() + end, into, is_kept{});
      kept.pieces[i] = {into, static_cast<std::size_t>(last - into)};
    });
  }
  for (auto& t : all) t.join();
  for (const auto piece : kept.pieces) kept.count += piece.size();
  return kept;
}

/// The right ones, and all of them.
void check_kept(const kept_numbers& kept, const buffer<int>& input) {
  const std::size_t expected = (input.size() + 2) / 3;
  if (kept.count != expected) {
    throw error(errc::system, "bench flow",
                "the filter kept " + std::to_string(kept.count) + " numbers, not " +
                    std::to_string(expected));
  }
  if (kept.pieces.empty()) return;
  std::uint64_t sum = 0;
  for (std::uint64_t n = 0; n < input.size(); n += 3) sum += n * n + 1;
  if (checksum(kept.pieces) != sum) {
    throw error(errc::system, "bench flow", "the filter kept the wrong numbers");
  }
}

}  // namespace

row bench_flow_filter(const setup& s) {
  const std::size_t count = (s.quick ? 8U : 256U) << 20U;
  const bool gpu = on_gpu(s.device);
  const int workers = gpu ? 2 : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const buffer<int> input(s.device, count, memory_kind::pinned);
  std::iota(input.data(), input.data() + count, 0);
  std::vector<int> output(gpu ? count / 3 + 1 : count);
  const buffer<int> there(s.device, gpu ? count : 1);
  samples rate;
  samples bound;
  const auto measure = [&](samples& to, const auto& run) {
    const auto begin = steady_clock::now();
    const kept_numbers kept = run();
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    check_kept(kept, input);
    to.add(static_cast<double>(count) / took.count() * 1e-6);
  };
  if (gpu) {  // once with a look at what came; that takes longer than all else
    check_kept(by_dataflow(s, workers, input, output), input);
    output.clear();
  }
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
  r.path = gpu ? "two routers, any-available" : "two routers, any-available, lent packets";
  r.unit = "M/s";
  r.bytes = packet_of(s.device) * sizeof(int);
  rate.fill(r);
  r.limit = bound.median();
  return r;
}

}  // namespace crosswarp::bench
