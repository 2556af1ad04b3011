// Sums that go on, against a reference in double, and against themselves: the same bits on all
// ranks, alone and in a batch, by threads, warps and blocks.
#include "crosswarp/device/coll_fused.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <thread>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"
#include "support/coll_worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::coll_algorithm;
using cw::status;

namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
std::vector<T> read_from(cw::world& w, const T* from, std::size_t count) {
  std::vector<T> all(count);
  cw::exec::copy_now(w.options().device, all.data(), from, count * sizeof(T));
  return all;
}

/// Numbers like activations: other ones on each rank, a few far out.
template <class T>
std::vector<T> values(int rank, std::size_t count, unsigned seed, double scale = 1) {
  std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
  std::normal_distribution<double> normal;
  std::vector<T> v(count);
  for (T& x : v) {
    const double far = random() % 50 == 0 ? 20 : 1;
    x = dev::narrow<T>(static_cast<float>(normal(random) * far * scale));
  }
  return v;
}

/// The sum as all_reduce gives it: in the order of ranks, rounded once.
template <class T>
std::vector<T> summed(int ranks, std::size_t count, unsigned seed, double scale = 1) {
  std::vector<float> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const auto in = values<T>(r, count, seed, scale);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = r == 0 ? dev::widen(in[i]) : sum[i] + dev::widen(in[i]);
    }
  }
  std::vector<T> out(count);
  std::transform(sum.begin(), sum.end(), out.begin(), [](float x) { return dev::narrow<T>(x); });
  return out;
}

/// What rounding to T may do to a number of this size, at most.
template <class T>
double rounding(double x) {
  if constexpr (std::is_same_v<T, dev::half>) {
    return std::max(std::abs(x) * 0x1p-11, 0x1p-25);
  } else if constexpr (std::is_same_v<T, dev::bfloat16>) {
    return std::abs(x) * 0x1p-8;
  } else if constexpr (std::is_same_v<T, dev::fp8_e4m3>) {
    return std::max(std::abs(x) * 0x1p-4, 0x1p-10);
  } else if constexpr (std::is_same_v<T, dev::fp8_e5m2>) {
    return std::max(std::abs(x) * 0x1p-3, 0x1p-17);
  } else {
    return std::abs(x) * 0x1p-24;
  }
}

// ---- kernels

enum class caller { thread, warp, block };

template <class F>
CW_FN status as(caller who, const dev::kernel_context& k, const F& f) {
  if (who == caller::block) return f(k.block());
  if (who == caller::warp) return k.warp().index() == 0 ? f(k.warp()) : status::ok;
  return k.thread_index() == 0 ? f(k.thread()) : status::ok;
}

/// Each block makes `each` of the rows, in its own channel.
template <class T>
struct norm_kernel {
  static constexpr int max_threads = 512;
  CW_FN void operator()(const dev::kernel_context& k, caller who, const dev::coll& all,
                        dev::rms_norm_rows<T> rows, std::size_t each, coll_algorithm how,
                        status* out) const {
    const std::size_t first = each * static_cast<std::size_t>(k.block_index());
    const std::size_t begin = first * rows.hidden;
    rows.rows = rows.rows - first < each ? rows.rows - first : each;
    rows.out += begin;
    rows.residual_out += begin;
    rows.in += begin;
    rows.residual += begin;
    const auto with = all.channel(k.block_index());
    const status s =
        as(who, k, [&](const auto& g) { return dev::all_reduce_rms_norm(g, with, rows, how); });
    if (k.thread_index() == 0) out[k.block_index()] = s;
  }
};

template <class T, class F>
struct quantise_kernel {
  CW_FN void operator()(const dev::kernel_context& k, caller who, const dev::coll& all,
                        const dev::quantise_rows<T, F>& rows, status* out) const {
    const status s =
        as(who, k, [&](const auto& g) { return dev::all_reduce_quantise(g, all, rows); });
    if (k.thread_index() == 0) *out = s;
  }
};

// ---- RMSNorm

constexpr int most_blocks = 4;

/// A rank's memory for rows of one length.
template <class T>
struct norm_setup {
  cw::world& w;
  std::size_t rows;
  std::size_t hidden;
  cw::coll all;
  cw::buffer<T> in{w.options().device, rows* hidden};
  cw::buffer<T> residual{w.options().device, rows* hidden};
  cw::buffer<T> out{w.options().device, rows* hidden};
  cw::buffer<T> residual_out{w.options().device, rows* hidden};
  cw::buffer<T> weight{w.options().device, hidden};
  cw::buffer<status> outcome{w.options().device, most_blocks};

