// Memory of the caller that collectives use in place: registered, or registered after a recording.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "crosswarp/coll.hpp"
#include "crosswarp/world_launch.hpp"
#include "support/coll_worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::coll_op;

namespace {

bool on_gpu() {
  return test_device().kind() == cw::device_kind::cuda;
}

/// Of calls that take two shots; whole pages.
const std::size_t count = on_gpu() ? 1U << 18U : 1U << 14U;
const std::size_t bytes = count * sizeof(std::int32_t);

/// Numbers that only this rank and this round have, and whose sums are exact.
std::vector<std::int32_t> values(int rank, int round) {
  std::vector<std::int32_t> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = static_cast<std::int32_t>(i * 131 + 1) * (rank + 1) + round * 7919;
  }
  return v;
}
std::vector<std::int32_t> sum_of(int ranks, int round) {
  std::vector<std::int32_t> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const auto v = values(r, round);
    for (std::size_t i = 0; i < count; ++i) sum[i] += v[i];
  }
  return sum;
}

/// A rank that tests: it writes, calls, and looks what became of it.
struct rank_test {
  cw::world& w;
  cw::coll all;
  int round = 0;

  explicit rank_test(cw::world& world, const cw::coll_options& o = {}) : w(world), all(world, o) {}

  void write(std::int32_t* to, const std::vector<std::int32_t>& v) const {
    cw::exec::copy_now(w.options().device, to, v.data(), v.size() * sizeof(v[0]));
  }
  [[nodiscard]] std::vector<std::int32_t> read(const std::int32_t* from) const {
    std::vector<std::int32_t> v(count);
    cw::exec::copy_now(w.options().device, v.data(), from, bytes);
    return v;
  }

  /// Whether numbers are anywhere in this rank's heap: on a shelf of the communicator, when they
  /// were nowhere there before.
  [[nodiscard]] bool in_heap(const std::vector<std::int32_t>& v) const {
    std::vector<std::int32_t> heap(cw::world_impl::heap_bytes(w.state()) / sizeof(v[0]));
    cw::exec::copy_now(w.options().device, heap.data(),
                       cw::world_impl::heap_base(w.state(), w.rank()),
                       heap.size() * sizeof(heap[0]));
    return std::search(heap.begin(), heap.end(), v.begin(), v.begin() + 4) != heap.end();
  }

  /// Fresh numbers, added up by `call`. Whether they went through the communicator's memory, which
  /// shows when `in` is not symmetric.
  bool adds_up_staged(const std::int32_t* out, std::int32_t* in,
                      const std::function<void()>& call) {
    ++round;
    const auto mine = values(w.rank(), round);
    write(in, mine);
    w.barrier();
    call();
    all.check();
    w.barrier();
    EXPECT_EQ(read(out), sum_of(w.size(), round)) << "round " << round;
    return in_heap(mine);
  }
  bool adds_up_staged(std::int32_t* out, std::int32_t* in) {
    return adds_up_staged(
        out, in, [&] { all.all_reduce(out, static_cast<const std::int32_t*>(in), count); });
  }

  /// All ranks throw it.
  void refused(cw::errc code, const std::string& why, const std::function<void()>& call) const {
    try {
      call();
      ADD_FAILURE() << "rank " << w.rank() << " was not refused: " << why;
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
      EXPECT_GE(e.peer(), 0) << e.what();
    }
  }
};

cw::buffer<std::int32_t> own(const cw::world& w, std::size_t of = 1) {
  return {w.options().device, count * of};
}

// ---- registered before the call

TEST(ARegisteredBuffer, IsUsedInPlaceUntilItIsUnregistered) {
  with_ranks(3, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const auto in = own(w);
    const auto out = own(w);
    EXPECT_FALSE(t.all.explain(out.data(), in.data(), bytes).direct);
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data()));
    t.all.register_buffer(in.data(), bytes);
    EXPECT_FALSE(t.all.explain(out.data(), in.data(), bytes).direct);
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data()));
    t.all.register_buffer(out.data(), bytes);
    const auto direct = t.all.explain(out.data(), in.data(), bytes);
    EXPECT_TRUE(direct.direct);
    EXPECT_NE(direct.why.find("registered"), std::string::npos) << direct.why;
    EXPECT_FALSE(t.adds_up_staged(out.data(), in.data()));
    EXPECT_FALSE(t.adds_up_staged(in.data(), in.data()));  // in place
    t.all.unregister_buffer(in.data());
    EXPECT_FALSE(t.all.explain(out.data(), in.data(), bytes).direct);
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data()));
    t.all.register_buffer(in.data(), bytes);
    EXPECT_FALSE(t.adds_up_staged(out.data(), in.data()));
    // What is left registered ends with the communicator.
  });
}

