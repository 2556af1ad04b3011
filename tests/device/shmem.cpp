// What device::shmem promises beyond single operations: order, teams, locks, errors, and sequences
// of operations against a model.
#include "crosswarp/shmem.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "crosswarp/shmem_stream.hpp"
#include "support/shmem_kernel.hpp"

using namespace shmem_test;
using cw::status;
using dev::amo;
using dev::compare;

namespace {

// ---- order

constexpr std::uint64_t rounds = 200;

/// x, fence, y: who sees the new y sees the new x.
struct fence_orders {
  template <class G>
  CW_FN void operator()(const bench<G>& b, std::uint64_t* words) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    if (sh.my_pe() == 0) {
      for (std::uint64_t i = 1; i <= rounds; ++i) {
        SH_OK(sh.p(g, words, i, 1));
        SH_OK(sh.fence(g));
        SH_OK(sh.p(g, words + 16, i, 1));
      }
    } else if (sh.my_pe() == 1) {
      for (std::uint64_t seen = 0; seen < rounds;) {
        SH_OK(sh.signal_wait_until(g, words + 16, compare::gt, seen, seen));
        SH_TRUE(sh.test(words, compare::ge, seen));
      }
    }
    SH_OK(sh.barrier(g));
  }
};

/// The same with much data ahead of a flag that is an ordinary word.
struct fence_orders_data {
  template <class G>
  CW_FN void operator()(const bench<G>& b, long* box, long* own, long* flag) const {
    constexpr std::size_t count = 100;
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int right = (sh.my_pe() + 1) % sh.n_pes();
    for (long round = 1; round <= 50; ++round) {
      for (auto i = static_cast<std::size_t>(g.rank()); i < count;
           i += static_cast<std::size_t>(g.size())) {
        own[i] = round + static_cast<long>(i);
      }
      SH_OK(sh.put_nbi(g, box, own, count, right));
      SH_OK(sh.fence(g));
      SH_OK(sh.p(g, flag, round, right));
      SH_OK(sh.wait_until(g, flag, compare::ge, round));
      bool same = true;
      for (std::size_t i = 0; i < count; ++i) same = same && box[i] == round + static_cast<long>(i);
      SH_TRUE(same);
      SH_OK(sh.barrier(g));
    }
  }
};

/// Each puts, then is quiet, then looks at what the other put: one of them sees it.
struct quiet_completes {
  template <class G>
  CW_FN void operator()(const bench<G>& b, std::uint64_t* words, std::uint64_t* seen) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int me = sh.my_pe();
    for (std::uint64_t i = 0; i < rounds; ++i) {
      if (me < 2) {
        // Word 0 at PE 0 is PE 1's, word 1 at PE 1 is PE 0's.
        SH_OK(sh.p(g, words + 16 * (1 - me), i + 1, 1 - me));
        SH_OK(sh.quiet(g));
        std::uint64_t other = 0;
        SH_OK(sh.g(g, other, words + 16 * me, me));
        if (g.rank() == 0) seen[i] = other;
      }
      SH_OK(sh.barrier(g));
    }
  }
};

/// Data of many sizes, alignments and rounds behind one flag.
struct signals_follow_data {
  template <class G>
  CW_FN void operator()(const bench<G>& b, std::uint8_t* box, std::uint8_t* own,
                        std::uint64_t* flag, std::uint64_t* back, std::size_t most) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int n = sh.n_pes();
    const int right = (sh.my_pe() + 1) % n;
    const int left = (sh.my_pe() + n - 1) % n;
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    std::uint64_t round = 0;
    for (std::size_t bytes = 0; bytes <= most; bytes = bytes * 3 + 1) {
      for (std::size_t skew = 0; skew < 3; ++skew) {
        ++round;
        for (std::size_t i = first; i < bytes; i += step) {
          own[i] = static_cast<std::uint8_t>(i + round);
        }
        SH_OK(sh.put_signal(g, box + skew, own, bytes, flag, 1, dev::signal_op::add, right));
        std::uint64_t seen = round;
        SH_OK(skew == 0 ? sh.signal_wait_until(g, flag, compare::ge, round)
                        : sh.signal_wait_until(g, flag, compare::ge, round, seen));
        SH_TRUE(seen >= round);
        bool same = true;
        for (std::size_t i = first; i < bytes; i += step) {
          same = same && box[skew + i] == static_cast<std::uint8_t>(i + round);
        }
        SH_TRUE(same);
        // The left one may write again.
        SH_OK(sh.signal_set(g, back, round, left));
        SH_OK(sh.signal_wait_until(g, back, compare::ge, round));
      }
    }
    SH_OK(sh.barrier(g));
  }
};

