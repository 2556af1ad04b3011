// Collectives against what they say: every algorithm, by the host and by threads, warps and blocks.
#include "crosswarp/coll.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "crosswarp/launch.hpp"
#include "support/coll_callers.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace ops = crosswarp::device::coll_ops;
using cw::coll_algorithm;
using cw::coll_op;
using cw::status;

namespace {

// ---- elements

template <class T>
T from_double(double x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return dev::narrow<T>(static_cast<dev::accumulator_t<T>>(x));
  }
}

/// Small random numbers, other ones on each rank.
template <class T>
std::vector<T> values(int rank, std::size_t count, unsigned seed) {
  std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
  std::vector<T> v(count);
  for (T& x : v) x = from_double<T>(static_cast<double>(random() % 2001) / 16.0 - 62.0);
  return v;
}

/// In plain C++. Values are small, and no NaNs.
template <class A>
A combined(coll_op op, A a, A b) {
  switch (op) {
    case coll_op::sum:
    case coll_op::avg:
      return a + b;
    case coll_op::prod:
      if constexpr (std::is_integral_v<A>) {
        return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      } else {
        return a * b;
      }
    case coll_op::min:
      return std::min(a, b);
    case coll_op::max:
      return std::max(a, b);
    default:
      break;
  }
  if constexpr (std::is_integral_v<A>) {
    return op == coll_op::bit_and ? a & b : op == coll_op::bit_or ? a | b : a ^ b;
  }
  return a;
}

/// The reduction as it is meant: in the order of ranks, rounded once.
template <class T>
std::vector<T> reduced(int ranks, std::size_t count, unsigned seed, coll_op op) {
  std::vector<std::vector<T>> in;
  in.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) in.push_back(values<T>(r, count, seed));
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto sum = dev::widen(in[0][i]);
    for (std::size_t r = 1; r < in.size(); ++r) sum = combined(op, sum, dev::widen(in[r][i]));
    if (op == coll_op::avg) sum /= static_cast<decltype(sum)>(ranks);
    out[i] = dev::narrow<T>(sum);
  }
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

struct all_reduce {
  template <class G, class T, class Op>
  CW_FN status operator()(const G& g, const dev::coll& with, T* out, const T* in, std::size_t count,
                          const Op& op, coll_algorithm how) const {
    return with.all_reduce(g, out, in, count, op, how);
  }
};

// ---- all_reduce

template <class T>
class AllReduce : public testing::Test {};
// One of each kind is enough for compilers and sanitizers that take their time.
#if defined(__CUDACC__) || defined(__SANITIZE_THREAD__)
using types = testing::Types<float, dev::bfloat16, std::int32_t>;
#else
using types = testing::Types<double, float, dev::half, dev::bfloat16, dev::fp8_e4m3, dev::fp8_e5m2,
                             std::int32_t, std::int64_t>;
#endif
TYPED_TEST_SUITE(AllReduce, types);

constexpr std::size_t most = 5000;

TYPED_TEST(AllReduce, EveryAlgorithmByEverybodyHasTheSameBits) {
  using T = TypeParam;
  for (const int ranks : {1, 2, 5}) {
    with_ranks(ranks, [](cw::world& w) {
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
      cw::buffer<T> in(w.options().device, most);
      cw::buffer<T> out(w.options().device, most);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3},
                                      std::size_t{64}, std::size_t{129}, most}) {
        const auto want = reduced<T>(w.size(), count, 1, coll_op::sum);
        in.write(values<T>(w.rank(), count, 1));
        for (const caller who : {caller::thread, caller::warp, caller::block}) {
          for (const auto how :
               {coll_algorithm::push, coll_algorithm::pull, coll_algorithm::two_shot,
                coll_algorithm::ring, coll_algorithm::automatic}) {
            out.write(std::vector<T>(count));
            ASSERT_EQ(t.call<all_reduce>(who, out.data(), static_cast<const T*>(in.data()), count,
                                         ops::sum{}, how),
                      status::ok);
            auto got = out.read();
            got.resize(count);
            EXPECT_TRUE(same_bits(got, want))
                << w.size() << " ranks, " << count << ", " << to_string(how) << ", caller "
                << static_cast<int>(who);
          }
        }
      }
    });
  }
}

