#include "fuzz/frames.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "transports/verbs/frames.hpp"

namespace fuzz {
namespace {

namespace verbs = crosswarp::verbs;
using verbs::frame;

std::span<const std::byte> payload_of(const frame& f) {
  const auto& all = f.what == frame::kind::answer ? f.said.payload : f.asked.payload;
  return all.empty() ? std::span<const std::byte>() : std::span(all[0].at, all[0].bytes);
}

std::optional<std::vector<std::byte>> written(const frame& f) {
  switch (f.what) {
    case frame::kind::hello:
      return verbs::hello_frame(f.who);
    case frame::kind::request:
      return verbs::request_frame(f.asked);
    case frame::kind::answer:
      return verbs::answer_frame(f.said);
    case frame::kind::none:
      break;
  }
  return {};
}

bool same(const frame& a, const frame& b) {
  const auto x = payload_of(a);
  const auto y = payload_of(b);
  return a.what == b.what && a.who == b.who && a.asked.op == b.asked.op &&
         a.asked.from == b.asked.from && a.asked.to == b.asked.to && a.asked.psn == b.asked.psn &&
         a.asked.address == b.asked.address && a.asked.bytes == b.asked.bytes &&
         a.asked.offset == b.asked.offset && a.asked.word.width == b.asked.word.width &&
         a.said.what == b.said.what && a.said.why == b.said.why && a.said.psn == b.said.psn &&
         a.said.word == b.said.word && std::equal(x.begin(), x.end(), y.begin(), y.end());
}

}  // namespace

std::string read_frame(std::span<const std::byte> input) {
  // Where nothing is around it, so that a byte too far shows.
  const std::vector<std::byte> held(input.begin(), input.end());
  frame f;
  if (!f.read(held)) return {};
  const auto payload = payload_of(f);
  if (payload.size() > verbs::most_frame_data) return "more data than a frame may have";
  if (!payload.empty() && (payload.data() < held.data() ||
                           payload.data() + payload.size() > held.data() + held.size())) {
    return "data that is not the frame's";
  }
  if (f.what == frame::kind::request && f.asked.bytes > verbs::most_frame_data) {
    return "an answer would be too long";
  }
  const auto again = written(f);
  frame second;
  if (!again || !second.read(*again)) return "what was read is no frame when it is written";
  return same(f, second) ? std::string() : "what was read says something else when it is written";
}

}  // namespace fuzz
