// A loop on several threads.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace crosswarp::graph {

/// Calls f(begin, end) for pieces that make up [0, n), one on each thread; a piece for which there
/// is no thread is done by the caller. Throws what the first of them threw. `start(f, i)` is a
/// thread that calls f(i).
template <class F, class Start>
void in_pieces(int threads, std::uint64_t n, const F& f, const Start& start) {
  const auto pieces = static_cast<std::uint64_t>(threads < 1 ? 1 : threads);
  std::vector<std::exception_ptr> thrown(pieces);
  std::vector<std::thread> running;
  const auto piece = [&](std::uint64_t i) {
    try {
      f(n / pieces * i + (i < n % pieces ? i : n % pieces),
        n / pieces * (i + 1) + (i + 1 < n % pieces ? i + 1 : n % pieces));
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  running.reserve(pieces);
  std::uint64_t begun = 1;
  try {
    for (; begun < pieces; ++begun) running.push_back(start(piece, begun));
  } catch (const std::system_error&) {
    // No more threads are to be had: slower, and the same result.
  }
  piece(0);
  for (; begun < pieces; ++begun) piece(begun);
  for (std::thread& t : running) t.join();
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
}
template <class F>
void in_pieces(int threads, std::uint64_t n, const F& f) {
  in_pieces(threads, n, f,
            [](const auto& piece, std::uint64_t i) { return std::thread(std::cref(piece), i); });
}

}  // namespace crosswarp::graph
