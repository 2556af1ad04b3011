// The engines of the example servers on inputs that were kept and on some from a seed: parts of
// requests, put together at random, and then damaged.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/servers.hpp"

namespace {

const std::vector<std::string> resp_parts = {
    "*1\r\n$4\r\nPING\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n123\r\n",
    "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    "*4\r\n$5\r\nLPUSH\r\n$1\r\nl\r\n$1\r\na\r\n$2\r\nbc\r\n",
    "*4\r\n$6\r\nLRANGE\r\n$1\r\nl\r\n$1\r\n0\r\n$2\r\n-1\r\n",
    "*3\r\n$4\r\nRPOP\r\n$1\r\nl\r\n$1\r\n2\r\n",
    "*4\r\n$4\r\nZADD\r\n$1\r\nz\r\n$4\r\n1e-5\r\n$1\r\nm\r\n",
    "*2\r\n$7\r\nZPOPMIN\r\n$1\r\nz\r\n",
    "*3\r\n$4\r\nSADD\r\n$1\r\ns\r\n$1\r\nx\r\n",
    "*2\r\n$4\r\nSPOP\r\n$1\r\ns\r\n",
    "*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n",
    "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n",
    "*4\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\nf\r\n$1\r\nv\r\n",
    "del k l z\r\n",
    "set \"q\\x20\" 'v'\r\n",
    "*0\r\n",
    "\r\n",
    "COMMAND\r\n",
    "*9999\r\n",
    "$-1\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\nL\r\n$900\r\n" + std::string(900, 'v') + "\r\n"};
const std::vector<std::string> http_parts = {
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HEAD /e HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /compute?n=9 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    "GET /e HTTP/1.1\nHost: x\nConnection: close\n\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 7\r\n",
    "GET /e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    "5\r\nhello\r\n",
    "1f;x=y\r\n",
    "0\r\n\r\n",
    "0\r\nA: b\r\n\r\n",
    "GET http://x/e HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET ",
    " HTTP/1.1\r\n",
    "\r\n\r\n",
    "Host: y\r\n",
    "X: " + std::string(150, 'x') + "\r\n"};

std::string make_input(std::mt19937& random) {
  const bool http = random() % 2 != 0;
  const auto& parts = http ? http_parts : resp_parts;
  std::string in(1, static_cast<char>(random() % 256 / 2 * 2 + (http ? 1 : 0)));
  for (auto n = 1 + random() % 12; n > 0; --n) in += parts[random() % parts.size()];
  for (auto n = random() % 4; n > 0; --n) {
    const std::size_t at = 1 + random() % (in.size() - 1);
    switch (random() % 3) {
      case 0:
        in[at] = static_cast<char>(random());
        break;
      case 1:
        in.erase(at, random() % 5);
        break;
      default:
        in.insert(at, std::string(random() % 300, static_cast<char>("0\r\n$*x"[random() % 6])));
    }
  }
  return in;
}

TEST(ServersFuzz, WhatWasKeptIsAnsweredTheSameInPieces) {
  int inputs = 0;
  for (const auto& file : std::filesystem::directory_iterator(CROSSWARP_SERVERS_CORPUS)) {
    std::ifstream bytes(file.path(), std::ios::binary);
    std::string in((std::istreambuf_iterator<char>(bytes)), {});
    // Cut in every way, whatever its first byte says.
    for (char pieces = 0; pieces < 32; ++pieces) {
      in[0] = static_cast<char>(in[0] % 2 + 2 * pieces);
      ASSERT_EQ(fuzz::ask_engine(std::as_bytes(std::span(in))), "") << file.path();
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 40);
}

TEST(ServersFuzz, AnswersAreTheSameInPiecesAndNothingIsLost) {
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) {
    const std::string in = make_input(random);
    ASSERT_EQ(fuzz::ask_engine(std::as_bytes(std::span(in))), "") << testing::PrintToString(in);
  }
}

}  // namespace
