// The seed's filter as a benchmark: numbers are dealt out in packets to devices, and what these
// keep is gathered. Beside it the same without any communication: on a CPU std::copy_if by one
// thread for each core; on a GPU the way of the host's numbers over the bus, in one copy, and for
// numbers that are on the GPU a copy there of as many bytes as have to be read and written.
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
/// Where the numbers are, and how they come to those who filter them.
struct course {
  device_ref on;
  /// All ends share memory: packets are lent, and what is kept of one has a place in the output.
  /// Else the host's numbers are copied to the device, and those that are kept back.
  bool in_place;

  [[nodiscard]] int workers() const {
    if (on_gpu(on)) return in_place ? 3 : 2;
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  /// Numbers: long enough that the host's part in it does not matter, and many packets for each
  /// worker.
  [[nodiscard]] std::size_t packet() const {
    if (on_gpu(on)) return in_place ? 16U << 20U : 4U << 20U;
    return 1U << 20U;
  }
  [[nodiscard]] flow::link_options way() const {
    return {.how = in_place ? flow::transport::lent : flow::transport::automatic};
  }
  /// Who has the numbers, and gets what is kept.
  [[nodiscard]] flow::endpoint home(const flow::context& ctx) const {
    return in_place && on_gpu(on) ? ctx.devices()[0] : flow::host;
  }
};

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
    const auto step = static_cast<std::size_t>(ctx.grid().size()) * each;
    const auto first = static_cast<std::size_t>(ctx.grid().rank() - warp.rank()) * each;
    for (std::size_t i = first; i < n; i += step) by_warp(warp, in + i, n - i, out, kept);
  }

 private:
  static constexpr int tile = device::tile_size<int>();
  /// Numbers that a thread takes at a time: a warp asks for a place once for all of its.
  static constexpr int each = tile < 32 ? 32 : tile;

  /// Of at most `each` numbers for each thread of the warp.
  CW_FN static void by_warp(const device::warp_group& warp, const int* in, std::size_t n, int* out,
                            std::uint64_t* kept) noexcept {
    int held[each];
    std::uint32_t keep[each];  // which threads keep their number
    load(warp, held, in, n);
    int count = 0;
    CW_UNROLLED
    for (int k = 0; k < each; ++k) {
      keep[k] = warp.ballot(place_of(warp, k) < n && is_kept{}(held[k]));
      count += device::count_bits(keep[k]);
    }
    std::uint64_t place = device::leader_of(warp, [&] {
      // Relaxed: the stream's order makes it visible to who waits for the kernel.
      return device::device_atomic<std::uint64_t>(*kept).fetch_add(
          static_cast<std::uint64_t>(count), device::order::relaxed);
    });
    const std::uint32_t mine = 1U << static_cast<unsigned>(warp.rank());
    CW_UNROLLED
    for (int k = 0; k < each; ++k) {
      if ((keep[k] & mine) != 0) {
        out[place + static_cast<std::uint64_t>(device::count_bits(keep[k] & (mine - 1)))] = held[k];
      }
      place += static_cast<std::uint64_t>(device::count_bits(keep[k]));
    }
  }
  /// Where the thread's number `k` lies: threads have tiles in turn, side by side.
  CW_FN static std::size_t place_of(const device::warp_group& warp, int k) noexcept {
    return static_cast<std::size_t>((k / tile * warp.size() + warp.rank()) * tile + k % tile);
  }
  CW_FN static void load(const device::warp_group& warp, int (&held)[each], const int* in,
                         std::size_t n) noexcept {
    const bool whole = n >= static_cast<std::size_t>(each * warp.size()) && device::takes_tiles(in);
    CW_UNROLLED
    for (int k = 0; k < each; k += tile) {
      if (whole) {
        device::load_tile(held + k, in + place_of(warp, k));
        continue;
      }
      for (int j = k; j < k + tile; ++j)
        held[j] = place_of(warp, j) < n ? in[place_of(warp, j)] : 0;
    }
  }
};

/// Filters on a stream, and tells the host how many were kept: it has to know how much to send.
class filtering {
 public:
  explicit filtering(device_ref on)
      : on_(on), zero_(on, 1), kept_(on, 1), told_(on, 1, memory_kind::pinned) {}
  [[nodiscard]] stream& on() noexcept { return on_; }
  /// Returns when the stream is done.
  std::size_t run(std::span<const int> in, int* out, const std::function<void()>& queued = {}) {
    const bool gpu = on_gpu(on_.device());
    if (gpu) on_.copy(kept_.data(), zero_.data(), sizeof(std::uint64_t));
    const launch_shape shape = gpu ? launch_shape{.blocks = 264, .threads = 512} : launch_shape{};
    launch(on_, shape, filter{}, in.data(), in.size(), out, kept_.data());
    if (queued) queued();
    on_.copy(told_.data(), kept_.data(), sizeof(std::uint64_t));
    on_.sync();
    return *told_.data();
  }

