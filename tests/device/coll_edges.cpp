// Collectives at their edges: ranks that do not come or launch something else, strides, groups and
// channels that change.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"
#include "support/coll_worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace ops = crosswarp::device::coll_ops;
using cw::coll_algorithm;
using cw::status;

namespace {

// ---- a rank that does not come

struct one_call {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, float* data,
                        coll_algorithm how, status* out) const {
    const status s = with.all_reduce(k.block(), data, data, 20, ops::sum{}, how);
    if (k.thread_index() == 0) *out = s;
  }
};

/// Rows which blocks of a GPU share: more blocks and warps than have something of them to wait for.
void normalise(cw::coll& all, cw::world& w) {
  constexpr std::size_t hidden = 2048;
  const cw::buffer<float> memory(w.options().device, 4 * hidden);
  dev::rms_norm_rows<float> rows;
  rows.out = memory.data();
  rows.in = memory.data();
  rows.residual = rows.residual_out = memory.data() + hidden;
  rows.weight = memory.data() + 2 * hidden;
  rows.rows = 1;
  rows.hidden = hidden;
  all.all_reduce_rms_norm(rows);
  all.check();
}

/// In a kernel, or queued when it is automatic, or a sum that goes on. Ranks are threads: who is
/// absent must keep its memory until the others have given up, and knows it by a variable of
/// theirs.
void wait_for_nobody(coll_algorithm how, bool goes_on = false) {
  constexpr int ranks = 3;
  constexpr int absent = 1;
  auto o = roomy();
  o.timeout = std::chrono::milliseconds(1500);
  std::atomic<int> gave_up = 0;
  cw::run_local(ranks, o, [&](cw::world& w) {
    cw::coll all(w);
    cw::buffer<float> data(o.device, 20);
    cw::buffer<status> out(o.device, 1);
    w.barrier();
    if (w.rank() == absent) {
      while (gave_up.load() < ranks - 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      if (goes_on) {
        normalise(all, w);
      } else if (how == coll_algorithm::automatic) {
        all.all_reduce(data.data(), data.data(), 20);
        all.check();
      } else {
        cw::launch(w.stream(), {.threads = 4}, one_call{}, all.device(), data.data(), how,
                   out.data());
        w.stream().sync();
      }
      ADD_FAILURE() << "rank " << w.rank() << " was not told";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::timeout) << e.what();
      EXPECT_EQ(e.peer(), absent) << e.what();
    }
    // Far longer than the deadline, far shorter than for ever.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    ++gave_up;
    if (how != coll_algorithm::automatic) {
      EXPECT_EQ(out.read().front(), status::timeout);
    }
  });
}

TEST(ARankThatDoesNotCome, IsNamedWhenTheDeadlineHasPassed) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  wait_for_nobody(coll_algorithm::push);
  wait_for_nobody(coll_algorithm::two_shot);
  wait_for_nobody(coll_algorithm::ring);
  wait_for_nobody(coll_algorithm::automatic);
  wait_for_nobody(coll_algorithm::automatic, true);
}

// ---- a rank that disagrees, and breaks the world for it

/// Rank 0 waits for rank 1, which does not come; rank 2 passes another count, is told, and breaks
/// the world as a program does that ends by an exception. It was `aborted` for rank 0, which had
/// not looked at what rank 2 said.
void disagree_and_abort(coll_algorithm how) {
  std::atomic<bool> is_over = false;
  const auto counts = [](int rank) { return rank == 2 ? std::size_t{10} : std::size_t{11}; };
  const auto called = [&](int rank) {
    return "all_reduce of " + std::to_string(counts(rank)) + " f32, sum";
  };
  try {
    cw::run_local(3, roomy(), [&](cw::world& w) {
      cw::coll all(w, {.algorithm = how});
      if (!all.device().all_mapped()) return;  // what is sent may still be under way
      cw::buffer<float> data(w.options().device, 20);
      w.barrier();
      if (w.rank() == 1) {
        while (!is_over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      try {
        all.all_reduce(data.data(), data.data(), counts(w.rank()));
        all.check();
        ADD_FAILURE() << "rank " << w.rank() << " was not told";
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::asymmetric) << e.what();
        EXPECT_EQ(e.peer(), 2 - w.rank()) << e.what();
        // Rank 0 waits for rank 1 first, and cannot say yet what it called: rank 2 does not wait
        // for that.
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
        const std::string text = e.what();
        EXPECT_NE(text.find(called(w.rank())), std::string::npos) << text;
        EXPECT_EQ(text.find(called(2 - w.rank())) != std::string::npos, w.rank() == 0) << text;
      }
      if (w.rank() == 2) w.abort("it has been told");
      if (w.rank() == 0) is_over = true;
    });
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::aborted) << e.what();
  }
}

