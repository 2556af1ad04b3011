// What every engine must do for the proxy, and the path rdma in its place. Which one:
// CROSSWARP_TEST_ENGINE (local).
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <thread>

#include "crosswarp/options.hpp"
#include "crosswarp/world_launch.hpp"
#include "support/worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using context = dev::kernel_context;

namespace {

std::string engine_name() {
  const char* name = std::getenv("CROSSWARP_TEST_ENGINE");
  return name == nullptr ? "local" : name;
}

cw::world_options proxy_options() {
  auto o = test_options();
  const bool rdma = engine_name() == "rdma";
  o.proxy.path = rdma ? cw::path_choice::rdma : cw::path_choice::proxy;
  o.proxy.engine = rdma ? "auto" : engine_name();
  o.proxy.queues = 4;
  return o;
}

void on_proxied(int ranks, const std::function<void(cw::world&)>& rank_main,
                const cw::world_options& o = proxy_options()) {
  on_ranks(
      ranks,
      [&](cw::world& w) {
        ASSERT_TRUE(w.has_proxy());
        rank_main(w);
      },
      o);
}

/// Runs a kernel on all ranks and expects that it said ok; then all ranks have done so.
template <class Kernel, class... Args>
void expect_ok(cw::world& w, cw::launch_shape shape, Kernel k, Args... args) {
  cw::buffer<cw::status> out(w.options().device, 1);
  cw::launch(w, shape, k, w.device(), out.data(), args...);
  w.stream().sync();
  EXPECT_EQ(out.read()[0], cw::status::ok) << "rank " << w.rank();
  w.barrier();
}

/// The first thing that went wrong.
CW_FN void note(cw::status* out, cw::status s) {
  if (*out == cw::status::ok) *out = s;
}

std::vector<std::uint8_t> pattern(std::size_t bytes, int seed) {
  std::vector<std::uint8_t> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    v[i] = static_cast<std::uint8_t>(i * 31 + static_cast<std::size_t>(seed) * 7 + 1);
  }
  return v;
}

// ---- put and get

struct put_right {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint8_t> to, const std::uint8_t* from,
                        std::size_t offset, std::size_t bytes, bool nbi) const {
    auto q = w.proxy.queue(ctx.block_index());
    const int right = (w.rank + 1) % w.size;
    const auto g = ctx.block();
    cw::status s = nbi ? q.put_nbi(g, right, to.remote(offset), from + offset, bytes)
                       : q.put(g, right, to.remote(offset), from + offset, bytes);
    if (s == cw::status::ok) s = q.quiet(g);
    if (g.rank() == 0) note(out, s);
  }
};

struct get_right {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint8_t> from, std::uint8_t* to, std::size_t offset,
                        std::size_t bytes, bool nbi) const {
    auto q = w.proxy.queue(ctx.block_index());
    const int right = (w.rank + 1) % w.size;
    const auto g = ctx.block();
    cw::status s = nbi ? q.get_nbi(g, right, from.remote(offset), to + offset, bytes)
                       : q.get(g, right, from.remote(offset), to + offset, bytes);
    if (s == cw::status::ok && nbi) s = q.quiet(g);
    if (g.rank() == 0) note(out, s);
  }
};

