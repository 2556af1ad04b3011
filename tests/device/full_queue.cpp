// A queue that stays full for longer than kernels wait: its proxy is held up.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "crosswarp/world_launch.hpp"
#include "transports/local/local.hpp"
#include "world/state.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;
using context = dev::kernel_context;
using std::chrono::milliseconds;

constexpr int depth = 8;
constexpr int threads = 4;
constexpr int tries = 6;  // of each thread: three times what the queue holds
constexpr int all_tries = threads * tries;
constexpr int laps = 5;
constexpr std::uint64_t patience_ns = 20'000'000;

/// Too long to travel in a command.
struct letter {
  std::uint64_t word[5];
};
CW_FN letter write_letter(int number) {
  const auto n = static_cast<std::uint64_t>(number);
  return {{n + 1, n + 101, n + 201, n + 301, n + 401}};
}
bool operator==(const letter& a, const letter& b) {
  return std::equal(std::begin(a.word), std::end(a.word), std::begin(b.word));
}

/// What commands change, at each rank.
struct room {
  std::uint64_t arrived[all_tries];  ///< how often
  letter in[all_tries];
  std::uint64_t given_up;
  std::uint64_t elsewhere;
  std::uint64_t afterwards;
};
using rooms = dev::symmetric<room>;

/// What a kernel has to tell.
struct notes {
  letter out[all_tries];
  status answered;  ///< the command that waits for its answer
  status issued[all_tries];
  std::uint64_t waited_ns[all_tries];
  int given_up[threads];
  status others;  ///< what another queue, to another rank, said
  std::uint64_t old[all_tries * laps];
  status after;
};

CW_FN dev::remote_address address(rooms r, const void* part) {
  const auto offset =
      static_cast<const std::byte*>(part) - reinterpret_cast<const std::byte*>(r.local());
  return {r.remote().offset + static_cast<std::uint64_t>(offset)};
}

CW_FN void note(status& first, status s) {
  if (first == status::ok) first = s;
}

/// Number `n` of what threads ask of rank 1 without waiting for it.
CW_FN status ask(dev::proxy_queue& q, const context& ctx, rooms r, notes& out, int n) {
  const auto count = address(r, &r.local()->arrived[n]);
  if (n % 2 == 0) return q.atomic_nbi(ctx.thread(), dev::amo::add, 8, 1, count, 1);
  out.out[n] = write_letter(n);
  return q.put_signal_nbi(ctx.thread(), 1, address(r, &r.local()->in[n]), &out.out[n],
                          sizeof(letter), count, 1, dev::signal_op::add);
}

// ---- a proxy that can be held up

enum class trouble { none, no_room, no_turn };

struct switches {
  std::atomic<trouble> now{trouble::none};
  std::atomic<bool> inside{false};  ///< progress() has been entered and does not return
};

/// The local engine. In trouble it has no room for what is meant for rank 1, or does not come back
/// from a call: then nobody can have the proxy's turn, as if its thread got no time at all.
class stalling_engine final : public cw::proxy_impl::engine {
 public:
  using place = cw::proxy_impl::place;
  using completion = cw::proxy_impl::completion;

  stalling_engine(cw::device_ref d, switches& s) : inner_(cw::local::make_engine(d, {})), s_(s) {}
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
    return has_room(to) && inner_->put(to, from, n, c);
  }
  bool get(const place& from, std::byte* to, std::size_t n, completion& c) override {
    return has_room(from) && inner_->get(from, to, n, c);
  }
  bool atomic(dev::amo op, int width, const place& at, std::uint64_t operand,
              std::uint64_t comparand, std::uint64_t* old, completion& c) override {
    return has_room(at) && inner_->atomic(op, width, at, operand, comparand, old, c);
  }
  bool fence() override { return inner_->fence(); }
  bool flush(completion& c) override { return inner_->flush(c); }
  bool progress() override {
    while (s_.now == trouble::no_turn) {
      s_.inside = true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return inner_->progress();
  }
  void lose(int pe) override { inner_->lose(pe); }

 private:
  [[nodiscard]] bool has_room(const place& p) const {
    return s_.now != trouble::no_room || p.pe != 1;
  }
  std::unique_ptr<engine> inner_;
  switches& s_;
};