TEST(ARankThatDisagrees, IsNamedAlsoWhenItHasBrokenTheWorldForIt) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  disagree_and_abort(coll_algorithm::push);
  disagree_and_abort(coll_algorithm::two_shot);
  disagree_and_abort(coll_algorithm::ring);
}

// ---- what ranks that disagree are told

/// A call, and what it is called in errors.
struct told_call {
  std::function<void(cw::coll&, std::byte*)> make;
  std::string words;
};

/// Rank `other` makes the second call, all others the first. Each is told what the two are.
void disagree(cw::world& w, int other, const told_call& first, const told_call& second,
              const cw::coll_options& options = {}) {
  if (w.size() == 1) return;
  cw::coll all(w, options);
  const cw::symmetric_buffer<std::byte> data(w, 256U << 10U);
  const bool differs = w.rank() == other;
  w.barrier();
  try {
    (differs ? second : first).make(all, data.data());
    all.check();
    ADD_FAILURE() << "rank " << w.rank() << " was not told";
  } catch (const cw::error& e) {
    const std::string text = e.what();
    EXPECT_EQ(e.code(), cw::errc::asymmetric) << text;
    EXPECT_NE(text.find((differs ? second : first).words), std::string::npos) << text;
    if (differs) {
      EXPECT_NE(e.peer(), other) << text;
    } else {
      EXPECT_EQ(e.peer(), other) << text;
    }
    // Who is not mapped cannot be read.
    if (e.peer() >= 0 && w.is_mapped(e.peer())) {
      EXPECT_NE(text.find((differs ? first : second).words), std::string::npos) << text;
    }
  }
  w.barrier();  // all have been told, so the memory may go
}

told_call sum_of(std::size_t count) {
  return {[count](cw::coll& all, std::byte* data) {
            auto* const f = reinterpret_cast<float*>(data);
            all.all_reduce(f, f, count);
          },
          "all_reduce of " + std::to_string(count) + " f32, sum"};
}

TEST(RanksThatDisagree, AreToldWhatEachOfThemCalled) {
  with_ranks(3, [](cw::world& w) {
    disagree(w, 1, sum_of(1000), sum_of(1024));
    disagree(w, 0, sum_of(30000), sum_of(20));
    disagree(w, w.size() - 1, sum_of(10),
             {[](cw::coll& all, std::byte* data) {
                all.all_reduce(data, data, 10, cw::data_type::i32, cw::coll_op::max);
              },
              "all_reduce of 10 i32, max"});
    disagree(w, 1,
             {[](cw::coll& all, std::byte* data) { all.broadcast(data, 100, 1); },
              "broadcast of 100 bytes, from rank 1"},
             {[](cw::coll& all, std::byte* data) { all.broadcast(data, 100, 0); },
              "broadcast of 100 bytes, from rank 0"});
    disagree(w, 1, {[](cw::coll& all, std::byte* /*data*/) { all.barrier(); }, "barrier"},
             {[](cw::coll& all, std::byte* data) {
                all.reduce(data, data, 5, cw::data_type::f64, cw::coll_op::prod, 1);
              },
              "reduce of 5 f64, prod, to rank 1"});
    const std::vector<std::size_t> none(static_cast<std::size_t>(w.size()), 0);
    disagree(w, 1,
             {[&](cw::coll& all, std::byte* data) { all.all_gather_v(data, data, none, none); },
              "all_gather_v of 0 bytes at most"},
             {[](cw::coll& all, std::byte* data) { all.all_to_all(data + 400, data, 100); },
              "all_to_all of 100 bytes"});
    const auto rows_of = [](std::size_t rows) {
      return told_call{
          [rows](cw::coll& all, std::byte* data) {
            cw::device::quantise_rows<float, dev::fp8_e4m3> what;
            what.in = what.sum = reinterpret_cast<float*>(data);
            what.out = reinterpret_cast<dev::fp8_e4m3*>(data + 1024);
            what.rows = rows;
            what.hidden = 16;
            all.all_reduce_quantise(what);
          },
          "all_reduce_quantise to e4m3 of " + std::to_string(rows) + " rows of 16 f32"};
    };
    disagree(w, 1, rows_of(3), rows_of(2));
  });
}

