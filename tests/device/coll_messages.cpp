// Messages from rank to rank: in kernels and on streams, between ranks that are mapped and that are
// not.
#include <gtest/gtest.h>

#include <random>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"
#include "support/coll_worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;
using direction = cw::coll::message::direction;

namespace {

std::vector<std::int32_t> numbers(int from, int to, std::size_t count, int turn = 0) {
  std::vector<std::int32_t> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = (from * 100 + to) * 100000 + static_cast<std::int32_t>(i) * 7 + turn;
  }
  return v;
}

int right_of(const cw::world& w) {
  return (w.rank() + 1) % w.size();
}
int left_of(const cw::world& w) {
  return (w.rank() + w.size() - 1) % w.size();
}

// ---- in kernels

enum class caller { thread, warp, block };

/// Even ranks send to the right and then receive from the left, odd ones the other way round; the
/// source is overwritten at once.
struct pass_on {
  template <class G>
  CW_FN status run(const G& g, const dev::coll& with, std::int32_t* in, std::int32_t* out,
                   std::size_t count, int rounds) const {
    const int right = (with.rank() + 1) % with.size();
    const int left = (with.rank() + with.size() - 1) % with.size();
    status s = status::ok;
    for (int i = 0; i < rounds && s == status::ok; ++i) {
      // Rank 0 sends first and the others receive first, so that the circle is not closed.
      if (with.rank() == 0) s = with.send(g, in, count, right);
      if (s == status::ok) s = with.receive(g, out, count, left);
      if (s == status::ok && with.rank() != 0) s = with.send(g, in, count, right);
      g.sync();
      for (auto j = static_cast<std::size_t>(g.rank()); j < count;
           j += static_cast<std::size_t>(g.size())) {
        in[j] += 1;
      }
    }
    return s;
  }
  CW_FN void operator()(const dev::kernel_context& k, caller who, const dev::coll& with,
                        std::int32_t* in, std::int32_t* out, std::size_t count, int rounds,
                        status* outcome) const {
    status s = status::ok;
    if (who == caller::block) {
      s = run(k.block(), with, in, out, count, rounds);
    } else if (who == caller::warp) {
      if (k.warp().index() != 0) return;
      s = run(k.warp(), with, in, out, count, rounds);
    } else {
      if (k.thread_index() != 0) return;
      s = run(k.thread(), with, in, out, count, rounds);
    }
    if (k.thread_index() == 0) *outcome = s;
  }
};

TEST(MessagesOfKernels, ArriveInOrderAndWhole) {
  constexpr std::size_t most = 40000;
  constexpr int rounds = 3;
  with_ranks(3, [](cw::world& w) {
    const cw::coll all(w, {.channels = 2});
    cw::buffer<std::int32_t> in(w.options().device, most);
    cw::buffer<std::int32_t> out(w.options().device, most);
    cw::buffer<status> outcome(w.options().device, 1);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{777}, most}) {
      for (const caller who : {caller::thread, caller::warp, caller::block}) {
        in.write(numbers(w.rank(), right_of(w), count));
        w.barrier();
        cw::launch(w.stream(), {.threads = 40}, pass_on{}, who, all.device().channel(1), in.data(),
                   out.data(), count, rounds, outcome.data());
        w.stream().sync();
        w.barrier();
        ASSERT_EQ(outcome.read()[0], status::ok) << to_string(outcome.read()[0]);
        auto got = out.read();
        got.resize(count);
        EXPECT_EQ(got, numbers(left_of(w), w.rank(), count, rounds - 1)) << count;
      }
    }
  });
}

struct one_message {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, bool sends,
                        std::int32_t* data, std::size_t count, int other, status* outcome) const {
    const status s = sends ? with.send(k.block(), data, count, other)
                           : with.receive(k.block(), data, count, other);
    if (k.thread_index() == 0) *outcome = s;
  }
};