TEST(ShmemOrder, AFenceOrdersStoresToAPe) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    for (const caller who : callers) {
      auto* const words = zeroed<std::uint64_t>(sh, 17);
      expect_ok<fence_orders>(w, sh.device(), who, words);
    }
  });
}

TEST(ShmemOrder, AFenceOrdersDataBeforeAFlag) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    const cw::buffer<long> own(w.options().device, 100);
    for (const caller who : callers) {
      auto* const box = zeroed<long>(sh, 100);
      auto* const flag = zeroed<long>(sh, 1);
      expect_ok<fence_orders_data>(w, sh.device(), who, box, own.data(), flag);
    }
  });
}

TEST(ShmemOrder, QuietCompletes) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    auto* const words = zeroed<std::uint64_t>(sh, 17);
    auto* const seen = zeroed<std::uint64_t>(sh, 2 * rounds);
    expect_ok<quiet_completes>(w, sh.device(), caller::thread, words,
                               seen + static_cast<std::size_t>(w.rank() % 2) * rounds);
    const auto mine = read_back(sh, seen + static_cast<std::size_t>(w.rank() % 2) * rounds, rounds);
    for (std::size_t i = 0; i < rounds; ++i) {
      const auto all = w.allgather(mine[i]);
      EXPECT_TRUE(all[0] == i + 1 || all[1] == i + 1) << "round " << i;
    }
  });
}

TEST(ShmemOrder, WhoSeesTheSignalSeesTheData) {
  on_ranks(3, [](cw::world& w) {
    constexpr std::size_t most = 300'000;
    cw::shmem sh(w);
    const cw::buffer<std::uint8_t> own(w.options().device, most);
    for (const caller who : {caller::thread, caller::block}) {
      auto* const box = zeroed<std::uint8_t>(sh, most + 3);
      auto* const flags = zeroed<std::uint64_t>(sh, 32);
      expect_ok<signals_follow_data>(w, sh.device(), who, box, own.data(), flags, flags + 16, most);
    }
  });
}

// ---- teams

struct team_works {
  template <class G>
  CW_FN void operator()(const bench<G>& b, int* dest, int* source) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int n = sh.n_pes();
    for (int round = 1; round <= 20; ++round) {
      if (g.rank() == 0) *source = (sh.my_pe() + 1) * round;
      SH_OK(sh.reduce(g, dev::shmem_op::sum{}, dest, source, 1));
      SH_TRUE(*dest == n * (n + 1) / 2 * round);
      SH_OK(sh.sync(g));
      SH_OK(sh.fcollect(g, dest, source, 1));
      for (int pe = 0; pe < n; ++pe) SH_TRUE(dest[pe] == (pe + 1) * round);
      SH_OK(sh.sync(g));
    }
  }
};

/// Collective over all PEs, also those who have no part in it.
void expect_works(cw::world& w, const std::optional<dev::shmem>& set, int* dest, int* source) {
  cw::buffer<report> out(w.options().device, 1);
  w.barrier();
  if (set) {
    cw::launch(w.stream(), {.threads = 40}, kernel<team_works>{}, *set, caller::block, out.data(),
               dest, source);
    w.stream().sync();
  }
  w.barrier();
  EXPECT_EQ(out.read().front().what, status::ok)
      << "PE " << w.rank() << ", line " << out.read().front().line;
  w.barrier();
}
void expect_works(cw::world& w, const std::optional<cw::shmem::team>& t, int* dest, int* source) {
  expect_works(w, t ? std::optional(t->device()) : std::nullopt, dest, source);
}

