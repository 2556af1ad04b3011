// Every function of device::shmem with every type, called by a thread, a warp and a block.
#include <gtest/gtest.h>

#include "support/shmem_kernel.hpp"

using namespace shmem_test;
using cw::status;
using dev::amo;
using dev::compare;

namespace {

constexpr std::size_t count = 23;

template <class T>
CW_FN T value(int pe, std::size_t i) {
  return static_cast<T>((static_cast<std::size_t>(pe) * 7 + i * 3 + 1) % 100);
}

// ---- put and get

template <class T>
struct rma {
  template <class G>
  CW_FN void operator()(const bench<G>& b, T* box, T* own, std::uint64_t* flag) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    const int me = sh.my_pe();
    const int n = sh.n_pes();
    const int right = (me + 1) % n;
    const int left = (me + n - 1) % n;
    const auto fill = [&](int seed) {
      for (std::size_t i = first; i < count; i += step) own[i] = value<T>(me + seed, i);
    };
    const auto box_is = [&](int pe) {
      bool same = true;
      for (std::size_t i = first; i < count; i += step) same = same && box[i] == value<T>(pe, i);
      return same;
    };
    const auto own_is = [&](int pe) {
      bool same = true;
      for (std::size_t i = first; i < count; i += step) same = same && own[i] == value<T>(pe, i);
      return same;
    };

    fill(0);
    SH_OK(sh.put(g, box, own, count, right));
    SH_OK(sh.barrier(g));
    SH_TRUE(box_is(left));
    fill(100);
    SH_OK(sh.barrier(g));
    SH_OK(sh.put_nbi(g, box, own, count, right));
    SH_OK(sh.quiet(g));
    SH_OK(sh.sync(g));
    SH_TRUE(box_is(left + 100));
    SH_OK(sh.get(g, own, box, count, right));
    SH_TRUE(own_is(me + 100));
    SH_OK(sh.get_nbi(g, own, box, count, left));
    SH_OK(sh.quiet(g));
    SH_TRUE(own_is((left + n - 1) % n + 100));
    SH_OK(sh.barrier(g));

    SH_OK(sh.p(g, box + 5, value<T>(me, 77), right));
    SH_OK(sh.barrier(g));
    SH_TRUE(box[5] == value<T>(left, 77));
    T seen{};
    SH_OK(sh.g(g, seen, box + 5, right));
    SH_TRUE(seen == value<T>(me, 77));
    SH_OK(sh.barrier(g));

    // Elements 0, 3, 6 ... there from 0, 2, 4 ... here; then blocks of two, backwards.
    fill(0);
    SH_OK(sh.iput(g, box, own, {.dest = 3, .source = 2}, 7, right));
    SH_OK(sh.barrier(g));
    for (std::size_t i = 0; i < 7; ++i) SH_TRUE(box[3 * i] == value<T>(left, 2 * i));
    SH_OK(sh.iget(g, own, box, {.dest = 2, .source = 3}, 7, right));
    for (std::size_t i = 0; i < 7; ++i) SH_TRUE(own[2 * i] == value<T>(me, 2 * i));
    SH_OK(sh.barrier(g));
    fill(0);
    SH_OK(sh.iput(g, box, own + 20, {.dest = 4, .source = -4, .block = 2}, 5, right));
    SH_OK(sh.barrier(g));
    for (std::size_t i = 0; i < 5; ++i) {
      SH_TRUE(box[4 * i] == value<T>(left, 20 - 4 * i));
      SH_TRUE(box[4 * i + 1] == value<T>(left, 21 - 4 * i));
    }
    SH_OK(sh.barrier(g));

    fill(3);
    SH_OK(sh.put_signal(g, box, own, count, flag, 5, dev::signal_op::set, right));
    SH_OK(sh.signal_wait_until(g, flag, compare::eq, 5));
    SH_TRUE(box_is(left + 3));
    SH_OK(sh.barrier(g));
    fill(4);
    SH_OK(sh.put_signal_nbi(g, box, own, count, flag, 2, dev::signal_op::add, right));
    std::uint64_t at = 0;
    SH_OK(sh.signal_wait_until(g, flag, compare::gt, 5, at));
    SH_TRUE(at == 7 && sh.signal_fetch(flag) == 7);
    SH_TRUE(box_is(left + 4));
    SH_OK(sh.barrier(g));
    SH_OK(sh.p(g, flag, std::uint64_t{0}, me));
    SH_OK(sh.barrier(g));
  }
};

// ---- atomics

