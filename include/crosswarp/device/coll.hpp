// Collectives inside kernels: reductions and exchanges of all ranks, in one call by a group.
//
// A channel is one sequence of collective calls. Each rank has one group of threads in a channel at
// a time, and all ranks make the same calls in it in the same order; calls in different channels
// have nothing to do with each other: each block may have one. Checked builds notice two groups.
//
// Reductions are made in one order, rank 0 first, in every algorithm, and short numbers are summed
// in float: so results have the same bits on all ranks, by all algorithms, for all sizes.
// How ranks meet, and why no call can overtake another: docs/design/coll.md.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/number.hpp"
#include "crosswarp/device/packet.hpp"
#include "crosswarp/device/world.hpp"

namespace crosswarp::device {

/// What a reduction does with two elements, in the order of ranks.
enum class coll_op : std::uint8_t { sum, prod, min, max, avg, bit_and, bit_or, bit_xor };

[[nodiscard]] constexpr const char* to_string(coll_op op) noexcept {
  constexpr const char* names[] = {"sum", "prod",    "min",    "max",
                                   "avg", "bit_and", "bit_or", "bit_xor"};
  return names[static_cast<int>(op)];
}

/// The same as types: an operation that is known when the kernel is compiled takes no time to be
/// found. min and max are IEEE's minimum and maximum: a NaN stays, and -0 is less than 0.
/// Integers wrap around; their average is cut towards 0.
namespace coll_ops {
struct sum;
struct prod;
struct min;
struct max;
struct avg;
struct bit_and;
struct bit_or;
struct bit_xor;
/// One that is known at run time.
struct any;
}  // namespace coll_ops

enum class coll_algorithm : std::uint8_t {
  automatic,
  push,      ///< everybody writes packets to everybody: no barrier; for the smallest
  pull,      ///< everybody reads everybody's: one meeting
  two_shot,  ///< each reduces its part, and all get all parts: least traffic, two meetings
  ring,      ///< sums go from machine to machine, in pieces: for long ones, of several machines
};

[[nodiscard]] constexpr const char* to_string(coll_algorithm a) noexcept {
  constexpr const char* names[] = {"automatic", "push", "pull", "two_shot", "ring"};
  return names[static_cast<int>(a)];
}

/// `count` elements in equal parts, multiples of 16 bytes each; the last may be short or empty. How
/// ranks, and blocks of a grid, share them out.
template <class T>
class sharing {
 public:
  CW_FN sharing(std::size_t count, int parts) noexcept;
  [[nodiscard]] CW_FN std::size_t begin(int which) const noexcept;
  [[nodiscard]] CW_FN std::size_t size(int which) const noexcept;

 private:
  std::size_t count_;
  std::size_t each_;
};

/// Which of how many blocks this is that share a call.
struct share {
  int which = 0;
  int of = 1;
};

/// Where calls of one channel are made; got from crosswarp::coll::device(), by value, valid while
/// that lives.
/// Callers: all threads of `g`, with the same arguments, on every rank.
/// Visibility: what any thread of `g` wrote before is passed in. When a call returns ok, its result
///         is there for every thread of `g`, and what was passed in may be written again. Nothing
///         else is ordered, except by barrier().
/// Fails:  timeout, peer_lost, aborted; invalid when ranks called different things, or counts,
///         types or operations differ: on all of them. Then all channels are of no more use.
/// In place: all_reduce and reduce when `out` is `in`; of others a rank's part may lie where it
///         belongs in the longer memory: of reduce_scatter and scatter `out` is `in + rank() *
///         stride`, of all_gather and gather `in` is `out + rank() * stride`; of uneven parts
///         places[rank()] instead. Not all_to_all. Memory does not overlap otherwise.
/// An operation of reductions has `a = op(a, b)` and `a = op.finish(a, ranks)` for accumulators,
/// and `what` to tell it from others.
class coll {
 public:
  struct parts;
  coll() = default;
  CW_FN explicit coll(const parts& p) noexcept;

  [[nodiscard]] CW_FN int rank() const noexcept;
  [[nodiscard]] CW_FN int size() const noexcept;
  [[nodiscard]] CW_FN int channels() const noexcept;
  /// Another channel, in [0, channels()). `whole`: blocks that share a call say what all of it is,
  /// the same on all ranks, so that ranks whose parts are equal by chance are not taken for agreed.
  [[nodiscard]] CW_FN coll channel(int which, std::uint64_t whole = 0) const noexcept;

