// The RESP server's engine for groups of threads: pipelines that are carried out together, beside
// the engine that does one request after the other.
#include "../examples/servers/resp_batch.hpp"

#include <gtest/gtest.h>

#include <random>

#include "support/resp_server.hpp"

namespace {

/// One connection for each block.
struct answer_by_groups {
  CW_FN void operator()(const crosswarp::device::kernel_context& ctx,
                        const servers::resp_batch& engine, serve::script* all) const {
    const auto g = ctx.block();
    const serve::script s = all[ctx.block_index()];
    servers::resp_connection c{};
    std::size_t came = s.piece < s.in_bytes ? s.piece : s.in_bytes;
    std::size_t consumed = 0;
    std::size_t produced = 0;
    bool bad = false;
    for (int idle = 0; !bad && idle < 1000;) {
      const std::size_t left = s.out_bytes - produced;
      const std::size_t room = s.room < left ? s.room : left;
      const servers::step_result r =
          engine.step(g, c, {s.in + consumed, came - consumed}, s.out + produced, room);
      bad = r.consumed > came - consumed || r.produced > room || r.close;
      consumed += r.consumed;
      produced += r.produced;
      if (r.consumed != 0 || r.produced != 0) {
        idle = 0;
      } else if (came < s.in_bytes) {
        came = came + s.piece < s.in_bytes ? came + s.piece : s.in_bytes;
      } else if (consumed == s.in_bytes) {
        break;
      } else {
        ++idle;
      }
    }
    g.sync();
    if (g.rank() != 0) return;
    all[ctx.block_index()].consumed = consumed;
    all[ctx.block_index()].produced = produced;
    all[ctx.block_index()].bad_result = bad ? 1 : 0;
  }
};

/// One connection of plain requests only, which are to be carried out in few batches.
struct answer_in_batches {
  CW_FN void operator()(const crosswarp::device::kernel_context& ctx,
                        const servers::resp_batch& engine, serve::script* s, int* batches) const {
    const auto g = ctx.block();
    std::size_t consumed = 0;
    std::size_t produced = 0;
    for (;;) {
      const servers::step_result r =
          engine.plain(g, {s->in + consumed, s->in_bytes - consumed}, s->out + produced, s->room);
      if (r.consumed == 0) break;
      consumed += r.consumed;
      produced += r.produced;
      if (g.rank() == 0) ++*batches;
    }
    g.sync();
    if (g.rank() != 0) return;
    s->consumed = consumed;
    s->produced = produced;
  }
};

class group_server {
 public:
  explicit group_server(int threads)
      : threads_(threads),
        memory_(test_device(), bytes),
        engine_(servers::resp({memory_.data(), bytes, {}}, {})) {}

  [[nodiscard]] std::vector<std::string> ask_all(const std::vector<std::string>& inputs,
                                                 std::size_t piece = ~std::size_t{0},
                                                 std::size_t room = 64 * 1024) const {
    constexpr std::size_t out_bytes = 1U << 20U;
    std::vector<crosswarp::buffer<char>> in;
    std::vector<crosswarp::buffer<char>> out;
    std::vector<serve::script> scripts;
    for (const std::string& text : inputs) {
      in.emplace_back(test_device(), std::span<const char>(text));
      out.emplace_back(test_device(), out_bytes);
      scripts.push_back(
          {in.back().data(), text.size(), piece, room, out.back().data(), out_bytes, 0, 0, 0, 0});
    }
    crosswarp::stream stream(test_device());
    const crosswarp::buffer<serve::script> shared(test_device(),
                                                  std::span<const serve::script>(scripts));
    crosswarp::launch(stream, {.blocks = static_cast<int>(inputs.size()), .threads = threads_},
                      answer_by_groups{}, engine_, shared.data());
    stream.sync();
    std::vector<std::string> answers;
    const auto after = shared.read();
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i].bad_result, 0);
      EXPECT_EQ(after[i].consumed, inputs[i].size());
      answers.emplace_back(out[i].read().data(), after[i].produced);
    }
    return answers;
  }

  /// Plain requests, and in how many batches they were carried out.
  [[nodiscard]] std::pair<std::string, int> ask_in_batches(const std::string& text) const {
    constexpr std::size_t out_bytes = 1U << 20U;
    const crosswarp::buffer<char> in(test_device(), std::span<const char>(text));
    const crosswarp::buffer<char> out(test_device(), out_bytes);
    const serve::script one{
        in.data(), text.size(), text.size(), out_bytes / 2, out.data(), out_bytes, 0, 0, 0, 0};
    const crosswarp::buffer<serve::script> script(test_device(),
                                                  std::span<const serve::script>(&one, 1));
    const crosswarp::buffer<int> batches(test_device(), 1);
    crosswarp::stream stream(test_device());
    crosswarp::launch(stream, {.threads = threads_}, answer_in_batches{}, engine_, script.data(),
                      batches.data());
    stream.sync();
    const serve::script after = script.read()[0];
    EXPECT_EQ(after.consumed, text.size());
    return {std::string(out.read().data(), after.produced), batches.read()[0]};
  }

 private:
  static constexpr std::size_t bytes = 8U << 20U;
  int threads_;
  crosswarp::buffer<char> memory_;
  servers::resp_batch engine_;
};