TEST(RanksThatDisagree, AreToldOfOtherPlacesInSymmetricMemory) {
  with_ranks(3, [](cw::world& w) {
    for (int pe = 0; pe < w.size(); ++pe) {
      if (!w.is_mapped(pe)) return;  // nothing is used in place then
    }
    const cw::coll_options longest{.tuning = cw::coll_tuning{}};  // all calls are long ones
    const auto at = [](std::size_t place) {
      return told_call{[place](cw::coll& all, std::byte* data) {
                         auto* const f = reinterpret_cast<float*>(data);
                         all.all_reduce(f + place, f, 1000);
                       },
                       "all_reduce of 1000 f32, sum, in place, out at "};
    };
    disagree(w, 1, at(2000), at(3000), longest);
    const cw::buffer<float> own(w.options().device, 1000);
    const told_call by_shelves{[&own](cw::coll& all, std::byte* /*data*/) {
                                 all.all_reduce(own.data(), own.data(), 1000);
                               },
                               "all_reduce of 1000 f32, sum, by two_shot"};
    disagree(w, 1, at(0), by_shelves, longest);
  });
}

TEST(RanksThatDisagree, AreToldOfOtherCountsOfParts) {
  with_ranks(3, [](cw::world& w) {
    const auto parts = [&w](std::size_t first, const char* words) {
      return told_call{[first, &w](cw::coll& all, std::byte* data) {
                         std::vector<std::size_t> counts(static_cast<std::size_t>(w.size()), 9);
                         const std::vector<std::size_t> places(counts.size(), 0);
                         counts[0] = first;
                         counts[1] = 20 - first;
                         all.reduce_scatter_v(data + 4096, data, counts, places, cw::data_type::i32,
                                              cw::coll_op::sum);
                       },
                       words};
    };
    const bool mapped = w.is_mapped(0) && w.is_mapped(1) && w.is_mapped(w.size() - 1);
    const char* const words =
        mapped ? "i32 in all, sum, as this rank did, but not with the same counts of parts"
               : "i32 in all, sum";
    disagree(w, 1, parts(10, words), parts(11, words));
  });
}

TEST(AMessageOfAnotherLength, IsToldWithBothLengths) {
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    const cw::buffer<std::byte> data(w.options().device, 100);
    w.barrier();
    if (w.size() > 1 && w.rank() < 2) {
      try {
        if (w.rank() == 0) {
          all.send(data.data(), 80, 1);
        } else {
          all.receive(data.data(), 88, 0);
        }
        all.check();
        ADD_FAILURE() << "rank " << w.rank() << " was not told";
      } catch (const cw::error& e) {
        const std::string text = e.what();
        EXPECT_EQ(e.peer(), 1 - w.rank()) << text;
        const bool mapped = w.is_mapped(1 - w.rank());
        for (const auto& [pe, words] : {std::pair(0, "send of 80 bytes"), {1, "receive of 88 b"}}) {
          const bool told = mapped || pe == w.rank();
          EXPECT_EQ(text.find(words) != std::string::npos, told) << text;
        }
      }
    }
    w.barrier();
  });
}

// ---- a call after one that has failed

