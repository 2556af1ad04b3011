// Collectives of uneven parts: by the host and by threads, warps and blocks, with random counts.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"
#include "support/coll_callers.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::coll_op;
using cw::status;

namespace {

enum class which { all_gather, gather, scatter, reduce_scatter, all_to_all };
constexpr which every_call[] = {which::all_gather, which::gather, which::scatter,
                                which::reduce_scatter, which::all_to_all};

using numbers = std::vector<std::size_t>;

/// How many elements rank a has for rank b, for all of them the same; for calls in which each rank
/// has one part, b is 0. And where parts lie, with gaps, the last rank's first.
struct layout {
  std::size_t ranks = 1;
  std::size_t longest = 0;
  numbers table;

  layout(int n, std::size_t most, unsigned seed)
      : ranks(static_cast<std::size_t>(n)), longest(most), table(ranks * ranks) {
    std::mt19937 random(seed);
    // Every third has nothing.
    for (std::size_t& count : table) count = random() % 3 == 0 ? 0 : random() % (most + 1);
  }
  [[nodiscard]] std::size_t count(std::size_t a, std::size_t b) const {
    return table[a * ranks + b];
  }
  [[nodiscard]] std::size_t place(std::size_t r) const {
    return (ranks - 1 - r) * (longest + 3) + 1;
  }
  [[nodiscard]] std::size_t room() const { return ranks * (longest + 3) + 1; }

  [[nodiscard]] numbers counts_of(const std::function<std::size_t(std::size_t)>& f) const {
    numbers all(ranks);
    for (std::size_t r = 0; r < ranks; ++r) all[r] = f(r);
    return all;
  }
};

std::int32_t element(std::size_t r, std::size_t i) {
  return static_cast<std::int32_t>(r * 100003 + i * 7 + 1);
}

/// What `out` holds at rank `me`; -1 where nothing comes.
std::vector<std::int32_t> wanted(which call, const layout& l, std::size_t me, std::size_t root) {
  std::vector<std::int32_t> out(l.room(), -1);
  for (std::size_t r = 0; r < l.ranks; ++r) {
    const bool gathers = call == which::all_gather || (call == which::gather && me == root);
    for (std::size_t i = 0; gathers && i < l.count(r, 0); ++i) out[l.place(r) + i] = element(r, i);
    for (std::size_t i = 0; call == which::all_to_all && i < l.count(r, me); ++i) {
      out[l.place(r) + i] = element(r, l.place(me) + i);
    }
  }
  for (std::size_t i = 0; i < l.count(me, 0); ++i) {
    if (call == which::scatter) out[i] = element(root, l.place(me) + i);
    if (call != which::reduce_scatter) continue;
    out[i] = 0;
    for (std::size_t r = 0; r < l.ranks; ++r) out[i] += element(r, l.place(me) + i);
  }
  return out;
}

/// Counts and places of a call, of elements.
struct arguments {
  numbers counts;
  numbers places;
  numbers send_counts;

  arguments(which call, const layout& l, std::size_t me)
      : counts(l.counts_of(
            [&](std::size_t r) { return l.count(r, call == which::all_to_all ? me : 0); })),
        places(l.counts_of([&](std::size_t r) { return l.place(r); })),
        send_counts(l.counts_of([&](std::size_t r) { return l.count(me, r); })) {}

