// A list of work that all ranks share: items with owners, made and done inside one kernel.
//
// A program says whose an item is, how urgent it is, and what is done with it; doing it makes more
// items. Workers (warps; threads on a CPU) stay in the kernel until nothing is left anywhere:
//
//   struct flood {                                    // which vertices are reached from vertex 0
//     using item = std::uint32_t;
//     CW_FN int owner(item v) const { return v / per_rank; }
//     CW_FN std::uint64_t priority(item) const { return 0; }
//     template <class G, class Out> CW_FN void seed(const G& g, int worker, Out& out) const {
//       out.push(g, rank == 0 && worker == 0 && g.rank() == 0, 0);
//     }
//     template <class G, class Out> CW_FN void work(const G& g, item v, Out& out) const {...}
//   };
//   status s = list.run(ctx, flood{...});             // in a kernel, by all its threads
//
// `out` has push() and threshold(). Each worker has a queue in its rank's memory that any worker of
// any mapped rank pushes to, and a link from each rank that is not mapped; a worker that has
// nothing to do takes from the queues of its rank's others. What finds no room is kept by who made
// it (spilled) until there is some. Items whose priority is behind the threshold are kept by the
// worker that meets them (parked), until nothing else is left anywhere and the threshold moves.
// docs/design/flow_worklist.md says why it ends, neither early nor never.
#pragma once

#include <cstdint>

#include "crosswarp/device/impl/parked_items.hpp"
#include "crosswarp/device/impl/staged_items.hpp"
#include "crosswarp/device/work_queue.hpp"
#include "crosswarp/device/world.hpp"

namespace crosswarp::device {

/// What became of items, on one rank.
struct worklist_counts {
  std::uint64_t made;       ///< by seed() and work()
  std::uint64_t done;       ///< given to work()
  std::uint64_t stolen;     ///< taken from another worker's queue
  std::uint64_t spilled;    ///< found no room in a queue
  std::uint64_t parked;     ///< behind the threshold
  std::uint64_t forwarded;  ///< came by here on their way to another rank
  std::uint64_t epochs;     ///< how often the threshold moved; on rank 0
  std::uint64_t no_room;    ///< workers that found none until the deadline: it ended by timeout
};

/// What a rank's own workers write, and rank 0's first worker reads.
struct alignas(line_bytes) worklist_counters {
  std::uint64_t swept;    ///< workers that have come to the epoch, summed up over epochs
  std::uint64_t settled;  ///< items that rest: done or parked; never more than active
  std::uint64_t active;   ///< items that came to life: made, or parked no more
  std::uint64_t parked;   ///< items that are parked now
  /// Their least priority, inverted so that 0 is none; by epoch % 3.
  std::uint64_t lowest[3];
};

/// What ranks know of each other's work. Zero at the start of a run.
struct worklist_words {
  worklist_counters own;
  // Written by rank 0's first worker, and by whoever fails.
  struct alignas(line_bytes) {
    std::uint64_t threshold;  ///< of the epoch
    std::uint64_t epoch;      ///< from 0
    std::uint64_t ended;      ///< 0 while it runs, else 1 + make_fault() of its outcome
  } told;
  worklist_counts counts;  ///< added up by workers when they end
};

/// Every item goes to its owner at once.
struct direct_route {
  /// Where rank `at` sends what is for rank `to`, which is another.
  [[nodiscard]] CW_FN static int next(int /*at*/, int to, int /*ranks*/) noexcept { return to; }
};
/// From neighbour to neighbour: each rank writes to one other.
struct ring_route {
  [[nodiscard]] CW_FN static int next(int at, int /*to*/, int ranks) noexcept {
    return at + 1 == ranks ? 0 : at + 1;
  }
};

/// As the host has laid it down, see crosswarp::worklist_route.
struct table_route {
  const int* hops = nullptr;  ///< by owner: where this rank sends it
  [[nodiscard]] CW_FN int next(int /*at*/, int to, int /*ranks*/) const noexcept {
    return hops[to];
  }
};

/// Sizes, equal on all ranks.
struct worklist_shape {
  int workers = 1;              ///< on each rank: the warps of all its blocks
  std::uint64_t queue = 1024;   ///< places of each worker's queue, a power of two
  std::uint64_t spill = 65536;  ///< items that a worker keeps when queues are full
  std::uint64_t park =
      65536;  ///< items that a worker parks; more are done although they could wait
  /// The threshold goes to the end of the step + 1 priorities (from a multiple of as many on) that
  /// the least of what is parked is one of.
  std::uint64_t step = 0;
  std::uint64_t threshold = ~0ULL;  ///< the first one; the largest: nothing is parked
};

/// Got from crosswarp::worklist::device(), valid while that lives.
template <class Item>
class worklist {
 public:
  /// Items that a worker takes at a time, and keeps for each rank before it sends them.
  static constexpr int batch = staged_items<Item>::batch;