/// Fails by waiting for nobody, and goes on: with another call, on other elements.
struct calls_again {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, std::int32_t* data,
                        coll_algorithm how, status* out) const {
    out[0] = with.all_reduce(k.block(), data, data, 4, ops::sum{}, how);
    if (out[0] == status::ok || with.rank() != 0) return;
    out[1] = with.all_reduce(k.block(), data + 4, data + 4, 3, ops::sum{}, how);
  }
};

/// Rank 0 gives up, and then calls something else. Rank 2 has waited as long as rank 0 for rank 1,
/// and what rank 0 said at first is what it called: nobody disagrees.
TEST(ACallAfterOneThatFailed, DoesNotChangeWhatThatOneSaid) {
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  for (const auto how : {coll_algorithm::push, coll_algorithm::two_shot}) {
    std::atomic<int> gave_up = 0;
    auto o = roomy();
    o.timeout = std::chrono::milliseconds(1500);
    cw::run_local(3, o, [&](cw::world& w) {
      const cw::coll all(w, {.channels = 1, .shelf_bytes = 4096});
      if (!all.device().all_mapped()) return;  // one way is enough to wait for
      const cw::buffer<std::int32_t> data(o.device, 8);
      const cw::buffer<status> out(o.device, 2);
      w.barrier();
      if (w.rank() == 1) {
        while (gave_up.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return;
      }
      // Later than rank 0, so that this has called again before it is given up here.
      if (w.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_THROW(
          {
            cw::launch(w.stream(), {}, calls_again{}, all.device(), data.data(), how, out.data());
            w.stream().sync();
          },
          cw::error);
      ++gave_up;
      EXPECT_EQ(out.read()[0], status::timeout);
      if (w.rank() == 0) {
        EXPECT_EQ(out.read()[1], status::timeout);
      }
    });
  }
}

// ---- another number of blocks

struct by_blocks {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, std::int32_t* data,
                        coll_algorithm how, status* out) const {
    const dev::coll with =
        all.channel(k.block_index(), static_cast<std::uint64_t>(k.block_count()));
    std::int32_t* const mine = data + static_cast<std::ptrdiff_t>(k.block_index()) * 8;
    const status s = with.all_reduce(k.block(), mine, mine, 8, ops::sum{}, how);
    if (k.thread_index() == 0) out[k.block_index()] = s;
  }
};

TEST(AnotherNumberOfBlocks, IsAnErrorInAllBlocksOfAllRanks) {
  for (const auto how : {coll_algorithm::push, coll_algorithm::pull, coll_algorithm::two_shot,
                         coll_algorithm::ring}) {
    with_ranks(3, [how](cw::world& w) {
      if (w.size() == 1) return;
      const int blocks = w.rank() == 1 ? 3 : 5;
      const cw::coll all(w, {.channels = 5, .shelf_bytes = 4096});
      cw::buffer<std::int32_t> data(w.options().device, 5 * 8);
      cw::buffer<status> out(w.options().device, 5);
      w.barrier();
      cw::launch(w.stream(), {.blocks = blocks, .threads = 4}, by_blocks{}, all.device(),
                 data.data(), how, out.data());
      w.stream().sync();
      w.barrier();
      auto got = out.read();
      got.resize(static_cast<std::size_t>(blocks));
      EXPECT_EQ(got, std::vector<status>(got.size(), status::invalid))
          << "rank " << w.rank() << ", " << to_string(how);
    });
  }
}

// ---- a call that begins while another one finds out that it has failed

/// A block whose second warp is late: when the first has begun a call and looked whether an earlier
/// one failed, a thread of the second makes one fail, and looks.
class with_late_warp {
 public:
  CW_FN with_late_warp(const dev::kernel_context& k, const dev::coll& other, int& syncs) noexcept
      : block_(k.block()), other_(&other), syncs_(&syncs) {}
  [[nodiscard]] CW_FN int rank() const noexcept { return block_.rank(); }
  [[nodiscard]] CW_FN int size() const noexcept { return block_.size(); }
  CW_FN void sync() const noexcept {
    const bool late = rank() >= dev::warp_group::width;
    const int before = (*syncs_)++;
    if (late && before == 1) return;  // it has been made
    block_.sync();
    if (!late || before != 0) return;
    block_.sync();
    if (rank() != dev::warp_group::width) return;
    std::int32_t none = 0;
    (void)other_->send(dev::thread_group(), &none, 0, other_->rank());  // nobody sends to itself
  }
  template <dev::broadcastable T>
  [[nodiscard]] CW_FN T broadcast(T value) const noexcept {
    return block_.broadcast(value);
  }
  [[nodiscard]] CW_FN bool any(bool b) const noexcept { return block_.any(b); }

 private:
  dev::block_group block_;
  const dev::coll* other_;
  int* syncs_;
};

struct fail_meanwhile {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, status* out) const {
    const dev::coll other = all.channel(1);
    int syncs = 0;
    out[k.thread_index()] = all.barrier(with_late_warp(k, other, syncs));
  }
};