  void scale(std::size_t by) {
    for (numbers* all : {&counts, &places, &send_counts}) {
      for (std::size_t& n : *all) n *= by;
    }
  }
};

/// The arguments are gone when this returns.
void queue(cw::coll& all, which call, std::int32_t* out, const std::int32_t* in, arguments a,
           int root) {
  if (call != which::reduce_scatter) a.scale(sizeof(*out));
  switch (call) {
    case which::all_gather:
      return all.all_gather_v(out, in, a.counts, a.places);
    case which::gather:
      return all.gather_v(out, in, a.counts, a.places, root);
    case which::scatter:
      return all.scatter_v(out, in, a.counts, a.places, root);
    case which::reduce_scatter:
      return all.reduce_scatter_v(out, in, a.counts, a.places, cw::data_type::i32, coll_op::sum);
    case which::all_to_all:
      return all.all_to_all_v(out, in, {a.send_counts, a.places, a.counts, a.places});
  }
}

struct in_kernel {
  template <class G>
  CW_FN status operator()(const G& g, const dev::coll& with, std::int32_t* out,
                          const std::int32_t* in, which call,
                          const dev::coll::all_to_all_plan& plan, int root) const {
    switch (call) {
      case which::all_gather:
        return with.all_gather_v(g, out, in, plan.receive_counts, plan.receive_places);
      case which::gather:
        return with.gather_v(g, out, in, plan.receive_counts, plan.receive_places, root);
      case which::scatter:
        return with.scatter_v(g, out, in, plan.receive_counts, plan.receive_places, root);
      case which::reduce_scatter:
        return with.reduce_scatter_v(g, out, in, plan.receive_counts, plan.receive_places);
      case which::all_to_all:
        break;
    }
    return with.all_to_all_v(g, out, in, plan);
  }
};

/// A rank's memory: what it passes in, what it gets, and arguments for kernels.
struct memory {
  memory(const cw::world& w, std::size_t room)
      : in(w.options().device, room),
        out(w.options().device, room),
        plan(w.options().device, 3 * static_cast<std::size_t>(w.size())) {
    std::vector<std::int32_t> mine(room);
    for (std::size_t i = 0; i < room; ++i) {
      mine[i] = element(static_cast<std::size_t>(w.rank()), i);
    }
    in.write(mine);
  }
  dev::coll::all_to_all_plan write(const arguments& a) {
    numbers all = a.send_counts;
    all.insert(all.end(), a.places.begin(), a.places.end());
    all.insert(all.end(), a.counts.begin(), a.counts.end());
    plan.write(all);
    const std::size_t n = a.counts.size();
    return {plan.data(), plan.data() + n, plan.data() + 2 * n, plan.data() + n};
  }

  cw::buffer<std::int32_t> in;
  cw::buffer<std::int32_t> out;
  cw::buffer<std::size_t> plan;
};

TEST(UnevenParts, ByEverybodyFromEveryRoot) {
  for (const int ranks : {1, 2, 4}) {
    with_ranks(ranks, [](cw::world& w) {
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
      const auto me = static_cast<std::size_t>(w.rank());
      unsigned seed = 0;
      for (const std::size_t most : {std::size_t{1}, std::size_t{40}, std::size_t{3000}}) {
        const layout l(w.size(), most, ++seed);
        memory m(w, l.room());
        for (const which call : every_call) {
          const arguments a(call, l, me);
          const auto plan = m.write(a);
          for (int root = 0; root < w.size(); ++root) {
            for (const caller who : {caller::host, caller::thread, caller::warp, caller::block}) {
              m.out.write(std::vector<std::int32_t>(l.room(), -1));
              if (who == caller::host) {
                w.barrier();
                queue(t.all, call, m.out.data(), m.in.data(), a, root);
                t.all.check();
                w.barrier();
              } else {
                const std::int32_t* const in = m.in.data();
                ASSERT_EQ(t.call<in_kernel>(who, m.out.data(), in, call, plan, root), status::ok);
              }
              EXPECT_EQ(m.out.read(), wanted(call, l, me, static_cast<std::size_t>(root)))
                  << "call " << static_cast<int>(call) << ", up to " << most << " elements, root "
                  << root << ", caller " << static_cast<int>(who);
            }
          }
        }
      }
    });
  }
}

/// A rank's part lies where it belongs in the longer memory, and nothing else of that changes.
TEST(UnevenParts, InPlace) {
  with_ranks(4, [](cw::world& w) {
    rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
    const auto me = static_cast<std::size_t>(w.rank());
    const std::size_t root = 1 % static_cast<std::size_t>(w.size());
    const layout l(w.size(), 3000, 5);
    memory m(w, l.room());
    for (const which call : every_call) {
      if (call == which::all_to_all) continue;
      const bool in_is_longer = call == which::scatter || call == which::reduce_scatter;
      const std::size_t place = l.place(me);
      std::vector<std::int32_t> before(l.room(), -1);
      for (std::size_t i = 0; i < (in_is_longer ? l.room() : l.count(me, 0)); ++i) {
        before[(in_is_longer ? 0 : place) + i] = element(me, i);
      }
      auto want = before;
      const auto got = wanted(call, l, me, root);
      for (std::size_t i = 0; i < l.room(); ++i) {
        if (in_is_longer && i < l.count(me, 0)) want[place + i] = got[i];
        if (!in_is_longer && got[i] != -1) want[i] = got[i];
      }
      const arguments a(call, l, me);
      const auto plan = m.write(a);
      for (const caller who : {caller::host, caller::thread, caller::warp, caller::block}) {
        m.out.write(before);
        std::int32_t* const out = m.out.data() + (in_is_longer ? place : 0);
        const std::int32_t* const in = m.out.data() + (in_is_longer ? 0 : place);
        if (who == caller::host) {
          w.barrier();
          queue(t.all, call, out, in, a, static_cast<int>(root));
          t.all.check();
          w.barrier();
        } else {
          ASSERT_EQ(t.call<in_kernel>(who, out, in, call, plan, static_cast<int>(root)),
                    status::ok);
        }
        EXPECT_EQ(m.out.read(), want)
            << "call " << static_cast<int>(call) << ", caller " << static_cast<int>(who);
      }
    }
  });
}

/// Long enough for many blocks on a GPU, and for several pieces of a shelf.
TEST(UnevenParts, OfLongCallsAreSharedByBlocks) {
  with_ranks(3, [](cw::world& w) {
    cw::coll all(w);
    const auto me = static_cast<std::size_t>(w.rank());
    const layout l(w.size(), 300000, 9);
    memory m(w, l.room());
    for (const which call : every_call) {
      m.out.write(std::vector<std::int32_t>(l.room(), -1));
      w.barrier();
      queue(all, call, m.out.data(), m.in.data(), arguments(call, l, me), 1 % w.size());
      all.check();
      w.barrier();
      EXPECT_TRUE(m.out.read() == wanted(call, l, me, 1 % static_cast<std::size_t>(w.size())))
          << "call " << static_cast<int>(call);
    }
  });
}

/// One call by several blocks of a kernel, each with its share and a channel.
struct by_blocks {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, std::int32_t* out,
                        const std::int32_t* in, const dev::coll::all_to_all_plan& plan, bool gather,
                        status* outcome) const {
    const dev::share mine{k.block_index(), k.block_count()};
    const dev::coll with = all.channel(mine.which);
    const auto g = k.block();
    const status s =
        gather ? with.all_gather_v(g, out, in, plan.receive_counts, plan.receive_places, mine)
               : with.all_to_all_v(g, out, in, plan, mine);
    if (k.thread_index() == 0) outcome[mine.which] = s;
  }
};