  norm_setup(cw::world& world, std::size_t r, std::size_t h)
      : w(world), rows(r), hidden(h), all(world, {.channels = most_blocks, .shelf_bytes = 4096}) {
    in.write(values<T>(w.rank(), rows * hidden, 1));
    residual.write(values<T>(77, rows * hidden, 2));
    weight.write(values<T>(88, hidden, 3));
  }

  [[nodiscard]] dev::rms_norm_rows<T> call() {
    dev::rms_norm_rows<T> c;
    c.out = out.data();
    c.residual_out = residual_out.data();
    c.in = in.data();
    c.residual = residual.data();
    c.weight = weight.data();
    c.rows = rows;
    c.hidden = hidden;
    return c;
  }
  void clear() {
    out.write(std::vector<T>(rows * hidden));
    residual_out.write(std::vector<T>(rows * hidden));
    w.barrier();
  }
  void by_host(const dev::rms_norm_rows<T>& c) {
    w.barrier();
    all.all_reduce_rms_norm(c);
    all.check();
    w.barrier();
  }
  /// In kernels, `each` rows by a block.
  void by(caller who, int threads, std::size_t each, coll_algorithm how) {
    const auto blocks = static_cast<int>((rows + each - 1) / each);
    cw::launch(w.stream(), {.blocks = blocks, .threads = threads}, norm_kernel<T>{}, who,
               all.device(), call(), each, how, outcome.data());
    w.stream().sync();
    w.barrier();
    auto s = outcome.read();
    s.resize(static_cast<std::size_t>(blocks));
    EXPECT_EQ(s, std::vector<status>(s.size(), status::ok));
  }
};

/// Each step's rounding in float, and one to T. Lanes and halves: the sum of squares is off by
/// less than 3 + 9 + hidden / 4096 + 1 roundings, and half of that comes through the root.
template <class T>
void expect_normalised(norm_setup<T>& t) {
  const auto sum = summed<T>(t.w.size(), t.rows * t.hidden, 1);
  const auto residual = values<T>(77, t.rows * t.hidden, 2);
  const auto weight = values<T>(88, t.hidden, 3);
  const auto out = t.out.read();
  const auto residual_out = t.residual_out.read();
  const double in_float = 0x1p-24 * (12 + static_cast<double>(t.hidden) / 4096);
  for (std::size_t row = 0; row < t.rows; ++row) {
    const std::size_t begin = row * t.hidden;
    const auto x = [&](std::size_t i) {
      return static_cast<double>(dev::widen(sum[begin + i])) +
             static_cast<double>(dev::widen(residual[begin + i]));
    };
    double squares = 0;
    for (std::size_t i = 0; i < t.hidden; ++i) squares += x(i) * x(i);
    const double root = std::sqrt(squares / static_cast<double>(t.hidden) + 1e-6);
    for (std::size_t i = 0; i < t.hidden; ++i) {
      const float rounded = dev::widen(sum[begin + i]) + dev::widen(residual[begin + i]);
      ASSERT_EQ(dev::widen(residual_out[begin + i]), dev::widen(dev::narrow<T>(rounded)));
      const double want = x(i) / root * static_cast<double>(dev::widen(weight[i]));
      const double got = dev::widen(out[begin + i]);
      ASSERT_LE(std::abs(got - want),
                rounding<T>(want) * (1 + 0x1p-10) + std::abs(want) * in_float + 1e-44)
          << "row " << row << ", element " << i << " of " << t.hidden << ": " << got << " for "
          << want;
    }
  }
}

/// What one thread makes of the sums here: what a GPU, and every rank, has to have bit by bit.
template <class T>
std::vector<T> normalised_here(const norm_setup<T>& t) {
  auto out = summed<T>(t.w.size(), t.rows * t.hidden, 1);
  auto residual = values<T>(77, t.rows * t.hidden, 2);
  const auto weight = values<T>(88, t.hidden, 3);
  dev::rms_norm_rows<T> rows;
  rows.out = out.data();
  rows.residual = residual.data();
  rows.residual_out = residual.data();
  rows.weight = weight.data();
  rows.rows = t.rows;
  rows.hidden = t.hidden;
  dev::rms_norm(dev::thread_group(), rows);
  return out;
}

template <class T>
class Fused : public testing::Test {};
// One is enough for compilers and sanitizers that take their time.
#if defined(__CUDACC__) || defined(__SANITIZE_THREAD__)
using types = testing::Types<dev::bfloat16>;
#else
using types = testing::Types<dev::half, dev::bfloat16, float>;
#endif
TYPED_TEST_SUITE(Fused, types);

