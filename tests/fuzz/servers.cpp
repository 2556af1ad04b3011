#include "fuzz/servers.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "../examples/servers/http.hpp"
#include "../examples/servers/resp.hpp"

namespace fuzz {
namespace {

using servers::step_result;
using servers::text;

struct outcome {
  std::string answers;
  bool closed = false;
  std::string wrong;
};

/// Gives `in` to the engine in pieces. Each step sees memory of just the right size.
template <class State, class Engine>
outcome answer(const Engine& engine, const std::string& in, std::size_t piece, std::size_t room) {
  outcome o;
  State state{};
  std::size_t consumed = 0;
  std::size_t came = 0;
  for (bool moved = true; moved || came < in.size();) {
    if (!moved) came = std::min(in.size(), came + piece);
    const auto bytes = std::make_unique<char[]>(came - consumed);
    std::copy(in.begin() + static_cast<std::ptrdiff_t>(consumed),
              in.begin() + static_cast<std::ptrdiff_t>(came), bytes.get());
    const auto out = std::make_unique<char[]>(room);
    const step_result r = engine.step(state, text(bytes.get(), came - consumed), out.get(), room);
    if (r.consumed > came - consumed) o.wrong = "consumed more than came";
    if (r.produced > room) o.wrong = "produced more than there was room for";
    if (!o.wrong.empty()) return o;
    consumed += r.consumed;
    o.answers.append(out.get(), r.produced);
    o.closed = r.close;
    if (r.close) return o;
    moved = r.consumed != 0 || r.produced != 0;
  }
  return o;
}

std::string compare(const outcome& whole, const outcome& pieces) {
  if (!whole.wrong.empty()) return whole.wrong;
  if (!pieces.wrong.empty()) return "in pieces: " + pieces.wrong;
  if (whole.closed != pieces.closed) return "closes only one way";
  return whole.answers == pieces.answers
             ? ""
             : "in pieces other answers:\n" + whole.answers + "\n---\n" + pieces.answers;
}

outcome ask_resp(const std::string& in, std::size_t piece, std::string& lost) {
  constexpr std::size_t bytes = 1U << 20U;
  struct alignas(256) line {
    char byte[256];
  };
  static const auto memory = std::make_unique<line[]>(bytes / sizeof(line));
  std::fill_n(memory[0].byte, bytes, '\0');
  const servers::table keys(memory[0].byte, bytes, {.shards = 2, .seed = 1});
  const servers::resp engine(keys,
                             {.request_bytes = 2048, .answer_bytes = 4096, .line_bytes = 200});
  outcome o = answer<servers::resp_connection>(engine, in, piece, 4096);
  (void)answer<servers::resp_connection>(engine, "FLUSHALL\r\n", 100, 4096);
  if (keys.size() != 0 || keys.blocks_in_use() != 0 || keys.memory().chunks_in_use() != 0) {
    lost = "memory is lost after FLUSHALL";
  }
  return o;
}

outcome ask_http(const std::string& in, std::size_t piece) {
  static const std::string body(3000, 'b');
  static const servers::http_page pages[] = {{"/", "text/plain", body.data(), 1, 10, body.size()},
                                             {"/e", "text/plain", body.data(), 2, 10, 0}};
  const servers::http engine(pages, 2, {.line_bytes = 200, .head_bytes = 500, .body_bytes = 300});
  return answer<servers::http_connection>(engine, in, piece, 1024);
}

}  // namespace

std::string ask_engine(std::span<const std::byte> input) {
  if (input.empty()) return "";
  const auto first = static_cast<unsigned>(input[0]);
  const std::string in(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  const std::size_t piece = 1 + first / 2 % 32;
  if (first % 2 != 0) return compare(ask_http(in, in.size() + 1), ask_http(in, piece));
  std::string lost;
  const outcome whole = ask_resp(in, in.size() + 1, lost);
  const std::string wrong = compare(whole, ask_resp(in, piece, lost));
  return wrong.empty() ? lost : wrong;
}

}  // namespace fuzz