std::unique_ptr<cw::proxy> make_stalling(cw::world& w, rooms r, switches& s, bool thread) {
  const cw::device_ref d = w.options().device;
  const auto size = static_cast<std::size_t>(w.size());
  cw::proxy_options o;
  o.queues = 2;
  o.depth = depth;
  o.thread = thread;
  auto p = std::make_unique<cw::proxy>(d, o, w.rank(), w.size(), std::vector<bool>(size, true),
                                       std::make_unique<stalling_engine>(d, s));
  const auto& base = w.state().heap->base;
  const std::size_t bytes = r.remote().offset + sizeof(room);
  const cw::proxy_impl::region_info mine{base[static_cast<std::size_t>(w.rank())], bytes, true,
                                         base};
  p->install_region(0, mine, std::vector<std::size_t>(size, bytes),
                    std::vector<std::vector<std::byte>>(size, p->offer_region(0, mine)));
  return p;
}

/// Two ranks; `rank_main` is rank 0's, with both ranks' rooms.
void on_rank_0(
    const std::function<void(cw::world&, rooms, const room& mine, const room& there)>& rank_main) {
  cw::world_options o;
  o.device = cw::device_ref::cpu();
  o.heap_bytes = 1U << 16U;
  cw::run_local(2, o, [&](cw::world& w) {
    cw::symmetric_buffer<room> memory(w, 1);
    memory.write(std::vector<room>(1));
    w.barrier();
    if (w.rank() == 0) {
      const auto& base = w.state().heap->base;
      const auto of = [&](std::size_t rank) -> const room& {
        return *reinterpret_cast<const room*>(base[rank] + memory.device().remote().offset);
      };
      rank_main(w, memory.device(), of(0), of(1));
    }
    w.barrier();
  });
}

// ---- nobody makes room in time

/// Block 0 fills queue 0; block 1 uses queue 1, for rank 0.
struct fill {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r,
                        notes* out, bool others) const {
    const auto me = ctx.thread();
    const int t = ctx.thread_index();
    std::uint64_t old = 0;
    if (ctx.block_index() == 1) {
      dev::proxy_queue q(queues, 1, w.limits);
      for (int i = 0; others && t == 0 && i < 100; ++i) {
        const auto word = address(r, &r.local()->elsewhere);
        note(out->others, q.atomic(me, dev::amo::add, 8, 0, word, 1, 0, old));
        note(out->others, q.quiet(me));
      }
      return;
    }
    dev::proxy_queue q(queues, 0, w.limits.within(patience_ns));
    if (t == 0) {
      const auto word = address(r, &r.local()->given_up);
      out->answered = q.atomic(me, dev::amo::add, 8, 1, word, 1, 0, old);
    }
    ctx.block().sync();
    for (int n = t; n < all_tries; n += threads) {
      const std::uint64_t begin = dev::now_ns();
      out->issued[n] = ask(q, ctx, r, *out, n);
      out->waited_ns[n] = dev::now_ns() - begin;
    }
  }
};

/// Uses the queue again, for some laps, with a wait for each answer.
struct go_on {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r,
                        notes* out) const {
    const int t = ctx.thread_index();
    dev::proxy_queue q(queues, 0, w.limits);
    status s = status::ok;
    for (int n = t; n < all_tries * laps; n += threads) {
      note(s, q.atomic(ctx.thread(), dev::amo::add, 8, 1, address(r, &r.local()->afterwards), 1, 0,
                       out->old[n]));
    }
    note(s, q.quiet(ctx.thread()));
    ctx.block().sync();
    if (t == 0) out->after = s;
  }
};

class FullQueue : public testing::TestWithParam<trouble> {};