TEST(AFailureInAnotherChannel, IsReturnedByAllThreadsOfACall) {
  with_ranks(2, [](cw::world& w) {
    constexpr int threads = 2 * dev::warp_group::width;
    const cw::coll all(w, {.channels = 2, .shelf_bytes = 4096});
    cw::buffer<status> out(w.options().device, threads);
    w.barrier();
    cw::launch(w.stream(), {.threads = threads}, fail_meanwhile{}, all.device(), out.data());
    w.stream().sync();
    w.barrier();
    EXPECT_EQ(out.read(), std::vector<status>(threads, status::invalid));
  });
}

// ---- an operation of one's own

struct hypotenuse {
  static constexpr int what = 100;
  template <class A>
  CW_FN A operator()(A a, A b) const {
    return std::sqrt(a * a + b * b);  // in the order of ranks
  }
  template <class A>
  CW_FN A finish(A a, int /*ranks*/) const {
    return a;
  }
};
/// The same but for its number.
struct another : hypotenuse {
  static constexpr int what = 101;
};

struct own_operation {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, double* data,
                        bool differs, coll_algorithm how, status* out) const {
    const status s = differs ? with.all_reduce(k.block(), data, data, 20, another{}, how)
                             : with.all_reduce(k.block(), data, data, 20, hypotenuse{}, how);
    if (k.thread_index() == 0) *out = s;
  }
};

TEST(AnOperationOfOnesOwn, IsMadeInTheOrderOfRanksAndToldFromOthersByItsNumber) {
  with_ranks(3, [](cw::world& w) {
    cw::buffer<double> data(w.options().device, 20);
    const cw::buffer<status> out(w.options().device, 1);
    double want = 1;
    for (int r = 1; r < w.size(); ++r) want = hypotenuse{}(want, static_cast<double>(r + 1));
    const auto call = [&](const cw::coll& all, bool differs, coll_algorithm how) {
      data.write(std::vector<double>(20, w.rank() + 1));
      w.barrier();
      cw::launch(w.stream(), {.threads = 4}, own_operation{}, all.device(), data.data(), differs,
                 how, out.data());
      w.stream().sync();
      w.barrier();
      return out.read().front();
    };
    const cw::coll all(w, {.channels = 1, .shelf_bytes = 4096});
    for (const auto how : {coll_algorithm::push, coll_algorithm::pull, coll_algorithm::two_shot,
                           coll_algorithm::ring}) {
      EXPECT_EQ(call(all, false, how), status::ok);
      for (const double x : data.read()) EXPECT_NEAR(x, want, 1e-14) << to_string(how);
    }
    if (w.size() == 1) return;
    EXPECT_EQ(call(all, w.rank() == 1, coll_algorithm::pull), status::invalid);
  });
}

// ---- strides

enum class strided { reduce_scatter, all_gather, gather, scatter, all_to_all };