constexpr std::size_t room = 600'000;
constexpr std::size_t sizes[] = {0, 1, 7, 8, 16, 17, 100, 4096, 65'537, 300'000, 599'990};

TEST(Proxy, PutsRangesFromHeapAndPrivateMemory) {
  on_proxied(3, [](cw::world& w) {
    cw::symmetric_buffer<std::uint8_t> to(w, room);
    cw::symmetric_buffer<std::uint8_t> in_heap(w, room);
    const auto mine = pattern(room, w.rank());
    const auto lefts = pattern(room, (w.rank() + w.size() - 1) % w.size());
    cw::buffer<std::uint8_t> own(w.options().device, std::span<const std::uint8_t>(mine));
    in_heap.write(mine);
    w.barrier();
    const std::vector<std::uint8_t> zeros(room);
    for (const std::size_t bytes : sizes) {
      for (int form = 0; form < 4; ++form) {
        const std::size_t offset = bytes % 10;
        expect_ok(w, {.threads = 8}, put_right{}, to.device(),
                  form % 2 == 0 ? static_cast<const std::uint8_t*>(own.data()) : in_heap.data(),
                  offset, bytes, form / 2 == 0);
        std::vector<std::uint8_t> expected = zeros;
        std::copy_n(lefts.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(offset));
        EXPECT_TRUE(to.read() == expected) << bytes << " bytes, form " << form;
        to.write(zeros);
        w.barrier();
      }
    }
  });
}

TEST(Proxy, GetsRangesIntoHeapAndPrivateMemory) {
  on_proxied(3, [](cw::world& w) {
    cw::symmetric_buffer<std::uint8_t> from(w, room);
    from.write(pattern(room, w.rank()));
    const auto rights = pattern(room, (w.rank() + 1) % w.size());
    cw::symmetric_buffer<std::uint8_t> in_heap(w, room);
    cw::buffer<std::uint8_t> own(w.options().device, room);
    const std::vector<std::uint8_t> zeros(room);
    w.barrier();
    for (const std::size_t bytes : sizes) {
      for (int form = 0; form < 4; ++form) {
        const std::size_t offset = bytes % 10;
        own.write(zeros);
        in_heap.write(zeros);
        expect_ok(w, {.threads = 8}, get_right{}, from.device(),
                  form % 2 == 0 ? own.data() : in_heap.data(), offset, bytes, form / 2 == 0);
        std::vector<std::uint8_t> expected = zeros;
        std::copy_n(rights.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(offset));
        EXPECT_TRUE((form % 2 == 0 ? own.read() : in_heap.read()) == expected)
            << bytes << " bytes, form " << form;
      }
    }
  });
}

struct put_values {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> to) const {
    auto q = w.proxy.queue(0);
    const int right = (w.rank + 1) % w.size;
    for (int width = 1; width <= 8; ++width) {
      note(out, q.put_value(ctx.thread(), right, to.remote(static_cast<std::size_t>(width)),
                            0x8877665544332211U + static_cast<unsigned>(w.rank), width));
    }
    note(out, q.quiet(ctx.thread()));
  }
};

TEST(Proxy, PutsValuesOfEveryWidth) {
  on_proxied(2, [](cw::world& w) {
    cw::symmetric_buffer<std::uint64_t> to(w, 9);
    expect_ok(w, {}, put_values{}, to.device());
    const auto got = to.read();
    const int left = (w.rank() + w.size() - 1) % w.size();
    const std::uint64_t whole = 0x8877665544332211U + static_cast<unsigned>(left);
    for (unsigned width = 1; width <= 8; ++width) {
      const std::uint64_t mask = width == 8 ? ~0ULL : (1ULL << (8 * width)) - 1;
      EXPECT_EQ(got[width], whole & mask) << width;
    }
  });
}

// ---- signals and order

struct ping_with_signal {
  CW_FN void operator()(const context& ctx, const dev::world& w, cw::status* out,
                        dev::symmetric<std::uint64_t> data, dev::symmetric<std::uint64_t> flag,
                        std::uint64_t* source, int words, bool add) const {
    const auto g = ctx.block();
    auto q = w.proxy.queue(0);
    const int right = (w.rank + 1) % w.size;
    cw::status s = cw::status::ok;
    for (std::uint64_t round = 1; round <= 50 && s == cw::status::ok; ++round) {
      for (int i = g.rank(); i < words; i += g.size()) {
        source[i] = round * 1000 + static_cast<unsigned>(i);
      }
      s = q.put_signal(g, right, data.remote(), source, static_cast<std::size_t>(words) * 8,
                       flag.remote(), add ? 1 : round,
                       add ? dev::signal_op::add : dev::signal_op::set);
      if (s == cw::status::ok) s = dev::wait(g, dev::signal(*flag.local()), round, w.limits);
      for (int i = g.rank(); i < words && s == cw::status::ok; i += g.size()) {
        if (data.local()[i] != round * 1000 + static_cast<unsigned>(i)) s = cw::status::invalid;
      }
      s = dev::agree(g, s);
      // The left neighbour may write the next round when this rank has read this one; a put alone
      // orders nothing but its source.
      const int left = (w.rank + w.size - 1) % w.size;
      if (s == cw::status::ok) s = q.fence(g);
      if (s == cw::status::ok) {
        s = q.put_value(g, left, flag.remote(1), round, 8);
      }
      if (s == cw::status::ok) s = dev::wait(g, dev::signal(flag.local()[1]), round, w.limits);
    }
    if (g.rank() == 0) note(out, s);
  }
};