TYPED_TEST(Fused, RmsNormIsWhatItSays) {
  using T = TypeParam;
  for (const int ranks : {1, 2, 4}) {
    with_ranks(ranks, [](cw::world& w) {
      for (const std::size_t hidden : {1U, 7U, 64U, 1001U, 5120U}) {
        norm_setup<T> t(w, 5, hidden);
        t.by_host(t.call());
        expect_normalised(t);
        const auto out = t.out.read();
        const auto residual_out = t.residual_out.read();
        EXPECT_TRUE(same_bits(out, normalised_here(t))) << hidden;
        for (const caller who : {caller::thread, caller::warp, caller::block}) {
          t.clear();
          t.by(who, 40, t.rows, coll_algorithm::automatic);
          EXPECT_TRUE(same_bits(t.out.read(), out) &&
                      same_bits(t.residual_out.read(), residual_out))
              << hidden << ", caller " << static_cast<int>(who);
        }
      }
    });
  }
}

TYPED_TEST(Fused, ARowHasTheSameBitsAloneAndInEveryBatch) {
  using T = TypeParam;
  with_ranks(3, [](cw::world& w) {
    // Where all of a row's lanes have a thread; a CPU has better things to do.
    const bool on_gpu = w.options().device.kind() == cw::device_kind::cuda;
    for (const std::size_t hidden : {1003U, 4608U}) {
      norm_setup<T> t(w, 4, hidden);
      t.by_host(t.call());
      const auto out = t.out.read();
      const auto residual_out = t.residual_out.read();
      const auto expect_same = [&](const std::string& how) {
        EXPECT_TRUE(same_bits(t.out.read(), out) && same_bits(t.residual_out.read(), residual_out))
            << hidden << ", " << how;
      };
      t.clear();
      for (std::size_t row = 0; row < t.rows; ++row) {
        auto one = t.call();
        one.rows = 1;
        one.out += row * hidden;
        one.residual_out += row * hidden;
        one.in += row * hidden;
        one.residual += row * hidden;
        t.by_host(one);
      }
      expect_same("row by row");
      for (const std::size_t each : {1U, 3U, 4U}) {
        for (const int threads : {1, 31, 70, on_gpu ? 512 : 33}) {
          for (const auto how :
               {coll_algorithm::pull, coll_algorithm::two_shot, coll_algorithm::ring}) {
            t.clear();
            t.by(caller::block, threads, each, how);
            expect_same(std::to_string(each) + " by a block of " + std::to_string(threads));
          }
        }
      }
    }
  });
}

TYPED_TEST(Fused, RmsNormInPlaceAndOnSymmetricMemory) {
  using T = TypeParam;
  with_ranks(2, [](cw::world& w) {
    norm_setup<T> t(w, 6, 3000);
    t.by_host(t.call());
    const auto out = t.out.read();
    const auto residual_out = t.residual_out.read();
    auto c = t.call();
    c.residual_out = t.residual.data();
    c.out = t.in.data();
    t.by_host(c);
    EXPECT_TRUE(same_bits(t.in.read(), out));
    EXPECT_TRUE(same_bits(t.residual.read(), residual_out));

    cw::symmetric_buffer<T> heap(w, 2 * t.rows * t.hidden);
    const std::size_t bytes = t.rows * t.hidden * sizeof(T);
    const auto in = values<T>(w.rank(), t.rows * t.hidden, 1);
    t.residual.write(values<T>(77, t.rows * t.hidden, 2));
    cw::exec::copy_now(w.options().device, heap.data(), in.data(), bytes);
    c.in = heap.data();
    c.out = heap.data() + t.rows * t.hidden;
    if (w.options().device.kind() == cw::device_kind::cpu) {
      EXPECT_EQ(t.all.explain(c.out, c.in, bytes).direct, t.all.device().all_mapped());
    }
    t.by_host(c);
    std::vector<T> got(t.rows * t.hidden);
    cw::exec::copy_now(w.options().device, got.data(), c.out, bytes);
    EXPECT_TRUE(same_bits(got, out));
    EXPECT_TRUE(same_bits(t.residual.read(), residual_out));
  });
}

// A host chooses what a GPU is to run, and said of any memory that whole tiles may lie there.
TYPED_TEST(Fused, RmsNormOfMemoryThatIsNotAligned) {
  using T = TypeParam;
  with_ranks(2, [](cw::world& w) {
    constexpr std::size_t hidden = 4096;
    norm_setup<T> t(w, 1, hidden);
    EXPECT_TRUE((dev::impl::norm_row<T>{t.call(), 0}.is_whole()));
    t.by_host(t.call());
    const auto out = t.out.read();
    const auto residual_out = t.residual_out.read();
    cw::buffer<T> moved(w.options().device, hidden + 1);
    const auto one_further = [&](const cw::buffer<T>& from) {
      auto all = from.read();
      all.insert(all.begin(), T{});
      moved.write(all);
      return moved.data() + 1;
    };
    const std::vector<std::function<void(dev::rms_norm_rows<T>&)>> moves = {
        [&](auto& c) { c.in = one_further(t.in); },
        [&](auto& c) { c.residual = one_further(t.residual); },
        [&](auto& c) { c.weight = one_further(t.weight); },
        [&](auto& c) { c.out = one_further(t.out); },
        [&](auto& c) { c.residual_out = one_further(t.residual_out); },
    };
    for (const auto& move : moves) {
      t.clear();
      auto c = t.call();
      move(c);
      EXPECT_FALSE((dev::impl::norm_row<T>{c, 0}.is_whole()));
      t.by_host(c);
      EXPECT_TRUE(same_bits(read_from(w, c.out, hidden), out));
      EXPECT_TRUE(same_bits(read_from(w, c.residual_out, hidden), residual_out));
    }
  });
}