TYPED_TEST(AllReduce, EveryOperationOfTheHost) {
  using T = TypeParam;
  with_ranks(3, [](cw::world& w) {
    const auto type = cw::data_type_of<T>::value;
    constexpr std::size_t count = 777;
    cw::coll all(w);
    cw::buffer<T> in(w.options().device, count);
    cw::buffer<T> out(w.options().device, count);
    in.write(values<T>(w.rank(), count, 2));
    for (const auto op : {coll_op::sum, coll_op::prod, coll_op::min, coll_op::max, coll_op::avg}) {
      w.barrier();
      all.all_reduce(out.data(), in.data(), count, type, op);
      all.check();
      w.barrier();
      EXPECT_TRUE(same_bits(out.read(), reduced<T>(w.size(), count, 2, op)))
          << to_string(op) << " of " << to_string(type);
    }
    for (const auto op : {coll_op::bit_and, coll_op::bit_or, coll_op::bit_xor}) {
      if constexpr (std::is_integral_v<T>) {
        w.barrier();
        all.all_reduce(out.data(), in.data(), count, type, op);
        all.check();
        w.barrier();
        EXPECT_TRUE(same_bits(out.read(), reduced<T>(w.size(), count, 2, op)));
      } else {
        EXPECT_THROW(all.all_reduce(out.data(), in.data(), count, type, op), cw::error);
      }
    }
  });
}

TYPED_TEST(AllReduce, TheHostsAlgorithmsAgreeAlsoInPlaceAndOutOfLine) {
  using T = TypeParam;
  with_ranks(4, [](cw::world& w) {
    constexpr std::size_t room = 40000;
    cw::symmetric_buffer<T> heap(w, 2 * room);
    cw::buffer<T> own(w.options().device, 2 * room);
    for (const auto how : {coll_algorithm::automatic, coll_algorithm::push, coll_algorithm::pull,
                           coll_algorithm::two_shot, coll_algorithm::ring}) {
      cw::coll all(w, {.algorithm = how});
      for (const std::size_t count : {std::size_t{5}, std::size_t{1000}, room - 3}) {
        const auto in = values<T>(w.rank(), count, 3);
        const auto want = reduced<T>(w.size(), count, 3, coll_op::sum);
        for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
          for (T* const memory : {heap.data(), own.data()}) {
            for (const bool in_place : {true, false}) {
              T* const from = memory + shift;
              T* const to = in_place ? from : memory + room + shift;
              w.barrier();
              cw::exec::copy_now(w.options().device, from, in.data(), count * sizeof(T));
              w.barrier();
              all.all_reduce(to, static_cast<const T*>(from), count);
              all.check();
              w.barrier();
              std::vector<T> got(count);
              cw::exec::copy_now(w.options().device, got.data(), to, count * sizeof(T));
              EXPECT_TRUE(same_bits(got, want))
                  << to_string(how) << ", " << count << ", shift " << shift << ", in place "
                  << in_place << ", symmetric " << (memory == heap.data());
            }
          }
        }
      }
    }
  });
}

// ---- what IEEE says

TEST(AllReduceOfSpecialNumbers, NaNsAndInfinitiesAreKept) {
  with_ranks(2, [](cw::world& w) {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    // By rank; the last column is what comes of sum, min and max.
    const std::vector<std::vector<float>> in = {{inf, inf, nan, 1, -0.0F, 0.0F, 3e38F},
                                                {1, -inf, 1, nan, 0.0F, -0.0F, 3e38F}};
    cw::coll all(w);
    cw::buffer<float> data(w.options().device, in[0].size());
    const auto of = [&](coll_op op) {
      data.write(in[static_cast<std::size_t>(w.rank() % 2)]);
      w.barrier();
      all.all_reduce(data.data(), data.data(), in[0].size(), cw::data_type::f32, op);
      all.check();
      w.barrier();
      return data.read();
    };
    if (w.size() != 2) return;
    const auto sum = of(coll_op::sum);
    EXPECT_EQ(sum[0], inf);
    EXPECT_TRUE(std::isnan(sum[1]) && std::isnan(sum[2]) && std::isnan(sum[3]));
    EXPECT_EQ(sum[6], inf);
    const auto min = of(coll_op::min);
    EXPECT_EQ(min[0], 1);
    EXPECT_EQ(min[1], -inf);
    EXPECT_TRUE(std::isnan(min[2]) && std::isnan(min[3]));
    EXPECT_TRUE(std::signbit(min[4]) && std::signbit(min[5]));
    const auto max = of(coll_op::max);
    EXPECT_EQ(max[0], inf);
    EXPECT_TRUE(std::isnan(max[2]) && std::isnan(max[3]));
    EXPECT_FALSE(std::signbit(max[4]) || std::signbit(max[5]));
  });
}