template <class T>
struct atomics {
  template <class G>
  CW_FN void operator()(const bench<G>& b, T* word, T* old) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int me = sh.my_pe();
    const int n = sh.n_pes();
    const T mine = static_cast<T>(me + 1);
    T before{};
    // All on PE 0's word, one after the other.
    if (me == 0) SH_OK(sh.atomic(g, amo::set, word, T{9}, 0));
    SH_OK(sh.barrier(g));
    SH_OK(sh.atomic_fetch(g, amo::fetch, word, T{}, T{}, 0, before));
    SH_TRUE(before == T{9});
    SH_OK(sh.barrier(g));
    SH_OK(sh.atomic_fetch(g, amo::swap, word, mine, T{}, 0, before));
    SH_TRUE(before == T{9} || (before >= T{1} && before <= static_cast<T>(n)));
    SH_OK(sh.barrier(g));
    SH_OK(sh.atomic_fetch_nbi(g, amo::fetch, old, word, T{}, T{}, 0));
    SH_OK(sh.quiet(g));
    SH_TRUE(*old >= T{1} && *old <= static_cast<T>(n));
    SH_OK(sh.barrier(g));
    if constexpr (std::is_integral_v<T>) {
      if (me == 0) SH_OK(sh.atomic(g, amo::set, word, T{0}, 0));
      SH_OK(sh.barrier(g));
      for (int i = 0; i < 10; ++i) {
        SH_OK(sh.atomic(g, amo::add, word, mine, 0));
        SH_OK(sh.atomic_fetch(g, amo::add, word, T{1}, T{}, 0, before));
      }
      SH_OK(sh.barrier(g));
      SH_OK(sh.atomic_fetch(g, amo::fetch, word, T{}, T{}, 0, before));
      SH_TRUE(before == static_cast<T>(5 * n * (n + 1) + 10 * n));
      SH_OK(sh.barrier(g));
      // One of them finds what it expects.
      SH_OK(sh.atomic_fetch(g, amo::compare_swap, word, mine,
                            static_cast<T>(5 * n * (n + 1) + 10 * n), 0, before));
      T now{};
      SH_OK(sh.barrier(g));
      SH_OK(sh.g(g, now, word, 0));
      SH_TRUE((before == static_cast<T>(5 * n * (n + 1) + 10 * n)) == (now == mine));
      SH_OK(sh.barrier(g));
      if (me == 0) SH_OK(sh.atomic(g, amo::set, word, T{0}, 0));
      SH_OK(sh.barrier(g));
      const T bit = static_cast<T>(T{1} << me);
      const T all = static_cast<T>((T{1} << n) - 1);
      SH_OK(sh.atomic(g, amo::bit_or, word, bit, 0));
      SH_OK(sh.barrier(g));
      SH_OK(sh.g(g, now, word, 0));
      SH_TRUE(now == all);
      SH_OK(sh.barrier(g));
      SH_OK(sh.atomic_fetch(g, amo::bit_and, word, static_cast<T>(~bit), T{}, 0, before));
      SH_TRUE((before & bit) == bit);
      SH_OK(sh.barrier(g));
      SH_OK(sh.g(g, now, word, 0));
      SH_TRUE(now == T{0});
      SH_OK(sh.barrier(g));
      SH_OK(sh.atomic_fetch(g, amo::bit_xor, word, bit, T{}, 0, before));
      SH_OK(sh.atomic_fetch(g, amo::bit_or, word, T{0}, T{}, 0, before));
      SH_TRUE((before & bit) == bit);
      SH_OK(sh.barrier(g));
      SH_OK(sh.g(g, now, word, 0));
      SH_TRUE(now == all);
    } else {
      SH_TRUE(sh.atomic(g, amo::add, word, T{1}, 0) == status::invalid);
    }
    SH_OK(sh.barrier(g));
  }
};

// ---- waiting

template <class T>
struct waits {
  template <class G>
  CW_FN void operator()(const bench<G>& b, T* words, std::size_t* found) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const int n = sh.n_pes();
    const int right = (sh.my_pe() + 1) % n;
    using set = dev::shmem::words<T>;
    const T one{1};
    const T two{2};
    const T zero{0};
    const auto clear = [&] {
      for (int i = 0; i < 6; ++i) {
        if (g.rank() == 0) words[i] = zero;
      }
      return sh.barrier(g);
    };
    const compare all[] = {compare::eq, compare::ne, compare::gt,
                           compare::ge, compare::lt, compare::le};
    for (const compare how : all) {
      // Becomes true by a 1 that comes; for less it was 2 before.
      SH_OK(clear());
      const bool less = how == compare::lt || how == compare::le;
      if (less && g.rank() == 0) words[0] = two;
      SH_OK(sh.barrier(g));
      const T bound = how == compare::eq || how == compare::ge || how == compare::le ? one
                      : less                                                         ? two
                                                                                     : zero;
      SH_TRUE(!sh.test(words, how, bound));
      SH_OK(sh.barrier(g));
      SH_OK(sh.p(g, words, one, right));
      SH_OK(sh.wait_until(g, words, how, bound));
      SH_TRUE(sh.test(words, how, bound));
      SH_OK(sh.barrier(g));
    }

