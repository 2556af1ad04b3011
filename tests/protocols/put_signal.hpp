// Put with signal around a ring of ranks (shmem): write the right neighbour's buffer, raise its
// signal, take what came from the left, and tell the left that its buffer is free again.
#pragma once

#include "common.hpp"

namespace protocols {

struct put_signal_memory {
  static constexpr int depth = 2;
  static constexpr int ints = 24;
  dev::signal_line full;  // written by the left neighbour: rounds put here
  dev::signal_line free;  // written by the right neighbour: rounds it has read
  int data[depth][ints];
};

/// Signals begin at `start`, so that the counters can be made to wrap.
template <class Who>
struct put_signal {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<put_signal_memory> mem, std::uint64_t start, int rounds,
                        outcome* out) const {
    const auto g = Who{}(ctx);
    put_signal_memory& mine = *mem.local();
    const int right = (w.rank + 1) % w.size;
    const int left = (w.rank + w.size - 1) % w.size;
    status s = status::ok;
    int wrong = 0;
    for (int r = 0; r < rounds && s == status::ok; ++r) {
      const std::uint64_t now = start + static_cast<std::uint64_t>(r) + 1;
      const int slot = r % put_signal_memory::depth;
      // The buffer held round r - depth; the right neighbour must have read it.
      s = dev::wait(g, dev::signal(mine.free), now - put_signal_memory::depth,
                    w.limits.for_peer(right));
      if (s != status::ok) break;
      int* const to = mem.at(right)->data[slot];
      for (int i = g.rank(); i < put_signal_memory::ints; i += g.size())
        to[i] = stamp(w.rank, now, i);
      dev::notify(g, dev::signal(mem.at(right)->full), now);

      s = dev::wait(g, dev::signal(mine.full), now, w.limits.for_peer(left));
      if (s != status::ok) break;
      // Not the elements this thread would have written: the whole group sees all of them.
      for (int i = 0; i < put_signal_memory::ints; ++i) {
        wrong += mine.data[slot][i] != stamp(left, now, i);
      }
      dev::notify(g, dev::signal(mem.at(left)->free), now);
    }
    report(g, out, s, wrong);
  }
};

/// Several writers add to one signal; who sees the sum sees what all of them wrote.
struct add_signal_memory {
  dev::signal_line arrivals;
  int slot[64];
};

template <class Who>
struct add_signal {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<add_signal_memory> mem, outcome* out) const {
    const auto g = Who{}(ctx);
    for (int pe = g.rank(); pe < w.size; pe += g.size())
      mem.at(pe)->slot[w.rank] = stamp(w.rank, 7, pe);
    g.sync();
    if (g.rank() == 0) {
      for (int pe = 0; pe < w.size; ++pe) dev::signal(mem.at(pe)->arrivals).add(1);
    }
    const status s = dev::wait(g, dev::signal(mem.local()->arrivals),
                               static_cast<std::uint64_t>(w.size), w.limits);
    int wrong = 0;
    for (int pe = 0; pe < w.size && s == status::ok; ++pe) {
      wrong += mem.local()->slot[pe] != stamp(pe, 7, w.rank);
    }
    report(g, out, s, wrong);
  }
};

}  // namespace protocols