  struct memory {
    symmetric<worklist_words> words;
    symmetric<work_queue_ends> ends;
    symmetric<work_slot<Item>> slots;
    symmetric<std::byte> far;  ///< see far_ranks; of no bytes when all ranks are mapped
    Item* kept;                ///< items_of(shape, ranks) for each worker
    int* ints;                 ///< ints_of(shape, ranks) for each worker
  };
  /// Items that a worker keeps: a batch, one for each rank, what is set aside, its own, what is
  /// spilled, what is parked.
  [[nodiscard]] CW_FN static constexpr std::uint64_t items_of(const worklist_shape& s,
                                                              int ranks) noexcept {
    return static_cast<std::uint64_t>(batch) * (1 + static_cast<std::uint64_t>(ranks)) + s.queue +
           own_of(s) + s.spill + s.park;
  }
  /// A worker that is the rank's only one keeps what it makes for itself: nobody could take it.
  [[nodiscard]] CW_FN static constexpr std::uint64_t own_of(const worklist_shape& s) noexcept {
    return s.workers == 1 ? s.spill : 0;
  }
  /// Counts of what is kept for each rank, and how parked items hang together.
  [[nodiscard]] CW_FN static constexpr std::uint64_t ints_of(const worklist_shape& s,
                                                             int ranks) noexcept {
    return static_cast<std::uint64_t>(ranks) + parked_items<Item>::ints(s.park);
  }

  worklist() = default;
  worklist(const memory& m, const worklist_shape& shape, const world& w) noexcept
      : memory_(m), shape_(shape), world_(w) {}

  /// Works until no rank has work.
  /// Callers: all threads of the kernel, of all ranks, with as many warps as the shape has workers.
  /// Returns: ok, on all ranks or on none, unless a rank died, or one that is not mapped found that
  ///          its deadline had passed just when the end was told. invalid: another number of warps.
  ///          timeout: for as long as the world allows nothing was done anywhere, or a worker found
  ///          no room (then `worklist_options::spill` is too small). peer_lost, aborted.
  template <class Program, class Route = direct_route>
  [[nodiscard]] CW_FN status run(const kernel_context& ctx, const Program& program,
                                 const Route& route = {}) const noexcept;

  [[nodiscard]] CW_FN const worklist_shape& shape() const noexcept { return shape_; }

 private:
  template <class, class, class, class>
  friend class worklist_worker;
  [[nodiscard]] CW_FN work_queue<Item> queue(int rank, int worker) const noexcept {
    const auto w = static_cast<std::uint64_t>(worker);
    return {memory_.ends.at(rank)[w], memory_.slots.at(rank) + w * shape_.queue, shape_.queue,
            memory_.ends.reach()};
  }

  memory memory_ = {};
  worklist_shape shape_ = {};
  world world_ = {};
};

}  // namespace crosswarp::device

#include "crosswarp/device/impl/worklist_impl.hpp"