TEST(Proxy, WhoSeesTheSignalSeesTheData) {
  on_proxied(2, [](cw::world& w) {
    for (const int words : {1, 2, 40, 20'000}) {
      for (const bool add : {false, true}) {
        cw::symmetric_buffer<std::uint64_t> data(w, 20'000);
        cw::symmetric_buffer<std::uint64_t> flag(w, 2);
        cw::buffer<std::uint64_t> source(w.options().device, 20'000);
        expect_ok(w, {.threads = 4}, ping_with_signal{}, data.device(), flag.device(),
                  source.data(), words, add);
      }
    }
  });
}

/// Writes x, fence, y; the other must never see the new y with the old x.
struct fence_litmus {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> x, dev::symmetric<std::uint64_t> y) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    constexpr std::uint64_t rounds = 300;
    if (w.rank == 0) {
      for (std::uint64_t i = 1; i <= rounds; ++i) {
        note(out, q.put_value(me, 1, x.remote(), i, 8));
        note(out, q.fence(me));
        note(out, q.put_value(me, 1, y.remote(), i, 8));
      }
      note(out, q.quiet(me));
    } else {
      const dev::signal sx(*x.local());
      const dev::signal sy(*y.local());
      note(out, dev::poll_until(
                    [&] {
                      const std::uint64_t seen = sy.read();
                      if (sx.read() < seen) note(out, cw::status::invalid);
                      return seen == rounds;
                    },
                    w.limits));
    }
  }
};

TEST(Proxy, AFenceOrdersPutsToARank) {
  on_proxied(2, [](cw::world& w) {
    if (w.size() != 2) GTEST_SKIP();
    cw::symmetric_buffer<std::uint64_t> x(w, 16);
    cw::symmetric_buffer<std::uint64_t> y(w, 16);
    expect_ok(w, {}, fence_litmus{}, x.device(), y.device());
  });
}

// ---- strided

struct strided_right {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::int32_t> grid, std::int32_t* own, bool get) const {
    auto q = w.proxy.queue(0);
    const int right = (w.rank + 1) % w.size;
    // A column of 2 elements, 10 rows: rows of 8 at the target, rows of 3 here; backwards here.
    dev::proxy_queue::strides s;
    s.block = 8;
    s.count = 10;
    s.remote_stride = 32;
    s.local_stride = -12;
    note(out, get ? q.get_strided(ctx.thread(), right, grid.remote(3), own + 27, s)
                  : q.put_strided(ctx.thread(), right, grid.remote(3), own + 27, s));
    note(out, q.quiet(ctx.thread()));
  }
};

TEST(Proxy, MovesStridedBlocks) {
  on_proxied(2, [](cw::world& w) {
    std::vector<std::int32_t> mine(40);
    std::iota(mine.begin(), mine.end(), 100 * w.rank());
    cw::symmetric_buffer<std::int32_t> grid(w, 80);
    cw::buffer<std::int32_t> own(w.options().device, std::span<const std::int32_t>(mine));
    expect_ok(w, {}, strided_right{}, grid.device(), own.data(), false);
    const int left = (w.rank() + w.size() - 1) % w.size();
    std::vector<std::int32_t> expected(80);
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t k = 0; k < 2; ++k) {
        expected[3 + 8 * i + k] = 100 * left + static_cast<int>(27 - 3 * i + k);
      }
    }
    EXPECT_EQ(grid.read(), expected);
    w.barrier();
    own.write(std::vector<std::int32_t>(40));
    expect_ok(w, {}, strided_right{}, grid.device(), own.data(), true);
    std::vector<std::int32_t> back(40);
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t k = 0; k < 2; ++k) {
        back[27 - 3 * i + k] = 100 * w.rank() + static_cast<int>(27 - 3 * i + k);
      }
    }
    EXPECT_EQ(own.read(), back);
  });
}

// ---- atomics

