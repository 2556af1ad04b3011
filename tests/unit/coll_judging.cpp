// What `crosswarp coll-test` takes for right and for wrong: it is no test if it cannot fail.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "coll_test/problem.hpp"

namespace {

namespace dev = crosswarp::device;
using namespace crosswarp::tool::coll_test;
using crosswarp::coll_op;
using crosswarp::data_type;

using bytes = std::vector<std::byte>;

template <class T>
std::vector<T> elements(const bytes& all) {
  std::vector<T> v(all.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), all.data(), all.size());
  return v;
}
template <class T>
bytes as_bytes(const std::vector<T>& v) {
  bytes all(v.size() * sizeof(T));
  if (!v.empty()) std::memcpy(all.data(), v.data(), all.size());
  return all;
}

/// Moves a rank's part of what another rank passes in.
bytes part(const problem& p, int from, std::size_t which) {
  const bytes all = input_of(p, from);
  const std::size_t begin = places_of(p, from)[which] * size_of(p.type);
  const std::size_t end = begin + counts_of(p, from)[which] * size_of(p.type);
  return {all.begin() + static_cast<std::ptrdiff_t>(begin),
          all.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// What `rank` gets of an operation that reduces nothing, by its definition.
bytes moved(const problem& p, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  if (p.op == operation::broadcast) return input_of(p, p.root);
  if (p.op == operation::scatter) return part(p, p.root, me);
  if (p.op == operation::send_recv) return input_of(p, rank == 0 ? p.ranks - 1 : rank - 1);
  bytes out;
  for (int r = 0; r < p.ranks; ++r) {
    const bytes next = p.op == operation::all_to_all ? part(p, r, me) : input_of(p, r);
    out.insert(out.end(), next.begin(), next.end());
  }
  return out;
}

/// Sums of floats, the last rank first: another order than the library's.
template <class T>
std::vector<T> summed_backwards(const problem& p) {
  std::vector<dev::accumulator_t<T>> sums(p.count);
  for (int r = p.ranks - 1; r >= 0; --r) {
    const auto in = elements<T>(input_of(p, r));
    for (std::size_t i = 0; i < p.count; ++i) sums[i] += dev::widen(in[i]);
  }
  std::vector<T> out;
  for (const auto s : sums) out.push_back(dev::narrow<T>(s));
  return out;
}

constexpr std::size_t count = 40000;  // more than inputs take to repeat

TEST(Moves, OneWrongBitIsOneWrongElement) {
  for (const operation op : {operation::all_gather, operation::gather, operation::broadcast,
                             operation::scatter, operation::all_to_all, operation::send_recv}) {
    for (const data_type type : all_types()) {
      const problem p{
          .op = op, .type = type, .in = contents::random, .ranks = 3, .root = 1, .count = count};
      bytes out = moved(p, 1);
      EXPECT_EQ(wrong_in(p, 1, out), 0U) << to_string(op) << " of " << to_string(type);
      for (const std::size_t at : {std::size_t{0}, out.size() / 2, out.size() - 1}) {
        out[at] ^= std::byte{1};
      }
      EXPECT_EQ(wrong_in(p, 1, out), 3U) << to_string(op) << " of " << to_string(type);
    }
  }
}

TEST(UnevenParts, AreAsMuchInAllAsEvenOnes) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    bool differ = false;
    for (const operation op : {operation::all_gather, operation::all_to_all}) {
      const problem p{.op = op, .ranks = ranks, .count = 100, .uneven = true};
      for (int rank = 0; rank < ranks; ++rank) {
        const auto counts = counts_of(p, rank);
        std::size_t all = 0;
        for (const std::size_t n : counts) {
          all += n;
          differ = differ || n != 100;
        }
        EXPECT_EQ(all, 100U * static_cast<std::size_t>(ranks)) << ranks;
        // What one sends is what the other expects.
        for (int r = 0; r < ranks; ++r) {
          if (op != operation::all_to_all) continue;
          EXPECT_EQ(counts[static_cast<std::size_t>(r)],
                    counts_of(p, r)[static_cast<std::size_t>(rank)]);
        }
      }
    }
    EXPECT_EQ(differ, ranks > 1) << ranks;
  }
}