TEST(ShmemTeams, AreSplitAndWork) {
  on_ranks(4, [](cw::world& w) {
    cw::shmem sh(w);
    const int n = sh.n_pes();
    const int me = sh.my_pe();
    int* const dest = zeroed<int>(sh, static_cast<std::size_t>(n));
    int* const source = zeroed<int>(sh, 1);
    EXPECT_EQ(sh.all().n_pes(), n);
    EXPECT_EQ(sh.all().my_pe(), me);

    // Every second one; the others get nothing.
    for (int again = 0; again < 3; ++again) {
      const auto even = sh.split_strided(sh.all(), 0, 2, (n + 1) / 2);
      EXPECT_EQ(even.has_value(), me % 2 == 0);
      if (even) {
        EXPECT_EQ(even->my_pe(), me / 2);
        EXPECT_EQ(even->view().world_pe(1 % even->n_pes()), 2 * (1 % even->n_pes()));
      }
      expect_works(w, even, dest, source);
    }
    // Two teams at once, backwards and of one.
    std::vector<int> backwards;
    for (int pe = n - 1; pe >= 0; --pe) backwards.push_back(pe);
    const auto back = sh.make_team(sh.all(), backwards);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->my_pe(), n - 1 - me);
    expect_works(w, back, dest, source);
    const auto last = sh.split_strided(*back, 0, 1, 1);
    EXPECT_EQ(last.has_value(), me == n - 1);
    expect_works(w, last, dest, source);
    // In an order that no stride describes.
    if (n >= 3) {
      const int odd[] = {1, 0, 2};
      const auto listed = sh.make_team(sh.all(), odd);
      EXPECT_EQ(listed.has_value(), me < 3);
      if (listed) {
        EXPECT_EQ(sh.all().view().translate(1, listed->view()), 0);
        EXPECT_EQ(listed->view().translate(0, back->view()), n - 2);
        EXPECT_EQ(listed->view().translate(7, back->view()), -1);
      }
      expect_works(w, listed, dest, source);
    }
    const auto grid = sh.split_2d(sh.all(), 2);
    EXPECT_EQ(grid.row.my_pe(), me % 2);
    EXPECT_EQ(grid.column.my_pe(), me / 2);
    expect_works(w, grid.row.device(), dest, source);
    expect_works(w, grid.column.device(), dest, source);
  });
}

TEST(ShmemTeams, SayWhenTheyCannotBeMade) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w, {.teams = 5});
    EXPECT_THROW((void)sh.split_strided(sh.all(), 0, 1, w.size() + 1), cw::error);
    EXPECT_THROW((void)sh.split_strided(sh.all(), 0, 0, 2), cw::error);
    EXPECT_THROW((void)sh.split_strided(sh.all(), 0, 1, 0), cw::error);
    EXPECT_THROW((void)sh.split_2d(sh.all(), 0), cw::error);
    EXPECT_THROW(cw::shmem(w, {.teams = 3}), cw::error);
    {
      const auto one = sh.split_strided(sh.all(), 0, 1, w.size());
      const auto two = sh.split_strided(sh.all(), 0, 1, w.size());
      EXPECT_THROW((void)sh.split_strided(sh.all(), 0, 1, w.size()), cw::error);
    }
    w.barrier();
    EXPECT_TRUE(sh.split_strided(sh.all(), 0, 1, w.size()).has_value());
  });
}

// ---- locks

struct counts_under_lock {
  template <class G>
  CW_FN void operator()(const bench<G>& b, std::uint64_t* lock, long* counter, int times) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    for (int i = 0; i < times; ++i) {
      if (i % 3 == 2) {
        bool mine = false;
        while (!mine) SH_OK(sh.test_lock(g, lock, mine));
      } else {
        SH_OK(sh.set_lock(g, lock));
      }
      // Not atomic: it is the lock that keeps the others out.
      long seen = 0;
      SH_OK(sh.g(g, seen, counter, 0));
      SH_OK(sh.p(g, counter, seen + 1, 0));
      SH_OK(sh.clear_lock(g, lock));
    }
    SH_OK(sh.barrier(g));
    long all = 0;
    SH_OK(sh.g(g, all, counter, 0));
    SH_TRUE(all == static_cast<long>(times) * sh.n_pes());
    SH_OK(sh.barrier(g));
  }
};

TEST(ShmemLocks, KeepOthersOut) {
  on_ranks(4, [](cw::world& w) {
    cw::shmem sh(w);
    for (const caller who : {caller::thread, caller::block}) {
      auto* const lock = zeroed<std::uint64_t>(sh, 1);
      auto* const counter = zeroed<long>(sh, 1);
      expect_ok<counts_under_lock>(w, sh.device(), who, lock, counter, 30);
    }
  });
}

// ---- errors