/// Two ranks; what each of them finds.
status message_of(cw::world& w, std::size_t send_count, std::size_t receive_count, int other) {
  const cw::coll all(w, {.channels = 1});
  cw::buffer<std::int32_t> data(w.options().device, 100000);
  cw::buffer<status> outcome(w.options().device, 1);
  w.barrier();
  if (w.rank() < 2) {
    const bool sends = w.rank() == 0;
    cw::launch(w.stream(), {.threads = 32}, one_message{}, all.device(), sends, data.data(),
               sends ? send_count : receive_count, other, outcome.data());
  }
  w.stream().sync();
  w.barrier();
  return outcome.read()[0];
}

TEST(MessagesOfKernels, OfDifferentLengthsAreAnErrorOnBoth) {
  for (const auto& [sent, received] :
       {std::pair<std::size_t, std::size_t>{1, 2}, {0, 1}, {1, 0}, {90000, 4}, {4, 90000}}) {
    with_ranks(2, [sent = sent, received = received](cw::world& w) {
      const status s = message_of(w, sent, received, 1 - w.rank());
      if (w.rank() < 2) {
        EXPECT_EQ(s, status::invalid) << sent << " and " << received;
      }
    });
  }
}

TEST(MessagesOfKernels, ToNobodyAndToOneselfAreRefused) {
  for (const int other : {-1, 1000}) {
    with_ranks(2, [other](cw::world& w) {
      const status s = message_of(w, 1, 1, other);
      if (w.rank() < 2) {
        EXPECT_EQ(s, status::invalid);
      }
    });
  }
  with_ranks(2, [](cw::world& w) {
    const status s = message_of(w, 1, 1, w.rank());
    if (w.rank() < 2) {
      EXPECT_EQ(s, status::invalid);
    }
  });
}

/// A message that does not match, and then one that would match it.
struct another_message {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, std::int32_t* data,
                        status* outcome) const {
    const auto g = k.block();
    const int other = 1 - with.rank();
    for (std::size_t i = 0; i < 2; ++i) {
      const status s =
          with.rank() == 0 ? with.send(g, data, 1, other) : with.receive(g, data, 2 - i, other);
      if (k.thread_index() == 0) outcome[i] = s;
    }
  }
};

TEST(MessagesOfKernels, FailAfterAFailure) {
  with_ranks(2, [](cw::world& w) {
    const cw::coll all(w, {.channels = 1});
    cw::buffer<std::int32_t> data(w.options().device, 2);
    cw::buffer<status> outcome(w.options().device, 2);
    w.barrier();
    if (w.rank() < 2) {
      cw::launch(w.stream(), {.threads = 32}, another_message{}, all.device(), data.data(),
                 outcome.data());
    }
    w.stream().sync();
    w.barrier();
    if (w.rank() < 2) {
      EXPECT_EQ(outcome.read(), std::vector<status>(2, status::invalid));
    }
  });
}

// ---- on streams

TEST(MessagesOfStreams, GoFromRankToRankInTheOrderQueued) {
  with_ranks(3, [](cw::world& w) {
    cw::coll all(w);
    const std::vector<std::size_t> counts = {5, 0, 30000, 1};
    cw::buffer<std::int32_t> data(w.options().device, 30000);
    w.barrier();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t bytes = counts[i] * sizeof(std::int32_t);
      const auto turn = static_cast<int>(i);
      // Down the line of ranks: each passes on what it got.
      if (w.rank() == 0) data.write(numbers(0, 0, counts[i], turn));
      if (w.rank() != 0) all.receive(data.data(), bytes, w.rank() - 1);
      if (w.rank() + 1 < w.size()) all.send(data.data(), bytes, w.rank() + 1);
      all.check();
      auto got = data.read();
      got.resize(counts[i]);
      EXPECT_EQ(got, numbers(0, 0, counts[i], turn)) << counts[i];
    }
    w.barrier();
  });
}