// ---- rows that blocks share, and rows in registers

// A GPU's host makes rows so by itself, in the tests above and below; here a CPU's threads do.
#if !defined(__CUDACC__)

template <class T>
CW_FN dev::impl::norm_row<T> row_of(const dev::rms_norm_rows<T>& all, std::size_t i) {
  return {all, i * all.hidden};
}
template <class T, class F>
CW_FN dev::impl::quantised_row<T, F> row_of(const dev::quantise_rows<T, F>& all, std::size_t i) {
  return {all, i};
}

/// Block `other` does not come if `hidden` is 0, else its row is so long.
struct odd_block {
  int other = -1;
  std::size_t hidden = 0;
};

/// `of` blocks make each row. `Held`: units of a warp at most; 2 is what the host takes.
template <int Held, class Rows>
struct shared_kernel {
  static constexpr int max_threads = 512;
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, const Rows& rows,
                        int of, int warps, odd_block odd, status* out) const {
    const int b = k.block_index();
    const std::size_t hidden = b == odd.other ? odd.hidden : rows.hidden;
    if (hidden == 0) return;
    const status s = dev::impl::make_row<Held>(k.block(), all.channel(b),
                                               row_of(rows, static_cast<std::size_t>(b / of)),
                                               hidden, dev::share{b % of, of}, warps);
    if (k.thread_index() == 0) out[b] = s;
  }
};

/// What each block made of it.
template <int Held, class Rows>
std::vector<status> share_rows(cw::world& w, const cw::coll& all, const Rows& rows, int of,
                               int warps, odd_block odd = {}) {
  const int blocks = static_cast<int>(rows.rows) * of;
  const cw::buffer<status> outcome(w.options().device, static_cast<std::size_t>(blocks));
  cw::launch(w.stream(), {.blocks = blocks, .threads = 32 * warps + 32},
             shared_kernel<Held, Rows>{}, all.device(), rows, of, warps, odd, outcome.data());
  w.stream().sync();
  w.barrier();
  return outcome.read();
}

/// A channel's packets on a CPU have room for 1 KiB: so much of each block's part, which are the
/// first segments of its warps.
constexpr cw::coll_options room_to_share{.channels = 32, .shelf_bytes = 4096};

/// Other numbers in each call: what is left of the call before has other bits.
template <int Held, class T>
void shares_norm(cw::world& w, const cw::coll& all, std::size_t hidden, int of, int warps) {
  norm_setup<T> t(w, 2, hidden);
  for (unsigned round = 0; round < 3; ++round) {
    t.in.write(values<T>(w.rank(), t.rows * hidden, 10 + round));
    t.by_host(t.call());
    const auto out = t.out.read();
    const auto residual_out = t.residual_out.read();
    t.clear();
    const auto got = share_rows<Held>(w, all, t.call(), of, warps);
    EXPECT_EQ(got, std::vector<status>(got.size(), status::ok));
    EXPECT_TRUE(same_bits(t.out.read(), out) && same_bits(t.residual_out.read(), residual_out))
        << hidden << " by " << of << " blocks of " << warps << " warps, call " << round;
  }
}

// Words of rows are marked by a count: three calls, so that one of the call before would be taken.
TYPED_TEST(Fused, BlocksThatShareARowMakeTheSameBits) {
  using T = TypeParam;
  with_ranks(2, [](cw::world& w) {
    const cw::coll all(w, room_to_share);
    if (!all.device().all_mapped()) return;
#if defined(__SANITIZE_THREAD__)
    shares_norm<4, T>(w, all, 512, 2, 2);  // each thread is one of the system's
#else
    for (const std::size_t hidden : {1U, 200U, 256U}) {
      shares_norm<4, T>(w, all, hidden, 1, 4);
      shares_norm<4, T>(w, all, hidden, 2, 2);
      shares_norm<4, T>(w, all, hidden, 4, 1);
    }
    shares_norm<4, T>(w, all, 512, 2, 2);
    shares_norm<4, T>(w, all, 1001, 4, 1);
    // As the host has it.
    shares_norm<2, T>(w, all, 1024, 4, 2);
    shares_norm<2, T>(w, all, 2041, 8, 1);
    if constexpr (sizeof(T) == 2) {
      shares_norm<2, T>(w, all, 3001, 8, 1);   // two segments of a warp
      shares_norm<2, T>(w, all, 4104, 16, 1);  // two rounds, of which the second is one tile
      shares_norm<2, T>(w, all, 8192, 16, 1);
    }
#endif
  });
}

