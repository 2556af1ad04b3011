// Random sequences of operations on random teams do what a model does that plays them one by one.
//
// In each round every PE does one operation at the same time: one of its own, by the view of a team
// that it is in, or its part in a collective. They read what earlier rounds wrote, and each PE
// writes to cells of its own at whomever it chose, so their order does not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "crosswarp/shmem.hpp"
#include "support/shmem_kernel.hpp"

using namespace shmem_test;
using cw::status;
using dev::amo;

namespace {

constexpr int cells = 24;   // that a PE may write at another
constexpr int words = 64;   // that only the PE itself sees
constexpr int longest = 8;  // elements, or blocks
constexpr int rounds = 60;

enum class kind : int {
  nothing,
  put,
  put_nbi,
  put_bytes,  // at any alignment
  get,
  get_nbi,
  p,
  g,
  iput,
  iget,
  block_put,
  put_signal,
  signal_add,
  set,
  swap,
  compare_swap,
  add_for_all,  // everybody to one cell
  own_count,
  sync = own_count,
  broadcast,
  fcollect,
  collect,
  alltoall,
  alltoalls,
  sum,
  largest,
  inclusive,
  exclusive,
  count
};

/// What one PE does in a round. PEs are those of the team.
struct step {
  kind what;
  int team;
  int target;  // or the root
  int from;
  int to;
  int size;
  int value;
};

struct arrays {
  long* boards[2];  // by PE that writes: read one, write the other, and the next round reversed
  long* tally;      // for add_for_all
  std::uint64_t* flag;
  long* own;
};

struct plays {
  /// The part in a collective.
  template <class G>
  CW_FN status together(const bench<G>& b, const dev::shmem& sh, const step& s, long* to,
                        const long* from) const {
    const auto n = static_cast<std::size_t>(s.size);
    switch (s.what) {
      case kind::sync:
        return sh.sync(b.g);
      case kind::broadcast:
        return sh.broadcast(b.g, to, from, n, s.target);
      case kind::fcollect:
        return sh.fcollect(b.g, to, from, n);
      case kind::collect:
        return sh.collect(b.g, to, from, n);
      case kind::alltoall:
        return sh.alltoall(b.g, to, from, n);
      case kind::alltoalls:
        return sh.alltoalls(b.g, to, from, 2, 1, n);
      case kind::sum:
        return sh.reduce(b.g, dev::shmem_op::sum{}, to, from, n);
      case kind::largest:
        return sh.reduce(b.g, dev::shmem_op::max{}, to, from, n);
      case kind::inclusive:
        return sh.inclusive_scan(b.g, dev::shmem_op::sum{}, to, from, n);
      case kind::exclusive:
        return sh.exclusive_scan(b.g, dev::shmem_op::sum{}, 7L, to, from, n);
      default:
        return status::invalid;
    }
  }

  /// `to` and `from` are in boards; `out` and `in` are the PE's own.
  template <class G>
  CW_FN status alone(const bench<G>& b, const dev::shmem& sh, const step& s, const arrays& a,
                     long* to, long* from) const {
    const auto& g = b.g;
    const auto n = static_cast<std::size_t>(s.size);
    const long value = s.value;
    long* const out = a.own + s.from;
    long* const in = a.own + words / 2 + s.to;
    long old = 0;
    status result = status::ok;
    switch (s.what) {
      case kind::put:
        return sh.put(g, to, out, n, s.target);
      case kind::put_nbi:
        return sh.put_nbi(g, to, out, n, s.target);
      case kind::put_bytes:
        return sh.put(g, reinterpret_cast<unsigned char*>(to) + 3,
                      reinterpret_cast<const unsigned char*>(out) + 1, n * 8 - 5, s.target);
      case kind::get:
        return sh.get(g, in, from, n, s.target);
      case kind::get_nbi:
        return sh.get_nbi(g, in, from, n, s.target);
      case kind::p:
        return sh.p(g, to, value, s.target);
      case kind::g:
        result = sh.g(g, old, from, s.target);
        break;
      case kind::iput:
        return sh.iput(g, to, out, {.dest = 2, .source = 1}, n, s.target);
      case kind::iget:
        return sh.iget(g, in, from, {.dest = 1, .source = 2}, n, s.target);
      case kind::block_put:
        return sh.iput(g, to, out, {.dest = 3, .source = 2, .block = 2}, n / 2, s.target);
      case kind::put_signal:
        return sh.put_signal(g, to, out, n, a.flag, 1, dev::signal_op::add, s.target);
      case kind::signal_add:
        return sh.signal_add(g, a.flag, static_cast<std::uint64_t>(s.value), s.target);
      case kind::set:
        return sh.atomic(g, amo::set, to, value, s.target);
      case kind::swap:
        result = sh.atomic_fetch(g, amo::swap, to, value, 0L, s.target, old);
        break;
      case kind::compare_swap:
        result = sh.atomic_fetch(g, amo::compare_swap, to, value, 0L, s.target, old);
        break;
      case kind::add_for_all:
        return sh.atomic(g, amo::add, a.tally, value, s.target);
      default:
        return status::ok;
    }
    if (g.rank() == 0) *in = old;
    return result;
  }