TEST(UnevenParts, OneWrongBitIsOneWrongElement) {
  for (const operation op :
       {operation::all_gather, operation::gather, operation::scatter, operation::all_to_all}) {
    for (int rank = 0; rank < 5; ++rank) {
      const problem p{.op = op,
                      .type = data_type::bf16,
                      .in = contents::random,
                      .ranks = 5,
                      .root = rank,
                      .count = count,
                      .uneven = true};
      bytes out = moved(p, rank);
      EXPECT_EQ(wrong_in(p, rank, out), 0U) << to_string(op);
      if (out.empty()) continue;
      out[out.size() / 2] ^= std::byte{1};
      EXPECT_EQ(wrong_in(p, rank, out), 1U) << to_string(op);
    }
  }
}

TEST(UnevenParts, OfSumsBeginWhereTheOthersEnd) {
  const problem whole{.type = data_type::i64, .ranks = 5, .count = 5 * 3000};
  auto sums = elements<std::int64_t>(input_of(whole, 0));
  for (int r = 1; r < 5; ++r) {
    const auto next = elements<std::int64_t>(input_of(whole, r));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += next[i];
  }
  const problem p{.op = operation::reduce_scatter,
                  .type = data_type::i64,
                  .ranks = 5,
                  .count = 3000,
                  .uneven = true};
  for (std::size_t r = 0; r < 5; ++r) {
    const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(places_of(p, 0)[r]);
    std::vector<std::int64_t> mine(begin, begin + static_cast<std::ptrdiff_t>(counts_of(p, 0)[r]));
    EXPECT_EQ(wrong_in(p, static_cast<int>(r), as_bytes(mine)), 0U);
    if (mine.empty()) continue;
    mine.back() ^= 1;
    EXPECT_EQ(wrong_in(p, static_cast<int>(r), as_bytes(mine)), 1U);
  }
}

TEST(Moves, AnotherRanksPartIsWrong) {
  const problem p{.op = operation::scatter, .in = contents::random, .ranks = 3, .count = count};
  EXPECT_GT(wrong_in(p, 1, moved(p, 2)), count * 9 / 10);
}

TEST(Moves, AMessageFromTheNextRankIsWrong) {
  const problem p{.op = operation::send_recv, .in = contents::random, .ranks = 3, .count = count};
  EXPECT_GT(wrong_in(p, 0, input_of(p, 1)), count * 9 / 10);
}

TEST(Moves, OnlyTheRootHasAResult) {
  const problem p{.op = operation::gather, .ranks = 2, .root = 1, .count = 10};
  EXPECT_EQ(wrong_in(p, 0, bytes(80)), 0U);
  EXPECT_EQ(wrong_in(p, 1, bytes(80)), 20U);
}

template <class T>
class Sums : public testing::Test {};
using types = testing::Types<double, float, dev::half, dev::bfloat16, dev::fp8_e4m3, dev::fp8_e5m2>;
TYPED_TEST_SUITE(Sums, types);

TYPED_TEST(Sums, OfIntegersHaveOneRightResult) {
  problem p{.type = crosswarp::data_type_of<TypeParam>::value, .ranks = 7, .count = count};
  auto out = summed_backwards<TypeParam>(p);
  EXPECT_EQ(wrong_in(p, 3, as_bytes(out)), 0U);
  bytes next = as_bytes(out);
  next[5 * sizeof(TypeParam)] ^= std::byte{1};  // the last place
  EXPECT_EQ(wrong_in(p, 3, next), 1U);
  p.op = operation::reduce_scatter;  // a part that begins elsewhere
  p.count = 5000;
  EXPECT_GT(wrong_in(p, 3, as_bytes(out)), 3000U);
}