/// Rows in registers, by a whole block; a GPU's blocks make them so.
template <class T>
struct held_norm_kernel {
  static constexpr int max_threads = 512;
  CW_FN void operator()(const dev::kernel_context& k, const dev::rms_norm_rows<T>& rows,
                        int* held) const {
    const bool yes = dev::impl::hold_rows(k.block(), rows.rows, rows.hidden, [&](std::size_t i) {
      return dev::impl::norm_row<T>{rows, i * rows.hidden};
    });
    if (k.thread_index() == 0) *held = yes ? 1 : 0;
  }
};

/// Up to four rounds, each of them whole and not, and one tile more.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t held_lengths[] = {1001, 4096, 13000};  // each thread is one of the system's
#else
constexpr std::size_t held_lengths[] = {7,    1001,  1000,  4096,  5120, 8192,
                                        8200, 12288, 13000, 16384, 16392};
#endif

TYPED_TEST(Fused, RowsInRegistersHaveTheSameBits) {
  using T = TypeParam;
  with_ranks(1, [](cw::world& w) {
    for (const std::size_t hidden : held_lengths) {
      norm_setup<T> t(w, 5, hidden);
      t.by_host(t.call());
      const auto out = t.out.read();
      const auto residual_out = t.residual_out.read();
      const auto sum = summed<T>(w.size(), t.rows * hidden, 1);
      if (w.size() != 1) return;
      cw::buffer<int> held(w.options().device, 1);
      for (const int warps : {4, 5, 8, 16}) {
        t.clear();
        t.out.write(sum);
        cw::launch(w.stream(), {.threads = 32 * warps}, held_norm_kernel<T>{}, t.call(),
                   held.data());
        w.stream().sync();
        const int needed = hidden <= 4096 ? 4 : hidden <= 8192 ? 8 : hidden <= 16384 ? 16 : 17;
        const bool fits = hidden % 8 == 0 && warps >= needed;
        EXPECT_EQ(held.read().front(), fits ? 1 : 0) << hidden << ", " << warps << " warps";
        if (!fits) continue;
        EXPECT_TRUE(same_bits(t.out.read(), out) && same_bits(t.residual_out.read(), residual_out))
            << hidden << ", " << warps << " warps";
      }
    }
  });
}

#endif

TEST(FusedEdges, ANaNSpoilsItsRowAlone) {
  with_ranks(2, [](cw::world& w) {
    norm_setup<float> t(w, 3, 50);
    auto in = values<float>(w.rank(), 150, 1);
    if (w.rank() == w.size() - 1) in[60] = std::numeric_limits<float>::quiet_NaN();
    t.in.write(in);
    t.by_host(t.call());
    const auto out = t.out.read();
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 50 == 1) << i;
  });
}

TEST(FusedEdges, ARowOfZerosStaysOne) {
  with_ranks(2, [](cw::world& w) {
    norm_setup<float> t(w, 1, 50);
    t.in.write(std::vector<float>(50));
    t.residual.write(std::vector<float>(50));
    t.by_host(t.call());
    for (const float x : t.out.read()) EXPECT_EQ(x, 0);
  });
}

// ---- FP8

template <class T, class F>
struct quantise_setup {
  cw::world& w;
  std::size_t rows;
  std::size_t hidden;
  cw::coll all;
  cw::buffer<T> in{w.options().device, rows* hidden};
  cw::buffer<T> sum{w.options().device, rows* hidden};
  cw::buffer<F> out{w.options().device, rows* hidden};
  cw::buffer<float> scales{w.options().device, rows};
  cw::buffer<status> outcome{w.options().device, 1};

  quantise_setup(cw::world& world, std::size_t r, std::size_t h)
      : w(world), rows(r), hidden(h), all(world, {.channels = 1, .shelf_bytes = 4096}) {
    in.write(values<T>(w.rank(), rows * hidden, 4));
  }

