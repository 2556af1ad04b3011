// Two ranks pass a number to each other, through the package as a user has it.
#include <atomic>
#include <cstdio>
#include <exception>

#include "pass_right.hpp"

int main() {
  constexpr int ranks = 2;
  std::atomic<int> right = 0;
  try {
    crosswarp::run_local(ranks, [&](crosswarp::world& w) {
      const int left = (w.rank() + ranks - 1) % ranks;
      if (pass_right(w, 100 + w.rank()) == 100 + left) ++right;
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::printf("%d of %d ranks have their neighbour's number\n", right.load(), ranks);
  return right == ranks ? 0 : 1;
}
