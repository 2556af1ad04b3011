#include "coll_test/problem.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace crosswarp::tool::coll_test {
namespace {

namespace dev = crosswarp::device;

/// Inputs repeat after so many elements, so that what is right is worked out once for all of them.
/// A prime: the parts of ranks and blocks are no multiples of it, so that one taken for another
/// shows.
constexpr std::size_t period = 16381;

template <class F>
auto with_type(data_type t, const F& f) {
  switch (t) {
    case data_type::f64:
      return f(double{});
    case data_type::f32:
      return f(float{});
    case data_type::f16:
      return f(dev::half{});
    case data_type::bf16:
      return f(dev::bfloat16{});
    case data_type::e4m3:
      return f(dev::fp8_e4m3{});
    case data_type::e5m2:
      return f(dev::fp8_e5m2{});
    case data_type::i32:
      return f(std::int32_t{});
    case data_type::i64:
      break;
  }
  return f(std::int64_t{});
}

// ---- inputs

/// Bits that look random (the last part of splitmix64).
std::uint64_t bits_at(int rank, std::size_t i) {
  std::uint64_t x = (static_cast<std::uint64_t>(rank) << 32U) + i + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// Products stay between 1/16 and 16, far from where the shortest types end.
double random_float(const problem& p, std::uint64_t bits) {
  const double x = 2 * std::ldexp(static_cast<double>(bits >> 11U), -53) - 1;
  if (!reduces(p.op) || p.redop != coll_op::prod) return x;
  return (bits % 2 == 0 ? 1 : -1) * std::exp2(4 * x / p.ranks);
}

template <class T>
T element(const problem& p, int rank, std::size_t i) {
  const std::uint64_t bits = bits_at(rank, i % period);
  if constexpr (std::is_integral_v<T>) {
    return p.in == contents::integers ? static_cast<T>(1 + bits % 15) : static_cast<T>(bits);
  } else {
    // Products of 1 to 15 would be rounded on the way; those of 1 and 2 are not.
    const std::uint64_t most = reduces(p.op) && p.redop == coll_op::prod ? 2 : 15;
    const double x =
        p.in == contents::integers ? static_cast<double>(1 + bits % most) : random_float(p, bits);
    return dev::narrow<T>(static_cast<dev::accumulator_t<T>>(x));
  }
}

// ---- integers: exact, and modulo 2^bits

template <class T>
T combined(coll_op op, T a, T b) {
  using u = std::make_unsigned_t<T>;
  switch (op) {
    case coll_op::sum:
    case coll_op::avg:
      return static_cast<T>(static_cast<u>(a) + static_cast<u>(b));
    case coll_op::prod:
      return static_cast<T>(static_cast<u>(a) * static_cast<u>(b));
    case coll_op::min:
      return std::min(a, b);
    case coll_op::max:
      return std::max(a, b);
    case coll_op::bit_and:
      return a & b;
    case coll_op::bit_or:
      return a | b;
    case coll_op::bit_xor:
      break;
  }
  return a ^ b;
}

template <class T>
T reduced_integer(const problem& p, std::size_t i) {
  T all = element<T>(p, 0, i);
  for (int r = 1; r < p.ranks; ++r) all = combined(p.redop, all, element<T>(p, r, i));
  return p.redop == coll_op::avg ? static_cast<T>(all / p.ranks) : all;
}

// ---- floats: as close as can be promised

struct reference {
  double value;
  double bound;  ///< how far off a right result may be
};

/// By how much `k` roundings to the nearest, each by at most `u`, can change a result: Higham's
/// gamma.
double roundings(int k, double u) {
  return k * u / (1 - k * u);
}

/// Half a unit in the last place of T at 1, and half its smallest number: what one rounding to T
/// can do.
template <class T>
struct rounding_of {
  static constexpr double relative = 0;  // sums are made in T itself
  static constexpr double absolute = 0;
};
template <>
struct rounding_of<dev::half> {
  static constexpr double relative = 0x1p-11;
  static constexpr double absolute = 0x1p-25;
};
template <>
struct rounding_of<dev::bfloat16> {
  static constexpr double relative = 0x1p-8;
  static constexpr double absolute = 0x1p-134;
};
template <>
struct rounding_of<dev::fp8_e4m3> {
  static constexpr double relative = 0x1p-4;
  static constexpr double absolute = 0x1p-10;
};
template <>
struct rounding_of<dev::fp8_e5m2> {
  static constexpr double relative = 0x1p-3;
  static constexpr double absolute = 0x1p-17;
};

/// In doubles, all ranks' elements i; `size` is what the error of a sum is measured by: however
/// they are added up, n - 1 additions are off by at most roundings(n - 1) of the sum of their sizes
/// (a small sum of large numbers may have no right digit), and a product by that much of itself.
double in_doubles(const problem& p, std::span<const double> elements, double& size) {
  double all = elements[0];
  size = std::fabs(all);
  for (const double x : elements.subspan(1)) {
    switch (p.redop) {
      case coll_op::min:
        all = std::min(all, x);
        break;
      case coll_op::max:
        all = std::max(all, x);
        break;
      case coll_op::prod:
        all *= x;
        size *= std::fabs(x);
        break;
      default:
        all += x;
        size += std::fabs(x);
    }
  }
  return all;
}

template <class T>
reference reduced_float(const problem& p, std::span<const double> elements) {
  using accumulator = dev::accumulator_t<T>;
  double size = 0;
  double value = in_doubles(p, elements, size);
  const bool avg = p.redop == coll_op::avg;
  if (p.redop == coll_op::min || p.redop == coll_op::max) return {value, 0};
  if (p.in == contents::integers) {
    // Nothing is rounded before the end, so that nothing is left open.
    auto all = static_cast<accumulator>(value);
    if (avg) all /= static_cast<accumulator>(p.ranks);
    return {static_cast<double>(dev::widen(dev::narrow<T>(all))), 0};
  }
  if (avg) {
    value /= p.ranks;
    size /= p.ranks;
  }
  const int steps = p.ranks - 1 + (avg ? 1 : 0);
  constexpr double u = std::numeric_limits<accumulator>::epsilon() / 2;
  constexpr double u_here = std::numeric_limits<double>::epsilon() / 2;
  // The reference is rounded, too; its steps and those that worked out `size`.
  const double sum = (roundings(steps, u) + 2 * roundings(steps, u_here)) * size;
  // Then the one rounding to a short type.
  using last = rounding_of<T>;
  return {value, sum + std::max(last::relative * (std::fabs(value) + sum), last::absolute)};
}

template <class T>
bool is_right(T got, const reference& want) {
  const auto x = static_cast<double>(dev::widen(got));
  if (std::isnan(want.value) || std::isinf(want.value)) {
    return std::isnan(want.value) ? std::isnan(x) : x == want.value;
  }
  return std::fabs(x - want.value) <= want.bound;
}

// ---- results

template <class T>
T element_at(std::span<const std::byte> all, std::size_t i) {
  T value;
  std::memcpy(&value, all.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// Elements of part `which`. As random as inputs, some have none, and all together are as many as
/// even ones.
std::size_t part_of(const problem& p, int which) {
  if (!p.uneven) return p.count;
  const auto weight = [&](int r) { return bits_at(p.ranks, static_cast<std::size_t>(r)) % 4; };
  std::size_t weights = 0;
  int last = 0;
  for (int r = 0; r < p.ranks; ++r) {
    weights += weight(r);
    if (weight(r) != 0) last = r;
  }
  const std::size_t all = p.count * static_cast<std::size_t>(p.ranks);
  if (weights == 0) return which == last ? all : 0;
  if (which != last) return all / weights * weight(which);
  return all - all / weights * (weights - weight(last));
}

/// Where a rank's part begins in a memory that is alike on all ranks.
std::size_t first_of(const problem& p, int rank) {
  return places_of(p, rank)[static_cast<std::size_t>(rank)];
}

template <class T>
std::size_t wrong_integers(const problem& p, int rank, std::span<const std::byte> out) {
  const std::size_t first = p.op == operation::reduce_scatter ? first_of(p, rank) : 0;
  const std::size_t count = elements_out(p, rank);
  std::vector<T> want(std::min(period, count));
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = reduced_integer<T>(p, first + i);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (element_at<T>(out, i) != want[i % period]) ++wrong;
  }
  return wrong;
}

template <class T>
std::size_t wrong_floats(const problem& p, int rank, std::span<const std::byte> out) {
  const std::size_t first = p.op == operation::reduce_scatter ? first_of(p, rank) : 0;
  const std::size_t count = elements_out(p, rank);
  std::vector<reference> want(std::min(period, count));
  std::vector<double> elements(static_cast<std::size_t>(p.ranks));
  for (std::size_t i = 0; i < want.size(); ++i) {
    for (int r = 0; r < p.ranks; ++r) {
      elements[static_cast<std::size_t>(r)] =
          static_cast<double>(dev::widen(element<T>(p, r, first + i)));
    }
    want[i] = reduced_float<T>(p, elements);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_right(element_at<T>(out, i), want[i % period])) ++wrong;
  }
  return wrong;
}

/// Elements of the result that come from one rank, one after the other.
struct origin {
  int rank;
  std::size_t first;  ///< of that rank's input
  std::size_t count;
};
std::vector<origin> origins_of(const problem& p, int rank) {
  if (p.op == operation::broadcast) return {{p.root, 0, p.count}};
  if (p.op == operation::scatter) return {{p.root, first_of(p, rank), elements_out(p, rank)}};
  if (p.op == operation::send_recv) return {{(rank + p.ranks - 1) % p.ranks, 0, p.count}};
  std::vector<origin> all;
  const auto counts = counts_of(p, rank);
  for (int r = 0; r < p.ranks; ++r) {
    const std::size_t first =
        p.op == operation::all_to_all ? places_of(p, r)[static_cast<std::size_t>(rank)] : 0;
    all.push_back({r, first, counts[static_cast<std::size_t>(r)]});
  }
  return all;
}

/// Bit by bit: nobody may change what is only moved.
template <class T>
std::size_t wrong_moved(const problem& p, int rank, std::span<const std::byte> out) {
  using bits = std::array<std::byte, sizeof(T)>;
  std::size_t wrong = 0;
  std::size_t at = 0;
  for (const origin& from : origins_of(p, rank)) {
    for (std::size_t i = 0; i < from.count; ++i, ++at) {
      const auto want = std::bit_cast<bits>(element<T>(p, from.rank, from.first + i));
      if (element_at<bits>(out, at) != want) ++wrong;
    }
  }
  return wrong;
}

}  // namespace

bool reduces(operation op) noexcept {
  return op == operation::all_reduce || op == operation::reduce_scatter || op == operation::reduce;
}

bool has_root(operation op) noexcept {
  return op == operation::broadcast || op == operation::reduce || op == operation::gather ||
         op == operation::scatter;
}

bool in_parts(operation op) noexcept {
  return op != operation::all_reduce && op != operation::reduce && op != operation::broadcast &&
         op != operation::send_recv;
}

std::size_t elements_in(const problem& p, int rank) noexcept {
  if (!in_parts(p.op)) return p.count;
  const bool all = p.op == operation::reduce_scatter || p.op == operation::scatter ||
                   p.op == operation::all_to_all;
  return all ? p.count * static_cast<std::size_t>(p.ranks) : part_of(p, rank);
}

std::size_t elements_out(const problem& p, int rank) noexcept {
  if (!in_parts(p.op)) return p.count;
  const bool all =
      p.op == operation::all_gather || p.op == operation::gather || p.op == operation::all_to_all;
  return all ? p.count * static_cast<std::size_t>(p.ranks) : part_of(p, rank);
}

/// What ranks a and b exchange is part a + b of all parts: so everybody moves as much.
std::vector<std::size_t> counts_of(const problem& p, int rank) {
  std::vector<std::size_t> counts;
  counts.reserve(static_cast<std::size_t>(p.ranks));
  for (int r = 0; r < p.ranks; ++r) {
    counts.push_back(part_of(p, p.op == operation::all_to_all ? (rank + r) % p.ranks : r));
  }
  return counts;
}

std::vector<std::size_t> places_of(const problem& p, int rank) {
  std::vector<std::size_t> places;
  std::size_t at = 0;
  for (const std::size_t count : counts_of(p, rank)) {
    places.push_back(at);
    at += count;
  }
  return places;
}

bool has_result(const problem& p, int rank) noexcept {
  return rank == p.root || (p.op != operation::reduce && p.op != operation::gather);
}

double bus_factor(const problem& p) noexcept {
  const double n = p.ranks;
  if (p.op == operation::all_reduce) return 2 * (n - 1) / n;
  return in_parts(p.op) ? (n - 1) / n : 1;
}

std::vector<std::byte> input_of(const problem& p, int rank) {
  return with_type(p.type, [&]<class T>(T) {
    const std::size_t count = elements_in(p, rank);
    std::vector<T> one(std::min(period, count));
    for (std::size_t i = 0; i < one.size(); ++i) one[i] = element<T>(p, rank, i);
    std::vector<std::byte> all(count * sizeof(T));
    for (std::size_t at = 0; at < count; at += period) {
      const std::size_t n = std::min(period, count - at);
      std::memcpy(all.data() + at * sizeof(T), one.data(), n * sizeof(T));
    }
    return all;
  });
}

std::size_t wrong_in(const problem& p, int rank, std::span<const std::byte> out) {
  if (!has_result(p, rank)) return 0;
  return with_type(p.type, [&]<class T>(T) -> std::size_t {
    if (!reduces(p.op)) return wrong_moved<T>(p, rank, out);
    if constexpr (std::is_integral_v<T>) {
      return wrong_integers<T>(p, rank, out);
    } else {
      return wrong_floats<T>(p, rank, out);
    }
  });
}

const char* to_string(operation op) noexcept {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                   "broadcast",  "reduce",         "all_to_all",
                                   "gather",     "scatter",        "send_recv"};
  return names[static_cast<int>(op)];
}

std::string name_of(const problem& p) {
  return std::string(to_string(p.op)) + (p.uneven ? "_v" : "");
}

std::vector<operation> all_operations() {
  return {operation::all_reduce, operation::reduce_scatter, operation::all_gather,
          operation::broadcast,  operation::reduce,         operation::all_to_all,
          operation::gather,     operation::scatter,        operation::send_recv};
}

std::vector<data_type> all_types() {
  return {data_type::f64,  data_type::f32,  data_type::f16, data_type::bf16,
          data_type::e4m3, data_type::e5m2, data_type::i32, data_type::i64};
}

std::vector<coll_op> all_redops() {
  return {coll_op::sum, coll_op::prod,    coll_op::min,    coll_op::max,
          coll_op::avg, coll_op::bit_and, coll_op::bit_or, coll_op::bit_xor};
}

}  // namespace crosswarp::tool::coll_test
