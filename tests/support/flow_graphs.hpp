// What tests of dataflow share: virtual devices, and numbers to send. No kernels: who includes it
// alone needs no compiler for them.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/flow.hpp"
#include "device.hpp"

namespace flow_test {

namespace cw = crosswarp;
namespace flow = crosswarp::flow;

inline flow::context devices(int n, std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  return flow::context(std::vector<cw::device_ref>(static_cast<std::size_t>(n), test_device()),
                       {.timeout = timeout});
}

/// `count` numbers from `first` on, in memory that device and host reach unless it is said where.
/// Made before the graph: sources outlive what copies from them.
inline cw::buffer<int> numbers(int count, int first = 0,
                               cw::memory_kind where = cw::memory_kind::pinned) {
  std::vector<int> v(static_cast<std::size_t>(count));
  std::iota(v.begin(), v.end(), first);
  return {test_device(), v, where};
}

inline flow::segment all_of(const cw::buffer<int>& b, std::uint64_t tag = 0) {
  return {b.data(), b.size() * sizeof(int), tag};
}

/// What a part holds, when it is there.
inline std::vector<int> read(const flow::pending_segment& s) {
  s.sync();
  std::vector<int> out(s.bytes() / sizeof(int));
  cw::exec::copy_now(test_device(), out.data(), s.data(), s.bytes());
  return out;
}

/// The next part of a link, given back at once.
inline std::vector<int> take(flow::link& l) {
  const flow::pending_segment s = l.receive().get();
  if (s.empty()) return {};
  auto out = read(s);
  l.release(s);
  return out;
}

/// All that comes until the end.
inline std::vector<int> drain(flow::link& l) {
  std::vector<int> all;
  for (;;) {
    const auto part = take(l);
    if (part.empty()) return all;
    all.insert(all.end(), part.begin(), part.end());
  }
}

inline std::vector<int> range(int begin, int end) {
  std::vector<int> v(static_cast<std::size_t>(end - begin));
  std::iota(v.begin(), v.end(), begin);
  return v;
}

/// Expects error(code) whose message has `part` in it.
template <class F>
void expect_error(F&& f, cw::errc code, const std::string& part) {
  try {
    f();
    FAIL() << "no error, expected: " << part;
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

}  // namespace flow_test
