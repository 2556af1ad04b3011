// Has an engine of the example servers answer scripts: bytes that come in pieces, answers that go
// into little room. The engine runs in a kernel, each script as a connection in a block of its own.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../examples/servers/bytes.hpp"
#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "support/device.hpp"

namespace serve {

struct script {
  const char* in;
  std::size_t in_bytes;
  std::size_t piece;  ///< so many bytes more come when a step has done all it could
  std::size_t room;   ///< of `out` in a step
  char* out;
  std::size_t out_bytes;
  // what became of it
  std::size_t consumed;
  std::size_t produced;
  int closed;
  int bad_result;  ///< a step claimed more than it was given
};

template <class Engine, class Connection>
struct answer_scripts {
  CW_FN void operator()(const crosswarp::device::kernel_context& ctx, const Engine& engine,
                        script* all, int count) const {
    const int i = ctx.block_index() * ctx.thread_count() + ctx.thread_index();
    if (i >= count) return;
    script& s = all[i];
    Connection c{};
    std::size_t came = s.piece < s.in_bytes ? s.piece : s.in_bytes;
    int idle = 0;  // a step may do nothing when it waits for a lock
    while (s.closed == 0 && s.bad_result == 0 && idle < 1000) {
      const std::size_t left = s.out_bytes - s.produced;
      const std::size_t room = s.room < left ? s.room : left;
      const servers::step_result r =
          engine.step(c, {s.in + s.consumed, came - s.consumed}, s.out + s.produced, room);
      if (r.consumed > came - s.consumed || r.produced > room) s.bad_result = 1;
      s.consumed += r.consumed;
      s.produced += r.produced;
      s.closed = r.close ? 1 : 0;
      if (r.consumed != 0 || r.produced != 0) {
        idle = 0;
      } else if (came < s.in_bytes) {
        came = came + s.piece < s.in_bytes ? came + s.piece : s.in_bytes;
      } else if (s.consumed == s.in_bytes) {
        break;
      } else {
        ++idle;
      }
    }
  }
};

struct answer {
  std::string text;
  std::size_t consumed;
  bool closed;
};

struct way {
  std::size_t piece = ~std::size_t{0};
  std::size_t room = 64 * 1024;
  std::size_t out_bytes = 1U << 20U;
};

/// Throws when a step broke its contract.
template <class Connection, class Engine>
std::vector<answer> ask(const Engine& engine, const std::vector<std::string>& inputs,
                        const way& w = {}) {
  namespace cw = crosswarp;
  cw::stream stream(test_device());
  std::vector<cw::buffer<char>> in;
  std::vector<cw::buffer<char>> out;
  std::vector<script> scripts;
  for (const std::string& text : inputs) {
    // Each input ends where its memory ends, as far as that can be: a read behind it shows.
    in.emplace_back(stream.device(), std::max<std::size_t>(1, text.size()));
    if (!text.empty()) in.back().write(std::span<const char>(text));
    out.emplace_back(stream.device(), w.out_bytes);
    scripts.push_back({in.back().data(), text.size(), w.piece, w.room, out.back().data(),
                       w.out_bytes, 0, 0, 0, 0});
  }
  cw::buffer<script> shared(stream.device(), std::span<const script>(scripts));
  cw::launch(stream, {.blocks = static_cast<int>(inputs.size())},
             answer_scripts<Engine, Connection>{}, engine, shared.data(),
             static_cast<int>(inputs.size()));
  stream.sync();
  std::vector<answer> answers;
  const auto after = shared.read();
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i].bad_result != 0) throw std::runtime_error("a step claimed more than was there");
    const auto bytes = out[i].read();
    answers.push_back(
        {std::string(bytes.data(), after[i].produced), after[i].consumed, after[i].closed != 0});
  }
  return answers;
}

}  // namespace serve