  /// Whether all ranks are reached by loads and stores.
  [[nodiscard]] CW_FN bool all_mapped() const noexcept;
  /// The same, for a kernel that is launched only if all_mapped(): it is shorter, and faster.
  [[nodiscard]] CW_FN coll mapped() const noexcept;

  template <group G>
  [[nodiscard]] CW_FN status barrier(const G& g) const noexcept;

  /// out[i] = op over all ranks of in[i].
  template <group G, number T, class Op = coll_ops::sum>
  [[nodiscard]] CW_FN status
  all_reduce(const G& g, T* out, const T* in, std::size_t count, const Op& op = {},
             coll_algorithm how = coll_algorithm::automatic) const noexcept;
  /// On symmetric memory, without a copy; the same place on all ranks. For what is long: each
  /// element is read once and written once. Blocks that share the call pass the same memory and
  /// which of them they are, and have a channel each.
  template <group G, number T, class Op = coll_ops::sum>
  [[nodiscard]] CW_FN status all_reduce(const G& g, const symmetric<T>& out, const symmetric<T>& in,
                                        std::size_t count, const Op& op = {},
                                        const share& mine = {}) const noexcept;
  /// The same at `root` alone; others' `out` is not used.
  template <group G, number T, class Op = coll_ops::sum>
  [[nodiscard]] CW_FN status reduce(const G& g, T* out, const T* in, std::size_t count, int root,
                                    const Op& op = {}) const noexcept;

  // In those that follow `stride` is from one rank's part of the longer memory to the next, `count`
  // unless it is given: so each block of a grid can move some elements of all parts. Elements are
  // trivially copyable.

  /// out[i] = op over all ranks of in[rank() * stride + i].
  template <group G, number T, class Op = coll_ops::sum>
  [[nodiscard]] CW_FN status reduce_scatter(const G& g, T* out, const T* in, std::size_t count,
                                            const Op& op = {},
                                            std::size_t stride = 0) const noexcept;
  /// out[r * stride + i] = rank r's in[i].
  template <group G, class T>
  [[nodiscard]] CW_FN status all_gather(const G& g, T* out, const T* in, std::size_t count,
                                        std::size_t stride = 0) const noexcept;
  /// What `root` has, in everybody's `data`.
  template <group G, class T>
  [[nodiscard]] CW_FN status broadcast(const G& g, T* data, std::size_t count,
                                       int root) const noexcept;
  /// out[r * stride + i] = rank r's in[i], at `root`.
  template <group G, class T>
  [[nodiscard]] CW_FN status gather(const G& g, T* out, const T* in, std::size_t count, int root,
                                    std::size_t stride = 0) const noexcept;
  /// out[i] = in[rank() * stride + i] of `root`.
  template <group G, class T>
  [[nodiscard]] CW_FN status scatter(const G& g, T* out, const T* in, std::size_t count, int root,
                                     std::size_t stride = 0) const noexcept;
  /// out[r * stride + i] = rank r's in[rank() * stride + i].
  template <group G, class T>
  [[nodiscard]] CW_FN status all_to_all(const G& g, T* out, const T* in, std::size_t count,
                                        std::size_t stride = 0) const noexcept;

  // Of uneven parts: counts[r] elements of rank r's, at places[r] of the longer memory. All ranks
  // pass the same counts; places are read where that memory is. Elements have 64 bytes at most.
  // Blocks that share a call pass the same memory and which of them they are, and have a channel
  // each.

  /// out[places[r] + i] = rank r's in[i], for i below counts[r].
  template <group G, class T>
  [[nodiscard]] CW_FN status all_gather_v(const G& g, T* out, const T* in,
                                          const std::size_t* counts, const std::size_t* places,
                                          const share& mine = {}) const noexcept;
  /// The same at `root`.
  template <group G, class T>
  [[nodiscard]] CW_FN status gather_v(const G& g, T* out, const T* in, const std::size_t* counts,
                                      const std::size_t* places, int root,
                                      const share& mine = {}) const noexcept;
  /// out[i] = in[places[rank()] + i] of `root`, for i below counts[rank()].
  template <group G, class T>
  [[nodiscard]] CW_FN status scatter_v(const G& g, T* out, const T* in, const std::size_t* counts,
                                       const std::size_t* places, int root,
                                       const share& mine = {}) const noexcept;
  /// out[i] = op over all ranks of in[places[rank()] + i], for i below counts[rank()].
  template <group G, number T, class Op = coll_ops::sum>
  [[nodiscard]] CW_FN status reduce_scatter_v(const G& g, T* out, const T* in,
                                              const std::size_t* counts, const std::size_t* places,
                                              const Op& op = {},
                                              const share& mine = {}) const noexcept;