  template <class G>
  CW_FN void operator()(const bench<G>& b, const dev::shmem* teams, arrays a, const step* steps,
                        int count) const {
    const auto& sh = b.sh;
    for (int i = 0; i < count; ++i) {
      const step s = steps[i];
      long* const to = a.boards[i % 2] + s.to;
      long* const from = a.boards[(i + 1) % 2] + s.from;
      const dev::shmem& by = teams[s.team];
      SH_OK(s.what < kind::own_count ? alone(b, by, s, a, to + sh.my_pe() * cells, from)
                                     : together(b, by, s, to, from));
      SH_OK(by.quiet(b.g));
      SH_OK(sh.barrier(b.g));
    }
  }
};

// ---- the model

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

struct pe_state {
  std::vector<long> boards[2];
  std::vector<long> tally = {0};
  std::uint64_t flag = 0;
  std::vector<long> own;
};

/// All PEs of a world, and teams as lists of world PEs; a round at a time, PE after PE.
class model {
 public:
  model(int pes, std::vector<std::vector<int>> teams) : teams_(std::move(teams)), all_(at(pes)) {
    for (int pe = 0; pe < pes; ++pe) {
      for (auto& board : all_[at(pe)].boards) board.resize(at(pes * cells));
      all_[at(pe)].own.resize(words);
      std::iota(all_[at(pe)].own.begin(), all_[at(pe)].own.end(), 1000L * (pe + 1));
    }
  }

  [[nodiscard]] const pe_state& of(int pe) const { return all_[at(pe)]; }

  /// `steps`: by PE.
  void play(int round, const std::vector<step>& steps) {
    const std::vector<pe_state> before = all_;
    for (std::size_t pe = 0; pe < all_.size(); ++pe) {
      const step& s = steps[pe];
      if (s.what < kind::own_count) {
        alone(round, static_cast<int>(pe), s);
      } else {
        together(round, static_cast<int>(pe), steps, before);
      }
    }
  }

 private:
  void alone(int round, int pe, const step& s) {
    pe_state& mine = all_[at(pe)];
    pe_state& there = all_[at(teams_[at(s.team)][at(s.target)])];
    const auto to = there.boards[round % 2].begin() + s.to + pe * cells;
    const auto from = there.boards[(round + 1) % 2].cbegin() + s.from;
    const auto out = mine.own.cbegin() + s.from;
    const auto in = mine.own.begin() + words / 2 + s.to;
    switch (s.what) {
      case kind::put_signal:
        ++there.flag;
        [[fallthrough]];
      case kind::put:
      case kind::put_nbi:
        std::copy_n(out, s.size, to);
        break;
      case kind::put_bytes:
        std::memcpy(reinterpret_cast<char*>(&*to) + 3, reinterpret_cast<const char*>(&*out) + 1,
                    at(s.size * 8 - 5));
        break;
      case kind::get:
      case kind::get_nbi:
        std::copy_n(from, s.size, in);
        break;
      case kind::set:
      case kind::p:
        *to = s.value;
        break;
      case kind::g:
        *in = *from;
        break;
      case kind::iput:
        for (int i = 0; i < s.size; ++i) to[2 * i] = out[i];
        break;
      case kind::iget:
        for (int i = 0; i < s.size; ++i) in[i] = from[2 * i];
        break;
      case kind::block_put:
        for (int i = 0; i < s.size / 2; ++i) std::copy_n(out + 2 * i, 2, to + 3 * i);
        break;
      case kind::signal_add:
        there.flag += static_cast<std::uint64_t>(s.value);
        break;
      case kind::swap:
        *in = std::exchange(*to, s.value);
        break;
      case kind::compare_swap:
        *in = *to;
        if (*to == 0) *to = s.value;
        break;
      case kind::add_for_all:
        there.tally[0] += s.value;
        break;
      default:
        break;
    }
  }