TEST(UnevenParts, AreSharedByBlocksOfAKernel) {
  with_ranks(3, [](cw::world& w) {
    constexpr int blocks = 3;
    cw::coll all(w, {.channels = blocks, .shelf_bytes = 4096});
    const auto me = static_cast<std::size_t>(w.rank());
    const layout l(w.size(), 2500, 4);
    memory m(w, l.room());
    cw::buffer<status> outcome(w.options().device, blocks);
    for (const bool gather : {true, false}) {
      const which call = gather ? which::all_gather : which::all_to_all;
      const auto plan = m.write(arguments(call, l, me));
      m.out.write(std::vector<std::int32_t>(l.room(), -1));
      const std::int32_t* const in = m.in.data();
      w.barrier();
      cw::launch(w.stream(), {.blocks = blocks, .threads = 8}, by_blocks{}, all.device(),
                 m.out.data(), in, plan, gather, outcome.data());
      w.stream().sync();
      w.barrier();
      EXPECT_EQ(outcome.read(), std::vector<status>(blocks, status::ok));
      EXPECT_EQ(m.out.read(), wanted(call, l, me, 0)) << gather;
    }
  });
}

/// Counts are the recording's own: other ones are queued between its replays.
TEST(UnevenParts, RecordedAndQueuedInTurns) {
  with_ranks(3, [](cw::world& w) {
    cw::coll all(w);
    const auto me = static_cast<std::size_t>(w.rank());
    const layout recorded(w.size(), 2000, 1);
    const layout other(w.size(), 2000, 2);
    memory m(w, recorded.room());
    memory m2(w, other.room());
    for (const which call : every_call) {
      m.out.write(std::vector<std::int32_t>(recorded.room(), -1));
      m2.out.write(std::vector<std::int32_t>(other.room(), -1));
      w.barrier();
      cw::recording once(w.stream(), [&] {
        queue(all, call, m.out.data(), m.in.data(), arguments(call, recorded, me), 0);
      });
      w.barrier();
      once.replay(w.stream());
      queue(all, call, m2.out.data(), m2.in.data(), arguments(call, other, me), 0);
      once.replay(w.stream());
      all.check();
      w.barrier();
      EXPECT_EQ(m.out.read(), wanted(call, recorded, me, 0)) << static_cast<int>(call);
      EXPECT_EQ(m2.out.read(), wanted(call, other, me, 0)) << static_cast<int>(call);
    }
  });
}

TEST(UnevenParts, WithoutMemoryWhereThereIsNothing) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    const auto n = static_cast<std::size_t>(w.size());
    const bool first = w.rank() == 0;
    numbers counts(n);
    counts[0] = 5000;
    const numbers places(n);
    cw::buffer<std::byte> data(w.options().device, 5000);
    w.barrier();
    all.scatter_v(first ? data.data() : nullptr, first ? data.data() : nullptr, counts, places, 0);
    all.gather_v(first ? data.data() : nullptr, first ? data.data() : nullptr, counts, places, 0);
    counts[0] = 0;
    all.all_gather_v(nullptr, nullptr, counts, places);
    all.reduce_scatter_v(nullptr, nullptr, counts, places, cw::data_type::f32, coll_op::sum);
    all.all_to_all_v(nullptr, nullptr, {counts, places, counts, places});
    EXPECT_NO_THROW(all.check());
    w.barrier();
  });
}