TYPED_TEST(Sums, OfFloatsMayBeInAnyOrder) {
  const problem p{.type = crosswarp::data_type_of<TypeParam>::value,
                  .in = contents::random,
                  .ranks = 7,
                  .count = count};
  auto out = summed_backwards<TypeParam>(p);
  EXPECT_EQ(wrong_in(p, 0, as_bytes(out)), 0U);
  // But not without somebody: elements are about 1, and all ranks differ.
  const problem fewer{.type = p.type, .in = contents::random, .ranks = 6, .count = count};
  const std::size_t wrong = wrong_in(p, 0, as_bytes(summed_backwards<TypeParam>(fewer)));
  EXPECT_GT(wrong, count * 3 / 4);
  // Nor twice as far off as roundings can bring it, nor as no number.
  const double far = sizeof(TypeParam) == 8 ? 1e-14 : sizeof(TypeParam) == 4 ? 1e-5 : 2.0;
  using accumulator = dev::accumulator_t<TypeParam>;
  out[9] = dev::narrow<TypeParam>(dev::widen(out[9]) + static_cast<accumulator>(far));
  out[11] = dev::narrow<TypeParam>(std::numeric_limits<accumulator>::quiet_NaN());
  EXPECT_EQ(wrong_in(p, 0, as_bytes(out)), 2U);
}

TEST(ShortSums, AreRoundedOnce) {
  // Rounded to bfloat16 after each addition, as a sum without a longer accumulator would be.
  const problem p{.type = data_type::bf16, .in = contents::random, .ranks = 16, .count = count};
  std::vector<dev::bfloat16> sums(count, dev::narrow<dev::bfloat16>(0));
  for (int r = 0; r < p.ranks; ++r) {
    const auto in = elements<dev::bfloat16>(input_of(p, r));
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] = dev::narrow<dev::bfloat16>(dev::widen(sums[i]) + dev::widen(in[i]));
    }
  }
  EXPECT_GT(wrong_in(p, 0, as_bytes(sums)), count / 4);
}

template <class T>
T combined(coll_op op, T a, T b) {
  switch (op) {
    case coll_op::min:
      return std::min(a, b);
    case coll_op::max:
      return std::max(a, b);
    case coll_op::bit_and:
      return a & b;
    case coll_op::bit_or:
      return a | b;
    case coll_op::bit_xor:
      return a ^ b;
    case coll_op::prod:
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    default:
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

TEST(Integers, AreExactWithEveryOperation) {
  for (const coll_op op : all_redops()) {
    for (const contents in : {contents::integers, contents::random}) {
      const problem p{.type = data_type::i32, .redop = op, .in = in, .ranks = 5, .count = 100};
      auto out = elements<std::int32_t>(input_of(p, 0));
      for (int r = 1; r < p.ranks; ++r) {
        const auto next = elements<std::int32_t>(input_of(p, r));
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = combined(op, out[i], next[i]);
      }
      for (auto& x : out) x = op == coll_op::avg ? x / p.ranks : x;
      EXPECT_EQ(wrong_in(p, 0, as_bytes(out)), 0U) << to_string(op);
      out[50] ^= 1;
      EXPECT_EQ(wrong_in(p, 0, as_bytes(out)), 1U) << to_string(op);
    }
  }
}

TEST(Inputs, OfIntegersAreOneToFifteenAndDifferByRank) {
  const problem p{.type = data_type::i64, .ranks = 2, .count = count};
  const auto a = elements<std::int64_t>(input_of(p, 0));
  const auto b = elements<std::int64_t>(input_of(p, 1));
  EXPECT_EQ(*std::min_element(a.begin(), a.end()), 1);
  EXPECT_EQ(*std::max_element(a.begin(), a.end()), 15);
  std::size_t same = 0;
  for (std::size_t i = 0; i < count; ++i) same += a[i] == b[i] ? 1U : 0U;
  EXPECT_LT(same, count / 10);
}

TEST(Bandwidth, IsCountedAsNcclTestsDo) {
  EXPECT_DOUBLE_EQ(bus_factor({.op = operation::all_reduce, .ranks = 4}), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor({.op = operation::all_gather, .ranks = 4}), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor({.op = operation::all_to_all, .ranks = 4}), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor({.op = operation::broadcast, .ranks = 4}), 1);
}

TEST(Names, ThatAreNoneAreToldWithThoseThatAre) {
  EXPECT_EQ(named(all_operations(), "gather", "--op"), operation::gather);
  try {
    (void)named(all_types(), "f33", "--type");
    FAIL();
  } catch (const crosswarp::error& e) {
    EXPECT_NE(std::string(e.what()).find("'f33' is none of f64, f32"), std::string::npos)
        << e.what();
  }
}

}  // namespace