  /// What PE `pe` has after a collective of its team.
  void together(int round, int pe, const std::vector<step>& steps,
                const std::vector<pe_state>& before) {
    const step& s = steps[at(pe)];
    const std::vector<int>& team = teams_[at(s.team)];
    const int n = static_cast<int>(team.size());
    const int me = static_cast<int>(std::find(team.begin(), team.end(), pe) - team.begin());
    const auto to = all_[at(pe)].boards[round % 2].begin() + s.to;
    const auto source = [&](int member) {
      return before[at(team[at(member)])].boards[(round + 1) % 2].cbegin() + s.from;
    };
    int place = 0;
    for (int i = 0; i < n; ++i) {
      const int size = steps[at(team[at(i)])].size;
      if (s.what == kind::fcollect || s.what == kind::collect) {
        std::copy_n(source(i), size, to + place);
      } else if (s.what == kind::alltoall) {
        std::copy_n(source(i) + me * size, size, to + place);
      } else if (s.what == kind::alltoalls) {
        for (int k = 0; k < size; ++k) to[2 * (place + k)] = source(i)[me * size + k];
      }
      place += size;
    }
    for (int k = 0; k < s.size; ++k) {
      const auto folded = [&](int end, long first, auto op) {
        for (int i = 0; i < end; ++i) first = op(first, source(i)[k]);
        return first;
      };
      const auto plus = std::plus<long>();
      if (s.what == kind::broadcast) to[k] = source(s.target)[k];
      if (s.what == kind::sum) to[k] = folded(n, 0, plus);
      if (s.what == kind::inclusive) to[k] = folded(me + 1, 0, plus);
      if (s.what == kind::exclusive) to[k] = folded(me, 7, plus);
      if (s.what == kind::largest) {
        to[k] = folded(n, source(0)[k], [](long a, long b) { return std::max(a, b); });
      }
    }
  }