    SH_OK(clear());
    const int skip[] = {0, 0, 1, 0, 0, 0};
    const set five{words, 5, skip, compare::eq, &one, true};
    SH_TRUE(sh.test_any(five) == dev::shmem::none && !sh.test_all(five));
    SH_TRUE(sh.test_some(five, found) == 0);
    SH_OK(sh.barrier(g));
    SH_OK(sh.p(g, words + 2, one, right));  // does not count
    SH_OK(sh.fence(g));
    SH_OK(sh.p(g, words + 3, one, right));
    std::size_t index = 0;
    SH_OK(sh.wait_until_any(g, five, index));
    SH_TRUE(index == 3);
    SH_OK(sh.wait_until_some(g, five, found, index));
    SH_TRUE(index == 1 && found[0] == 3);
    SH_OK(sh.barrier(g));
    for (int i = 0; i < 5; ++i) SH_OK(sh.p(g, words + i, one, right));
    SH_OK(sh.wait_until_all(g, five));
    SH_TRUE(sh.test_all(five) && sh.test_any(five) == 0);
    SH_OK(sh.barrier(g));

    // A value of its own for each.
    SH_OK(clear());
    const T values[] = {one, two, one, two, one, two};
    const set six{words, 6, nullptr, compare::ge, values, false};
    SH_OK(sh.p(g, words + 4, one, right));
    SH_OK(sh.wait_until_any(g, six, index));
    SH_TRUE(index == 4);
    SH_OK(sh.barrier(g));
    for (int i = 0; i < 6; ++i) SH_OK(sh.p(g, words + i, values[i], right));
    SH_OK(sh.wait_until_all(g, six));
    SH_OK(sh.wait_until_some(g, six, found, index));
    SH_TRUE(index == 6);
    // Nothing to wait for.
    const int none_counts[] = {1, 1, 1, 1, 1, 1};
    const set none{words, 6, none_counts, compare::eq, values, false};
    SH_OK(sh.wait_until_any(g, none, index));
    SH_TRUE(index == dev::shmem::none);
    SH_OK(sh.wait_until_some(g, none, found, index));
    SH_TRUE(index == 0);
    SH_OK(sh.wait_until_all(g, none));
    SH_OK(sh.barrier(g));
  }
};

// ---- collectives

