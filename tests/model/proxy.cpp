// A proxy's queues under chosen interleavings. No thread of the proxy runs here: kernel threads
// lend theirs, so each of them may be in the middle of the proxy's work when another goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>

#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"
#include "transports/local/local.hpp"
#include "world/state.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;
using context = dev::kernel_context;

constexpr int rounds = 3;
constexpr int most_threads = 3;

/// Too long to travel in a command.
struct letter {
  std::uint64_t word[3];
};

CW_FN letter write_letter(int from, int round) {
  const auto n = static_cast<std::uint64_t>(100 * from + round + 1);
  return {{n, n + 1000, n + 2000}};
}
CW_FN bool operator==(const letter& a, const letter& b) {
  return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2];
}

/// What one thread works with.
struct desk {
  letter out;
  letter kept[rounds];
  letter in[rounds];
  std::uint64_t value[rounds];
  std::uint64_t old[rounds];
  std::uint64_t flag;
  status outcome;
  int wrong;
  int given_up;
};

struct room {
  std::uint64_t count;
  std::uint64_t silent;  ///< counted without asking for the value
  desk of[most_threads];
};

using rooms = dev::symmetric<room>;

/// Where a part of this rank's room is on any rank.
CW_FN dev::remote_address address(rooms r, const void* part) {
  const auto offset =
      static_cast<const std::byte*>(part) - reinterpret_cast<const std::byte*>(r.local());
  return {r.remote().offset + static_cast<std::uint64_t>(offset)};
}

CW_FN void note(desk& d, status s) {
  if (d.outcome == status::ok) d.outcome = s;
}

/// Two slots only, so that threads wait for each other's all the time.
cw::world_options small(cw::device_ref device) {
  cw::world_options o;
  o.device = device;
  o.heap_bytes = 1U << 16U;
  o.self_test = false;
  o.proxy.path = cw::path_choice::proxy;
  o.proxy.engine = "local";
  o.proxy.queues = 1;
  o.proxy.depth = 2;
  return o;
}

/// Does what the local engine does, later and in the worst order: each time it is asked to go on,
/// the newest operation that no fence holds back. So commands are read long before they are
/// answered, and answered out of order, as over a network.
class late_engine final : public cw::proxy_impl::engine {
 public:
  using place = cw::proxy_impl::place;
  using completion = cw::proxy_impl::completion;

  explicit late_engine(cw::device_ref d) : inner_(cw::local::make_engine(d, {})) {}
  [[nodiscard]] cw::proxy_impl::capabilities can() const noexcept override { return inner_->can(); }
  std::vector<std::byte> offer_region(std::uint16_t id,
                                      const cw::proxy_impl::region_info& mine) override {
    return inner_->offer_region(id, mine);
  }
  void install_region(std::uint16_t id, std::vector<std::vector<std::byte>> offers) override {
    inner_->install_region(id, std::move(offers));
  }
  void remove_region(std::uint16_t id) noexcept override { inner_->remove_region(id); }

  bool put(const place& to, const std::byte* from, std::size_t n, completion& c) override {
    return later([=, this, &c] { (void)inner_->put(to, from, n, c); });
  }
  bool get(const place& from, std::byte* to, std::size_t n, completion& c) override {
    return later([=, this, &c] { (void)inner_->get(from, to, n, c); });
  }
  bool atomic(dev::amo op, int width, const place& at, std::uint64_t operand,
              std::uint64_t comparand, std::uint64_t* old, completion& c) override {
    return later(
        [=, this, &c] { (void)inner_->atomic(op, width, at, operand, comparand, old, c); });
  }
  bool fence() override {
    waiting_.emplace_back();
    return true;
  }
  bool flush(completion& c) override {
    fence();
    later([this, &c] { (void)inner_->flush(c); });
    return fence();
  }
  bool progress() override {
    while (waiting_.size() > 1 && waiting_.front().empty()) waiting_.pop_front();
    if (waiting_.front().empty()) return false;
    if (++asked_ % 7 != 0) return true;
    auto able = std::exchange(waiting_.front(), {});
    for (; !able.empty(); able.pop_back()) able.back()();
    return true;
  }
  void lose(int /*pe*/) override {}

 private:
  bool later(std::function<void()> f) {
    waiting_.back().push_back(std::move(f));
    return true;
  }
  std::unique_ptr<engine> inner_;
  unsigned asked_ = 0;
  /// Between fences.
  std::deque<std::vector<std::function<void()>>> waiting_{1};
};

/// A proxy of `w` whose engine is late; it reaches the rooms of all ranks.
std::unique_ptr<cw::proxy> make_late(cw::world& w, rooms r) {
  const cw::device_ref d = w.options().device;
  const auto size = static_cast<std::size_t>(w.size());
  cw::proxy_options o = w.options().proxy;
  o.thread = false;
  auto p = std::make_unique<cw::proxy>(d, o, w.rank(), w.size(), std::vector<bool>(size, true),
                                       std::make_unique<late_engine>(d));
  const auto& base = w.state().heap->base;
  const std::size_t bytes = r.remote().offset + sizeof(room);
  const cw::proxy_impl::region_info mine{base[static_cast<std::size_t>(w.rank())], bytes, true,
                                         base};
  p->install_region(0, mine, std::vector<std::size_t>(size, bytes),
                    std::vector<std::vector<std::byte>>(size, p->offer_region(0, mine)));
  return p;
}