  [[nodiscard]] dev::quantise_rows<T, F> call(bool own_scales, float scale = 1) {
    dev::quantise_rows<T, F> c;
    c.out = out.data();
    c.sum = sum.data();
    c.in = in.data();
    c.scales = own_scales ? scales.data() : nullptr;
    c.scale = scale;
    c.rows = rows;
    c.hidden = hidden;
    return c;
  }
  void clear() {
    out.write(std::vector<F>(rows * hidden));
    sum.write(std::vector<T>(rows * hidden));
  }
  void by_host(const dev::quantise_rows<T, F>& c) {
    w.barrier();
    all.all_reduce_quantise(c);
    all.check();
    w.barrier();
  }
  void by(caller who, int threads, const dev::quantise_rows<T, F>& c) {
    out.write(std::vector<F>(rows * hidden));
    w.barrier();
    cw::launch(w.stream(), {.threads = threads}, quantise_kernel<T, F>{}, who, all.device(), c,
               outcome.data());
    w.stream().sync();
    w.barrier();
    EXPECT_EQ(outcome.read().front(), status::ok);
  }
};

template <class F>
constexpr double largest = std::is_same_v<F, dev::fp8_e4m3> ? 448 : 57344;

/// `scales` by row. Dividing rounds to float, and then to F.
template <class T, class F>
void expect_quantised(quantise_setup<T, F>& t, const std::vector<float>& scales) {
  const auto sum = summed<T>(t.w.size(), t.rows * t.hidden, 4);
  EXPECT_TRUE(same_bits(t.sum.read(), sum));
  const auto out = t.out.read();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double exact = static_cast<double>(dev::widen(sum[i])) / scales[i / t.hidden];
    const double want = std::clamp(exact, -largest<F>, largest<F>);
    const double got = dev::widen(out[i]);
    ASSERT_LE(std::abs(got - want), rounding<F>(want) * (1 + 0x1p-18))
        << "element " << i << ": " << got << " for " << want;
  }
}

template <class T, class F>
std::vector<F> quantised_here(const quantise_setup<T, F>& t) {
  auto sum = summed<T>(t.w.size(), t.rows * t.hidden, 4);
  std::vector<F> out(sum.size());
  std::vector<float> scales(t.rows);
  dev::quantise_rows<T, F> rows;
  rows.out = out.data();
  rows.sum = sum.data();
  rows.scales = scales.data();
  rows.rows = t.rows;
  rows.hidden = t.hidden;
  dev::quantise(dev::thread_group(), rows);
  return out;
}

template <class T, class F>
void quantises(cw::world& w, std::size_t hidden) {
  quantise_setup<T, F> t(w, 5, hidden);
  t.by_host(t.call(true));
  const auto sum = summed<T>(w.size(), t.rows * hidden, 4);
  std::vector<float> scales(t.rows);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    float& scale = scales[i / hidden];
    scale = std::max(scale, std::abs(dev::widen(sum[i])));
  }
  for (float& s : scales) s /= static_cast<float>(largest<F>);
  EXPECT_EQ(t.scales.read(), scales);
  expect_quantised(t, scales);
  const auto out = t.out.read();
  EXPECT_TRUE(same_bits(out, quantised_here(t)));
  for (const caller who : {caller::thread, caller::warp, caller::block}) {
    for (const int threads : {31, 70}) {
      t.by(who, threads, t.call(true));
      EXPECT_TRUE(same_bits(t.out.read(), out)) << static_cast<int>(who) << ", " << threads;
      EXPECT_EQ(t.scales.read(), scales);
    }
  }
  // So small a scale that some are too large.
  const float given = static_cast<float>(10 / largest<F>);
  t.by_host(t.call(false, given));
  expect_quantised(t, std::vector<float>(t.rows, given));
}

TYPED_TEST(Fused, QuantisedIsWhatItSays) {
  using T = TypeParam;
  for (const int ranks : {1, 3}) {
    with_ranks(ranks, [](cw::world& w) {
      for (const std::size_t hidden : {1U, 13U, 1000U, 4099U}) {
        quantises<T, dev::fp8_e4m3>(w, hidden);
        quantises<T, dev::fp8_e5m2>(w, hidden);
      }
    });
  }
}

TYPED_TEST(Fused, QuantisedOfMemoryThatIsNotAligned) {
  using T = TypeParam;
  using F = dev::fp8_e4m3;
  with_ranks(2, [](cw::world& w) {
    constexpr std::size_t hidden = 4096;
    quantise_setup<T, F> t(w, 1, hidden);
    EXPECT_TRUE((dev::impl::quantised_row<T, F>{t.call(true), 0}.is_whole()));
    t.by_host(t.call(true));
    const auto out = t.out.read();
    const auto sum = t.sum.read();
    cw::buffer<T> moved(w.options().device, hidden + 1);
    cw::buffer<F> moved_out(w.options().device, hidden + 1);
    auto in = t.in.read();
    in.insert(in.begin(), T{});
    const std::vector<std::function<void(dev::quantise_rows<T, F>&)>> moves = {
        [&](auto& c) {
          moved.write(in);
          c.in = moved.data() + 1;
        },
        [&](auto& c) { c.sum = moved.data() + 1; },
        [&](auto& c) { c.out = moved_out.data() + 1; },
    };
    for (const auto& move : moves) {
      t.clear();
      auto c = t.call(true);
      move(c);
      EXPECT_FALSE((dev::impl::quantised_row<T, F>{c, 0}.is_whole()));
      t.by_host(c);
      EXPECT_TRUE(same_bits(read_from(w, c.out, hidden), out));
      EXPECT_TRUE(same_bits(read_from(w, c.sum, hidden), sum));
    }
  });
}