struct refuses {
  template <class G>
  CW_FN void operator()(const bench<G>& b, int* box, int* own, std::uint64_t* flag,
                        std::size_t count) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int n = sh.n_pes();
    const status bad = status::invalid;
    SH_TRUE(sh.put(g, box, own, 1, n) == bad);
    SH_TRUE(sh.put(g, box, own, 1, -1) == bad);
    SH_TRUE(sh.get(g, own, box, 1, n) == bad);
    SH_TRUE(sh.put(g, own, box, 1, 0) == bad);  // not symmetric
    SH_TRUE(sh.get(g, box, own, 1, 0) == bad);
    SH_TRUE(sh.p(g, own, 1, 0) == bad);
    SH_TRUE(sh.put(g, box, own, ~std::size_t{0} / 8, 0) == bad);
    SH_TRUE(sh.iput(g, box, own, {.dest = 1 << 28, .source = 1}, 8, 0) == bad);
    SH_TRUE(sh.iput(g, box, own, {.dest = -(1 << 28), .source = 1}, 8, 0) == bad);
    SH_TRUE(sh.atomic(g, amo::add, own, 1, 0) == bad);
    SH_TRUE(sh.atomic(g, amo::add, box, 1, n) == bad);
    SH_TRUE(sh.put_signal(g, box, own, 1, flag, 1, dev::signal_op::set, n) == bad);
    SH_TRUE(sh.pe_quiet(g, n) == bad);
    SH_TRUE(sh.broadcast(g, box, box, 1, n) == bad);
    SH_TRUE(sh.ptr(own, 0) == nullptr && sh.ptr(box, n) == nullptr && !sh.is_symmetric(own));
    SH_TRUE(sh.is_symmetric(box) && sh.ptr(box, sh.my_pe()) == box);
    // Nothing is as good as something.
    SH_OK(sh.put(g, box, own, 0, 0));
    SH_OK(sh.get(g, own, box, 0, 0));
    SH_OK(sh.iput(g, box, own, {}, 0, 0));
    SH_OK(sh.put_signal(g, box, own, 0, flag, 1, dev::signal_op::add, sh.my_pe()));
    SH_OK(sh.signal_wait_until(g, flag, compare::ge, 1));
    SH_OK(sh.fcollect(g, box, box, 0));
    SH_OK(sh.reduce(g, dev::shmem_op::sum{}, box, box, 0));
    SH_OK(sh.barrier(g));
    for (std::size_t i = 0; i < count; ++i) SH_TRUE(box[i] == 0);
    SH_OK(sh.barrier(g));
  }
};

struct refuses_lengths {
  template <class G>
  CW_FN void operator()(const bench<G>& b, int* box, int* own, std::uint64_t* flag,
                        std::size_t wraps) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    SH_TRUE(sh.put(g, box, own, wraps, 0) == status::invalid);
    SH_TRUE(sh.get(g, own, box, wraps, 0) == status::invalid);
    SH_TRUE(sh.iput(g, box, own, {.dest = 2, .source = 1}, wraps, 0) == status::invalid);
    SH_TRUE(sh.iget(g, own, box, {.dest = 1, .source = -2}, wraps, 0) == status::invalid);
    SH_TRUE(sh.put_signal(g, box, own, wraps, flag, 1, dev::signal_op::add, 0) == status::invalid);
    SH_TRUE(sh.reduce(g, dev::shmem_op::sum{}, box, box, wraps) == status::invalid);
    SH_OK(sh.barrier(g));
  }
};

TEST(ShmemErrors, LengthsThatWrap) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    const cw::buffer<int> own(w.options().device, 16);
    int* const box = zeroed<int>(sh, 16);
    auto* const flag = zeroed<std::uint64_t>(sh, 1);
    const std::size_t wraps = std::size_t{1} << 62U;  // times 4 is 0
    expect_ok<refuses_lengths>(w, sh.device(), caller::thread, box, own.data(), flag, wraps);
  });
}

TEST(ShmemErrors, BadArgumentsTouchNothing) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    const cw::buffer<int> own(w.options().device, 16);
    for (const caller who : callers) {
      int* const box = zeroed<int>(sh, 16);
      auto* const flag = zeroed<std::uint64_t>(sh, 1);
      expect_ok<refuses>(w, sh.device(), who, box, own.data(), flag, std::size_t{16});
    }
  });
}

