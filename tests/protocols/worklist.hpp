// Programs for worklists whose outcome is known: each item's number of visits and the number of
// items.
#pragma once

#include "crosswarp/worklist.hpp"
#include "protocols/common.hpp"

namespace protocols {

/// A tree of work: item n makes 2n + 1 and 2n + 2, up to `items`; each belongs to a rank and is
/// counted there. Item n waits behind the priority n / `urgency`.
struct tree_work {
  using item = std::uint64_t;
  int rank;
  int ranks;
  std::uint64_t items;
  std::uint64_t urgency;   ///< 0: all are alike
  std::uint32_t* visits;   ///< of own items, by n / ranks
  std::uint64_t* delay;    ///< looked at so many times with each item; null: none
  std::uint64_t fits = 0;  ///< not 0: only with some items, which it says

  CW_FN int owner(item n) const noexcept {
    // Neighbours are of different ranks, and so are parents and children.
    return static_cast<int>((n * 7 + n / 3) % static_cast<std::uint64_t>(ranks));
  }
  CW_FN std::uint64_t priority(item n) const noexcept { return urgency == 0 ? 0 : n / urgency; }

  template <class G, class Out>
  CW_FN void seed(const G& g, int worker, Out& out) const noexcept {
    out.push(g, items > 0 && rank == 0 && worker == 0 && g.rank() == 0, 0);
  }
  template <class G, class Out>
  CW_FN void work(const G& g, item n, Out& out) const noexcept {
    if (g.rank() == 0) {
      // Relaxed: the kernel's end orders. Workers of one rank share the array.
      dev::device_atomic<std::uint32_t>(visits[n]).fetch_add(1, dev::order::relaxed);
    }
    pause(n);
    // By two threads where there are two.
    for (std::uint64_t k = 1; k <= 2; k += static_cast<std::uint64_t>(g.size())) {
      const std::uint64_t child = 2 * n + k + static_cast<std::uint64_t>(g.rank());
      out.push(g, k + static_cast<std::uint64_t>(g.rank()) <= 2 && child < items, child);
    }
  }
  CW_FN void pause(item n) const noexcept {
    if (delay == nullptr || (fits != 0 && ((n + 1) * fits * 0x9e3779b97f4a7c15U) >> 61U != 0)) {
      return;
    }
    const dev::device_atomic<std::uint64_t> looks(*delay);
    for (std::uint64_t i = looks.load(dev::order::relaxed); i > 0; --i) {
      static_cast<void>(looks.load(dev::order::relaxed));
    }
  }
};

/// Runs a program and reports each warp's outcome: the gravest.
struct run_worklist {
  template <class Program, class Route>
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::worklist<std::uint64_t>& list,
                        const Program& program, const Route& route, status* out) const {
    const status s = dev::agree(ctx.block(), list.run(ctx, program, route));
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }
};

}  // namespace protocols