template <class T>
struct every_atomic {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out, dev::symmetric<T> words,
                        T* fetched) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    const int right = (w.rank + 1) % w.size;
    const int width = sizeof(T);
    constexpr dev::amo ops[] = {dev::amo::fetch,   dev::amo::set,         dev::amo::add,
                                dev::amo::bit_and, dev::amo::bit_or,      dev::amo::bit_xor,
                                dev::amo::swap,    dev::amo::compare_swap};
    // Word i starts as 12 + i; each operation three ways: fetched, without, fetched later.
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint64_t old = 0;
      note(out, q.atomic(me, ops[i], width, right, words.remote(i), 10, 12 + i, old));
      fetched[i] = static_cast<T>(old);
      note(out, q.atomic_nbi(me, ops[i], width, right, words.remote(8 + i), 10, 12 + i));
      note(out, q.atomic_fetch_nbi(me, ops[i], width, right, words.remote(16 + i), 10, 12 + i,
                                   fetched + 16 + i));
    }
    // A comparand that does not match.
    std::uint64_t old = 0;
    note(out, q.atomic(me, dev::amo::compare_swap, width, right, words.remote(24), 10, 999, old));
    fetched[24] = static_cast<T>(old);
    note(out, q.quiet(me));
  }
};

template <class T>
void check_every_atomic(cw::world& w) {
  std::vector<T> start(25);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = static_cast<T>(12 + i % 8);
  cw::symmetric_buffer<T> words(w, start.size());
  words.write(start);
  cw::buffer<T> fetched(w.options().device, start.size());
  w.barrier();
  expect_ok(w, {}, every_atomic<T>{}, words.device(), fetched.data());
  const auto now = words.read();
  const auto old = fetched.read();
  const T expected[8] = {12, 10, 24, 15 & 10, 16 | 10, 17 ^ 10, 10, 10};
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t way = 0; way < 3; ++way) EXPECT_EQ(now[8 * way + i], expected[i]) << i << way;
    if (i == 1) continue;  // a set gives nothing back
    EXPECT_EQ(old[i], static_cast<T>(12 + i)) << i;
    EXPECT_EQ(old[16 + i], static_cast<T>(12 + i)) << i;
  }
  EXPECT_EQ(now[24], static_cast<T>(12));
  EXPECT_EQ(old[24], static_cast<T>(12));
}

TEST(Proxy, EveryAtomicInBothWidths) {
  on_proxied(2, [](cw::world& w) {
    check_every_atomic<std::uint32_t>(w);
    check_every_atomic<std::uint64_t>(w);
  });
}

struct count_together {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> counter, std::uint8_t* seen,
                        int times) const {
    auto q = w.proxy.queue(ctx.block_index());
    const auto me = ctx.thread();
    for (int i = 0; i < times; ++i) {
      std::uint64_t old = 0;
      const cw::status s = q.atomic(me, dev::amo::add, 8, 0, counter.remote(), 1, 0, old);
      if (s != cw::status::ok) {
        *out = s;
        return;
      }
      seen[old] = 1;
    }
    // An answer says what was there before; that the sum is there is for quiet() to say.
    const cw::status s = q.quiet(me);
    if (s != cw::status::ok) *out = s;
  }
};

TEST(Proxy, ManyThreadsAndRanksShareQueuesAndAWord) {
  auto o = proxy_options();
  o.proxy.queues = 2;
  o.proxy.depth = 4;  // far fewer slots than threads
  on_proxied(
      2,
      [](cw::world& w) {
        const int blocks = 4;
        const int threads = 16;
        const int times = 5;
        const auto total = static_cast<std::size_t>(w.size() * blocks * threads * times);
        cw::symmetric_buffer<std::uint64_t> counter(w, 1);
        cw::buffer<std::uint8_t> seen(w.options().device, total);
        expect_ok(w, {.blocks = blocks, .threads = threads}, count_together{}, counter.device(),
                  seen.data(), times);
        if (w.rank() == 0) {
          EXPECT_EQ(counter.read()[0], total);
        }
        const auto mine = seen.read();
        EXPECT_EQ(std::accumulate(mine.begin(), mine.end(), 0), blocks * threads * times)
            << "every value was fetched once";
      },
      o);
}

// ---- bad commands