TEST_P(FullQueue, IsToldAtTheDeadlineAndLosesNothing) {
  on_rank_0([](cw::world& w, rooms r, const room& mine, const room& there) {
    switches s;
    const auto p = make_stalling(w, r, s, false);
    cw::buffer<notes> out(w.options().device, 1);
    s.now = GetParam();
    std::thread held;
    if (GetParam() == trouble::no_turn) {
      held = std::thread([&] { (void)p->progress(); });
      while (!s.inside) std::this_thread::yield();
    }
    cw::launch(w.stream(), {.blocks = 2, .threads = threads}, fill{}, w.device(), p->memory(), r,
               out.data(), GetParam() == trouble::no_room);
    w.stream().sync();
    const notes said = out.read()[0];
    EXPECT_EQ(said.answered, status::timeout);
    int taken = 0;
    for (int n = 0; n < all_tries; ++n) {
      if (said.issued[n] == status::ok) {
        ++taken;
        continue;
      }
      EXPECT_EQ(said.issued[n], status::timeout) << n;
      EXPECT_GE(said.waited_ns[n], patience_ns) << n;
      EXPECT_LT(said.waited_ns[n], patience_ns + 2'000'000'000) << n;
    }
    EXPECT_EQ(taken, depth - 1) << "one slot is kept for the answer that is still to come";
    EXPECT_FALSE(p->finish_all(milliseconds(30)));
    EXPECT_TRUE(
        std::all_of(there.arrived, there.arrived + all_tries, [](auto n) { return n == 0; }));
    EXPECT_EQ(there.given_up, 0U);
    if (GetParam() == trouble::no_room) {
      EXPECT_EQ(said.others, status::ok);
      EXPECT_EQ(mine.elsewhere, 100U);
    }

    s.now = trouble::none;
    if (held.joinable()) held.join();
    ASSERT_TRUE(p->finish_all(std::chrono::seconds(10)));
    EXPECT_EQ(there.given_up, 1U);
    for (int n = 0; n < all_tries; ++n) {
      const bool issued = said.issued[n] == status::ok;
      EXPECT_EQ(there.arrived[n], issued ? 1U : 0U) << n;
      EXPECT_TRUE(there.in[n] == (issued && n % 2 == 1 ? write_letter(n) : letter{})) << n;
    }

    cw::launch(w.stream(), {.threads = threads}, go_on{}, w.device(), p->memory(), r, out.data());
    w.stream().sync();
    notes then = out.read()[0];
    EXPECT_EQ(then.after, status::ok) << "nothing that was issued had failed";
    std::sort(std::begin(then.old), std::end(then.old));
    for (std::size_t i = 0; i < std::size(then.old); ++i) ASSERT_EQ(then.old[i], i);
  });
}

// ---- somebody makes room later

/// Asks again until there is room.
struct insist {
  CW_FN void operator()(const context& ctx, dev::world w, dev::proxy_memory queues, rooms r,
                        notes* out) const {
    const int t = ctx.thread_index();
    dev::proxy_queue q(queues, 0, w.limits.within(patience_ns));
    status s = status::ok;
    for (int n = t; n < all_tries && s == status::ok; n += threads) {
      while ((s = ask(q, ctx, r, *out, n)) == status::timeout) ++out->given_up[t];
    }
    dev::proxy_queue patient(queues, 0, w.limits);
    note(s, patient.quiet(ctx.thread()));
    out->issued[t] = s;
  }
};

TEST_P(FullQueue, TakesAllOnceThereIsRoom) {
  on_rank_0([](cw::world& w, rooms r, const room&, const room& there) {
    switches s;
    const auto p = make_stalling(w, r, s, true);
    s.now = GetParam();
    // Who is held up is the proxy's own thread, not one that a kernel has lent.
    while (GetParam() == trouble::no_turn && !s.inside) std::this_thread::yield();
    cw::buffer<notes> out(w.options().device, 1);
    cw::launch(w.stream(), {.threads = threads}, insist{}, w.device(), p->memory(), r, out.data());
    std::this_thread::sleep_for(milliseconds(200));
    s.now = trouble::none;
    w.stream().sync();
    const notes said = out.read()[0];
    int given_up = 0;
    for (int t = 0; t < threads; ++t) {
      EXPECT_EQ(said.issued[t], status::ok) << t;
      given_up += said.given_up[t];
    }
    EXPECT_GT(given_up, 0) << "the queue was never full";
    for (int n = 0; n < all_tries; ++n) {
      EXPECT_EQ(there.arrived[n], 1U) << n;
      EXPECT_TRUE(there.in[n] == (n % 2 == 1 ? write_letter(n) : letter{})) << n;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Trouble, FullQueue, testing::Values(trouble::no_room, trouble::no_turn),
                         [](const auto& which) {
                           return which.param == trouble::no_room ? "NoRoom" : "NoTurn";
                         });

}  // namespace