/// minimum and maximum as IEEE 754-2019 has them: a NaN stays, and -0 is less than 0.
template <class A>
A least(A a, A b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

/// Every pair of these on two ranks. What comes is what the accumulator has of it, rounded: so
/// infinities are NaNs in a type that has none.
template <class T>
void special_numbers(cw::world& w) {
  using A = dev::accumulator_t<T>;
  if (w.size() != 2) return;
  const A inf = std::numeric_limits<A>::infinity();
  const A nan = std::numeric_limits<A>::quiet_NaN();
  const A largest = std::is_same_v<T, dev::half>       ? A(65504)
                    : std::is_same_v<T, dev::fp8_e4m3> ? A(448)
                    : std::is_same_v<T, dev::fp8_e5m2> ? A(57344)
                                                       : std::numeric_limits<A>::max() / 2;
  // Added to the largest number this is nearer to what would follow it than to it.
  const A little = std::is_same_v<T, dev::fp8_e5m2> ? A(6144) : A(24);
  const std::vector<A> all = {inf, -inf, nan, 0, A(-0.0), 1, -3, largest, -largest, little};
  std::vector<T> in[2];
  for (const A a : all) {
    for (const A b : all) {
      in[0].push_back(dev::narrow<T>(a));
      in[1].push_back(dev::narrow<T>(b));
    }
  }
  cw::coll calls(w);
  cw::buffer<T> data(w.options().device, in[0].size());
  for (const auto op : {coll_op::sum, coll_op::prod, coll_op::min, coll_op::max, coll_op::avg}) {
    data.write(in[w.rank()]);
    w.barrier();
    calls.all_reduce(data.data(), data.data(), in[0].size(), cw::data_type_of<T>::value, op);
    calls.check();
    w.barrier();
    const auto got = data.read();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const A a = dev::widen(in[0][i]);
      const A b = dev::widen(in[1][i]);
      const A exact = op == coll_op::sum    ? a + b
                      : op == coll_op::prod ? a * b
                      : op == coll_op::min  ? least(a, b)
                      : op == coll_op::max  ? -least(-a, -b)
                                            : (a + b) / 2;
      const A want = dev::widen(dev::narrow<T>(exact));
      const A is = dev::widen(got[i]);
      const bool same =
          std::isnan(want) ? std::isnan(is) : is == want && std::signbit(is) == std::signbit(want);
      EXPECT_TRUE(same) << to_string(op) << " of " << to_string(cw::data_type_of<T>::value) << " "
                        << a << " and " << b << " is " << is << ", not " << want;
    }
  }
}

TEST(AllReduceOfSpecialNumbers, IsWhatTheAccumulatorHasOfThemInEveryType) {
  with_ranks(2, [](cw::world& w) {
    special_numbers<double>(w);
    special_numbers<float>(w);
    special_numbers<dev::half>(w);
    special_numbers<dev::bfloat16>(w);
    special_numbers<dev::fp8_e4m3>(w);
    special_numbers<dev::fp8_e5m2>(w);
  });
}

// ---- the input is the caller's again

/// All ranks write their input as soon as the call is over: nobody may still be reading it.
struct overwrite_at_once {
  template <class G>
  CW_FN status operator()(const G& g, const dev::coll& with, std::int32_t* data, std::int32_t* out,
                          std::size_t count, int rounds, coll_algorithm how,
                          const dev::symmetric<std::int32_t>& shared) const {
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    const int n = with.size();
    for (int round = 0; round < rounds; ++round) {
      const int mine = round * 10 + with.rank();
      for (std::size_t i = first; i < count; i += step) data[i] = mine + static_cast<int>(i);
      g.sync();
      const status s = shared.size() != 0 ? with.all_reduce(g, shared, shared, count)
                                          : with.all_reduce(g, out, data, count, ops::sum{}, how);
      if (s != status::ok) return s;
      const std::int32_t* const got = shared.size() != 0 ? shared.local() : out;
      bool right = true;
      for (std::size_t i = first; i < count; i += step) {
        right = right && got[i] == n * round * 10 + n * (n - 1) / 2 + n * static_cast<int>(i);
      }
      if (g.any(!right)) return status::unsupported;
    }
    return status::ok;
  }
};

TEST(AllReduceAgainAndAgain, TheInputMayBeOverwrittenAtOnce) {
  with_ranks(3, [](cw::world& w) {
    constexpr std::size_t count = 60;  // what packets have room for, also on a CPU
    rank_setup t(w, {.channels = 2, .shelf_bytes = 4096});
    cw::symmetric_buffer<std::int32_t> in(w, count);
    cw::buffer<std::int32_t> out(w.options().device, count);
    for (const caller who : {caller::thread, caller::warp, caller::block}) {
      for (const auto how : {coll_algorithm::push, coll_algorithm::pull, coll_algorithm::two_shot,
                             coll_algorithm::ring}) {
        EXPECT_EQ(t.call<overwrite_at_once>(who, in.data(), out.data(), count, 20, how,
                                            dev::symmetric<std::int32_t>()),
                  status::ok)
            << to_string(how);
      }
      EXPECT_EQ(t.call<overwrite_at_once>(who, in.data(), out.data(), count, 20,
                                          coll_algorithm::automatic, in.device()),
                status::ok);
    }
  });
}