  // From one rank to another. Messages of a pair arrive in the order in which they were sent in a
  // channel; others have nothing to do with them. Both wait for each other, so that ranks which
  // send to each other at once do it in two channels, or by the host's exchange().

  /// Returns when rank `to` has got it all.
  /// Fails: invalid, on both, when `to` receives another number of elements or another type.
  template <group G, class T>
  [[nodiscard]] CW_FN status send(const G& g, const T* data, std::size_t count,
                                  int to) const noexcept;
  template <group G, class T>
  [[nodiscard]] CW_FN status receive(const G& g, T* data, std::size_t count,
                                     int from) const noexcept;

  /// Counts and places by rank, in elements: what goes there, and what comes from there.
  struct all_to_all_plan {
    const std::size_t* send_counts;
    const std::size_t* send_places;
    const std::size_t* receive_counts;
    const std::size_t* receive_places;
  };
  /// As much of each as the plan says. invalid when a rank sends another more or less than that one
  /// expects.
  template <group G, class T>
  [[nodiscard]] CW_FN status all_to_all_v(const G& g, T* out, const T* in,
                                          const all_to_all_plan& plan,
                                          const share& mine = {}) const noexcept;

 private:
  template <group>
  friend class coll_call;
  struct state;  // the words of a channel that are this rank's own
  struct layout;

 public:
  struct rare_parts;
  /// What the host puts together; nobody else needs it.
  struct parts {
    int rank = 0;
    int size = 1;
    int channels = 1;
    int channel = 0;
    std::uint64_t whole = 0;
    wait_limits limits;
    symmetric<std::byte> work;      ///< of all channels, one after the other
    std::size_t image_bytes = 0;    ///< of one rank's in `work`; 0: all are mapped, no images
    std::size_t channel_bytes = 0;  ///< of each of them, as bytes_of_channel() says
    std::size_t shelf_bytes = 0;    ///< of each of a channel's two shelves
    std::size_t packets = 0;        ///< room for each sender in each of a channel's two inboxes
    std::size_t push_bytes = 0;     ///< up to here calls push, as far as there is room
    std::size_t pull_bytes = 0;     ///< up to here they pull, then they take two shots
    std::size_t two_shot_bytes = ~std::size_t{0};  ///< up to here, then it is a ring
    const rare_parts* rare = nullptr;
  };
  /// What few calls need. In the device's memory, so that kernels' arguments stay short.
  struct rare_parts {
    device::proxy proxy;         ///< the way to images
    const int* runs = nullptr;   ///< each run's first rank, and behind them the number of ranks
    int run_count = 1;           ///< ranks that follow each other and are mapped to each other
    int run = 0;                 ///< this rank's
    std::size_t mail_bytes = 0;  ///< of one piece of a message
    symmetric<std::byte> mail;   ///< of all channels: a box for each sender, see coll_pairs.hpp
  };
  /// Bytes that each rank provides for one channel.
  [[nodiscard]] CW_FN static std::size_t bytes_of_channel(int ranks, std::size_t shelf_bytes,
                                                          std::size_t packets) noexcept;
  /// The same, in rare_parts::mail.
  [[nodiscard]] CW_FN static std::size_t mail_of_channel(int ranks,
                                                         std::size_t piece_bytes) noexcept;
  /// The epoch that a channel begins with, for the host to write there; see state.
  [[nodiscard]] CW_FN static std::size_t epoch_offset(int ranks) noexcept;
  /// And the fault word that it ends with, for the host to read there.
  [[nodiscard]] CW_FN static std::size_t failed_offset(int ranks) noexcept;

 private:
  parts p_;
};

}  // namespace crosswarp::device

#include "crosswarp/device/impl/coll_impl.hpp"
#include "crosswarp/device/impl/coll_uneven_impl.hpp"
