// A loop on several threads.
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace crosswarp::graph {

/// Calls f(begin, end) for pieces that make up [0, n), one on each thread. Throws what the first of
/// them threw.
template <class F>
void in_pieces(int threads, std::uint64_t n, const F& f) {
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
  for (std::uint64_t i = 1; i < pieces; ++i) running.emplace_back(piece, i);
  piece(0);
  for (std::thread& t : running) t.join();
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace crosswarp::graph