/// Each block moves its own elements of all ranks' parts, as a grid does that shares a call.
struct by_strides {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, strided what,
                        std::int32_t* out, const std::int32_t* in, std::size_t each,
                        std::size_t stride, int root, status* outcome) const {
    const dev::coll with = all.channel(k.block_index());
    const std::size_t first = static_cast<std::size_t>(k.block_index()) * each;
    const auto g = k.block();
    out += first;
    in += first;
    status s = status::invalid;
    switch (what) {
      case strided::reduce_scatter:
        s = with.reduce_scatter(g, out, in, each, ops::sum{}, stride);
        break;
      case strided::all_gather:
        s = with.all_gather(g, out, in, each, stride);
        break;
      case strided::gather:
        s = with.gather(g, out, in, each, root, stride);
        break;
      case strided::scatter:
        s = with.scatter(g, out, in, each, root, stride);
        break;
      case strided::all_to_all:
        s = with.all_to_all(g, out, in, each, stride);
        break;
    }
    if (k.thread_index() == 0) outcome[k.block_index()] = s;
  }
};

std::int32_t element(int rank, std::size_t i) {
  return rank * 100003 + static_cast<int>(i) * 7 + 1;
}

/// What `rank` is to have: parts of `count` elements, `stride` apart; -1 where nothing comes.
std::vector<std::int32_t> wanted(strided what, int rank, int ranks, std::size_t count,
                                 std::size_t stride, int root) {
  const auto me = static_cast<std::size_t>(rank);
  std::vector<std::int32_t> out(stride * static_cast<std::size_t>(ranks), -1);
  for (std::size_t i = 0; i < count; ++i) {
    if (what == strided::scatter) out[i] = element(root, me * stride + i);
    if (what == strided::reduce_scatter) {
      out[i] = 0;
      for (int r = 0; r < ranks; ++r) out[i] += element(r, me * stride + i);
    }
    for (int r = 0; r < ranks; ++r) {
      std::int32_t& there = out[static_cast<std::size_t>(r) * stride + i];
      if (what == strided::all_gather) there = element(r, i);
      if (what == strided::gather && rank == root) there = element(r, i);
      if (what == strided::all_to_all) there = element(r, me * stride + i);
    }
  }
  return out;
}

TEST(Strides, LeaveWhatIsBetweenThePartsAlone) {
  with_ranks(3, [](cw::world& w) {
    constexpr int blocks = 3;
    constexpr std::size_t each = 1100;  // more than a rank's part of a shelf
    constexpr std::size_t stride = blocks * each + 77;
    const std::size_t room = stride * static_cast<std::size_t>(w.size());
    const cw::coll all(w, {.channels = blocks, .shelf_bytes = 4096});
    cw::buffer<std::int32_t> in(w.options().device, room);
    cw::buffer<std::int32_t> out(w.options().device, room);
    cw::buffer<status> outcome(w.options().device, blocks);
    std::vector<std::int32_t> mine(room);
    for (std::size_t i = 0; i < room; ++i) mine[i] = element(w.rank(), i);
    in.write(mine);
    const int root = w.size() - 1;
    for (const auto what : {strided::reduce_scatter, strided::all_gather, strided::gather,
                            strided::scatter, strided::all_to_all}) {
      out.write(std::vector<std::int32_t>(room, -1));
      w.barrier();
      cw::launch(w.stream(), {.blocks = blocks, .threads = 8}, by_strides{}, all.device(), what,
                 out.data(), static_cast<const std::int32_t*>(in.data()), each, stride, root,
                 outcome.data());
      w.stream().sync();
      w.barrier();
      EXPECT_EQ(outcome.read(), std::vector<status>(blocks, status::ok));
      EXPECT_EQ(out.read(), wanted(what, w.rank(), w.size(), blocks * each, stride, root))
          << "call " << static_cast<int>(what);
    }
  });
}

// ---- groups of different sizes in turn

