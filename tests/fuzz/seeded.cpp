// What the fuzzer does, on inputs from a seed: in every build, without clang.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "fuzz/commands.hpp"

namespace {

TEST(ProxyFuzz, ArbitraryCommandsAreAnsweredAndHarmNothing) {
  constexpr int inputs = 4000;
  constexpr std::size_t longest = 1500;
  for (unsigned seed = 0; seed < inputs; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> input(random() % longest);
    // Some inputs have long runs of zeros: small numbers are where commands mean something.
    const unsigned zeros = random() % 4;
    for (std::byte& b : input) b = static_cast<std::byte>(random() % 4 < zeros ? 0 : random());
    ASSERT_EQ(fuzz::carry_out(input), "") << "seed " << seed;
  }
}

}  // namespace