/// Requests most of which are plain, for few keys.
std::string some_requests(std::mt19937& random, int count) {
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::string all;
  for (int i = 0; i < count; ++i) {
    const std::string key = "key:" + std::to_string(one_of(6));
    const int sizes[] = {0, 1, 3, 9, 10, 20, 63, 64, 65, 500};
    const std::string value(static_cast<std::size_t>(sizes[one_of(10)]),
                            static_cast<char>('a' + one_of(26)));
    switch (one_of(16)) {
      case 0:
        all += array({"LPUSH", "list", value});
        break;
      case 1:
        all += array({"GET", "list"});
        break;
      case 2:
        all += array({"DEL", key});
        break;
      case 3:
        all += array({"SET", key, value, "NX"});
        break;
      case 4:
        all += "get " + key + "\r\n";
        break;
      case 5:
        all += array({"INCR", "n"});
        break;
      case 6:
        all += array({"set", "n", std::to_string(one_of(2000) - 1000)});
        break;
      case 7:
        all += array({"SET", key, "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n"});
        break;
      case 8:
      case 9:
      case 10:
      case 11:
        all += array({i % 3 == 0 ? "sEt" : "SET", key, value});
        break;
      default:
        all += array({i % 5 == 0 ? "Get" : "GET", key});
    }
  }
  return all;
}

TEST(RespBatch, AnswersAsOneThreadDoes) {
  std::mt19937 random(3);
  for (const int threads : {2, 8, 33}) {
    const server one;
    const group_server group(threads);
    for (int round = 0; round < 12; ++round) {
      const std::string in = some_requests(random, 1 + round * 17);
      const std::size_t pieces[] = {~std::size_t{0}, 700, 61, 1};
      const std::size_t piece = pieces[round % 4];
      const std::size_t room = round % 3 == 1 ? 9000 : 64 * 1024;
      EXPECT_EQ(group.ask_all({in}, piece, room)[0], one.ask(in).text)
          << threads << " threads, round " << round;
    }
  }
}

// What a pipeline sets it gets, and of several values the last one stays.
TEST(RespBatch, SeesWhatItHasSetItself) {
  const group_server s(8);
  (void)s.ask_all({array({"SET", "k", "0"})});
  std::string in;
  std::string expected;
  constexpr int pairs = 100;
  for (int i = 1; i < pairs; ++i) {
    in += array({"GET", "k"}) + array({"SET", "k", std::to_string(i)});
    expected += bulk(std::to_string(i - 1)) + "+OK\r\n";
  }
  const auto [answer, batches] = s.ask_in_batches(in);
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(batches, (2 * (pairs - 1) + servers::resp_batch::most - 1) / servers::resp_batch::most);
  EXPECT_EQ(s.ask_all({array({"GET", "k"})})[0], bulk("99"));
}

// Keys of all shards, with values that grow and shrink within their blocks (all have one class).
TEST(RespBatch, BatchesOfManyKeysAnswerAsOneThreadDoes) {
  std::mt19937 random(5);
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr int keys = 40;
  std::string first;
  for (int k = 0; k < keys; ++k) {
    first += array({"SET", "key:" + std::to_string(k), std::string(30, 'x')});
  }
  std::string in;
  for (int i = 0; i < 2000; ++i) {
    // Long stretches for few keys.
    const std::string key = "key:" + std::to_string(one_of(i / 200 % 2 == 0 ? keys : 3));
    const std::string value(static_cast<std::size_t>(26 + one_of(5)),
                            static_cast<char>('a' + i % 26));
    in += one_of(3) == 0 ? array({"SET", key, value}) : array({"GET", key});
  }
  const server one;
  (void)one.ask(first);
  const group_server group(16);
  (void)group.ask_all({first});
  const auto [answer, batches] = group.ask_in_batches(in);
  EXPECT_EQ(answer, one.ask(in).text);
  EXPECT_LT(batches, 500) << "they are carried out together";
}

TEST(RespBatch, NobodySeesHalfAValue) {
  const group_server s(4);
  constexpr int rounds = 800;
  constexpr std::size_t value_bytes = 40;
  std::vector<std::string> in(4);
  for (int k = 0; k < rounds; ++k) {
    for (std::size_t i = 0; i < 2; ++i) {
      const char c = static_cast<char>((i == 0 ? 'a' : 'A') + k % 26);
      in[i] += array({"SET", "k", std::string(value_bytes, c)});
    }
    for (std::size_t i = 2; i < in.size(); ++i) in[i] += array({"GET", "k"});
  }
  (void)s.ask_all({array({"SET", "k", std::string(value_bytes, 'z')})});
  const auto got = s.ask_all(in, 4000);
  for (std::size_t i = 2; i < got.size(); ++i) {
    const std::size_t each = bulk(std::string(value_bytes, 'a')).size();
    ASSERT_EQ(got[i].size(), rounds * each);
    for (std::size_t at = 0; at < got[i].size(); at += each) {
      const std::string answer = got[i].substr(at, each);
      EXPECT_EQ(answer, bulk(std::string(value_bytes, answer[5])));
    }
  }
}

}  // namespace