/// PE 0 calls one collective, the others another.
struct disagrees {
  template <class G>
  CW_FN void operator()(const bench<G>& b, int* box) const {
    const auto& sh = b.sh.within(300'000'000);
    const status s = sh.my_pe() == 0 ? sh.sync(b.g) : sh.fcollect(b.g, box, box + 8, 1);
    SH_OK(s);
  }
};

TEST(ShmemErrors, CollectivesThatDoNotMatchAreFound) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    int* const box = zeroed<int>(sh, 8 + static_cast<std::size_t>(w.size()));
    cw::buffer<report> out(w.options().device, 1);
    w.barrier();
    cw::launch(w.stream(), {}, kernel<disagrees>{}, sh.device(), caller::thread, out.data(), box);
    w.stream().sync();
    w.barrier();
    EXPECT_EQ(out.read().front().what, status::invalid);
    w.barrier();
  });
}

/// PE 0 has sent all its broadcasts before the others hear the first, of which they expect more.
struct disagrees_late {
  template <class G>
  CW_FN void operator()(const bench<G>& b, int* box) const {
    const bool root = b.sh.my_pe() == 0;
    status s = status::ok;
    for (int i = 0; i < 3 && s == status::ok; ++i) {
      const std::size_t n = root || i > 0 ? 1 : 2;
      s = b.sh.broadcast(b.g, box, box + 4, n, 0);
      if (root && i == 2) s = b.sh.quiet(b.g);
    }
    b.out->what = s;
  }
};

TEST(ShmemErrors, BroadcastsThatDisagreeAreNoticedByWhoIsBehind) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    int* const box = zeroed<int>(sh, 8);
    const cw::buffer<report> out(w.options().device, 1);
    const auto run = [&] {
      cw::launch(w.stream(), {}, kernel<disagrees_late>{}, sh.device(), caller::thread, out.data(),
                 box);
      w.stream().sync();
    };
    w.barrier();
    if (w.rank() == 0) run();
    w.barrier();
    if (w.rank() != 0) run();
    w.barrier();
    EXPECT_EQ(out.read().front().what, w.rank() == 0 ? status::ok : status::invalid);
  });
}

TEST(ShmemErrors, TheHostSaysWhatIsWrong) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem sh(w);
    EXPECT_THROW((void)sh.allocate_bytes(w.options().heap_bytes), cw::error);
    void* const p = sh.allocate_bytes(100, 4096);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 4096, 0U);
    EXPECT_EQ(sh.size_of(p), 100U);
    sh.free(p);
    EXPECT_THROW(sh.free(p), cw::error);
    EXPECT_EQ(sh.allocate_bytes(0), nullptr);
    sh.free(nullptr);
    EXPECT_THROW((void)sh.active_set(0, 1, w.size() + 1), cw::error);
  });
}

TEST(Shmem, TwoWorldsAtOnce) {
  on_ranks(2, [](cw::world& w) {
    cw::shmem one(w);
    cw::shmem two(w);
    int* const a = zeroed<int>(one, static_cast<std::size_t>(w.size()));
    int* const b = zeroed<int>(two, 1);
    expect_works(w, one.device(), a, b);
    expect_works(w, two.device(), a, b);
  });
}