TEST(AllReduceAgainAndAgain, NumbersOfStepsWrapAround) {
  // Around a wrap of the epoch, of its tag, and where old packets are cleared away.
  for (const std::uint32_t first : {0xfffffffbU, 0x7ffffffbU, 0x1ffffffbU, 0x3ffffffaU}) {
    with_ranks(3, [&](cw::world& w) {
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096, .first_epoch = first});
      cw::buffer<std::int32_t> in(w.options().device, 60);
      cw::buffer<std::int32_t> out(w.options().device, 60);
      for (int round = 0; round < 3; ++round) {
        for (const auto how : {coll_algorithm::push, coll_algorithm::pull, coll_algorithm::two_shot,
                               coll_algorithm::ring}) {
          EXPECT_EQ(t.call<overwrite_at_once>(caller::block, in.data(), out.data(), std::size_t{60},
                                              2, how, dev::symmetric<std::int32_t>()),
                    status::ok)
              << first;
        }
      }
    });
  }
}

/// Random algorithms and sizes, with random delays: each rank dawdles elsewhere.
struct dawdle {
  template <class G>
  CW_FN status operator()(const G& g, const dev::coll& with, std::int64_t* data,
                          unsigned seed) const {
    unsigned shared = seed;
    unsigned own = seed + 77 * static_cast<unsigned>(with.rank() + 1);
    const auto next = [](unsigned& state) {
      state = state * 1664525U + 1013904223U;
      return state >> 16U;
    };
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    const int n = with.size();
    for (int round = 0; round < 40; ++round) {
      const std::size_t count = next(shared) % 60;
      const auto how = static_cast<coll_algorithm>(1 + next(shared) % 3);
      for (std::size_t i = first; i < count; i += step) data[i] = with.rank() + round;
      const std::uint64_t until = dev::now_ns() + next(own) % 20000;
      while (dev::now_ns() < until) {
      }
      const status s = with.all_reduce(g, data, data, count, ops::sum{}, how);
      if (s != status::ok) return s;
      bool right = true;
      for (std::size_t i = first; i < count; i += step) {
        right = right && data[i] == n * round + n * (n - 1) / 2;
      }
      if (g.any(!right)) return status::unsupported;
    }
    return status::ok;
  }
};

TEST(AllReduceAgainAndAgain, RandomCallsWithRandomDelays) {
  with_ranks(4, [](cw::world& w) {
    rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
    cw::buffer<std::int64_t> data(w.options().device, 60);
    for (unsigned seed = 0; seed < 5; ++seed) {
      for (const caller who : {caller::thread, caller::block}) {
        EXPECT_EQ(t.call<dawdle>(who, data.data(), seed), status::ok) << seed;
      }
    }
  });
}

/// What is recorded once is replayed between calls that are queued as they come; each adds up what
/// the one before has left.
TEST(AllReduceAgainAndAgain, RecordedAndQueuedInTurns) {
  with_ranks(3, [&](cw::world& w) {
    cw::coll all(w);
    for (const std::size_t count : {std::size_t{100}, std::size_t{30000}, std::size_t{200000}}) {
      const cw::symmetric_buffer<std::int64_t> shared(w, count);
      const cw::buffer<std::int64_t> own(w.options().device, count);
      for (std::int64_t* const data : {shared.data(), own.data()}) {
        const std::vector<std::int64_t> ones(count, 1);
        cw::exec::copy_now(w.options().device, data, ones.data(), count * sizeof(ones[0]));
        const std::int64_t* const in = data;
        w.barrier();
        cw::recording twice(w.stream(), [&] {
          all.all_reduce(data, in, count);
          all.all_reduce(data, in, count);
        });
        w.barrier();
        twice.replay(w.stream());
        all.all_reduce(data, in, count);
        twice.replay(w.stream());
        all.check();
        w.barrier();
        std::vector<std::int64_t> got(count);
        cw::exec::copy_now(w.options().device, got.data(), data, count * sizeof(got[0]));
        const auto five_times = static_cast<std::int64_t>(std::pow(w.size(), 5));
        EXPECT_EQ(got, std::vector<std::int64_t>(count, five_times)) << count;
      }
    }
  });
}

