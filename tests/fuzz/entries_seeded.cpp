// What the fuzzer of entries does, on the inputs that it kept and on some from a seed: in every
// build, without clang.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz/entries.hpp"
#include "fuzz/frames.hpp"
#include "transports/verbs/frames.hpp"

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

/// Sound ones of each kind, with some bytes changed.
TEST(FramesFuzz, AlmostFramesAreRefusedOrUnderstood) {
  namespace verbs = crosswarp::verbs;
  std::byte data[40] = {};
  const verbs::piece all = verbs::own_piece(data, sizeof(data));
  verbs::request write;
  write.from = {0, 0, 5};
  write.to = {0, 0, 6};
  write.op = verbs::mlx5::opcode::rdma_write;
  write.bytes = sizeof(data);
  write.payload = std::span(&all, 1);
  verbs::request add;
  add.op = verbs::mlx5::opcode::atomic_fa;
  const std::vector<std::vector<std::byte>> sound = {
      verbs::hello_frame({1, 2, 0}),
      *verbs::request_frame(write),
      *verbs::request_frame(add),
      *verbs::answer_frame({.what = verbs::answer::kind::done, .payload = std::span(&all, 1)}),
  };
  std::mt19937 random(20261118);
  for (const auto& frame : sound) {
    for (int i = 0; i < 5000; ++i) {
      auto input = frame;
      for (unsigned n = random() % 4; n > 0; --n) {
        input[random() % input.size()] = static_cast<std::byte>(random());
      }
      if (random() % 8 == 0) input.resize(random() % (2 * input.size()));
      ASSERT_EQ(fuzz::read_frame(input), "");
    }
  }
}

}  // namespace