 private:
  stream on_;
  buffer<std::uint64_t> zero_;
  buffer<std::uint64_t> kept_;
  buffer<std::uint64_t> told_;
};

/// What it keeps of a packet it sends from a buffer of its link.
void work_on_copies(filtering& f, flow::link in, flow::link out) {
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    got.wait(f.on());
    auto* const into = reinterpret_cast<int*>(out.send_buffer(f.on()).data());
    const std::size_t kept = f.run(got.as<const int>(), into, [&] { in.release(got, f.on()); });
    (void)out.send({into, kept * sizeof(int)});
  }
  out.shutdown();
}

/// What it keeps of a packet has a place in the output, as each thread's part has beside it, and is
/// lent from there.
void work_in_place(filtering& f, flow::link in, flow::link out, std::span<int> output) {
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    got.wait(f.on());
    int* const into = output.data() + got.offset() / sizeof(int);
    const std::size_t kept = f.run(got.as<const int>(), into);
    in.release(got);
    (void)out.send({into, kept * sizeof(int)});
  }
  out.shutdown();
}

/// What was kept: how many, and, where somebody looks at them, which.
struct kept_numbers {
  std::size_t count = 0;
  std::vector<std::span<const int>> pieces;
  double seconds = 0;  ///< without what is made before and kept for the next numbers
};
double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}
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

/// What comes by copies is copied to `output`, unless that is empty; else it is there already.
kept_numbers gathered(const course& c, flow::link sink, std::span<int> output) {
  kept_numbers kept;
  for (;;) {
    const auto got = sink.receive().get();
    if (got.empty()) return kept;
    got.sync();
    const auto values = got.as<int>();
    if (c.in_place) {
      kept.pieces.push_back(values);
    } else if (!output.empty()) {
      const auto into = output.subspan(kept.count, values.size());
      std::copy(values.begin(), values.end(), into.begin());
      kept.pieces.push_back(into);
    }
    kept.count += values.size();
    sink.release(got);
  }
}

