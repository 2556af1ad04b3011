// What PEs may see of each other's operations: small programs whose outcomes tell whether the
// promised order was kept. Fences and quiets between puts are in shmem.cpp.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "crosswarp/shmem.hpp"
#include "support/shmem_kernel.hpp"

using namespace shmem_test;
using cw::status;
using dev::amo;
using dev::compare;

namespace {

constexpr int apart = 16;  // words, so that each has a line of its own

// ---- atomicity

/// All PEs, the owner too, draw from one counter at each PE: no ticket comes twice. `sums` adds up
/// what this PE drew at each.
struct draws_tickets {
  template <class G>
  CW_FN void operator()(const bench<G>& b, std::uint64_t* counter, std::uint64_t* narrow,
                        std::uint64_t* sums, int times) const {
    const auto& sh = b.sh;
    auto* const half = reinterpret_cast<std::uint32_t*>(narrow);
    for (int i = 0; i < times; ++i) {
      for (int pe = 0; pe < sh.n_pes(); ++pe) {
        std::uint64_t ticket = 0;
        std::uint32_t small = 0;
        SH_OK(sh.atomic_fetch(b.g, amo::add, counter, std::uint64_t{1}, std::uint64_t{0}, pe,
                              ticket));
        SH_OK(sh.atomic(b.g, amo::add, counter + apart, std::uint64_t{3}, pe));
        SH_OK(sh.atomic_fetch(b.g, amo::add, half, 1U, 0U, pe, small));
        if (b.g.rank() == 0) {
          sums[2 * pe] += ticket;
          sums[2 * pe + 1] += small;
        }
      }
    }
    SH_OK(sh.barrier(b.g));
    const auto all = static_cast<std::uint64_t>(times) * static_cast<std::uint64_t>(sh.n_pes());
    SH_TRUE(sh.test(counter, compare::eq, all));
    SH_TRUE(sh.test(counter + apart, compare::eq, 3 * all));
    SH_OK(sh.barrier(b.g));
  }
};

TEST(ShmemLitmus, AtomicsOfAllPesAreAtomicToEachOther) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    constexpr int times = 100;
    const auto n = static_cast<std::size_t>(w.size());
    for (const caller who : {caller::thread, caller::block}) {
      auto* const counter = zeroed<std::uint64_t>(sh, 2 * apart);
      auto* const narrow = zeroed<std::uint64_t>(sh, apart);
      const cw::buffer<std::uint64_t> sums(w.options().device, 2 * n);
      expect_ok<draws_tickets>(w, sh.device(), who, counter, narrow, sums.data(), times);
      const auto mine = sums.read();
      const std::uint64_t drawn = n * times;
      for (std::size_t i = 0; i < 2 * n; ++i) {
        const auto all = w.allgather(mine[i]);
        std::uint64_t sum = 0;
        for (const std::uint64_t one : all) sum += one;
        EXPECT_EQ(sum, drawn * (drawn - 1) / 2) << "PE " << i / 2;
      }
    }
  });
}

/// A counter that only who has taken the word may change, by ordinary operations.
struct keeps_out {
  template <class G>
  CW_FN void operator()(const bench<G>& b, long* taken, long* counter, int times) const {
    const auto& sh = b.sh;
    for (int i = 0; i < times; ++i) {
      long before = 1;
      while (before != 0) {
        SH_OK(sh.atomic_fetch(b.g, amo::compare_swap, taken, 1L + sh.my_pe(), 0L, 0, before));
      }
      long seen = 0;
      SH_OK(sh.g(b.g, seen, counter, 0));
      SH_OK(sh.p(b.g, counter, seen + 1, 0));
      SH_OK(sh.quiet(b.g));
      SH_OK(sh.atomic_fetch(b.g, amo::swap, taken, 0L, 0L, 0, before));
      SH_TRUE(before == 1 + sh.my_pe());
    }
    SH_OK(sh.barrier(b.g));
    long all = 0;
    SH_OK(sh.g(b.g, all, counter, 0));
    SH_TRUE(all == static_cast<long>(times) * sh.n_pes());
    SH_OK(sh.barrier(b.g));
  }
};

TEST(ShmemLitmus, CompareSwapLetsOneIn) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    for (const caller who : {caller::thread, caller::block}) {
      auto* const taken = zeroed<long>(sh, 1);
      auto* const counter = zeroed<long>(sh, 1);
      expect_ok<keeps_out>(w, sh.device(), who, taken, counter, 30);
    }
  });
}

// ---- order

/// Data, a fence, then an atomic operation: who sees its effect sees the data.
struct atomics_follow_data {
  template <class G>
  CW_FN void operator()(const bench<G>& b, long* box, const long* own, std::uint64_t* flag,
                        std::uint64_t* back) const {
    constexpr std::size_t count = 50;
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int n = sh.n_pes();
    const int right = (sh.my_pe() + 1) % n;
    const int left = (sh.my_pe() + n - 1) % n;
    for (std::uint64_t round = 1; round <= 60; ++round) {
      // Another part of the values in each round.
      SH_OK(sh.put_nbi(g, box, own + round, count, right));
      SH_OK(sh.fence(g));
      if (round % 2 == 0) {
        SH_OK(sh.atomic(g, amo::add, flag, std::uint64_t{1}, right));
      } else {
        std::uint64_t before = 0;
        SH_OK(sh.atomic_fetch(g, amo::swap, flag, round, std::uint64_t{0}, right, before));
        SH_TRUE(before == round - 1);
      }
      SH_OK(sh.wait_until(g, flag, compare::eq, round));
      bool same = true;
      for (std::size_t i = 0; i < count; ++i) {
        same = same && box[i] == static_cast<long>(i + round);
      }
      SH_TRUE(same);
      SH_OK(sh.atomic(g, amo::set, back, round, left));
      SH_OK(sh.wait_until(g, back, compare::eq, round));
    }
    SH_OK(sh.barrier(g));
  }
};

