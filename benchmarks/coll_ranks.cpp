// Benchmarks of collectives: what kernels see, and what a host that queues them sees.
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "crosswarp/coll.hpp"
#include "crosswarp/world_launch.hpp"
#include "rank_benchmarks.hpp"
#include "tune.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;

/// One all_reduce after the other, each block on its part. Nanoseconds of each to `out`.
struct all_reduces {
  static constexpr int max_threads = 512;
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all,
                        const dev::symmetric<float>& data, std::size_t count, bool direct,
                        int rounds, double* out, status* outcome) const {
    const dev::coll with = all.channel(k.block_index());
    const dev::sharing<float> shared(count, k.block_count());
    float* const mine = data.local() + shared.begin(k.block_index());
    const std::size_t size = shared.size(k.block_index());
    const dev::share which{k.block_index(), k.block_count()};
    const auto g = k.block();
    const std::uint64_t begin = dev::now_ns();
    status s = status::ok;
    for (int i = 0; i < rounds && s == status::ok; ++i) {
      s = direct ? with.all_reduce(g, data, data, count, dev::coll_ops::sum{}, which)
                 : with.all_reduce(g, mine, mine, size);
    }
    if (k.block_index() != 0 || k.thread_index() != 0) return;
    *out = static_cast<double>(dev::now_ns() - begin) / rounds;
    *outcome = s;
  }
};

int rounds_for(std::size_t bytes) {
  if (bytes <= 4096) return 500;
  return bytes <= 1U << 20U ? 50 : 3;
}

row coll_row(const world& w, const char* what, std::size_t bytes) {
  row r = base_row(w, what);
  r.bench = "coll";
  r.bytes = bytes;
  r.unit = "us";
  return r;
}

/// The barest that ranks can do which share cores: each writes a word, and gives its core away
/// until all others have. So it is what the system's turns cost, whatever is sent.
class bare_meetings {
 public:
  explicit bare_meetings(world& w) : w_(w), words_(w, dev::line_bytes / sizeof(std::uint64_t)) {}

  /// Whether there is such a thing: processors that see each other's memory.
  [[nodiscard]] bool possible() const {
    bool all = !on_gpu(w_);
    for (int pe = 0; pe < w_.size(); ++pe) all = all && words_.device().find(pe) != nullptr;
    return all;
  }
  /// Microseconds of each of `rounds`.
  double take(int rounds) {
    const dev::symmetric<std::uint64_t> words = words_.device();
    w_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
      ++step_;
      std::atomic_ref(*words.local()).store(step_, std::memory_order_release);
      for (int pe = 0; pe < w_.size(); ++pe) {
        while (std::atomic_ref(*words.at(pe)).load(std::memory_order_acquire) < step_) {
          std::this_thread::yield();
        }
      }
    }
    const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
    return t.count() / rounds;
  }

 private:
  world& w_;
  symmetric_buffer<std::uint64_t> words_;
  std::uint64_t step_ = 0;
};

row in_kernel(world& w, const setup& s, const coll& all, const symmetric_buffer<float>& data,
              std::size_t bytes, bare_meetings& bare) {
  const int rounds = rounds_for(bytes);
  const int most = std::min(all.device().channels(), on_gpu(w) ? 128 / w.size() : 1);
  const launch_shape shape{
      .blocks = std::clamp(static_cast<int>(bytes / (8U << 10U)), 1, std::max(1, most)),
      .threads = on_gpu(w) ? 512 : 1};
  buffer<double> took(w.options().device, 1);
  buffer<status> outcome(w.options().device, 1);
  samples all_samples;
  samples limit;
  const bool is_small = bytes <= 2048 && bare.possible();
  for (int i = 0; i < (s.quick ? 3 : 11); ++i) {
    if (is_small) limit.add(bare.take(rounds));
    w.barrier();
    launch(w, shape, all_reduces{}, all.device(), data.device(), bytes / sizeof(float),
           bytes > 16U << 10U, rounds, took.data(), outcome.data());
    w.stream().sync();
    if (outcome.read().front() != status::ok) {
      throw error(errc::system, "bench coll", to_string(outcome.read().front()));
    }
    all_samples.add(took.read().front() * 1e-3);
  }
  row r = coll_row(w,
                   is_small ? "all_reduce of floats in a kernel (limit: bare meeting)"
                            : "all_reduce of floats in a kernel",
                   bytes);
  all_samples.fill(r);
  if (is_small) r.limit = limit.median();
  return r;
}

/// Microseconds of a call that is queued behind others.
samples queued(world& w, const setup& s, coll& all, const symmetric_buffer<float>& data,
               std::size_t bytes) {
  const int rounds = rounds_for(bytes);
  samples took;
  for (int i = 0; i < (s.quick ? 3 : 11); ++i) {
    w.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < rounds; ++k) {
      all.all_reduce(data.data(), static_cast<const float*>(data.data()), bytes / sizeof(float));
    }
    all.check();
    const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
    took.add(t.count() / rounds);
  }
  return took;
}