TEST(MessagesOfStreams, ExchangesAreUnderWayAtOnce) {
  with_ranks(3, [](cw::world& w) {
    cw::coll all(w);
    constexpr std::size_t most = 20000;
    const auto ranks = static_cast<std::size_t>(w.size());
    // Two messages for each pair, a long one and a short one, to everybody at once.
    cw::buffer<std::int32_t> in(w.options().device, ranks * 2 * most);
    cw::buffer<std::int32_t> out(w.options().device, ranks * 2 * most);
    const auto count_of = [](int from, int to, int turn) {
      return turn == 0 ? most - static_cast<std::size_t>(from * 10 + to) : std::size_t{3};
    };
    for (int again = 0; again < 3; ++again) {
      std::vector<std::int32_t> start(in.size());
      std::vector<cw::coll::message> messages;
      for (int pe = w.size() - 1; pe >= 0; --pe) {
        if (pe == w.rank()) continue;
        for (int turn = 0; turn < 2; ++turn) {
          const std::size_t at =
              (static_cast<std::size_t>(pe) * 2 + static_cast<std::size_t>(turn)) * most;
          const auto sent = numbers(w.rank(), pe, count_of(w.rank(), pe, turn), again + turn);
          std::copy(sent.begin(), sent.end(), start.begin() + static_cast<std::ptrdiff_t>(at));
          messages.push_back({direction::send, in.data() + at, sent.size() * sizeof(sent[0]), pe});
          messages.push_back({direction::receive, out.data() + at,
                              count_of(pe, w.rank(), turn) * sizeof(sent[0]), pe});
        }
      }
      in.write(start);
      w.barrier();
      all.exchange(messages);
      all.check();
      w.barrier();
      const auto got = out.read();
      for (int pe = 0; pe < w.size(); ++pe) {
        if (pe == w.rank()) continue;
        for (int turn = 0; turn < 2; ++turn) {
          const std::size_t at =
              (static_cast<std::size_t>(pe) * 2 + static_cast<std::size_t>(turn)) * most;
          const auto want = numbers(pe, w.rank(), count_of(pe, w.rank(), turn), again + turn);
          EXPECT_TRUE(
              std::equal(want.begin(), want.end(), got.begin() + static_cast<std::ptrdiff_t>(at)))
              << pe << " to " << w.rank() << ", " << turn;
        }
      }
    }
  });
}

TEST(MessagesOfStreams, AndCollectivesDoNotDisturbEachOther) {
  with_ranks(3, [](cw::world& w) {
    cw::coll all(w);
    std::mt19937 same_on_all(5);
    cw::buffer<std::int32_t> data(w.options().device, 5000);
    cw::buffer<std::int32_t> sum(w.options().device, 1);
    w.barrier();
    for (int i = 0; i < 60; ++i) {
      const std::size_t bytes = same_on_all() % 20000 / 4 * 4;
      const auto from = static_cast<int>(same_on_all() % static_cast<unsigned>(w.size()));
      const auto to = static_cast<int>(same_on_all() % static_cast<unsigned>(w.size()));
      if (from != to && w.rank() == from) all.send(data.data(), bytes, to);
      if (from != to && w.rank() == to) all.receive(data.data(), bytes, from);
      const std::int32_t one = 1;
      all.check();
      sum.write(std::span(&one, 1));
      w.barrier();
      all.all_reduce(sum.data(), static_cast<const std::int32_t*>(sum.data()), 1);
      all.check();
      ASSERT_EQ(sum.read()[0], w.size());
      w.barrier();
    }
  });
}

TEST(MessagesOfStreams, ThatDoNotMatchAreAnErrorOnBoth) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    cw::buffer<std::int32_t> data(w.options().device, 1000);
    w.barrier();
    if (w.rank() == 0) all.send(data.data(), 400, 1);
    if (w.rank() == 1) all.receive(data.data(), 404, 0);
    if (w.rank() < 2) {
      try {
        all.check();
        ADD_FAILURE() << "nobody noticed";
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::asymmetric) << e.what();
      }
    }
    w.barrier();
  });
}

TEST(MessagesOfStreams, WrongArgumentsThrowAtOnce) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    std::int32_t x = 0;
    for (const int other : {-1, w.size(), w.rank()}) {
      EXPECT_THROW(all.send(&x, 4, other), cw::error);
      EXPECT_THROW(all.receive(&x, 4, other), cw::error);
    }
    const std::vector<cw::coll::message> many(65, {direction::send, &x, 4, right_of(w)});
    EXPECT_THROW(all.exchange(many), cw::error);
    all.exchange({});
    all.check();
    w.barrier();
  });
}

}  // namespace
