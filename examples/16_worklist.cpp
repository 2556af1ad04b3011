// A worklist that all ranks share: which numbers are reached from 1 by doubling a number and adding
// 1, and by a third of it (rounded down)? Each rank knows of its own numbers which were seen.
//
//   ./16_worklist                              four ranks as threads of this process
//   crosswarp run -n 4 ./16_worklist           four processes
//   CROSSWARP_DEVICE=cuda ./16_worklist        four ranks that share a GPU
#include <cstdio>
#include <string>
#include <vector>

#include "crosswarp/worklist.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

namespace {

struct game {
  using item = std::uint64_t;
  int rank;
  int ranks;
  item limit;
  std::uint32_t* seen;  // by number / ranks, of this rank's numbers

  CW_FN int owner(item n) const { return static_cast<int>(n % static_cast<item>(ranks)); }
  CW_FN static std::uint64_t priority(item /*n*/) { return 0; }

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const {
    out.push(g, owner(1) == rank && worker == 0 && g.rank() == 0, 1);
  }
  template <class G, class Out>
  CW_FN void work(const G& g, item n, Out& out) const {
    // The first to come is the one who goes on. Relaxed: the flag guards nothing but itself.
    const bool first = dev::leader_of(g, [&] {
      return dev::device_atomic<std::uint32_t>(seen[n / static_cast<item>(ranks)])
                 .exchange(1, dev::order::relaxed) == 0;
    });
    const bool speaks = first && g.rank() == 0;
    out.push(g, speaks && 2 * n + 1 < limit, 2 * n + 1);
    out.push(g, speaks, n / 3);
  }
};

struct play {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::worklist<game::item>& list,
                        const game& g, cw::status* outcome) const {
    const cw::status s = list.run(ctx, g);
    if (ctx.thread_index() == 0) outcome[ctx.block_index()] = s;
  }
};

constexpr game::item limit = 100'000;

/// The same by one thread.
std::uint64_t reached_serially() {
  std::vector<bool> seen(limit);
  std::vector<game::item> left = {1};
  std::uint64_t count = 0;
  while (!left.empty()) {
    const game::item n = left.back();
    left.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    ++count;
    if (2 * n + 1 < limit) left.push_back(2 * n + 1);
    left.push_back(n / 3);
  }
  return count;
}

void rank_main(cw::world& w) {
  constexpr int blocks = 2;
  const auto device = w.options().device;
  cw::worklist<game::item> list(w, {.workers = blocks});
  cw::buffer<std::uint32_t> seen(device, limit / static_cast<std::size_t>(w.size()) + 1);
  cw::buffer<cw::status> outcome(device, blocks);
  list.reset();
  cw::launch(w, {.blocks = blocks}, play{}, list.device(),
             game{w.rank(), w.size(), limit, seen.data()}, outcome.data());
  w.stream().sync();
  for (const cw::status s : outcome.read()) {
    if (s != cw::status::ok) throw cw::error(cw::errc::timeout, "game", to_string(s));
  }
  std::uint64_t mine = 0;
  for (const std::uint32_t s : seen.read()) mine += s;
  std::uint64_t all = 0;
  for (const std::uint64_t n : w.allgather(mine)) all += n;
  if (all != reached_serially()) {
    throw cw::error(cw::errc::device_fault, "game", std::to_string(all) + " numbers are wrong");
  }
  if (w.rank() == 0) {
    std::printf("%llu numbers below %llu are reached\n", static_cast<unsigned long long>(all),
                static_cast<unsigned long long>(limit));
  }
}

}  // namespace

int main() {
  try {
    cw::run(4, rank_main);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