// As above, of RMSNorm.
#if !defined(__CUDACC__)

template <int Held, class T, class F>
void shares_quantised(cw::world& w, const cw::coll& all, std::size_t hidden, int of, int warps) {
  quantise_setup<T, F> t(w, 2, hidden);
  for (unsigned round = 0; round < 4; ++round) {
    const auto c = t.call(round % 2 == 0, 0.03F);  // two with scales that are given
    t.in.write(values<T>(w.rank(), t.rows * hidden, 20 + round));
    t.by_host(c);
    const auto out = t.out.read();
    const auto sum = t.sum.read();
    const auto scales = t.scales.read();
    t.clear();
    if (c.scales != nullptr) t.scales.write(std::vector<float>(t.rows));
    w.barrier();
    const auto got = share_rows<Held>(w, all, c, of, warps);
    EXPECT_EQ(got, std::vector<status>(got.size(), status::ok));
    EXPECT_TRUE(same_bits(t.out.read(), out) && same_bits(t.sum.read(), sum))
        << hidden << " by " << of << " blocks of " << warps << " warps, call " << round;
    EXPECT_EQ(t.scales.read(), scales);
  }
}

TYPED_TEST(Fused, BlocksThatShareARowQuantiseItAlike) {
  using T = TypeParam;
  with_ranks(2, [](cw::world& w) {
    const cw::coll all(w, room_to_share);
    if (!all.device().all_mapped()) return;
#if defined(__SANITIZE_THREAD__)
    shares_quantised<4, T, dev::fp8_e4m3>(w, all, 512, 2, 2);
#else
    shares_quantised<2, T, dev::fp8_e4m3>(w, all, 1001, 4, 2);
    shares_quantised<2, T, dev::fp8_e5m2>(w, all, 2048, 8, 1);
    if constexpr (sizeof(T) == 2) {
      shares_quantised<2, T, dev::fp8_e4m3>(w, all, 3001, 8, 1);
      shares_quantised<2, T, dev::fp8_e4m3>(w, all, 5000, 16, 1);
    }
#endif
  });
}

TEST(SharedRows, EachBlockHasSomethingOfARowOfFewSegments) {
  for (const int of : {1, 2, 4, 8, 16}) {
    const int warps = std::min(16 / of, 8);
    std::vector<bool> made(static_cast<std::size_t>(of * warps));
    for (int which = 0; which < of; ++which) {
      for (int warp = 0; warp < warps; ++warp) {
        const auto part = dev::impl::warp_part::of_share({which, of}, warp, warps, 5000);
        EXPECT_EQ(part.warps, of * warps);
        EXPECT_EQ(part.rounds, 2);
        ASSERT_LT(part.warp, of * warps);
        EXPECT_FALSE(made[static_cast<std::size_t>(part.warp)]) << "made twice";
        made[static_cast<std::size_t>(part.warp)] = true;
        // The first segments are those of the warps of the same numbers.
        if (warp == 0) {
          EXPECT_EQ(part.warp, which) << of << " blocks";
        }
      }
    }
  }
}

/// What came of a rank's blocks, or the rank that its error names.
struct shared_failure {
  std::vector<status> outcome;
  int blamed = -2;
};
/// Four blocks share a row. Rank 1 comes late. Nothing where ranks are not mapped.
std::optional<shared_failure> share_in_vain(cw::world& w, odd_block odd) {
  shared_failure got;
  norm_setup<float> t(w, 1, 1000);
  const cw::coll all(w, room_to_share);
  if (!all.device().all_mapped()) return std::nullopt;
  w.barrier();
  if (w.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  try {
    got.outcome = share_rows<4>(w, all, t.call(), 4, 1, odd);
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::timeout) << e.what();
    got.blamed = e.peer();
    w.barrier();  // as share_rows()
  }
  w.barrier();
  return got;
}

cw::world_options impatient() {
  auto o = roomy();
  o.timeout = std::chrono::seconds(3);  // longer than it takes to start all threads
  return o;
}

TEST(SharedRows, ARankThatDoesNotComeToOneBlockIsNamed) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  for (int again = 0; again < 2; ++again) {
    cw::run_local(2, impatient(), [](cw::world& w) {
      const auto got = share_in_vain(w, {w.rank() == 1 ? 3 : -1, 0});
      // Rank 1's other blocks wait for their own.
      if (got) {
        EXPECT_EQ(got->blamed, w.rank() == 0 ? 1 : -1);
      }
    });
  }
}

