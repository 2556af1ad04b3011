// What the fuzzer of entries does, on the inputs that it kept and on some from a seed: in every
// build, without clang.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz/entries.hpp"

namespace {

std::vector<std::byte> contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> text((std::istreambuf_iterator<char>(in)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(EntriesFuzz, WhatWasKeptHarmsNothing) {
  int inputs = 0;
  for (const auto& file : std::filesystem::directory_iterator(CROSSWARP_ENTRIES_CORPUS)) {
    ASSERT_EQ(fuzz::post_entries(contents(file)), "") << file;
    ++inputs;
  }
  EXPECT_GT(inputs, 10);
}

TEST(EntriesFuzz, ArbitraryEntriesHarmNothing) {
  constexpr int inputs = 300;
  constexpr std::size_t longest = 1500;
  for (unsigned seed = 0; seed < inputs; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> input(random() % longest);
    for (std::byte& b : input) b = static_cast<std::byte>(random());
    ASSERT_EQ(fuzz::post_entries(input), "") << "seed " << seed;
  }
}

}  // namespace