/// On a GPU long calls have large blocks, and short ones are placed early: they must not take the
/// place of what others are waiting for.
TEST(AllReduceAgainAndAgain, LongAndShortInTurns) {
  const bool gpu = test_device().kind() == cw::device_kind::cuda;
  const std::size_t longest = gpu ? 1U << 20U : 1U << 14U;
  with_ranks(gpu ? 8 : 3, [&](cw::world& w) {
    cw::coll all(w);
    const cw::symmetric_buffer<std::int32_t> data(w, longest);
    const std::vector<std::int32_t> zeros(longest);
    cw::exec::copy_now(w.options().device, data.data(), zeros.data(), longest * sizeof(zeros[0]));
    const std::int32_t* const in = data.data();
    w.barrier();
    for (int round = 0; round < (gpu ? 100 : 3); ++round) {
      all.all_reduce(data.data(), in, longest);
      for (int i = 0; i < 3; ++i) all.all_reduce(data.data(), in, std::size_t{100});
    }
    EXPECT_NO_THROW(all.check());
    w.barrier();
  });
}

// ---- the others

struct exchanges {
  template <class G>
  CW_FN status operator()(const G& g, const dev::coll& with, std::int32_t* out,
                          const std::int32_t* in, std::size_t count, int which, int root) const {
    switch (which) {
      case 0:
        return with.reduce(g, out, in, count, root);
      case 1:
        return with.reduce_scatter(g, out, in, count);
      case 2:
        return with.all_gather(g, out, in, count);
      case 3:
        return with.gather(g, out, in, count, root);
      case 4:
        return with.scatter(g, out, in, count, root);
      case 5:
        return with.all_to_all(g, out, in, count);
      default:
        dev::copy(g, out, in, count * sizeof(*out));
        g.sync();
        return with.broadcast(g, out, count, root);
    }
  }
};

/// Element i of rank r's input.
std::int32_t element(int r, std::size_t i) {
  return r * 100003 + static_cast<int>(i) * 7 + 1;
}

/// What `out` is to hold at `rank`; -1 where nothing comes.
std::vector<std::int32_t> wanted(int which, int rank, int ranks, std::size_t count, int root) {
  const auto n = static_cast<std::size_t>(ranks);
  const auto me = static_cast<std::size_t>(rank);
  std::vector<std::int32_t> out(count * n, -1);
  const auto sum = [&](std::size_t i) {
    std::int32_t s = 0;
    for (int r = 0; r < ranks; ++r) s += element(r, i);
    return s;
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (which == 0 && rank == root) out[i] = sum(i);
    if (which == 1) out[i] = sum(me * count + i);
    if (which == 4) out[i] = element(root, me * count + i);
    if (which == 6) out[i] = element(root, i);
    for (std::size_t r = 0; r < n; ++r) {
      const auto from = static_cast<int>(r);
      if (which == 2 || (which == 3 && rank == root)) out[r * count + i] = element(from, i);
      if (which == 5) out[r * count + i] = element(from, me * count + i);
    }
  }
  return out;
}

void queue(cw::coll& all, int which, std::int32_t* out, const std::int32_t* in, std::size_t count,
           int root) {
  const std::size_t bytes = count * sizeof(*out);
  switch (which) {
    case 0:
      return all.reduce(out, in, count, cw::data_type::i32, coll_op::sum, root);
    case 1:
      return all.reduce_scatter(out, in, count, cw::data_type::i32, coll_op::sum);
    case 2:
      return all.all_gather(out, in, bytes);
    case 3:
      return all.gather(out, in, bytes, root);
    case 4:
      return all.scatter(out, in, bytes, root);
    case 5:
      return all.all_to_all(out, in, bytes);
    default:
      all.of().stream().copy(out, in, bytes);
      return all.broadcast(out, bytes, root);
  }
}

TEST(Exchanges, ByEverybodyFromEveryRoot) {
  for (const int ranks : {1, 2, 4}) {
    with_ranks(ranks, [](cw::world& w) {
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
      constexpr std::size_t longest = 3000;
      const auto n = static_cast<std::size_t>(w.size());
      cw::buffer<std::int32_t> in(w.options().device, longest * n);
      cw::buffer<std::int32_t> out(w.options().device, longest * n);
      std::vector<std::int32_t> mine(longest * n);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = element(w.rank(), i);
      in.write(mine);
      for (int which = 0; which < 7; ++which) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{30}, longest}) {
          for (int root = 0; root < w.size(); ++root) {
            for (const caller who : {caller::host, caller::thread, caller::warp, caller::block}) {
              out.write(std::vector<std::int32_t>(longest * n, -1));
              if (who == caller::host) {
                w.barrier();
                queue(t.all, which, out.data(), in.data(), count, root);
                t.all.check();
                w.barrier();
              } else {
                ASSERT_EQ(
                    t.call<exchanges>(who, out.data(), static_cast<const std::int32_t*>(in.data()),
                                      count, which, root),
                    status::ok);
              }
              auto got = out.read();
              got.resize(count * n);
              EXPECT_EQ(got, wanted(which, w.rank(), w.size(), count, root))
                  << "call " << which << ", " << count << " elements, root " << root << ", caller "
                  << static_cast<int>(who);
            }
          }
        }
      }
    });
  }
}