TEST(ARegisteredBuffer, IsFoundByAnyOfItsBytes) {
  with_ranks(2, [](cw::world& w) {
    rank_test t(w);
    const auto whole = own(w, 3);
    std::int32_t* const in = whole.data() + 40;
    std::int32_t* const out = whole.data() + 2 * count - 8;
    t.all.register_buffer(whole.data(), 3 * bytes);
    EXPECT_FALSE(t.adds_up_staged(out, in));
    EXPECT_TRUE(t.all.explain(whole.data() + 2 * count, in, bytes).direct);
    EXPECT_FALSE(t.all.explain(whole.data() + 2 * count + 1, in, bytes).direct);
    EXPECT_FALSE(t.all.explain(whole.data() - 1, in, bytes).direct);
  });
}

/// Other processes open an allocation as a whole.
TEST(ARegisteredBuffer, MayBeOneOfSeveralInAnAllocation) {
  with_ranks(3, [](cw::world& w) {
    rank_test t(w);
    const auto whole = own(w, 3);
    std::int32_t* const in = whole.data() + count;
    std::int32_t* const out = whole.data() + 2 * count;
    t.all.register_buffer(out, bytes);
    t.all.register_buffer(in, bytes);
    EXPECT_FALSE(t.adds_up_staged(out, in));
    t.all.unregister_buffer(out);
    EXPECT_FALSE(t.adds_up_staged(in, in));
    t.all.unregister_buffer(in);
  });
}

TEST(ARegisteredBuffer, GoesTogetherWithSymmetricMemory) {
  with_ranks(3, [](cw::world& w) {
    rank_test t(w);
    const cw::symmetric_buffer<std::int32_t> heap(w, count);
    const auto mine = own(w);
    t.all.register_buffer(mine.data(), bytes);
    EXPECT_TRUE(t.all.explain(heap.data(), mine.data(), bytes).direct);
    EXPECT_FALSE(t.adds_up_staged(heap.data(), mine.data()));
    EXPECT_TRUE(t.all.explain(mine.data(), heap.data(), bytes).direct);
    (void)t.adds_up_staged(mine.data(), heap.data());
    // Symmetric memory may be registered, too, which changes nothing.
    t.all.register_buffer(heap.data(), bytes);
    EXPECT_FALSE(t.adds_up_staged(heap.data(), mine.data()));
    t.all.unregister_buffer(heap.data());
    EXPECT_FALSE(t.adds_up_staged(heap.data(), mine.data()));
  });
}

TEST(ARegisteredBuffer, ServesSumsThatGoOn) {
  with_ranks(2, [](cw::world& w) {
    rank_test t(w);
    constexpr std::size_t hidden = 128;
    constexpr float one = 1.0F;
    const cw::device_ref d = w.options().device;
    cw::buffer<float> in(d, count);
    cw::buffer<float> out(d, count);
    cw::buffer<float> residual(d, count);
    cw::buffer<float> weight(d, hidden);
    weight.write(std::vector<float>(hidden, one));
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<float>(i % 1000) + static_cast<float>(w.rank());
    }
    const auto normed = [&] {
      in.write(numbers);
      residual.write(std::vector<float>(count));
      w.barrier();
      t.all.all_reduce_rms_norm(dev::rms_norm_rows<float>{.out = out.data(),
                                                          .residual_out = residual.data(),
                                                          .in = in.data(),
                                                          .residual = residual.data(),
                                                          .weight = weight.data(),
                                                          .rows = count / hidden,
                                                          .hidden = hidden});
      t.all.check();
      w.barrier();
      return out.read();
    };
    const auto staged = normed();
    t.all.register_buffer(in.data(), bytes);
    t.all.register_buffer(out.data(), bytes);
    EXPECT_TRUE(t.all.explain(out.data(), in.data(), bytes).direct);
    numbers.assign(count, one);  // to be seen that it is another call
    (void)normed();
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<float>(i % 1000) + static_cast<float>(w.rank());
    }
    EXPECT_EQ(normed(), staged);
  });
}