/// A thread, a warp and a block in turn on one channel; `mixed`: another one on each rank at a
/// time.
struct in_turn {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, std::int32_t* data,
                        std::size_t count, bool mixed, status* out, int* wrong) const {
    for (int round = 0; round < 18; ++round) {
      const auto block = k.block();
      for (auto i = static_cast<std::size_t>(block.rank()); i < count;
           i += static_cast<std::size_t>(block.size())) {
        data[i] = round * 1000 + with.rank() + static_cast<int>(i);
      }
      block.sync();
      const auto how = static_cast<coll_algorithm>(1 + round / 3 % 3);
      const int who = (round + (mixed ? with.rank() : 0)) % 3;
      status s = status::ok;
      if (who == 0 && k.thread_index() == 0) s = call(k.thread(), with, data, count, how);
      if (who == 1 && k.warp().index() == 0) s = call(k.warp(), with, data, count, how);
      if (who == 2) s = call(block, with, data, count, how);
      if (dev::agree(block, s) != status::ok) {
        if (k.thread_index() == 0) *out = s;
        return;
      }
      if (k.thread_index() == 0) *wrong += wrongs(with.size(), data, count, round);
      block.sync();
    }
  }

 private:
  template <class G>
  CW_FN static status call(const G& g, const dev::coll& with, std::int32_t* data, std::size_t count,
                           coll_algorithm how) {
    return with.all_reduce(g, data, data, count, ops::sum{}, how);
  }
  CW_FN static int wrongs(int n, const std::int32_t* data, std::size_t count, int round) {
    int wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (data[i] != n * (round * 1000 + static_cast<int>(i)) + n * (n - 1) / 2) ++wrong;
    }
    return wrong;
  }
};

TEST(Groups, OfDifferentSizesTakeTurnsOnOneChannel) {
  with_ranks(3, [](cw::world& w) {
    constexpr std::size_t count = 60;
    const cw::coll all(w, {.channels = 1, .shelf_bytes = 4096});
    cw::buffer<std::int32_t> data(w.options().device, count);
    for (const bool mixed : {false, true}) {
      cw::buffer<status> out(w.options().device, 1);
      cw::buffer<int> wrong(w.options().device, 1);
      w.barrier();
      cw::launch(w.stream(), {.threads = 40}, in_turn{}, all.device(), data.data(), count, mixed,
                 out.data(), wrong.data());
      w.stream().sync();
      w.barrier();
      EXPECT_EQ(out.read().front(), status::ok) << "mixed " << mixed;
      EXPECT_EQ(wrong.read().front(), 0) << "mixed " << mixed;
    }
  });
}

// ---- two groups of a rank in one channel, which checked builds notice

/// The first block waits in the channel for a rank that comes later; the second one, by mistake,
/// uses the same channel meanwhile.
struct two_in_one {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& with, std::int32_t* data,
                        std::uint32_t* began, bool by_messages, status* out) const {
    const dev::device_atomic<std::uint32_t> turn(*began);
    const auto g = k.block();
    if (k.block_index() == 1) {
      const dev::wait_limits long_enough{};
      const auto come = [&] { return turn.load(dev::order::relaxed) != 0; };
      if (dev::poll_until(g, come, long_enough) != status::ok) return;
      // The other block has told, and goes into the channel: it is there for long.
      const auto never = [] { return false; };
      (void)dev::poll_until(g, never, long_enough.within(100'000'000));
    } else if (k.thread_index() == 0) {
      turn.store(1, dev::order::relaxed);
    }
    const status s = by_messages ? with.receive(g, data + 8 * k.block_index(), 8, 1)
                                 : with.all_reduce(g, data + 8 * k.block_index(), data, 8);
    if (k.thread_index() == 0) out[k.block_index()] = s;
  }
};

void put_two_in_one(bool by_messages) {
  std::atomic<bool> is_over = false;
  cw::run_local(2, roomy(), [&](cw::world& w) {
    const cw::coll all(w, {.channels = 2, .shelf_bytes = 4096});
    const cw::buffer<std::int32_t> data(w.options().device, 24);
    const cw::buffer<std::uint32_t> began(w.options().device, 1);
    const cw::buffer<status> out(w.options().device, 2);
    w.barrier();
    if (w.rank() == 1) {  // its memory stays until rank 0 has been told
      while (!is_over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      cw::launch(w.stream(), {.blocks = 2, .threads = 4}, two_in_one{}, all.device(), data.data(),
                 began.data(), by_messages, out.data());
      w.stream().sync();
      ADD_FAILURE() << "nobody was told";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::invalid_argument) << e.what();
      EXPECT_NE(std::string(e.what()).find("in one channel at the same time"), std::string::npos)
          << e.what();
    }
    EXPECT_EQ(out.read(), std::vector<status>(2, status::invalid));
    is_over = true;
  });
}