/// A rank's part lies where it belongs in the longer memory, and nothing else of that changes.
TEST(Exchanges, InPlace) {
  for (const int ranks : {1, 2, 4}) {
    with_ranks(ranks, [](cw::world& w) {
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
      constexpr std::size_t longest = 3000;
      const auto n = static_cast<std::size_t>(w.size());
      const auto me = static_cast<std::size_t>(w.rank());
      cw::buffer<std::int32_t> memory(w.options().device, longest * n);
      for (int which = 0; which < 5; ++which) {
        const bool sums = which == 0;
        const bool in_is_longer = which == 1 || which == 4;
        for (const std::size_t count : {std::size_t{1}, std::size_t{30}, longest}) {
          const std::size_t part = sums ? 0 : me * count;
          std::vector<std::int32_t> before(longest * n, -1);
          const std::size_t brought = in_is_longer ? n * count : count;
          for (std::size_t i = 0; i < brought; ++i) {
            before[(in_is_longer ? 0 : part) + i] = element(w.rank(), i);
          }
          for (int root = 0; root < w.size(); ++root) {
            const bool at_root = w.rank() == root;
            auto want = before;
            const auto got = wanted(which, w.rank(), w.size(), count, root);
            const bool whole = which == 2 || (which == 3 && at_root);
            const std::size_t results = whole ? n * count : count;
            for (std::size_t i = 0; i < results; ++i) {
              if (which != 0 && which != 3) want[(in_is_longer ? part : 0) + i] = got[i];
              if (at_root && (which == 0 || which == 3)) want[i] = got[i];
            }
            for (const caller who : {caller::host, caller::thread, caller::warp, caller::block}) {
              memory.write(before);
              std::int32_t* const out = memory.data() + (in_is_longer ? part : 0);
              const std::int32_t* const in = memory.data() + (in_is_longer ? 0 : part);
              if (who == caller::host) {
                w.barrier();
                queue(t.all, which, out, in, count, root);
                t.all.check();
                w.barrier();
              } else {
                ASSERT_EQ(t.call<exchanges>(who, out, in, count, which, root), status::ok);
              }
              EXPECT_EQ(memory.read(), want)
                  << "call " << which << ", " << count << " elements, root " << root << ", caller "
                  << static_cast<int>(who);
            }
          }
        }
      }
    });
  }
}

// ---- many channels at once

struct own_channels {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, std::int32_t* data,
                        std::size_t each, status* out) const {
    const dev::coll with = all.channel(k.block_index());
    std::int32_t* const mine = data + static_cast<std::size_t>(k.block_index()) * each;
    const auto g = k.block();
    status s = status::ok;
    // As many calls as the block's number says: channels do not wait for each other.
    for (int i = 0; i <= k.block_index() && s == status::ok; ++i) {
      s = with.all_reduce(g, mine, mine, each, ops::max{});
    }
    if (k.thread_index() == 0) out[k.block_index()] = s;
  }
};

TEST(Channels, HaveNothingToDoWithEachOther) {
  with_ranks(3, [](cw::world& w) {
    constexpr int blocks = 5;
    constexpr std::size_t each = 700;
    const cw::coll all(w, {.channels = blocks, .shelf_bytes = 4096});
    cw::buffer<std::int32_t> data(w.options().device, blocks * each);
    cw::buffer<status> out(w.options().device, blocks);
    data.write(std::vector<std::int32_t>(blocks * each, w.rank()));
    w.barrier();
    cw::launch(w.stream(), {.blocks = blocks, .threads = 8}, own_channels{}, all.device(),
               data.data(), each, out.data());
    w.stream().sync();
    w.barrier();
    EXPECT_EQ(out.read(), std::vector<status>(blocks, status::ok));
    EXPECT_EQ(data.read(), std::vector<std::int32_t>(blocks * each, w.size() - 1));
  });
}

// ---- what ranks do wrong

struct in_channel {
  template <class G>
  CW_FN status operator()(const G& g, const dev::coll& with, std::int32_t* data,
                          int channel) const {
    return with.channel(channel).all_reduce(g, data, data, 4);
  }
};