kept_numbers by_dataflow(const course& c, std::span<const int> input, std::span<int> output) {
  flow::context ctx(std::vector<device_ref>(static_cast<std::size_t>(c.workers()), c.on));
  const auto deal = ctx.router(1, c.workers(), flow::any_available());
  const auto gather = ctx.router(c.workers(), 1, flow::any_available());
  const std::size_t bytes = c.packet() * sizeof(int);
  flow::link source = ctx.link(c.home(ctx), deal, bytes, 1);
  flow::link sink = ctx.link(gather, c.home(ctx), bytes, 4, c.way());
  std::vector<flow::link> in;
  std::vector<flow::link> out;
  std::vector<filtering> filters;
  for (const auto d : ctx.devices()) {
    in.push_back(ctx.link(deal, d, bytes, 2, c.way()));
    out.push_back(ctx.link(d, gather, bytes, 2));
    filters.emplace_back(c.on);
  }
  const auto work = [&](std::size_t w) {
    try {
      if (c.in_place) {
        work_in_place(filters[w], in[w], out[w], output);
      } else {
        work_on_copies(filters[w], in[w], out[w]);
      }
    } catch (const std::exception& e) {
      ctx.abort(e.what());
    }
  };
  kept_numbers kept;
  std::vector<std::thread> threads;
  std::exception_ptr failed;
  try {
    for (std::size_t w = 0; w < filters.size(); ++w) threads.emplace_back(work, w);
    const auto begin = steady_clock::now();
    (void)source.send({input.data(), input.size_bytes()});
    source.shutdown();
    kept = gathered(c, sink, output);
    kept.seconds = seconds_since(begin);
  } catch (const std::exception& e) {
    failed = std::current_exception();
    ctx.abort(e.what());
  }
  for (auto& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
  return kept;
}

/// As many as there are, but they only come over the bus.
kept_numbers by_one_copy(device_ref d, std::span<const int> input, std::span<int> there) {
  stream on(d);
  const auto begin = steady_clock::now();
  on.copy(there.data(), input.data(), input.size_bytes());
  on.sync();
  return {(input.size() + 2) / 3, {}, seconds_since(begin)};
}
/// On a GPU alone: as many bytes as are read and written, by one copy of half as many.
kept_numbers by_copy_there(device_ref d, std::span<const int> input, std::span<int> there) {
  const std::size_t kept = (input.size() + 2) / 3;
  const double took = by_one_copy(d, input.first((input.size() + kept) / 2), there).seconds;
  return {kept, {}, took};
}

/// Each thread has a part of the input, and as much room in the output.
kept_numbers by_threads(int threads, std::span<const int> input, std::span<int> output) {
  const auto start = steady_clock::now();
  std::vector<std::thread> all;
  const std::size_t each =
      (input.size() + static_cast<std::size_t>(threads) - 1) / static_cast<std::size_t>(threads);
  kept_numbers kept;
  kept.pieces.resize((input.size() + each - 1) / each);
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
  kept.seconds = seconds_since(start);
  for (const auto piece : kept.pieces) kept.count += piece.size();
  return kept;
}

/// The right ones of so many numbers, and all of them.
void check_kept(const kept_numbers& kept, std::size_t numbers) {
  const std::size_t expected = (numbers + 2) / 3;
  if (kept.count != expected) {
    throw error(errc::system, "bench flow",
                "the filter kept " + std::to_string(kept.count) + " numbers, not " +
                    std::to_string(expected));
  }
  if (kept.pieces.empty()) return;
  std::uint64_t sum = 0;
  for (std::uint64_t n = 0; n < numbers; n += 3) sum += n * n + 1;
  if (checksum(kept.pieces) != sum) {
    throw error(errc::system, "bench flow", "the filter kept the wrong numbers");
  }
}

/// Of the dataflow, with that of `beside` as its limit, in turn.
row measured(const setup& s, const course& c, std::size_t numbers,
             const std::function<kept_numbers()>& run,
             const std::function<kept_numbers()>& beside) {
  samples rate;
  samples bound;
  const auto measure = [&](samples& to, const std::function<kept_numbers()>& what) {
    const kept_numbers kept = what();
    check_kept(kept, numbers);
    to.add(static_cast<double>(numbers) / kept.seconds * 1e-6);
  };
  for (int i = 0; i < (s.quick ? 3 : 7); ++i) {
    measure(rate, run);
    measure(bound, beside);
  }
  row r;
  r.bench = "flow";
  r.ranks = c.workers();
  r.device = c.on.name();
  r.path = std::string("two routers, any-available") + (c.in_place ? ", lent packets" : "");
  r.unit = "M/s";
  r.bytes = c.packet() * sizeof(int);
  rate.fill(r);
  r.limit = bound.median();
  return r;
}

std::size_t numbers_for(const setup& s) {
  return (s.quick ? 8U : 256U) << 20U;
}
std::string filter_of(std::size_t numbers, const std::string& limit) {
  return "filter of " + std::to_string(numbers >> 20U) + " Mi numbers" + limit;
}
std::vector<int> all_numbers(std::size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}
std::span<int> span_of(const buffer<int>& b) {
  return {b.data(), b.size()};
}

row on_cpu(const setup& s) {
  const course c{s.device, true};
  std::vector<int> input = all_numbers(numbers_for(s));
  std::vector<int> output(input.size());
  row r = measured(
      s, c, input.size(), [&] { return by_dataflow(c, input, output); },
      [&] { return by_threads(c.workers(), input, output); });
  r.what =
      filter_of(input.size(), " (limit: copy_if by " + std::to_string(c.workers()) + " threads)");
  return r;
}

row over_the_bus(const setup& s) {
  const course c{s.device, false};
  const std::size_t count = numbers_for(s);
  const buffer<int> input(s.device, count, memory_kind::pinned);
  std::iota(input.data(), input.data() + count, 0);
  const buffer<int> there(s.device, count);
  std::vector<int> output(count / 3 + 1);
  // Once with a look at what came; that takes longer than all else.
  check_kept(by_dataflow(c, span_of(input), output), count);
  row r = measured(
      s, c, count, [&] { return by_dataflow(c, span_of(input), {}); },
      [&] { return by_one_copy(c.on, span_of(input), span_of(there)); });
  r.what = filter_of(count, " (limit: their way over the bus)");
  return r;
}

/// What lies on a GPU, in the host's memory; `kept` refers to that then.
void fetch(device_ref d, kept_numbers& kept, std::vector<int>& into) {
  stream on(d);
  std::size_t at = 0;
  for (auto& piece : kept.pieces) {
    const auto there = std::span(into).subspan(at, piece.size());
    on.copy(there.data(), piece.data(), piece.size_bytes());
    piece = there;
    at += there.size();
  }
  on.sync();
}

row on_the_gpu(const setup& s) {
  const course c{s.device, true};
  const std::size_t count = numbers_for(s);
  const buffer<int> input(s.device, all_numbers(count));
  const buffer<int> output(s.device, count);
  kept_numbers once = by_dataflow(c, span_of(input), span_of(output));
  std::vector<int> looked_at(once.count);
  fetch(s.device, once, looked_at);
  check_kept(once, count);
  row r = measured(
      s, c, count,
      [&] {
        auto kept = by_dataflow(c, span_of(input), span_of(output));
        kept.pieces.clear();  // the host cannot look at them
        return kept;
      },
      [&] { return by_copy_there(c.on, span_of(input), span_of(output)); });
  r.what = filter_of(count, " on the GPU (limit: a copy of as many bytes)");
  return r;
}

}  // namespace

std::vector<row> bench_flow_filter(const setup& s) {
  if (!on_gpu(s.device)) return {on_cpu(s)};
  return {over_the_bus(s), on_the_gpu(s)};
}

}  // namespace crosswarp::bench