  std::vector<std::vector<int>> teams_;
  std::vector<pe_state> all_;
};

// ---- plans

class dice {
 public:
  explicit dice(unsigned seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  int from_to(int first, int last) { return first + below(last - first + 1); }
  /// Some of them, in any order; at least one.
  std::vector<int> some(int n) {
    std::vector<int> all(at(n));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(at(from_to(1, n)));
    return all;
  }

 private:
  std::mt19937 random_;
};

struct plan {
  std::vector<std::vector<int>> teams;   // of world PEs; the first is all
  std::vector<std::vector<step>> steps;  // by round and world PE
};

step own_step(dice& d, const std::vector<int>& in, const std::vector<std::vector<int>>& teams) {
  step s{};
  s.what = static_cast<kind>(d.below(static_cast<int>(kind::own_count)));
  s.team = in[at(d.below(static_cast<int>(in.size())))];
  s.target = d.below(static_cast<int>(teams[at(s.team)].size()));
  s.size = d.from_to(1, longest);
  s.from = d.below(cells - 2 * longest);
  s.to = d.below(cells - 2 * longest);
  s.value = d.from_to(1, 1000);
  return s;
}

plan make_plan(unsigned seed, int pes) {
  dice d(seed);
  plan made;
  made.teams.emplace_back(at(pes));
  std::iota(made.teams[0].begin(), made.teams[0].end(), 0);
  for (int i = 0; i < 4; ++i) made.teams.push_back(d.some(pes));
  const auto has = [&](int team, int pe) {
    const auto& t = made.teams[at(team)];
    return std::find(t.begin(), t.end(), pe) != t.end();
  };
  for (int round = 0; round < rounds; ++round) {
    std::vector<step> steps;
    for (int pe = 0; pe < pes; ++pe) {
      std::vector<int> in;
      for (int t = 0; t < static_cast<int>(made.teams.size()); ++t) {
        if (has(t, pe)) in.push_back(t);
      }
      steps.push_back(own_step(d, in, made.teams));
    }
    // Some rounds are a collective of some team, while the others wait: it may write any cell.
    if (d.below(2) == 0) {
      step s = own_step(d, {d.below(static_cast<int>(made.teams.size()))}, made.teams);
      s.what = static_cast<kind>(
          d.from_to(static_cast<int>(kind::own_count), static_cast<int>(kind::count) - 1));
      const int all = pes * cells;
      s.size = d.below(longest / 2 + 1);
      s.from = d.below(all - pes * longest);
      s.to = d.below(all - pes * longest);
      for (int pe = 0; pe < pes; ++pe) {
        if (!has(s.team, pe)) {
          steps[at(pe)].what = kind::nothing;
          continue;
        }
        steps[at(pe)] = s;
        if (s.what == kind::collect) steps[at(pe)].size = d.below(longest / 2 + 1);
      }
    }
    made.steps.push_back(std::move(steps));
  }
  return made;
}

/// This PE's column of a plan.
std::vector<step> steps_of(const plan& p, int pe) {
  std::vector<step> mine;
  for (const auto& round : p.steps) mine.push_back(round[at(pe)]);
  return mine;
}

void play(cw::world& w, cw::shmem& sh, unsigned seed) {
  const plan p = make_plan(seed, w.size());
  model wanted(w.size(), p.teams);
  const std::vector<long> start = wanted.of(w.rank()).own;
  for (int round = 0; round < rounds; ++round) wanted.play(round, p.steps[at(round)]);

  std::vector<std::optional<cw::shmem::team>> teams;
  std::vector<dev::shmem> views;
  for (const auto& list : p.teams) {
    teams.push_back(sh.make_team(sh.all(), list));
    views.push_back(teams.back() ? teams.back()->device() : dev::shmem());
  }
  const auto board = at(w.size() * cells);
  const cw::buffer<long> own(w.options().device, std::span<const long>(start));
  const cw::buffer<dev::shmem> in(w.options().device, std::span<const dev::shmem>(views));
  const auto steps = steps_of(p, w.rank());
  const cw::buffer<step> mine(w.options().device, std::span<const step>(steps));
  const arrays a = {{zeroed<long>(sh, board), zeroed<long>(sh, board)},
                    zeroed<long>(sh, 1),
                    zeroed<std::uint64_t>(sh, 1),
                    own.data()};
  w.barrier();
  expect_ok<plays>(w, sh.device(), callers[seed % 3], in.data(), a, mine.data(), rounds);
  const pe_state& end = wanted.of(w.rank());
  EXPECT_EQ(read_back(sh, a.boards[0], board), end.boards[0]) << "seed " << seed;
  EXPECT_EQ(read_back(sh, a.boards[1], board), end.boards[1]) << "seed " << seed;
  EXPECT_EQ(read_back(sh, a.tally, 1), end.tally) << "seed " << seed;
  EXPECT_EQ(read_back(sh, a.flag, 1)[0], end.flag) << "seed " << seed;
  EXPECT_EQ(own.read(), end.own) << "seed " << seed;
  w.barrier();
  for (void* each : {static_cast<void*>(a.boards[0]), static_cast<void*>(a.boards[1]),
                     static_cast<void*>(a.tally), static_cast<void*>(a.flag)}) {
    sh.free(each);
  }
}

TEST(ShmemSequences, OfRandomOperationsOnRandomTeamsDoWhatTheModelDoes) {
  const char* asked = std::getenv("CROSSWARP_TEST_SEED");  // one that failed
  const unsigned first = asked == nullptr ? 1 : static_cast<unsigned>(std::atoi(asked));
  on_ranks(4, [&](cw::world& w) {
    cw::shmem sh(w);
    for (unsigned seed = first; seed < first + (asked == nullptr ? 9 : 1); ++seed) {
      play(w, sh, seed);
    }
  });
}

}  // namespace