TEST(Mismatches, AreAnErrorOnAllRanksAndNotAHang) {
  using wrong = std::function<void(cw::coll&, bool, float*)>;
  const std::vector<wrong> all_wrongs = {
      [](cw::coll& c, bool odd, float* p) { c.all_reduce(p, p, odd ? 10U : 11U); },
      [](cw::coll& c, bool odd, float* p) { c.all_reduce(p, p, odd ? 20000U : 11U); },
      [](cw::coll& c, bool odd, float* p) { c.all_reduce(p, p, odd ? 0U : 11U); },
      [](cw::coll& c, bool odd, float* p) {
        c.all_reduce(p, p, 8, odd ? cw::data_type::f32 : cw::data_type::i32, coll_op::sum);
      },
      [](cw::coll& c, bool odd, float* p) {
        c.all_reduce(p, p, 8, odd ? cw::data_type::f16 : cw::data_type::bf16, coll_op::sum);
      },
      [](cw::coll& c, bool odd, float* p) {
        c.all_reduce(p, p, 8, odd ? coll_op::sum : coll_op::avg);
      },
      [](cw::coll& c, bool odd, float* p) {
        odd ? c.all_reduce(p, p, 8) : c.all_gather(p + 100, p, 32);
      },
      [](cw::coll& c, bool odd, float* p) { c.broadcast(p, 32, odd ? 0 : 1); },
      [](cw::coll& c, bool odd, float* p) { odd ? c.barrier() : c.broadcast(p, 32, 0); },
  };
  for (std::size_t i = 0; i < all_wrongs.size(); ++i) {
    with_ranks(3, [&](cw::world& w) {
      if (w.size() == 1) return;
      cw::coll all(w);
      cw::buffer<float> data(w.options().device, 20000);
      w.barrier();
      all_wrongs[i](all, w.rank() == 1, data.data());
      try {
        all.check();
        ADD_FAILURE() << "rank " << w.rank() << " did not notice mismatch " << i;
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::asymmetric) << e.what();
        // Rank 1 may have heard of any other one first.
        if (w.rank() == 1) {
          EXPECT_TRUE(e.peer() == 0 || e.peer() == 2) << e.what();
        } else {
          EXPECT_EQ(e.peer(), 1) << e.what();
        }
      }
      w.barrier();
      // It stays of no use, and says so at once.
      const auto begin = std::chrono::steady_clock::now();
      all.all_reduce(data.data(), data.data(), 4);
      EXPECT_THROW(all.check(), cw::error);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      w.barrier();
    });
  }
}

TEST(Mismatches, OfArgumentsThrowAtOnce) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    float x = 0;
    EXPECT_THROW(all.broadcast(&x, 4, w.size()), cw::error);
    EXPECT_THROW(all.reduce(&x, &x, 1, cw::data_type::f32, coll_op::sum, -1), cw::error);
    EXPECT_THROW(cw::coll(w, {.channels = 0}), cw::error);
    w.barrier();
  });
}

TEST(Mismatches, RootsAndChannelsThatAreNoneAreRefused) {
  with_ranks(2, [](cw::world& w) {
    cw::buffer<std::int32_t> data(w.options().device, 8);
    {
      rank_setup t(w);
      EXPECT_EQ(t.call<exchanges>(caller::block, data.data(),
                                  static_cast<const std::int32_t*>(data.data()), std::size_t{4}, 3,
                                  w.size()),
                status::invalid);
    }
    rank_setup t(w, {.channels = 2});
    for (const int channel : {2, -1}) {
      EXPECT_EQ(t.call<in_channel>(caller::block, data.data(), channel), status::invalid);
    }
    EXPECT_EQ(t.call<in_channel>(caller::block, data.data(), 1), status::ok);
  });
}