// ---- what ranks do wrong

TEST(UnevenMismatches, AreAnErrorOnAllRanks) {
  for (const which call : every_call) {
    with_ranks(3, [&](cw::world& w) {
      if (w.size() == 1) return;
      cw::coll all(w);
      const auto me = static_cast<std::size_t>(w.rank());
      layout l(w.size(), 100, 3);
      for (std::size_t& count : l.table) count = 40;
      memory m(w, l.room());
      arguments a(call, l, me);
      if (me == 1) a.counts[0] += 1;
      w.barrier();
      queue(all, call, m.out.data(), m.in.data(), a, 0);
      try {
        all.check();
        ADD_FAILURE() << "rank " << me << " did not notice it in call " << static_cast<int>(call);
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::asymmetric) << e.what();
      }
      w.barrier();
    });
  }
}

TEST(UnevenMismatches, InKernelsAreInvalidOnAllRanks) {
  for (const which call : every_call) {
    with_ranks(3, [&](cw::world& w) {
      if (w.size() == 1) return;
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
      const auto me = static_cast<std::size_t>(w.rank());
      layout l(w.size(), 100, 3);
      for (std::size_t& count : l.table) count = 40;
      memory m(w, l.room());
      arguments a(call, l, me);
      if (me == 0) a.counts[1] += 1;
      const auto plan = m.write(a);
      const std::int32_t* const in = m.in.data();
      EXPECT_EQ(t.call<in_kernel>(caller::block, m.out.data(), in, call, plan, 0), status::invalid);
    });
  }
}

TEST(UnevenMismatches, RootsThatAreNoneAreRefused) {
  for (const which call : {which::gather, which::scatter}) {
    with_ranks(2, [&](cw::world& w) {
      rank_setup t(w, {.channels = 1, .shelf_bytes = 4096});
      const layout l(w.size(), 10, 3);
      memory m(w, l.room());
      const auto plan = m.write(arguments(call, l, static_cast<std::size_t>(w.rank())));
      const std::int32_t* const in = m.in.data();
      EXPECT_EQ(t.call<in_kernel>(caller::block, m.out.data(), in, call, plan, w.size()),
                status::invalid);
    });
  }
}

void refused(cw::errc code, const std::string& why, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error: " << why;
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
  }
}

TEST(UnevenMismatches, OfArgumentsThrowAtOnce) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    const auto n = static_cast<std::size_t>(w.size());
    const numbers right(n, 4);
    const numbers more(n + 1, 4);
    const numbers huge(n, ~std::size_t{0});
    const cw::buffer<float> some(w.options().device, 8);
    const auto invalid = cw::errc::invalid_argument;
    refused(invalid, "counts and", [&] { all.all_gather_v(nullptr, nullptr, more, right); });
    refused(invalid, "places for", [&] { all.all_gather_v(nullptr, nullptr, right, more); });
    refused(invalid, "no rank", [&] { all.gather_v(nullptr, nullptr, right, right, w.size()); });
    refused(invalid, "no rank", [&] { all.scatter_v(nullptr, nullptr, right, right, -1); });
    refused(invalid, "more than memory", [&] {
      all.reduce_scatter_v(nullptr, nullptr, huge, right, cw::data_type::f64, coll_op::sum);
    });
    refused(invalid, "bit_or of f32", [&] {
      all.reduce_scatter_v(some.data(), some.data(), right, right, cw::data_type::f32,
                           coll_op::bit_or);
    });
    refused(invalid, "places for", [&] {
      all.all_to_all_v(nullptr, nullptr, {right, right, right, {}});
    });
    w.barrier();
  });
}

TEST(UnevenMismatches, MoreRanksThanArgumentsHoldAreRefused) {
  if (cw::launched() || test_device().kind() != cw::device_kind::cpu) {
    GTEST_SKIP() << "for ranks that are threads of a CPU";
  }
  with_ranks(65, [](cw::world& w) {
    cw::coll all(w, {.channels = 1, .shelf_bytes = 8192});
    const numbers none(65);
    refused(cw::errc::not_supported, "64 ranks at most",
            [&] { all.all_gather_v(nullptr, nullptr, none, none); });
    w.barrier();
  });
}

}  // namespace