class ProxyModel : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }

  /// Runs `kernel` on all ranks in each execution of `s`; no wait may fail and no thread may see
  /// anything wrong. `check` gets what each rank has then.
  template <class Kernel, class Check>
  void explore(cw::schedule s, int ranks, int threads, Kernel kernel, Check check) {
    cw::explore(s, [&](cw::device_ref device) {
      std::vector<room> after(static_cast<std::size_t>(ranks));
      cw::run_local(ranks, small(device), [&](cw::world& w) {
        cw::symmetric_buffer<room> memory(w, 1);
        const auto late = GetParam() ? make_late(w, memory.device()) : nullptr;
        const auto queues = (late ? *late : *w.state().proxy).memory();
        cw::launch(w, {.threads = threads}, kernel, w.device(), queues, memory.device());
        w.barrier();
        after[static_cast<std::size_t>(w.rank())] = memory.read()[0];
      });
      for (const room& r : after) {
        for (const desk& d : r.of) {
          ASSERT_EQ(d.outcome, status::ok) << to_string(d.outcome) << ", " << s.describe();
          ASSERT_EQ(d.wrong, 0) << s.describe();
        }
      }
      check(after);
      if (HasFatalFailure()) FAIL() << s.describe();
    });
    RecordProperty("executions", static_cast<int>(s.executions()));
    EXPECT_GT(s.executions(), 1U);
  }

  static cw::schedule few() { return cw::schedule::exhaustive(1, 2000); }
  static cw::schedule walks() { return cw::schedule::random(20261115, 200); }
};

/// Time passes when all threads only look, and a late engine wants many looks.
CW_FN dev::wait_limits patient(const dev::world& w) {
  return w.limits.within(1'000'000'000'000'000);
}

CW_FN dev::proxy_queue open_queue(const dev::world& w, const dev::proxy_memory& queues) {
  return {queues, 0, patient(w)};
}

/// What the threads of all ranks were given for their additions.
std::vector<std::uint64_t> fetched(const std::vector<room>& after, int threads) {
  std::vector<std::uint64_t> values;
  for (const room& r : after) {
    for (int t = 0; t < threads; ++t) {
      values.insert(values.end(), r.of[t].old, r.of[t].old + rounds);
    }
  }
  return values;
}

/// From one counter each value is given once.
void expect_each_once(std::vector<std::uint64_t> values, std::uint64_t count) {
  std::sort(values.begin(), values.end());
  ASSERT_EQ(values.size(), count);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i);
}

// ---- one queue for all threads of a rank, commands with and without an answer

struct all_sorts {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r) const {
    auto q = open_queue(w, queues);
    const auto me = ctx.thread();
    const int t = ctx.thread_index();
    desk& d = r.local()->of[t];
    for (int i = 0; i < rounds; ++i) {
      d.kept[i] = write_letter(t, i);
      note(d, q.put_nbi(me, w.rank, address(r, &d.in[i]), &d.kept[i], sizeof(letter)));
      note(d, q.put_value(me, w.rank, address(r, &d.value[i]), 7U + static_cast<unsigned>(i), 8));
      note(d, q.atomic_nbi(me, dev::amo::add, 8, w.rank, address(r, &r.local()->silent), 1));
      note(d,
           q.atomic(me, dev::amo::add, 8, w.rank, address(r, &r.local()->count), 1, 0, d.old[i]));
    }
    note(d, q.quiet(me));
    for (int i = 0; i < rounds; ++i) {
      if (!(d.in[i] == write_letter(t, i))) ++d.wrong;
      if (d.value[i] != 7U + static_cast<unsigned>(i)) ++d.wrong;
    }
  }
};

TEST_P(ProxyModel, ThreadsShareAQueue) {
  const auto run = [&](cw::schedule s, int threads) {
    explore(s, 1, threads, all_sorts{}, [&](const std::vector<room>& after) {
      const auto count = static_cast<std::uint64_t>(rounds * threads);
      ASSERT_EQ(after[0].silent, count);
      ASSERT_EQ(after[0].count, count);
      expect_each_once(fetched(after, threads), count);
    });
  };
  run(few(), 2);
  run(walks(), 3);
}

/// The source of a put may be written again when it returned, whoever carried it out.
struct reuse_source {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r) const {
    auto q = open_queue(w, queues);
    const auto me = ctx.thread();
    const int t = ctx.thread_index();
    desk& d = r.local()->of[t];
    for (int i = 0; i < rounds; ++i) {
      d.out = write_letter(t, i);
      note(d, q.atomic_nbi(me, dev::amo::add, 8, w.rank, address(r, &r.local()->silent), 1));
      note(d, q.put(me, w.rank, address(r, &d.in[i]), &d.out, sizeof(letter)));
    }
    d.out = {};
    note(d, q.quiet(me));
    for (int i = 0; i < rounds; ++i) {
      if (!(d.in[i] == write_letter(t, i))) ++d.wrong;
    }
  }
};