TEST(TwoGroupsInOneChannel, AreAnErrorThatSaysSoInCheckedBuilds) {
  if (CROSSWARP_CHECKED == 0) GTEST_SKIP() << "not a checked build";
  if (test_device().kind() != cw::device_kind::cpu) GTEST_SKIP() << "told on CPUs alone";
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  put_two_in_one(false);
  put_two_in_one(true);
}

TEST(TwoStreamsAtOnce, AreAnErrorThatSaysSoInCheckedBuilds) {
  if (CROSSWARP_CHECKED == 0) GTEST_SKIP() << "not a checked build";
  if (test_device().kind() != cw::device_kind::cpu) GTEST_SKIP() << "told on CPUs alone";
  if (cw::launched()) GTEST_SKIP() << "for ranks that are threads";
  std::atomic<bool> is_over = false;
  cw::run_local(2, roomy(), [&](cw::world& w) {
    cw::coll all(w);
    cw::stream other(w.options().device);
    const cw::buffer<float> data(w.options().device, 8);
    w.barrier();
    if (w.rank() == 1) {
      while (!is_over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    all.all_reduce(data.data(), data.data(), 8);
    all.all_reduce(data.data(), data.data(), 8, cw::coll_op::sum, &other);
    int told = 0;
    for (cw::stream* const on : {&w.stream(), &other}) {
      try {
        all.check(on);
        ADD_FAILURE() << "nobody was told";
      } catch (const cw::error& e) {
        const std::string text = e.what();
        if (text.find("in one channel at the same time") != std::string::npos) ++told;
        EXPECT_TRUE(e.code() == cw::errc::invalid_argument ||
                    text.find("on several streams") != std::string::npos)
            << text;
      }
    }
    EXPECT_EQ(told, 1);  // by the stream whose call came second
    is_over = true;
  });
}

// ---- channels

/// What block b adds up in its round: no two of them are the same.
CW_FN std::int32_t term(int block, int round, int rank, std::size_t i) {
  return (block + 1) * 1000000 + round * 10000 + (rank + 1) * 1000 + static_cast<int>(i);
}

/// Every block in a channel of its own, as often as its number says, by every algorithm.
struct own_sums {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& all, std::int32_t* data,
                        std::size_t each, status* out, int* wrong) const {
    const int b = k.block_index();
    const dev::coll with = all.channel(b);
    std::int32_t* const mine = data + static_cast<std::size_t>(b) * each;
    const auto g = k.block();
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    for (int round = 0; round < 3 * (b + 1); ++round) {
      for (std::size_t i = first; i < each; i += step) mine[i] = term(b, round, with.rank(), i);
      g.sync();
      const status s = with.all_reduce(g, mine, mine, each, ops::sum{},
                                       static_cast<coll_algorithm>(1 + round % 3));
      if (g.rank() == 0) {
        out[b] = s;
        for (std::size_t i = 0; i < each; ++i) {
          std::int32_t want = 0;
          for (int r = 0; r < with.size(); ++r) want += term(b, round, r, i);
          if (mine[i] != want) ++wrong[b];
        }
      }
      g.sync();
      if (s != status::ok) return;
    }
  }
};

TEST(Channels, AddUpTheirOwnAndNobodyElses) {
  with_ranks(3, [](cw::world& w) {
    constexpr int blocks = 4;
    constexpr std::size_t each = 50;
    const cw::coll all(w, {.channels = blocks, .shelf_bytes = 4096});
    cw::buffer<std::int32_t> data(w.options().device, blocks * each);
    cw::buffer<status> out(w.options().device, blocks);
    cw::buffer<int> wrong(w.options().device, blocks);
    w.barrier();
    cw::launch(w.stream(), {.blocks = blocks, .threads = 8}, own_sums{}, all.device(), data.data(),
               each, out.data(), wrong.data());
    w.stream().sync();
    w.barrier();
    EXPECT_EQ(out.read(), std::vector<status>(blocks, status::ok));
    EXPECT_EQ(wrong.read(), std::vector<int>(blocks, 0));
  });
}

}  // namespace
