// A one-shot allreduce with start and end sync (coll): everybody says that its input is there,
// reads all inputs in rank order, and says that it has read them; only then may an input be
// overwritten.
#pragma once

#include "common.hpp"

namespace protocols {

struct allreduce_memory {
  static constexpr int max_ranks = 8;
  static constexpr int ints = 20;
  dev::signal_line start[max_ranks];  // written by that rank
  dev::signal_line end[max_ranks];
  int input[ints];
};

template <class Who>
struct allreduce {
  using memory = allreduce_memory;

  template <class G>
  CW_FN static void tell_all(const G& g, dev::world w, dev::symmetric<memory> mem,
                             dev::signal_line (memory::*lines)[memory::max_ranks],
                             std::uint64_t epoch) {
    g.sync();
    for (int pe = g.rank(); pe < w.size; pe += g.size()) {
      dev::signal((mem.at(pe)->*lines)[w.rank]).set(epoch);
    }
  }

  template <class G>
  CW_FN static status hear_all(const G& g, dev::world w, dev::symmetric<memory> mem,
                               dev::signal_line (memory::*lines)[memory::max_ranks],
                               std::uint64_t epoch) {
    status s = status::ok;
    dev::deadline by(w.limits);
    for (int pe = g.rank(); pe < w.size && s == status::ok; pe += g.size()) {
      by.blame(pe);
      s = dev::signal((mem.local()->*lines)[pe]).wait(epoch, by);
    }
    return dev::agree(g, s);
  }

  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::symmetric<memory> mem,
                        std::uint64_t first, int rounds, outcome* out) const {
    const auto g = Who{}(ctx);
    int wrong = 0;
    status s = status::ok;
    for (int r = 1; r <= rounds && s == status::ok; ++r) {
      const std::uint64_t epoch = first + static_cast<std::uint64_t>(r);
      for (int i = g.rank(); i < memory::ints; i += g.size()) {
        mem.local()->input[i] = stamp(w.rank, epoch, i);
      }
      tell_all(g, w, mem, &memory::start, epoch);
      s = hear_all(g, w, mem, &memory::start, epoch);
      for (int i = 0; i < memory::ints && s == status::ok; ++i) {
        long sum = 0;
        long expected = 0;
        for (int pe = 0; pe < w.size; ++pe) {
          sum += mem.at(pe)->input[i];
          expected += stamp(pe, epoch, i);
        }
        wrong += sum != expected;
      }
      if (s != status::ok) break;
      tell_all(g, w, mem, &memory::end, epoch);
      s = hear_all(g, w, mem, &memory::end, epoch);
    }
    report(g, out, s, wrong);
  }
};

}  // namespace protocols