// A wait for blocks of its own rank blamed the rank that was waited for before, though it had come.
TEST(SharedRows, ARankThatCameLateIsNotNamedForABlockOfOnesOwn) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  cw::run_local(2, impatient(), [](cw::world& w) {
    const auto got = share_in_vain(w, {3, 0});
    if (got) {
      EXPECT_EQ(got->blamed, -1);
    }
  });
}

TEST(SharedRows, ARankThatDisagreesInOneBlockIsFoundOutByAll) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  cw::run_local(2, roomy(), [](cw::world& w) {
    const auto got = share_in_vain(w, {w.rank() == 1 ? 3 : -1, 992});
    if (got) {
      EXPECT_EQ(got->outcome, std::vector<status>(4, status::invalid));
    }
  });
}

#endif

TEST(FusedEdges, SpecialNumbersInFp8) {
  with_ranks(1, [](cw::world& w) {
    if (w.size() != 1) return;
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    quantise_setup<float, dev::fp8_e4m3> t(w, 3, 4);
    t.in.write(std::vector<float>{nan, inf, -inf, 2, 0, 0, -0.0F, 0, 1e-45F, 0, 0, 0});
    t.by_host(t.call(true));
    std::vector<float> got;
    for (const auto x : t.out.read()) got.push_back(dev::widen(x));
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(std::vector<float>(got.begin() + 1, got.begin() + 4),
              (std::vector<float>{448, -448, 448}));
    EXPECT_EQ(std::vector<float>(got.begin() + 4, got.end()), std::vector<float>(8));
    const auto scales = t.scales.read();
    EXPECT_EQ(scales, (std::vector<float>{2.0F / 448, std::numeric_limits<float>::min(),
                                          std::numeric_limits<float>::min()}));
  });
}

TEST(FusedEdges, TheSumMayBeTheInput) {
  with_ranks(2, [](cw::world& w) {
    quantise_setup<dev::bfloat16, dev::fp8_e4m3> t(w, 4, 700);
    t.by_host(t.call(true));
    const auto out = t.out.read();
    auto c = t.call(true);
    c.sum = t.in.data();
    t.by_host(c);
    EXPECT_TRUE(same_bits(t.out.read(), out));
    EXPECT_TRUE(same_bits(t.in.read(), t.sum.read()));
  });
}

// ---- what is wrong, and what is nothing

TEST(FusedEdges, NoRowsAreNothing) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    dev::rms_norm_rows<float> norm;
    norm.hidden = 8;
    dev::quantise_rows<float, dev::fp8_e5m2> quantise;
    quantise.hidden = 8;
    w.barrier();
    all.all_reduce_rms_norm(norm);
    all.all_reduce_quantise(quantise);
    all.check();
    w.barrier();
  });
}

TEST(FusedEdges, WrongArgumentsThrowAtOnce) {
  with_ranks(2, [](cw::world& w) {
    norm_setup<float> t(w, 2, 8);
    using call = dev::rms_norm_rows<float>;
    const std::vector<std::function<void(call&)>> wrongs = {
        [](call& c) { c.hidden = 0; },
        [](call& c) { c.rows = std::numeric_limits<std::size_t>::max() / 8; },
        [](call& c) { c.out = nullptr; },
        [](call& c) { c.residual_out = nullptr; },
        [](call& c) { c.in = nullptr; },
        [](call& c) { c.residual = nullptr; },
        [](call& c) { c.weight = nullptr; },
        [](call& c) { c.epsilon = -1; },
        [](call& c) { c.epsilon = std::numeric_limits<float>::quiet_NaN(); },
        [](call& c) { c.residual = c.out; },
        [](call& c) { c.residual_out = c.out; },
    };
    for (const auto& wrong : wrongs) {
      auto c = t.call();
      wrong(c);
      EXPECT_THROW(t.all.all_reduce_rms_norm(c), cw::error);
    }
    quantise_setup<float, dev::fp8_e4m3> q(w, 2, 8);
    for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
      EXPECT_THROW(q.all.all_reduce_quantise(q.call(false, scale)), cw::error) << scale;
    }
    t.by_host(t.call());  // nothing was queued, so ranks still agree
    expect_normalised(t);
  });
}

TEST(FusedEdges, RanksThatDisagreeLearnIt) {
  with_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    norm_setup<float> t(w, 4, 8);
    auto c = t.call();
    if (w.rank() == 1) {
      c.rows = 2;
      c.hidden = 16;
    }
    t.all.all_reduce_rms_norm(c);
    EXPECT_THROW(t.all.check(), cw::error);
    w.barrier();
  });
}

}  // namespace