row on_stream(world& w, const setup& s, coll& all, const symmetric_buffer<float>& data,
              std::size_t bytes) {
  row r = coll_row(w, "all_reduce of floats on a stream", bytes);
  queued(w, s, all, data, bytes).fill(r);
  return r;
}

/// Microseconds of a call as models make it: 50 are recorded, and replayed.
samples recorded(world& w, const setup& s, coll& all, std::size_t bytes,
                 const std::function<void()>& call) {
  constexpr int calls = 50;
  const int replays = bytes <= 1U << 20U ? 20 : 4;
  recording fifty(w.stream(), [&] {
    for (int i = 0; i < calls; ++i) call();
  });
  samples took;
  for (int i = 0; i < (s.quick ? 3 : 11); ++i) {
    w.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < replays; ++k) fifty.replay(w.stream());
    all.check();
    const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
    took.add(t.count() / (calls * replays));
  }
  return took;
}

/// To copy what all ranks have, once; one rank does while the others wait.
std::optional<double> copy_limit(world& w, std::size_t bytes) {
  const std::size_t all_bytes = bytes * static_cast<std::size_t>(w.size());
  std::optional<double> limit;
  if (bytes >= 1U << 20U && w.rank() == 0) {
    const buffer<std::byte> a(w.options().device, all_bytes);
    const buffer<std::byte> b(w.options().device, all_bytes);
    const double rate =
        copy_rate(w, all_bytes, 20, [&] { w.stream().copy(a.data(), b.data(), all_bytes); });
    limit = static_cast<double>(all_bytes) / rate * 1e-3;
  }
  w.barrier();
  return limit;
}

/// What the recorded calls work on: rows of 4096 elements, where there is one.
class recorded_calls {
 public:
  recorded_calls(world& w, const setup& s)
      : w_(w), s_(s), all_(w), in_(w, count(s)), out_(w, count(s)), other_(w, count(s)) {}

  void add_rows(std::vector<row>& rows, std::size_t bytes) {
    const samples plain = recorded(w_, s_, all_, bytes, [&] {
      all_.all_reduce(out_.data(), static_cast<const number*>(in_.data()), bytes / sizeof(number));
    });
    rows.push_back(coll_row(w_, "all_reduce of bf16, recorded (limit: a copy)", bytes));
    plain.fill(rows.back());
    rows.back().limit = copy_limit(w_, bytes);
    if (bytes % (hidden * sizeof(number)) != 0) return;
    const auto add = [&](const char* what, const std::function<void()>& call) {
      const samples took = recorded(w_, s_, all_, bytes, call);
      rows.push_back(coll_row(w_, what, bytes));
      took.fill(rows.back());
      rows.back().limit = plain.median();
    };
    const std::size_t count = bytes / sizeof(number) / hidden;
    add("the same with residual and RMSNorm (limit: without)", [&] {
      all_.all_reduce_rms_norm<number>({.out = out_.data(),
                                        .residual_out = other_.data(),
                                        .in = in_.data(),
                                        .residual = other_.data(),
                                        .weight = other_.data(),
                                        .rows = count,
                                        .hidden = hidden});
    });
    add("the same quantised to FP8, a scale for each row (limit: without)", [&] {
      all_.all_reduce_quantise<number, device::fp8_e4m3>(
          {.out = reinterpret_cast<device::fp8_e4m3*>(other_.data()),
           .sum = out_.data(),
           .in = in_.data(),
           .scales = reinterpret_cast<float*>(other_.data() + bytes / sizeof(number) / 2),
           .rows = count,
           .hidden = hidden});
    });
  }

 private:
  using number = device::bfloat16;
  static constexpr std::size_t hidden = 4096;
  static std::size_t count(const setup& s) { return s.bytes_to / sizeof(number); }

  world& w_;
  const setup& s_;
  coll all_;
  symmetric_buffer<number> in_;
  symmetric_buffer<number> out_;
  symmetric_buffer<number> other_;
};

std::vector<row> recorded_rows(world& w, const setup& s) {
  std::vector<row> rows;
  recorded_calls calls(w, s);
  for (const std::size_t bytes : sizes_of(s)) calls.add_rows(rows, bytes);
  return rows;
}

std::vector<row> all_reduce_rows(world& w, const setup& s) {
  std::vector<row> rows;
  coll all(w);
  const symmetric_buffer<float> data(w, s.bytes_to / sizeof(float));
  bare_meetings bare(w);
  for (const std::size_t bytes : sizes_of(s)) {
    rows.push_back(in_kernel(w, s, all, data, bytes, bare));
    rows.push_back(on_stream(w, s, all, data, bytes));
  }
  return rows;
}

