// What is special about the engine mpi. To be started by mpirun. CROSSWARP_TEST_MPI_LEVEL: the
// level (single, serialized, multiple) for which the program itself starts MPI; none: the engine
// does.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "crosswarp/world_launch.hpp"
#include "support/worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using context = dev::kernel_context;

namespace {

cw::world_options mpi_options() {
  auto o = test_options();
  o.proxy.path = cw::path_choice::proxy;
  o.proxy.engine = "mpi";
  o.proxy.queues = 4;
  return o;
}

template <class Kernel, class... Args>
cw::status outcome(cw::world& w, Kernel k, Args... args) {
  cw::buffer<cw::status> out(w.options().device, 1);
  cw::launch(w, {}, k, w.device(), out.data(), args...);
  w.stream().sync();
  const cw::status s = out.read()[0];
  w.barrier();
  return s;
}

// ---- reductions

struct reduce_once {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out, dev::remote_address to,
                        dev::remote_address from, std::size_t count, dev::reduction how,
                        dev::element type) const {
    auto q = w.proxy.queue(0);
    *out = q.reduce(ctx.thread(), how, type, to, from, count);
  }
};

template <class T>
T combine(dev::reduction how, T a, T b) {
  switch (how) {
    case dev::reduction::sum:
      return static_cast<T>(a + b);
    case dev::reduction::prod:
      return static_cast<T>(a * b);
    case dev::reduction::min:
      return std::min(a, b);
    case dev::reduction::max:
      return std::max(a, b);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (how == dev::reduction::bit_and) return static_cast<T>(a & b);
    if (how == dev::reduction::bit_or) return static_cast<T>(a | b);
    return static_cast<T>(a ^ b);
  }
  return a;
}

/// Values with the highest bit set and not: signed and unsigned types order them differently.
template <class T>
std::vector<T> values_of(int rank) {
  std::vector<T> v(5);
  for (std::size_t i = 0; i < v.size(); ++i) {
    v[i] = static_cast<T>(static_cast<int>(i) * 3 + rank + 1);
    if (std::is_integral_v<T> && (i + static_cast<std::size_t>(rank)) % 2 == 0) {
      v[i] = static_cast<T>(~static_cast<std::uint64_t>(v[i]));
    }
  }
  return v;
}

template <class T>
void check_reductions(cw::world& w, dev::element type) {
  using dev::reduction;
  cw::symmetric_buffer<T> from(w, 5);
  cw::symmetric_buffer<T> to(w, 5);
  for (const reduction how : {reduction::sum, reduction::prod, reduction::min, reduction::max,
                              reduction::bit_and, reduction::bit_or, reduction::bit_xor}) {
    SCOPED_TRACE("element " + std::to_string(static_cast<int>(type)) + ", reduction " +
                 std::to_string(static_cast<int>(how)));
    const bool bits = how >= reduction::bit_and;
    std::vector<T> expected = values_of<T>(0);
    for (int r = 1; r < w.size(); ++r) {
      const auto theirs = values_of<T>(r);
      for (std::size_t i = 0; i < 5; ++i) expected[i] = combine(how, expected[i], theirs[i]);
    }
    for (const bool in_place : {false, true}) {
      from.write(values_of<T>(w.rank()));
      w.barrier();
      auto& result = in_place ? from : to;
      const cw::status s = outcome(w, reduce_once{}, result.device().remote(),
                                   from.device().remote(), std::size_t{5}, how, type);
      if (std::is_floating_point_v<T> && bits) {
        EXPECT_NE(s, cw::status::ok);
        continue;
      }
      EXPECT_EQ(s, cw::status::ok);
      EXPECT_EQ(result.read(), expected);
    }
  }
}

TEST(Mpi, EveryReductionOfEveryElement) {
  on_ranks(
      2,
      [](cw::world& w) {
        check_reductions<std::int8_t>(w, dev::element::i8);
        check_reductions<std::int16_t>(w, dev::element::i16);
        check_reductions<std::int32_t>(w, dev::element::i32);
        check_reductions<std::int64_t>(w, dev::element::i64);
        check_reductions<std::uint8_t>(w, dev::element::u8);
        check_reductions<std::uint16_t>(w, dev::element::u16);
        check_reductions<std::uint32_t>(w, dev::element::u32);
        check_reductions<std::uint64_t>(w, dev::element::u64);
        check_reductions<float>(w, dev::element::f32);
        check_reductions<double>(w, dev::element::f64);
      },
      mpi_options());
}