TEST(ShmemStream, RunsInOrderWithTheStream) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    const auto n = static_cast<std::size_t>(w.size());
    const int right = (w.rank() + 1) % w.size();
    const int left = (w.rank() + w.size() - 1) % w.size();
    auto* const box = zeroed<int>(sh, 8 * n);
    auto* const mine = zeroed<int>(sh, 8 * n);
    auto* const flag = zeroed<std::uint64_t>(sh, 1);
    std::vector<int> values(8 * n);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = w.rank() * 100 + static_cast<int>(i);
    }
    cw::exec::copy_now(w.options().device, mine, values.data(), values.size() * sizeof(int));
    cw::shmem_stream calls(sh.device(), w.stream());
    w.barrier();  // nobody allocates while a kernel of another PE spins on the same GPU
    const std::size_t eight = 8 * sizeof(int);

    calls.put_signal(box, mine, eight, flag, 1, dev::signal_op::set, right);
    calls.wait_until(flag, compare::eq, std::uint64_t{1});
    calls.barrier();
    calls.get(box + 8, box, eight, right);
    calls.check();
    auto got = read_back(sh, box, 16);
    EXPECT_EQ(got[3], left * 100 + 3);
    EXPECT_EQ(got[8 + 3], w.rank() * 100 + 3);

    calls.sync();
    calls.put(box, mine + 1, eight, right);
    calls.quiet();
    calls.signal(flag, 1, dev::signal_op::add, right);
    calls.wait_until(flag, compare::ge, std::uint64_t{2});
    calls.check();
    EXPECT_EQ(read_back(sh, box, 8)[3], left * 100 + 4);

    calls.sync();
    calls.broadcast(box, mine, eight, w.size() - 1);
    calls.check();
    EXPECT_EQ(read_back(sh, box, 8)[7], (w.size() - 1) * 100 + 7);
    calls.sync();
    calls.fcollect(box, mine, eight);
    calls.check();
    EXPECT_EQ(read_back(sh, box, 8 * n)[8 * n - 1], (w.size() - 1) * 100 + 7);
    calls.sync();
    calls.collect(box, mine, eight);
    calls.check();
    EXPECT_EQ(read_back(sh, box, 8 * n)[8 * n - 1], (w.size() - 1) * 100 + 7);
    calls.sync();
    calls.alltoall(box, mine, eight);
    calls.check();
    EXPECT_EQ(read_back(sh, box, 8 * n)[8 * n - 1], (w.size() - 1) * 100 + w.rank() * 8 + 7);
    calls.sync();
    calls.reduce(dev::reduction::max, dev::element::i32, box, mine, 8);
    calls.check();
    EXPECT_EQ(read_back(sh, box, 8)[5], (w.size() - 1) * 100 + 5);

    calls.put(box, mine, eight, w.size());
    EXPECT_THROW(calls.check(), cw::error);
    EXPECT_THROW(calls.reduce(dev::reduction::bit_or, dev::element::f32, box, mine, 1), cw::error);
    calls.check();
    w.barrier();
  });
}

TEST(Shmem, ActiveSetsMeetWithoutATeam) {
  on_ranks(4, [](cw::world& w) {
    cw::shmem sh(w);
    int* const dest = zeroed<int>(sh, static_cast<std::size_t>(w.size()));
    int* const source = zeroed<int>(sh, 1);
    const auto run = [&](int start, int stride, int size) {
      const dev::shmem set = sh.active_set(start, stride, size);
      expect_works(w, set.my_pe() < 0 ? std::nullopt : std::optional(set), dest, source);
    };
    run(0, 1, w.size());
    run(0, 2, (w.size() + 1) / 2);
    run(1, 1, w.size() - 1);
    run(0, 1, w.size());
  });
}

// ---- sequences against a model

constexpr int cells = 40;
enum class kind : int { put, get, p, iput, add, swap, put_signal, broadcast, reduce, count };

/// What one PE does, or all of them for a collective.
struct step {
  kind what;
  int actor;
  int target;
  int from;
  int to;
  int size;
  int value;
};

struct plays {
  template <class G>
  CW_FN void operator()(const bench<G>& b, long* board, long* own, std::uint64_t* flag,
                        const step* steps, int count) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    for (int i = 0; i < count; ++i) {
      const step s = steps[i];
      const bool mine = s.actor == sh.my_pe();
      const auto size = static_cast<std::size_t>(s.size);
      long old = 0;
      switch (s.what) {
        case kind::put:
          if (mine) SH_OK(sh.put(g, board + s.to, own + s.from, size, s.target));
          break;
        case kind::get:
          if (mine) SH_OK(sh.get(g, own + s.to, board + s.from, size, s.target));
          break;
        case kind::p:
          if (mine) SH_OK(sh.p(g, board + s.to, static_cast<long>(s.value), s.target));
          break;
        case kind::iput:
          if (mine) {
            SH_OK(sh.iput(g, board + s.to, own + s.from, {.dest = 2, .source = 1}, size / 2,
                          s.target));
          }
          break;
        case kind::add:
          // By all, at once.
          SH_OK(sh.atomic(g, amo::add, board + s.to, static_cast<long>(s.value), s.target));
          break;
        case kind::swap:
          if (mine) {
            SH_OK(sh.atomic_fetch(g, amo::swap, board + s.to, static_cast<long>(s.value), 0L,
                                  s.target, old));
            if (g.rank() == 0) own[s.from] = old;
          }
          break;
        case kind::put_signal:
          if (mine) {
            SH_OK(sh.put_signal(g, board + s.to, own + s.from, size, flag, 1, dev::signal_op::add,
                                s.target));
          }
          break;
        case kind::broadcast:
          SH_OK(sh.broadcast(g, board + s.to, board + s.from, size, s.actor));
          break;
        case kind::reduce:
          SH_OK(sh.reduce(g, dev::shmem_op::sum{}, board + s.to, board + s.from, size));
          break;
        case kind::count:
          break;
      }
      SH_OK(sh.barrier(g));
    }
  }
};