TEST(ARegisteredBuffer, MayGoWhileOthersAreInUse) {
  with_ranks(3, [](cw::world& w) {
    rank_test t(w);
    const auto stays = own(w);
    const auto goes = own(w);
    t.all.register_buffer(stays.data(), bytes);
    t.write(stays.data(), std::vector<std::int32_t>(count, 1));
    t.write(goes.data(), std::vector<std::int32_t>(count, 1));
    w.barrier();
    std::int32_t want = 1;
    for (int i = 0; i < 4; ++i) {
      if (w.rank() == i % w.size()) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      t.all.register_buffer(goes.data(), bytes);
      t.all.all_reduce(goes.data(), static_cast<const std::int32_t*>(goes.data()), count);
      t.all.all_reduce(stays.data(), static_cast<const std::int32_t*>(stays.data()), count);
      t.all.unregister_buffer(goes.data());  // waits for both
      want *= w.size();
    }
    t.all.check();
    w.barrier();
    EXPECT_EQ(t.read(stays.data()), std::vector<std::int32_t>(count, want));
    EXPECT_EQ(t.read(goes.data()), std::vector<std::int32_t>(count, want));
  });
}

// ---- what is refused, on all ranks

TEST(Registering, IsRefusedOnAllRanksWhenOneCannot) {
  using cw::errc;
  with_ranks(3, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const auto memory = own(w, 2);
    const auto other = own(w);
    std::int32_t* const p = memory.data();
    cw::coll& all = t.all;
    const bool odd = w.rank() == 1;
    t.refused(errc::invalid_argument, "null is no memory",
              [&] { all.register_buffer(odd ? nullptr : p, bytes); });
    t.refused(errc::invalid_argument, "no bytes", [&] { all.register_buffer(p, odd ? 0 : bytes); });
    t.refused(errc::invalid_argument, "more than there are",
              [&] { all.register_buffer(p, odd ? ~std::size_t{0} : bytes); });
    t.refused(errc::asymmetric, "bytes, this rank",
              [&] { all.register_buffer(p, odd ? bytes / 2 : bytes); });
    t.refused(errc::asymmetric, "behind a multiple of 16",
              [&] { all.register_buffer(odd ? p + 1 : p, bytes); });
    {
      const cw::symmetric_buffer<std::int32_t> heap(w, 2 * count);
      t.refused(errc::asymmetric, "in the symmetric heap",
                [&] { all.register_buffer(odd ? heap.data() : p, bytes); });
      t.refused(errc::asymmetric, "in the symmetric heap",
                [&] { all.register_buffer(heap.data() + (odd ? 16 : 0), bytes); });
    }
    all.register_buffer(p, bytes);
    all.register_buffer(other.data(), bytes);
    t.refused(errc::invalid_argument, "registered already",
              [&] { all.register_buffer(odd ? p + count - 4 : p + count, bytes); });
    t.refused(errc::invalid_argument, "no registered buffer begins there",
              [&] { all.unregister_buffer(odd ? p + 4 : p); });
    t.refused(errc::asymmetric, "unregisters another buffer",
              [&] { all.unregister_buffer(odd ? p : other.data()); });
    EXPECT_FALSE(t.adds_up_staged(other.data(), p));  // all is as it was
    all.unregister_buffer(p);
    t.refused(errc::invalid_argument, "no registered buffer begins there",
              [&] { all.unregister_buffer(p); });
    EXPECT_TRUE(t.adds_up_staged(other.data(), p));
  });
}

/// A process's pages can be shared as a whole, and a GPU has to be able to read them.
TEST(Registering, OfMemoryThatCannotBeSharedSaysWhatToDo) {
  with_ranks(2, [](cw::world& w) {
    rank_test t(w);
    const auto memory = own(w, 2);
    if (on_gpu()) {
      std::vector<std::int32_t> on_host(count);
      t.refused(cw::errc::not_supported, "this is host memory, and the world is on cuda",
                [&] { t.all.register_buffer(on_host.data(), bytes); });
      // Memory that ends too early is another's, if anybody's.
      EXPECT_THROW(t.all.register_buffer(memory.data(), std::size_t{1} << 46U), cw::error);
    } else if (cw::launched()) {
      t.refused(cw::errc::not_supported, "symmetric_buffer, World.empty",
                [&] { t.all.register_buffer(memory.data() + 16, bytes); });
    }
    t.all.register_buffer(memory.data(), bytes);
    EXPECT_FALSE(t.adds_up_staged(memory.data(), memory.data()));
  });
}

