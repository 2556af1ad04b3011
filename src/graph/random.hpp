// Random numbers by position: what edge i gets depends on the seed and on i, and on nobody else.
#pragma once

#include <cstdint>

namespace crosswarp::graph {

/// Mixes all bits; a bijection.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// A sequence for place `where` of stream `seed`.
class random_at {
 public:
  constexpr random_at(std::uint64_t seed, std::uint64_t where) noexcept
      : state_(mix(mix(seed) + where)) {}
  constexpr std::uint64_t operator()() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    return mix(state_);
  }
  /// Less than `n`, which is at most 2^32.
  constexpr std::uint64_t below(std::uint64_t n) noexcept { return ((*this)() >> 32U) * n >> 32U; }

 private:
  std::uint64_t state_;
};

}  // namespace crosswarp::graph