/// The same by one thread on plain arrays.
class model {
 public:
  explicit model(int pes) : pes_(pes), board(pes, std::vector<long>(cells)), own(board), flag(pes) {
    for (int pe = 0; pe < pes; ++pe) {
      for (int i = 0; i < cells; ++i) own[at(pe)][at(i)] = initial(pe, i);
    }
  }
  static long initial(int pe, int i) { return pe * 1000 + i; }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  void play(const step& s) {
    auto& there = board[at(s.target)];
    auto& mine = own[at(s.actor)];
    switch (s.what) {
      case kind::put_signal:
        ++flag[at(s.target)];
        [[fallthrough]];
      case kind::put:
        std::copy_n(mine.begin() + s.from, s.size, there.begin() + s.to);
        break;
      case kind::get:
        std::copy_n(there.begin() + s.from, s.size, mine.begin() + s.to);
        break;
      case kind::p:
        there[at(s.to)] = s.value;
        break;
      case kind::iput:
        for (int i = 0; i < s.size / 2; ++i) there[at(s.to + 2 * i)] = mine[at(s.from + i)];
        break;
      case kind::add:
        there[at(s.to)] += static_cast<long>(s.value) * pes_;
        break;
      case kind::swap:
        mine[at(s.from)] = std::exchange(there[at(s.to)], s.value);
        break;
      case kind::broadcast: {
        const std::vector<long> from = board[at(s.actor)];
        for (auto& b : board) std::copy_n(from.begin() + s.from, s.size, b.begin() + s.to);
        break;
      }
      case kind::reduce: {
        const auto before = board;
        for (auto& b : board) {
          for (int i = 0; i < s.size; ++i) {
            long sum = 0;
            for (const auto& each : before) sum += each[at(s.from + i)];
            b[at(s.to + i)] = sum;
          }
        }
        break;
      }
      case kind::count:
        break;
    }
  }

 private:
  int pes_;

 public:
  std::vector<std::vector<long>> board;
  std::vector<std::vector<long>> own;
  std::vector<std::uint64_t> flag;
};

std::vector<step> make_steps(unsigned seed, int pes, int count) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<step> steps;
  for (int i = 0; i < count; ++i) {
    step s{static_cast<kind>(below(static_cast<int>(kind::count))),
           below(pes),
           below(pes),
           0,
           0,
           1 + below(cells / 2 - 1),
           below(1000)};
    // Collectives want source and dest apart: one in each half.
    s.from = below(cells / 2 - s.size + 1);
    s.to = cells / 2 + below(cells / 2 - s.size + 1);
    if (s.what == kind::iput) s.size = std::min(s.size, (cells - s.to) / 2 * 2);
    steps.push_back(s);
  }
  return steps;
}

TEST(Shmem, RandomOperationsDoWhatTheModelDoes) {
  on_ranks(3, [](cw::world& w) {
    cw::shmem sh(w);
    const auto me = static_cast<std::size_t>(w.rank());
    constexpr int length = 120;
    for (unsigned seed = 1; seed <= 6; ++seed) {
      const auto steps = make_steps(seed, w.size(), length);
      model wanted(w.size());
      std::vector<long> start = wanted.own[me];
      for (const step& s : steps) wanted.play(s);

      auto* const board = zeroed<long>(sh, cells);
      auto* const flag = zeroed<std::uint64_t>(sh, 1);
      const cw::buffer<long> own(w.options().device, std::span<const long>(start));
      const cw::buffer<step> plan(w.options().device, std::span<const step>(steps));
      const caller who = callers[seed % 3];
      expect_ok<plays>(w, sh.device(), who, board, own.data(), flag, plan.data(), length);
      EXPECT_EQ(read_back(sh, board, cells), wanted.board[me]) << "seed " << seed;
      EXPECT_EQ(own.read(), wanted.own[me]) << "seed " << seed;
      EXPECT_EQ(read_back(sh, flag, 1)[0], wanted.flag[me]) << "seed " << seed;
      w.barrier();
      sh.free(flag);
      sh.free(board);
    }
  });
}

}  // namespace