/// `call` with the odd rank's memory, after which nobody has a result.
void differs(const std::function<void(cw::coll&, std::int32_t*, std::int32_t*, bool)>& call) {
  with_ranks(3, [&](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const auto a = own(w, 2);
    const auto b = own(w, 2);
    t.all.register_buffer(a.data(), 2 * bytes);
    t.all.register_buffer(b.data(), 2 * bytes);
    call(t.all, a.data(), b.data(), w.rank() == 1);
    try {
      t.all.check();
      ADD_FAILURE() << "rank " << w.rank() << " did not notice";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::asymmetric) << e.what();
    }
    w.barrier();
  });
}

TEST(RanksThatPassOtherMemory, AreNoticed) {
  const auto reduce = [](cw::coll& all, std::int32_t* out, const std::int32_t* in) {
    all.all_reduce(out, in, count);
  };
  differs([&](cw::coll& all, std::int32_t* a, std::int32_t* b, bool odd) {
    odd ? reduce(all, a, b) : reduce(all, b, a);
  });
  differs([&](cw::coll& all, std::int32_t* a, std::int32_t* b, bool odd) {
    reduce(all, a, odd ? a : b);
  });
  differs([&](cw::coll& all, std::int32_t* a, std::int32_t* b, bool odd) {
    reduce(all, a, odd ? b + 16 : b);
  });
}

// ---- registered after the recording

struct recorded_sums {
  cw::recording kept;
  recorded_sums(rank_test& t, const std::function<void(cw::coll&)>& calls)
      : kept((t.w.barrier(), t.w.stream()), [&] { calls(t.all); }) {}
};

TEST(ARecordedCall, IsDirectOnceItsMemoryIsRegistered) {
  with_ranks(3, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const auto in = own(w);
    const auto out = own(w);
    const std::int32_t* const from = in.data();
    recorded_sums sums(t, [&](cw::coll& all) { all.all_reduce(out.data(), from, count); });
    const auto replay = [&] { sums.kept.replay(w.stream()); };
    const auto eager = [&] { t.all.all_reduce(out.data(), from, count); };
    // Before, in turns with calls that are queued as they come.
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data(), replay));
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data(), eager));
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data(), replay));
    EXPECT_EQ(t.all.register_recorded(), 1U);
    EXPECT_FALSE(t.adds_up_staged(out.data(), in.data(), replay));
    EXPECT_FALSE(t.adds_up_staged(out.data(), in.data(), [&] {
      replay();
      replay();
    }));
    // That registers nothing for other calls.
    EXPECT_FALSE(t.all.explain(out.data(), in.data(), bytes).direct);
    EXPECT_TRUE(t.adds_up_staged(out.data(), in.data(), eager));
    EXPECT_FALSE(t.adds_up_staged(out.data(), in.data(), replay));
    EXPECT_EQ(t.all.register_recorded(), 0U);
    EXPECT_FALSE(t.adds_up_staged(out.data(), in.data(), replay));
  });
}