// ---- room

/// Many operations of all kinds without waiting for any.
struct flood {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> words, dev::symmetric<std::uint64_t> counter,
                        std::uint64_t* source, std::uint64_t* fetched, int count) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    const int right = (w.rank + 1) % w.size;
    cw::status s = cw::status::ok;
    for (int i = 0; i < count && s == cw::status::ok; ++i) {
      const auto at = static_cast<std::size_t>(i);
      source[at] = at + 1;
      s = q.put_nbi(me, right, words.remote(at), source + at, 8);
      if (s == cw::status::ok) {
        s = q.atomic_nbi(me, dev::amo::add, 8, right, counter.remote(0), 1);
      }
      if (s == cw::status::ok) {
        s = q.atomic_fetch_nbi(me, dev::amo::compare_swap, 8, right, counter.remote(1), at + 1, at,
                               fetched + at);
      }
    }
    if (s == cw::status::ok) s = q.quiet(me);
    *out = s;
  }
};

TEST(Mpi, MoreOperationsThanThereIsRoomFor) {
  on_ranks(
      2,
      [](cw::world& w) {
        constexpr int count = 400;
        cw::symmetric_buffer<std::uint64_t> words(w, count);
        cw::symmetric_buffer<std::uint64_t> counter(w, 2);
        cw::buffer<std::uint64_t> source(w.options().device, count);
        cw::buffer<std::uint64_t> fetched(w.options().device, count);
        EXPECT_EQ(outcome(w, flood{}, words.device(), counter.device(), source.data(),
                          fetched.data(), count),
                  cw::status::ok);
        const auto got = words.read();
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], i + 1);
        EXPECT_EQ(counter.read()[0], static_cast<std::uint64_t>(count));
      },
      mpi_options());
}

// ---- several worlds

struct count_up {
  CW_FN void operator()(const context& ctx, dev::world w, cw::status* out,
                        dev::symmetric<std::uint64_t> counter, int times) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    cw::status s = cw::status::ok;
    for (int i = 0; i < times && s == cw::status::ok; ++i) {
      std::uint64_t old = 0;
      s = q.atomic(me, dev::amo::add, 8, i % w.size, counter.remote(), 1, 0, old);
      if (s == cw::status::ok) s = q.barrier(me);
    }
    *out = s;
  }
};

/// Registers, counts, and meets the others, again and again.
void use(cw::world& w, int times) {
  for (int i = 0; i < times; ++i) {
    cw::buffer<std::uint64_t> memory(w.options().device, 8);
    const cw::registration shared(w, memory.data(), 64);
    EXPECT_EQ(outcome(w, count_up{}, shared.device<std::uint64_t>(), 2 * w.size()), cw::status::ok);
    EXPECT_EQ(memory.read()[0], 2U * static_cast<unsigned>(w.size()));
  }
}

// A thread that waits for the other ranks of one world does not keep out those of the other.
TEST(Mpi, TwoWorldsAtOnce) {
  const auto o = mpi_options();
  cw::world first(o);
  cw::world second(o);
  std::thread other([&] { use(first, 10); });
  use(second, 10);
  other.join();
}

bool start_mpi(std::string_view level) {
  int provided = 0;
  if (level == "single") return MPI_Init(nullptr, nullptr) == MPI_SUCCESS;
  const int wanted = level == "multiple" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  return MPI_Init_thread(nullptr, nullptr, wanted, &provided) == MPI_SUCCESS && provided >= wanted;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* const variable = std::getenv("CROSSWARP_TEST_MPI_LEVEL");
  const std::string_view level = variable == nullptr ? "none" : variable;
  const bool mine = level != "none";
  if (mine && !start_mpi(level)) return 2;
  const int failed = RUN_ALL_TESTS();
  if (mine && MPI_Finalize() != MPI_SUCCESS) return 3;
  return failed;
}