struct misuse {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> words, std::uint64_t* source, int kind,
                        std::size_t heap) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    const int pe = (w.rank + 1) % w.size;
    std::uint64_t old = 0;
    cw::status s = cw::status::ok;
    auto* wild = reinterpret_cast<std::uint64_t*>(std::uintptr_t{0x10});
    switch (kind) {
      case 0:
        s = q.put(me, w.size, words.remote(), source, 64);
        break;
      case 1:
        s = q.put(me, -1, words.remote(), source, 64);
        break;
      case 2:
        s = q.put(me, pe, {heap - 32, 0}, source, 64);
        break;
      case 3:
        s = q.put(me, pe, {~std::uint64_t{0} - 7, 0}, source, 64);
        break;
      case 4:
        s = q.put(me, pe, {0, 77}, source, 64);
        break;
      case 5:
        s = q.get(me, pe, {heap, 0}, source, 1);
        break;
      case 6:
        s = q.atomic(me, dev::amo::add, 8, pe, {words.remote().offset + 4, 0}, 1, 0, old);
        break;
      case 7:
        s = q.atomic(me, dev::amo::add, 3, pe, words.remote(), 1, 0, old);
        break;
      case 8:
        s = q.put(me, pe, words.remote(), wild, 64);
        break;
      case 9:
        s = q.get(me, pe, words.remote(), wild, 64);
        break;
      case 10: {
        dev::proxy_queue::strides t;
        t.block = 8;
        t.count = std::size_t{1} << 62U;
        t.remote_stride = 8;
        t.local_stride = 8;
        s = q.put_strided(me, pe, words.remote(), source, t);
        break;
      }
      case 11: {
        dev::proxy_queue::strides t;
        t.block = 8;
        t.count = 3;
        t.remote_stride = -static_cast<std::ptrdiff_t>(words.remote().offset) - 64;
        t.local_stride = 8;
        s = q.put_strided(me, pe, words.remote(), source, t);
        break;
      }
      case 12:  // nobody waits for it: the next quiet tells, once
        s = q.put_value(me, pe, {heap, 0}, 1, 8);
        if (s == cw::status::ok) s = q.quiet(me);
        note(out, q.quiet(me));
        break;
      case 13:
        s = q.put_signal(me, pe, words.remote(), source, 64, {heap, 0}, 1, dev::signal_op::add);
        break;
      default:
        break;
    }
    if (s != cw::status::invalid) note(out, s == cw::status::ok ? cw::status::closed : s);
    // The queue goes on.
    note(out, q.put_value(me, pe, words.remote(9), 4711, 8));
    note(out, q.quiet(me));
  }
};

TEST(Proxy, BadCommandsAreAnsweredAndTouchNothing) {
  on_proxied(2, [](cw::world& w) {
    cw::symmetric_buffer<std::uint64_t> words(w, 10);
    cw::symmetric_buffer<std::uint64_t> source(w, 10);
    source.write(std::vector<std::uint64_t>(10, 5));
    // Kernels count from the heap's start, where the library keeps its own words.
    const std::size_t beyond = w.options().heap_bytes + (1U << 20U);
    for (int kind = 0; kind <= 13; ++kind) {
      // An adapter fails an endpoint for that, see below.
      if (engine_name() == "rdma" && (kind == 8 || kind == 9)) continue;
      SCOPED_TRACE(kind);
      expect_ok(w, {}, misuse{}, words.device(), source.data(), kind, beyond);
      std::vector<std::uint64_t> expected(10);
      expected[9] = 4711;
      EXPECT_EQ(words.read(), expected);
      w.barrier();
    }
  });
}

struct wild_source {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> words, std::uint64_t* source) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    const int right = (w.rank + 1) % w.size;
    auto* wild = reinterpret_cast<std::uint64_t*>(std::uintptr_t{0x10});
    if (w.rank != 0) return;  // the other end of that endpoint has failed, too
    for (int i = 0; i < 2; ++i) {
      const cw::status s = q.put(me, right, words.remote(), i == 0 ? wild : source, 80);
      if (s != cw::status::invalid) note(out, s == cw::status::ok ? cw::status::closed : s);
    }
    note(out, q.put(me, w.rank, words.remote(), source, 80));
    note(out, w.proxy.queue(1).put(me, right, words.remote(), source, 80));
    note(out, w.proxy.queue(1).quiet(me));
  }
};

TEST(Proxy, AWrongAddressHereEndsOneEndpointOfRdma) {
  if (engine_name() != "rdma") GTEST_SKIP() << "engines answer it, and go on";
  on_proxied(2, [](cw::world& w) {
    cw::symmetric_buffer<std::uint64_t> words(w, 10);
    cw::symmetric_buffer<std::uint64_t> source(w, 10);
    source.write(std::vector<std::uint64_t>(10, 5));
    w.barrier();
    expect_ok(w, {}, wild_source{}, words.device(), source.data());
    if (w.rank() < 2) {
      EXPECT_EQ(words.read(), std::vector<std::uint64_t>(10, 5));
    }
    w.barrier();
  });
}

// ---- collectives