/// On some ranks two calls have the same memory, on others not; and each kind of memory.
TEST(ARecordedCall, MayHaveMemoryOfAnyKind) {
  with_ranks(3, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const cw::symmetric_buffer<std::int32_t> heap(w, count);
    const auto registered = own(w);
    const auto late = own(w);
    const auto later = own(w);
    t.all.register_buffer(registered.data(), bytes);
    const bool by_pages = cw::launched() && !on_gpu();
    std::int32_t* const any = w.rank() == 0 && !by_pages ? late.data() : later.data();
    const auto reduce = [](cw::coll& all, std::int32_t* out, const std::int32_t* in) {
      all.all_reduce(out, in, count);
    };
    // Sums of sums: each adds up what the one before has left, everywhere the same.
    recorded_sums sums(t, [&](cw::coll& all) {
      reduce(all, registered.data(), late.data());
      reduce(all, heap.data(), registered.data());
      reduce(all, any, heap.data());
      reduce(all, any, any);
      reduce(all, registered.data(), any);
    });
    const auto replayed = [&](int number) {
      t.write(late.data(), std::vector<std::int32_t>(count, number));
      w.barrier();
      sums.kept.replay(w.stream());
      t.all.check();
      w.barrier();
      return t.read(registered.data());
    };
    const int n = w.size();
    const auto want = [&](int number) {
      auto sum = static_cast<std::uint32_t>(number);  // which wraps around, as theirs does
      for (int i = 0; i < 5; ++i) sum *= static_cast<std::uint32_t>(n);
      return std::vector<std::int32_t>(count, static_cast<std::int32_t>(sum));
    };
    EXPECT_EQ(replayed(1), want(1));
    EXPECT_EQ(t.all.register_recorded(), 4U);  // one of them was direct from the start
    EXPECT_EQ(replayed(2), want(2));
    EXPECT_EQ(replayed(0x01234567), want(0x01234567));
    EXPECT_FALSE(t.in_heap(std::vector<std::int32_t>(4, 0x01234567)));
    // To begin with others.
    t.all.forget_recorded();
    recorded_sums again(t, [&](cw::coll& all) { reduce(all, later.data(), late.data()); });
    const auto replay = [&] { again.kept.replay(w.stream()); };
    EXPECT_TRUE(t.adds_up_staged(later.data(), late.data(), replay));
    EXPECT_EQ(t.all.register_recorded(), 1U);
    EXPECT_FALSE(t.adds_up_staged(later.data(), late.data(), replay));
  });
}

/// A CPU's pages are given to other processes once; all else any number of times.
TEST(ARecordedCall, OnPagesThatAreSharedAlreadyStaysAsItWas) {
  with_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const auto a = own(w);
    const auto b = own(w);
    std::int32_t* const other = w.rank() == 0 ? a.data() : b.data();
    const auto reduce = [](cw::coll& all, std::int32_t* data) {
      all.all_reduce(data, static_cast<const std::int32_t*>(data), count);
    };
    recorded_sums kept(t, [&](cw::coll& all) {
      reduce(all, a.data());
      reduce(all, other);
    });
    const bool once = cw::launched() && !on_gpu();
    if (once) {
      t.refused(cw::errc::not_supported, "end that registration first",
                [&] { (void)t.all.register_recorded(); });
    } else {
      EXPECT_EQ(t.all.register_recorded(), 2U);
    }
    t.write(a.data(), values(w.rank(), 1));
    t.write(b.data(), values(w.rank(), 2));
    w.barrier();
    kept.kept.replay(w.stream());
    t.all.check();
    w.barrier();
    // What the second call added up: rank 0's sum, and others' own.
    const auto first = sum_of(w.size(), 1);
    if (w.rank() != 0) {
      EXPECT_EQ(t.read(a.data()), first);
    }
    auto want = first;
    for (int r = 1; r < w.size(); ++r) {
      const auto theirs = values(r, 2);
      for (std::size_t i = 0; i < count; ++i) want[i] += theirs[i];
    }
    EXPECT_EQ(t.read(other), want);
    EXPECT_EQ(t.in_heap(w.rank() == 0 ? first : values(w.rank(), 2)), once);
  });
}

template <class T>
void every_operation() {
  with_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const std::size_t n = bytes / sizeof(T);
    cw::buffer<T> in(w.options().device, n);
    cw::buffer<T> out(w.options().device, n);
    std::vector<T> mine(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto small = static_cast<int>((i * 7 + static_cast<std::size_t>(w.rank())) % 5);
      mine[i] = dev::narrow<T>(static_cast<dev::accumulator_t<T>>(small));
    }
    in.write(mine);
    for (const auto op : {coll_op::sum, coll_op::max, coll_op::avg}) {
      recorded_sums kept(t, [&](cw::coll& all) { all.all_reduce(out.data(), in.data(), n, op); });
      const auto replayed = [&] {
        w.barrier();
        kept.kept.replay(w.stream());
        t.all.check();
        w.barrier();
        return out.read();
      };
      const auto staged = replayed();
      out.write(std::vector<T>(n));
      EXPECT_EQ(t.all.register_recorded(), 1U);
      const auto direct = replayed();
      EXPECT_EQ(std::memcmp(staged.data(), direct.data(), bytes), 0) << to_string(op);
      EXPECT_NE(std::memcmp(staged.data(), mine.data(), bytes), 0) << to_string(op);
      t.all.forget_recorded();
    }
  });
}