TEST(ShmemLitmus, WhoSeesAnAtomicAfterAFenceSeesTheData) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    std::vector<long> values(200);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<long>(i);
    const cw::buffer<long> own(w.options().device, std::span<const long>(values));
    for (const caller who : callers) {
      auto* const box = zeroed<long>(sh, 50);
      auto* const flags = zeroed<std::uint64_t>(sh, 2 * apart);
      expect_ok<atomics_follow_data>(w, sh.device(), who, box, static_cast<const long*>(own.data()),
                                     flags, flags + apart);
    }
  });
}

/// PE 0 tells PE 1, which tells PE 2, which sees what PE 0 put there first.
struct order_is_passed_on {
  template <class G>
  CW_FN void operator()(const bench<G>& b, std::uint64_t* word) const {
    std::uint64_t* const first = word + apart;
    std::uint64_t* const second = word + 2 * apart;
    const auto& sh = b.sh;
    for (std::uint64_t i = 1; i <= 100; ++i) {
      if (sh.my_pe() == 0) {
        SH_OK(sh.p(b.g, word, i, 2));
        SH_OK(sh.quiet(b.g));
        SH_OK(sh.signal_set(b.g, first, i, 1));
      } else if (sh.my_pe() == 1) {
        SH_OK(sh.signal_wait_until(b.g, first, compare::eq, i));
        SH_OK(sh.signal_set(b.g, second, i, 2));
      } else if (sh.my_pe() == 2) {
        SH_OK(sh.signal_wait_until(b.g, second, compare::eq, i));
        SH_TRUE(sh.test(word, compare::eq, i));
      }
      SH_OK(sh.barrier(b.g));
    }
  }
};

TEST(ShmemLitmus, WhatIsQuietIsSeenByAThird) {
  on_ranks(3, [](cw::world& w) {
    if (w.size() < 3) return;
    cw::shmem sh(w);
    for (const caller who : callers) {
      auto* const words = zeroed<std::uint64_t>(sh, 3 * apart);
      expect_ok<order_is_passed_on>(w, sh.device(), who, words);
    }
  });
}

/// Puts with signals that wait for nothing: as many signals as came, as much data is there.
struct signals_count_data {
  template <class G>
  CW_FN void operator()(const bench<G>& b, long* box, const long* own, std::uint64_t* flag) const {
    constexpr int pieces = 40;
    constexpr std::size_t length = 20;
    const auto& sh = b.sh;
    const int right = (sh.my_pe() + 1) % sh.n_pes();
    for (int i = 0; i < pieces; ++i) {
      SH_OK(sh.put_signal_nbi(b.g, box + i * static_cast<int>(length), own + i, length, flag,
                              static_cast<std::uint64_t>(i + 1), dev::signal_op::set, right));
      SH_OK(sh.fence(b.g));  // of two signals to one word the second is the last
    }
    for (std::uint64_t seen = 0; seen < pieces;) {
      SH_OK(sh.signal_wait_until(b.g, flag, compare::gt, seen, seen));
      bool same = true;
      for (std::size_t k = 0; k < seen * length; ++k) {
        same = same && box[k] == static_cast<long>(k / length + k % length);
      }
      SH_TRUE(same);
    }
    SH_OK(sh.quiet(b.g));
    SH_OK(sh.barrier(b.g));
  }
};

TEST(ShmemLitmus, SignalsComeAfterTheirDataAndInOrder) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    std::vector<long> values(100);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<long>(i);
    const cw::buffer<long> own(w.options().device, std::span<const long>(values));
    for (const caller who : callers) {
      auto* const box = zeroed<long>(sh, 40 * 20);
      auto* const flag = zeroed<std::uint64_t>(sh, 1);
      expect_ok<signals_count_data>(w, sh.device(), who, box, static_cast<const long*>(own.data()),
                                    flag);
    }
  });
}

// ---- two worlds

struct sums_up {
  template <class G>
  CW_FN void operator()(const bench<G>& b, long* dest, long* source, long value) const {
    const auto& sh = b.sh;
    for (long round = 1; round <= 50; ++round) {
      if (b.g.rank() == 0) *source = value * round;
      SH_OK(sh.reduce(b.g, dev::shmem_op::sum{}, dest, source, 1));
      SH_TRUE(*dest == value * round * sh.n_pes());
      SH_OK(sh.barrier(b.g));
    }
  }
};

// Worlds of threads, also under a launcher: those of processes have their own test of that.
TEST(Shmem, OfTwoWorldsInOneProcessDoNotMeet) {
  constexpr int pes = 2;
  std::barrier<> everybody(2 * pes);  // nobody allocates while a kernel of another PE spins
  const auto live = [&](long value) {
    auto o = test_options();
    if (o.proxy.engine == "mpi") o.proxy.engine = "local";
    cw::run_local(pes, o, [&](cw::world& w) {
      cw::shmem sh(w);
      long* const dest = zeroed<long>(sh, 1);
      long* const source = zeroed<long>(sh, 1);
      cw::buffer<report> out(w.options().device, 1);
      everybody.arrive_and_wait();
      cw::launch(w.stream(), {.threads = 40}, kernel<sums_up>{}, sh.device(), caller::block,
                 out.data(), dest, source, value);
      w.stream().sync();
      everybody.arrive_and_wait();
      EXPECT_EQ(out.read().front().what, status::ok) << "line " << out.read().front().line;
    });
  };
  std::thread other(live, 1000);
  live(1);
  other.join();
}

}  // namespace