struct all_collectives {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::int32_t> to, dev::symmetric<std::int32_t> from) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    cw::status s = q.barrier(me);
    if (s == cw::status::ok) {
      s = q.reduce(me, dev::reduction::sum, dev::element::i32, to.remote(), from.remote(), 100);
    }
    if (s == cw::status::ok) {
      s = q.broadcast(me, w.size - 1, to.remote(100), from.remote(), 400);
    }
    note(out, s);
  }
};

TEST(Proxy, CollectivesWhereTheEngineHasThem) {
  on_proxied(3, [](cw::world& w) {
    cw::symmetric_buffer<std::int32_t> to(w, 200);
    cw::symmetric_buffer<std::int32_t> from(w, 100);
    from.write(std::vector<std::int32_t>(100, w.rank() + 1));
    w.barrier();
    cw::buffer<cw::status> out(w.options().device, 1);
    cw::launch(w, {}, all_collectives{}, w.device(), out.data(), to.device(), from.device());
    w.stream().sync();
    const bool has = w.path_to((w.rank() + 1) % w.size()) == "proxy (mpi)";
    EXPECT_EQ(out.read()[0], has ? cw::status::ok : cw::status::unsupported);
    if (!has) return;
    const auto got = to.read();
    for (std::size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(got[i], w.size() * (w.size() + 1) / 2);
      EXPECT_EQ(got[100 + i], w.size());
    }
  });
}

// ---- registered buffers

TEST(Proxy, ReachesRegisteredBuffers) {
  on_proxied(2, [](cw::world& w) {
    const cw::device_ref d = w.options().device;
    const auto mine = pattern(8192, w.rank());
    cw::buffer<std::uint8_t> own(d, std::span<const std::uint8_t>(mine));
    cw::buffer<std::uint8_t> target(d, 8192);
    {
      cw::registration shared(w, target.data(), 8192);
      expect_ok(w, {}, put_right{}, shared.device<std::uint8_t>(),
                static_cast<const std::uint8_t*>(own.data()), std::size_t{100}, std::size_t{5000},
                false);
    }
    std::vector<std::uint8_t> expected(8192);
    const auto lefts = pattern(8192, (w.rank() + w.size() - 1) % w.size());
    std::copy_n(lefts.begin() + 100, 5000, expected.begin() + 100);
    EXPECT_TRUE(target.read() == expected);
    w.barrier();
  });
}

// ---- counters

struct some_of_each {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> words, std::uint64_t* source) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    const int right = (w.rank + 1) % w.size;
    for (int i = 0; i < 3; ++i) note(out, q.put(me, right, words.remote(), source, 64));
    note(out, q.put(me, right, words.remote(), source, 8));
    for (int i = 0; i < 5; ++i) note(out, q.put_value(me, right, words.remote(8), 1, 4));
    note(out, q.put_signal(me, right, words.remote(), source, 8, words.remote(9), 1,
                           dev::signal_op::set));
    note(out, q.atomic_nbi(me, dev::amo::add, 8, right, words.remote(10), 1));
    if (q.get(me, w.size, words.remote(), source, 8) != cw::status::invalid) {
      note(out, cw::status::closed);
    }
    note(out, q.quiet(me));
  }
};

TEST(Proxy, CountsWhatItDid) {
  on_proxied(2, [](cw::world& w) {
    cw::symmetric_buffer<std::uint64_t> words(w, 16);
    cw::buffer<std::uint64_t> source(w.options().device, 8);
    w.reset_stats();
    expect_ok(w, {}, some_of_each{}, words.device(), source.data());
    std::map<std::string, cw::operation_stats> by_name;
    for (const auto& s : w.stats()) by_name[s.name] = s;
    EXPECT_EQ(by_name["put"].count, 4U);
    EXPECT_EQ(by_name["put"].bytes, 200U);
    EXPECT_EQ(by_name["put_value"].count, 5U);
    EXPECT_EQ(by_name["put_value"].bytes, 20U);
    EXPECT_EQ(by_name["put_signal"].count, 1U);
    EXPECT_EQ(by_name["atomic add"].count, 1U);
    EXPECT_EQ(by_name["get"].count, 1U);
    EXPECT_EQ(by_name["get"].bytes, 0U);
    EXPECT_EQ(by_name["get"].failures, 1U);
    EXPECT_EQ(by_name["quiet"].count, 1U);
    w.reset_stats();
    for (const auto& s : w.stats()) EXPECT_EQ(s.count, 0U) << s.name;
  });
}

}  // namespace