TEST(Mismatches, MemoryThatIsMissingThrowsAtOnce) {
  with_ranks(1, [](cw::world& w) {
    cw::coll all(w);
    cw::buffer<float> some(w.options().device, 10);
    float* const none = nullptr;
    EXPECT_THROW(all.all_reduce(none, static_cast<const float*>(some.data()), 10), cw::error);
    EXPECT_THROW(all.all_reduce(some.data(), static_cast<const float*>(none), 10), cw::error);
    EXPECT_THROW(all.all_gather(none, some.data(), 4), cw::error);
    EXPECT_THROW(all.all_to_all(some.data(), none, 4), cw::error);
    EXPECT_THROW(all.broadcast(none, 4, 0), cw::error);
    const auto type = cw::data_type::f32;
    const int me = w.rank();
    EXPECT_THROW(all.reduce(none, some.data(), 4, type, coll_op::sum, me), cw::error);
    EXPECT_THROW(all.gather(none, some.data(), 4, me), cw::error);
    EXPECT_THROW(all.gather(some.data(), none, 4, 0), cw::error);
    EXPECT_THROW(all.scatter(none, some.data(), 4, 0), cw::error);
    EXPECT_THROW(all.scatter(some.data(), none, 4, me), cw::error);
    const std::vector<std::size_t> four(static_cast<std::size_t>(w.size()), 4);
    const std::vector<std::size_t> zero(four.size());
    EXPECT_THROW(all.all_gather_v(none, some.data(), four, zero), cw::error);
    EXPECT_THROW(all.all_gather_v(some.data(), none, four, zero), cw::error);
    EXPECT_THROW(all.gather_v(none, some.data(), four, zero, me), cw::error);
    EXPECT_THROW(all.gather_v(some.data(), none, four, zero, 0), cw::error);
    EXPECT_THROW(all.scatter_v(none, some.data(), four, zero, 0), cw::error);
    EXPECT_THROW(all.scatter_v(some.data(), none, four, zero, me), cw::error);
    EXPECT_THROW(all.reduce_scatter_v(none, some.data(), four, zero, type, coll_op::sum),
                 cw::error);
    EXPECT_THROW(all.reduce_scatter_v(some.data(), none, four, zero, type, coll_op::sum),
                 cw::error);
    EXPECT_THROW(all.all_to_all_v(none, some.data(), {four, zero, four, zero}), cw::error);
    EXPECT_THROW(all.all_to_all_v(some.data(), none, {four, zero, four, zero}), cw::error);
    all.all_reduce(none, static_cast<const float*>(none), 0);
    all.check();
    w.barrier();
  });
}

TEST(Mismatches, MessagesWithoutMemoryThrowAtOnce) {
  with_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    cw::coll all(w);
    const int other = w.rank() == 0 ? 1 : 0;
    const cw::coll::message one{cw::coll::message::direction::send, nullptr, 4, other};
    EXPECT_THROW(all.send(nullptr, 4, other), cw::error);
    EXPECT_THROW(all.receive(nullptr, 4, other), cw::error);
    EXPECT_THROW(all.exchange({&one, 1}), cw::error);
    w.barrier();
  });
}

/// Products of these are small numbers, or none.
TEST(Mismatches, MoreThanMemoryCanHaveThrowsAtOnce) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    cw::buffer<float> data(w.options().device, 8);
    float* const p = data.data();
    const auto type = cw::data_type::f32;
    for (const std::size_t huge : {~std::size_t{0}, (~std::size_t{0} >> 2U) + 2}) {
      EXPECT_THROW(all.all_reduce(p, p, huge, type, coll_op::sum), cw::error);
      EXPECT_THROW(all.reduce(p, p, huge, type, coll_op::sum, 0), cw::error);
      EXPECT_THROW(all.reduce_scatter(p, p, huge, type, coll_op::sum), cw::error);
      EXPECT_THROW(cw::coll(w, {.shelf_bytes = huge}), cw::error);
    }
    const std::size_t huge = ~std::size_t{0} - 3;
    EXPECT_THROW(all.all_gather(p, p, huge), cw::error);
    EXPECT_THROW(all.gather(p, p, huge, 0), cw::error);
    EXPECT_THROW(all.scatter(p, p, huge, 0), cw::error);
    EXPECT_THROW(all.all_to_all(p, p, huge), cw::error);
    EXPECT_THROW(all.broadcast(p, huge, 0), cw::error);
    EXPECT_THROW(all.send(p, huge, w.rank() == 0 ? 1 : 0), cw::error);
    w.barrier();
  });
}

TEST(Choice, IsExplained) {
  with_ranks(2, [](cw::world& w) {
    const cw::coll all(w);
    cw::symmetric_buffer<float> heap(w, 400000);
    cw::buffer<float> own(w.options().device, 400000);
    const bool mapped = all.device().all_mapped();
    EXPECT_EQ(all.explain(own.data(), own.data(), 8).algorithm,
              mapped ? coll_algorithm::push : coll_algorithm::pull);
    const auto staged = all.explain(own.data(), own.data(), 1600000);
    const auto direct = all.explain(heap.data(), heap.data(), 1600000);
    // A ring is for machines that have as many ranks each as there are machines.
    const int begins = w.rank() == 0 || !w.is_mapped(w.rank() - 1) ? 1 : 0;
    const auto all_begin = w.allgather(begins);
    const int machines = std::accumulate(all_begin.begin(), all_begin.end(), 0);
    const bool in_ring = !mapped && machines * machines <= w.size();
    EXPECT_EQ(staged.algorithm, in_ring ? coll_algorithm::ring : coll_algorithm::two_shot);
    EXPECT_FALSE(staged.direct);
    EXPECT_EQ(direct.direct, mapped);
    EXPECT_FALSE(staged.why.empty() || direct.why.empty());
    w.barrier();
  });
}

}  // namespace