TEST_P(ProxyModel, ASourceIsFreeWhenItsPutReturns) {
  const auto check = [](const std::vector<room>& after) {
    ASSERT_EQ(after[0].silent, std::uint64_t{2} * rounds);
  };
  explore(few(), 1, 2, reuse_source{}, check);
  explore(walks(), 1, 2, reuse_source{}, check);
}

// ---- an owner that gives up

constexpr int attempts = 6;

/// Thread 1 looks only once for its first answers. Where one is not there yet, it gives the slot
/// up; the answer comes later, and the slot goes on to somebody else.
struct give_up {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r) const {
    const auto me = ctx.thread();
    const int t = ctx.thread_index();
    desk& d = r.local()->of[t];
    const auto counter = address(r, &r.local()->count);
    dev::proxy_queue hasty(queues, 0, w.limits.within(0));
    for (int i = 0; i < attempts && t == 1; ++i) {
      std::uint64_t old = 0;
      const status s = hasty.atomic(me, dev::amo::add, 8, w.rank, counter, 1, 0, old);
      if (s == status::timeout) {
        ++d.given_up;
      } else {
        note(d, s);
      }
    }
    auto q = open_queue(w, queues);
    for (int i = 0; i < rounds; ++i) {
      note(d, q.atomic(me, dev::amo::add, 8, w.rank, counter, 1, 0, d.old[i]));
    }
    note(d, q.quiet(me));
  }
};

TEST_P(ProxyModel, ALateReplyIsNobodyElses) {
  bool late = false;
  const auto check = [&](const std::vector<room>& after) {
    std::vector<std::uint64_t> values = fetched(after, 2);
    std::sort(values.begin(), values.end());
    ASSERT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
    // Who gave up may have had a slot: then its command was carried out. Or it had none.
    const std::uint64_t most = 2 * rounds + attempts;
    const std::uint64_t least = most - static_cast<std::uint64_t>(after[0].of[1].given_up);
    ASSERT_GE(after[0].count, least);
    ASSERT_LE(after[0].count, most);
    late = late || after[0].count > least;
  };
  explore(few(), 1, 2, give_up{}, check);
  explore(walks(), 1, 2, give_up{}, check);
  EXPECT_TRUE(late) << "no execution in which an answer came late";
}

// ---- between ranks

/// Puts, waits until that is visible, and says so; then with the signal in the command itself.
struct tell_the_other {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r) const {
    auto q = open_queue(w, queues);
    const auto me = ctx.thread();
    const int other = 1 - w.rank;
    desk& d = r.local()->of[0];
    const auto flag = address(r, &d.flag);
    for (int i = 0; i < rounds && d.outcome == status::ok; ++i) {
      d.kept[i] = write_letter(w.rank, i);
      const auto there = address(r, &d.in[i]);
      if (i % 2 == 0) {
        note(d, q.put_nbi(me, other, there, &d.kept[i], sizeof(letter)));
        note(d, q.quiet(me));
        note(d, q.atomic_nbi(me, dev::amo::add, 8, other, flag, 1));
      } else {
        note(d, q.put_signal_nbi(me, other, there, &d.kept[i], sizeof(letter), flag, 1,
                                 dev::signal_op::add));
      }
      note(d, q.quiet(me));  // nobody else goes on with it while this thread waits below
      note(d, dev::wait(me, dev::signal(d.flag), static_cast<std::uint64_t>(i) + 1, patient(w)));
      if (d.outcome == status::ok && !(d.in[i] == write_letter(other, i))) ++d.wrong;
    }
  }
};

TEST_P(ProxyModel, WhoSeesTheSignalSeesTheData) {
  const auto check = [](const std::vector<room>&) {};
  explore(few(), 2, 1, tell_the_other{}, check);
  explore(walks(), 2, 1, tell_the_other{}, check);
}

struct count_at_zero {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r) const {
    auto q = open_queue(w, queues);
    desk& d = r.local()->of[ctx.thread_index()];
    for (int i = 0; i < rounds; ++i) {
      note(d, q.atomic(ctx.thread(), dev::amo::add, 8, 0, address(r, &r.local()->count), 1, 0,
                       d.old[i]));
    }
  }
};

TEST_P(ProxyModel, EachValueIsFetchedOnce) {
  const auto run = [&](cw::schedule s, int ranks, int threads) {
    explore(s, ranks, threads, count_at_zero{}, [&](const std::vector<room>& after) {
      expect_each_once(fetched(after, threads),
                       static_cast<std::uint64_t>(rounds * ranks * threads));
    });
  };
  run(few(), 1, 2);
  run(few(), 2, 1);
  run(walks(), 2, 3);
}

INSTANTIATE_TEST_SUITE_P(Engines, ProxyModel, testing::Bool(),
                         [](const auto& late) { return late.param ? "Late" : "AtOnce"; });

}  // namespace