// ---- for crosswarp tune

/// Rules by which one algorithm is taken for all sizes that it has room for.
coll_tuning only(coll_algorithm how, std::size_t block) {
  constexpr std::size_t any = std::size_t{1} << 40U;
  if (how == coll_algorithm::push) return {.push = any};
  if (how == coll_algorithm::pull) return {.pull = any, .block = block};
  return {.long_block = block};
}

/// A rank of a CPU has one block, and a block that pushes as much as it has room for.
std::vector<std::size_t> blocks_to_try(const world& w, coll_algorithm how) {
  const coll_tuning usual;
  if (!on_gpu(w) || how == coll_algorithm::push) {
    return {how == coll_algorithm::two_shot ? usual.long_block : usual.block};
  }
  if (how == coll_algorithm::pull) return {4U << 10U, 8U << 10U, 16U << 10U};
  return {8U << 10U, 16U << 10U, 32U << 10U, 64U << 10U};
}

/// A row for each algorithm, size of blocks, and size; on a GPU recorded, as models have it.
std::vector<row> tune_rows(world& w, const setup& s) {
  std::vector<row> rows;
  const symmetric_buffer<float> data(w, s.bytes_to / sizeof(float));
  for (const auto how : {coll_algorithm::push, coll_algorithm::pull, coll_algorithm::two_shot}) {
    for (const std::size_t block : blocks_to_try(w, how)) {
      coll all(w, {.tuning = only(how, block)});
      (void)queued(w, s, all, data, s.bytes_from);  // what is made at the first calls is made
      for (std::size_t bytes = s.bytes_from; bytes <= s.bytes_to; bytes *= 2) {
        if (all.explain(data.data(), data.data(), bytes).algorithm != how) break;
        const auto call = [&] {
          all.all_reduce(data.data(), static_cast<const float*>(data.data()),
                         bytes / sizeof(float));
        };
        const samples took =
            on_gpu(w) ? recorded(w, s, all, bytes, call) : queued(w, s, all, data, bytes);
        rows.push_back(coll_row(w, series_of(how, block).c_str(), bytes));
        took.fill(rows.back());
      }
    }
  }
  return rows;
}

/// Queues one of the others, of floats, by rank 0 where there is a root; `bytes` of the longer of
/// input and result. False when there is none of that name.
bool queue(coll& all, const std::string& op, float* out, const float* in, std::size_t bytes) {
  const std::size_t part = bytes / sizeof(float) / static_cast<std::size_t>(all.size());
  const std::size_t part_bytes = part * sizeof(float);
  if (op == "reduce") {
    all.reduce(out, in, bytes / sizeof(float), data_type::f32, coll_op::sum, 0);
  } else if (op == "reduce_scatter") {
    all.reduce_scatter(out, in, part, data_type::f32, coll_op::sum);
  } else if (op == "all_gather") {
    all.all_gather(out, in, part_bytes);
  } else if (op == "broadcast") {
    all.broadcast(out, bytes, 0);
  } else if (op == "gather") {
    all.gather(out, in, part_bytes, 0);
  } else if (op == "scatter") {
    all.scatter(out, in, part_bytes, 0);
  } else if (op == "all_to_all") {
    all.all_to_all(out, in, part_bytes);
  } else {
    return false;
  }
  return true;
}

std::vector<row> rows_of(const std::string& op, world& w, const setup& s) {
  std::vector<row> rows;
  coll all(w);
  const buffer<float> in(w.options().device, s.bytes_to / sizeof(float));
  const buffer<float> out(w.options().device, s.bytes_to / sizeof(float));
  for (const std::size_t bytes : sizes_of(s)) {
    const int rounds = rounds_for(bytes);
    samples took;
    for (int i = 0; i < (s.quick ? 3 : 11); ++i) {
      w.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < rounds; ++k) {
        if (!queue(all, op, out.data(), in.data(), bytes)) {
          throw error(errc::invalid_argument, "--op", "bench coll has no " + op);
        }
      }
      all.check();
      const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
      took.add(t.count() / rounds);
    }
    rows.push_back(coll_row(w, (op + " of floats on a stream").c_str(), bytes));
    took.fill(rows.back());
  }
  return rows;
}

}  // namespace

rank_benchmark find_coll_benchmark(const std::string& name) {
  if (name == "coll-all_reduce") return all_reduce_rows;
  if (name == "coll-recorded") return recorded_rows;
  if (name == "coll-tune") return tune_rows;
  if (name.starts_with("coll-")) {
    return [op = name.substr(5)](world& w, const setup& s) { return rows_of(op, w, s); };
  }
  return nullptr;
}

}  // namespace crosswarp::bench