template <class T>
struct collectives {
  template <class G>
  CW_FN void operator()(const bench<G>& b, T* dest, T* source) const {
    const auto& sh = b.sh;
    const auto& g = b.g;
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    const int me = sh.my_pe();
    const int n = sh.n_pes();
    const auto pes = static_cast<std::size_t>(n);
    const auto fill = [&](std::size_t elements) {
      for (std::size_t i = first; i < elements; i += step) {
        source[i] = value<T>(me, i);
        dest[i] = T{};
      }
      return sh.barrier(g);
    };
    const auto is = [&](std::size_t elements, auto want) {
      bool same = true;
      for (std::size_t i = first; i < elements; i += step) same = same && dest[i] == want(i);
      return same;
    };

    for (int root = 0; root < n; ++root) {
      SH_OK(fill(count));
      SH_OK(sh.broadcast(g, dest, source, count, root));
      SH_TRUE(is(count, [&](std::size_t i) { return value<T>(root, i); }));
      SH_OK(sh.barrier(g));
    }
    SH_OK(fill(count * pes));
    SH_OK(sh.fcollect(g, dest, source, count));
    SH_TRUE(is(count * pes,
               [&](std::size_t i) { return value<T>(static_cast<int>(i / count), i % count); }));
    SH_OK(fill(count * pes));
    // PE p brings p + 1.
    SH_OK(sh.collect(g, dest, source, static_cast<std::size_t>(me) + 1));
    SH_TRUE(is(pes * (pes + 1) / 2, [&](std::size_t i) {
      std::size_t pe = 0;
      while (i > pe) i -= ++pe;
      return value<T>(static_cast<int>(pe), i);
    }));
    SH_OK(fill(count * pes));
    SH_OK(sh.alltoall(g, dest, source, count));
    SH_TRUE(is(count * pes, [&](std::size_t i) {
      return value<T>(static_cast<int>(i / count),
                      static_cast<std::size_t>(me) * count + i % count);
    }));
    SH_OK(fill(2 * count * pes));
    SH_OK(sh.alltoalls(g, dest, source, 2, 1, count));
    SH_TRUE(is(2 * count * pes, [&](std::size_t i) {
      if (i % 2 == 1) return T{};
      return value<T>(static_cast<int>(i / 2 / count),
                      static_cast<std::size_t>(me) * count + i / 2 % count);
    }));

    const auto folded = [&](std::size_t i, int pe_count, auto op) {
      T acc = value<T>(0, i);
      for (int pe = 1; pe < pe_count; ++pe) acc = op(acc, value<T>(pe, i));
      return acc;
    };
    const auto reduces = [&](auto op) {
      SH_OK(fill(count));
      SH_OK(sh.reduce(g, op, dest, source, count));
      SH_TRUE(is(count, [&](std::size_t i) { return folded(i, n, op); }));
      SH_OK(fill(count));
      SH_OK(sh.reduce(g, op, source, source, count));
      for (std::size_t i = first; i < count; i += step) dest[i] = source[i];
      SH_TRUE(is(count, [&](std::size_t i) { return folded(i, n, op); }));
    };
    reduces(dev::shmem_op::sum{});
    reduces(dev::shmem_op::prod{});
    reduces(dev::shmem_op::min{});
    reduces(dev::shmem_op::max{});
    if constexpr (std::is_integral_v<T>) {
      reduces(dev::shmem_op::bit_and{});
      reduces(dev::shmem_op::bit_or{});
      reduces(dev::shmem_op::bit_xor{});
    }
    SH_OK(fill(count));
    SH_OK(sh.inclusive_scan(g, dev::shmem_op::sum{}, dest, source, count));
    SH_TRUE(is(count, [&](std::size_t i) { return folded(i, me + 1, dev::shmem_op::sum{}); }));
    SH_OK(fill(count));
    SH_OK(sh.exclusive_scan(g, dev::shmem_op::sum{}, T{}, source, source, count));
    for (std::size_t i = first; i < count; i += step) dest[i] = source[i];
    SH_TRUE(is(count,
               [&](std::size_t i) { return me == 0 ? T{} : folded(i, me, dev::shmem_op::sum{}); }));
    SH_OK(sh.barrier(g));
  }
};

// ---- every type

template <class T>
class ShmemType : public testing::Test {};
// nvcc takes its time: there one of each kind, unless all are asked for.
#if defined(__CUDACC__) && !defined(CROSSWARP_TEST_ALL_TYPES)
using all_types = testing::Types<int, double>;
using atomic_types = testing::Types<unsigned long, float>;
#else
using all_types =
    testing::Types<char, signed char, short, int, long, long long, unsigned char, unsigned short,
                   unsigned int, unsigned long, unsigned long long, float, double>;
using atomic_types = testing::Types<int, long, long long, unsigned int, unsigned long,
                                    unsigned long long, float, double>;
#endif
TYPED_TEST_SUITE(ShmemType, all_types);

template <class T>
class ShmemAtomicType : public testing::Test {};
TYPED_TEST_SUITE(ShmemAtomicType, atomic_types);

template <class Body, class T>
void run_everywhere(std::size_t elements) {
  on_ranks(3, [&](cw::world& w) {
    cw::shmem sh(w);
    T* const a = sh.allocate<T>(elements);
    T* const b = sh.allocate<T>(elements);
    for (const caller who : callers) expect_ok<Body>(w, sh.device(), who, a, b);
  });
}

TYPED_TEST(ShmemType, PutsAndGets) {
  on_ranks(3, [&](cw::world& w) {
    cw::shmem sh(w);
    auto* const box = sh.allocate<TypeParam>(count);
    auto* const flag = sh.allocate<std::uint64_t>(1);
    cw::exec::copy_now(w.options().device, flag, std::vector<std::uint64_t>{0}.data(), 8);
    const cw::buffer<TypeParam> own(w.options().device, count);
    for (const caller who : callers) {
      expect_ok<rma<TypeParam>>(w, sh.device(), who, box, own.data(), flag);
    }
  });
}

TYPED_TEST(ShmemType, Waits) {
  on_ranks(3, [&](cw::world& w) {
    cw::shmem sh(w);
    auto* const words = sh.allocate<TypeParam>(6);
    const cw::buffer<std::size_t> found(w.options().device, 6);
    for (const caller who : callers) {
      expect_ok<waits<TypeParam>>(w, sh.device(), who, words, found.data());
    }
  });
}

TYPED_TEST(ShmemType, Collectives) {
  run_everywhere<collectives<TypeParam>, TypeParam>(2 * count * 8);
}

TYPED_TEST(ShmemAtomicType, Atomics) {
  run_everywhere<atomics<TypeParam>, TypeParam>(1);
}

}  // namespace