TEST(ARecordedCall, HasTheSameBitsBeforeAndAfter) {
  every_operation<float>();
  every_operation<dev::bfloat16>();
  every_operation<std::int64_t>();
}

TEST(ARecordedCall, ForWhichThereIsNoRoomGoesOnAsBefore) {
  with_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w, {.recorded_calls = 1});
    const auto a = own(w);
    const auto b = own(w);
    recorded_sums first(t, [&](cw::coll& all) {
      all.all_reduce(a.data(), static_cast<const std::int32_t*>(a.data()), count);
    });
    recorded_sums second(t, [&](cw::coll& all) {
      all.all_reduce(b.data(), static_cast<const std::int32_t*>(b.data()), count);
    });
    EXPECT_EQ(t.all.register_recorded(), 1U);
    EXPECT_FALSE(t.adds_up_staged(a.data(), a.data(), [&] { first.kept.replay(w.stream()); }));
    EXPECT_TRUE(t.adds_up_staged(b.data(), b.data(), [&] { second.kept.replay(w.stream()); }));
  });
}

TEST(ARecordedCall, ThatRanksDisagreeAboutStaysAsItWas) {
  with_ranks(3, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const bool odd = w.rank() == 1;
    const auto a = own(w, 2);
    const auto b = own(w);
    const auto reduce = [](cw::coll& all, std::int32_t* data, std::size_t n) {
      all.all_reduce(data, static_cast<const std::int32_t*>(data), n);
    };
    recorded_sums kept(t, [&](cw::coll& all) { reduce(all, a.data(), count); });
    {
      recorded_sums one_more(t, [&](cw::coll& all) {
        if (odd) reduce(all, b.data(), count);
      });
      t.refused(cw::errc::asymmetric, "another number of calls",
                [&] { (void)t.all.register_recorded(); });
    }
    const auto replay = [&] { kept.kept.replay(w.stream()); };
    EXPECT_TRUE(t.adds_up_staged(a.data(), a.data(), replay));
    {
      recorded_sums longer(t,
                           [&](cw::coll& all) { reduce(all, b.data(), odd ? count - 4 : count); });
      t.refused(cw::errc::asymmetric, "other lengths", [&] { (void)t.all.register_recorded(); });
    }
    {
      recorded_sums skewed(t, [&](cw::coll& all) { reduce(all, a.data() + (odd ? 1 : 0), count); });
      t.refused(cw::errc::asymmetric, "behind a multiple of 16",
                [&] { (void)t.all.register_recorded(); });
    }
    t.all.register_buffer(b.data(), bytes);
    {
      const cw::symmetric_buffer<std::int32_t> heap(w, count);
      recorded_sums other(t, [&](cw::coll& all) {
        const std::int32_t* const in = a.data();
        all.all_reduce(odd ? heap.data() : b.data(), in, count);
      });
      t.refused(cw::errc::asymmetric, "registered otherwise",
                [&] { (void)t.all.register_recorded(); });
    }
    EXPECT_TRUE(t.adds_up_staged(a.data(), a.data(), replay));
    recorded_sums alike(t, [&](cw::coll& all) { reduce(all, a.data(), count); });
    EXPECT_EQ(t.all.register_recorded(), 1U);
    EXPECT_FALSE(t.adds_up_staged(a.data(), a.data(), [&] { alike.kept.replay(w.stream()); }));
  });
}

/// Each rank replays another of two calls that look alike.
TEST(ARecordedCall, ReplayedInPlaceOfAnotherIsNoticed) {
  with_ranks(2, [](cw::world& w) {
    if (w.size() == 1) return;
    rank_test t(w);
    const auto a = own(w);
    const auto b = own(w);
    std::vector<recorded_sums> kept;
    for (std::int32_t* const data : {a.data(), b.data()}) {
      kept.emplace_back(t, [&](cw::coll& all) {
        all.all_reduce(data, static_cast<const std::int32_t*>(data), count);
      });
    }
    EXPECT_EQ(t.all.register_recorded(), 2U);
    kept[w.rank() == 1 ? 1 : 0].kept.replay(w.stream());
    try {
      t.all.check();
      ADD_FAILURE() << "rank " << w.rank() << " did not notice";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::asymmetric) << e.what();
    }
    w.barrier();
  });
}

}  // namespace
