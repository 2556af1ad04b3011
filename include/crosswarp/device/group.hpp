// Who makes a cooperative call: a thread, a warp, a block or a rank's whole grid.
//
// Every cooperative function takes a group as its first argument and is called by all of the
// group's threads with the same arguments. It is written once, against the five members of the
// concept; a group of one thread costs nothing.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "crosswarp/device/exec_context.hpp"
#include "crosswarp/device/platform.hpp"
#include "crosswarp/status.hpp"

namespace crosswarp::device {

/// Largest value that broadcast() carries.
inline constexpr int broadcast_bytes = 64;

template <class T>
concept broadcastable = std::is_trivially_copyable_v<T> &&
                        sizeof(T) <= static_cast<std::size_t>(broadcast_bytes);

/// rank() in [0, size()); sync() orders everything each thread did before it ahead of everything
/// each thread does after it; broadcast(v) returns the leader's (rank 0) v to all; any(b) tells all
/// whether b was true for one of them. broadcast() and any() order like sync().
template <class G>
concept group = requires(const G g, int v) {
  { g.rank() } -> std::convertible_to<int>;
  { g.size() } -> std::convertible_to<int>;
  { g.sync() } -> std::same_as<void>;
  { g.broadcast(v) } -> std::same_as<int>;
  { g.any(true) } -> std::same_as<bool>;
};

/// Groups of at most 32 threads, which can tell each other who of them says yes.
template <class G>
concept lane_group = group<G> && requires(const G g) {
  { g.ballot(true) } -> std::same_as<std::uint32_t>;
};
/// How many bits are set, and how many before the first that is not.
[[nodiscard]] CW_FN inline int count_bits(std::uint32_t bits) noexcept;
[[nodiscard]] CW_FN inline int leading_bits(std::uint32_t bits) noexcept;

/// The calling thread alone.
class thread_group {
 public:
  [[nodiscard]] CW_FN static constexpr int rank() noexcept { return 0; }
  [[nodiscard]] CW_FN static constexpr int size() noexcept { return 1; }
  CW_FN static constexpr void sync() noexcept {}
  template <broadcastable T>
  [[nodiscard]] CW_FN static constexpr T broadcast(T value) noexcept {
    return value;
  }
  [[nodiscard]] CW_FN static constexpr bool any(bool b) noexcept { return b; }
  [[nodiscard]] CW_FN static constexpr std::uint32_t ballot(bool b) noexcept { return b ? 1 : 0; }
  template <class T>
  [[nodiscard]] CW_FN static constexpr T from(T value, int /*rank*/) noexcept {
    return value;
  }
};

/// The 32 threads of a warp; fewer in the last warp of a block that is no multiple of 32.
/// Callers: all threads of the warp, converged or not.
class warp_group {
 public:
  static constexpr int width = 32;

  CW_FN explicit warp_group(const kernel_context& c) noexcept : context_(&c) {}
  explicit warp_group(kernel_context&&) = delete;
  [[nodiscard]] CW_FN int rank() const noexcept;
  [[nodiscard]] CW_FN int size() const noexcept;
  /// Which warp of the block this is.
  [[nodiscard]] CW_FN int index() const noexcept;
  CW_FN void sync() const noexcept;
  template <broadcastable T>
  [[nodiscard]] CW_FN T broadcast(T value) const noexcept;
  [[nodiscard]] CW_FN bool any(bool b) const noexcept;
  /// Bit r is set when thread r's b is true. Orders like sync().
  [[nodiscard]] CW_FN std::uint32_t ballot(bool b) const noexcept;
  /// The value of the thread whose rank differs in the bits of `mask`. A whole warp calls it;
  /// orders nothing.
  template <class T>
  requires(sizeof(T) == 4) [[nodiscard]] CW_FN T swap(T value, int mask) const noexcept;
  /// The value of the thread of that rank, below size(); each may ask another. Orders nothing.
  template <class T>
  requires(sizeof(T) == 4 || sizeof(T) == 8) [[nodiscard]] CW_FN T
      from(T value, int rank) const noexcept;

 private:
  const kernel_context* context_;
};

/// Whether the threads of a warp go together, so that they had better share what there is to do
/// piece by piece. Threads of a CPU had better have pieces of their own.
[[nodiscard]] CW_FN constexpr bool warps_go_together() noexcept;

/// All threads of the block.
class block_group {
 public:
  CW_FN explicit block_group(const kernel_context& c) noexcept : context_(&c) {}
  explicit block_group(kernel_context&&) = delete;
  [[nodiscard]] CW_FN int rank() const noexcept { return context_->thread_index(); }
  [[nodiscard]] CW_FN int size() const noexcept { return context_->thread_count(); }
  CW_FN void sync() const noexcept;
  template <broadcastable T>
  [[nodiscard]] CW_FN T broadcast(T value) const noexcept;
  [[nodiscard]] CW_FN bool any(bool b) const noexcept;
  /// The calling thread's warp.
  [[nodiscard]] CW_FN warp_group warp() const noexcept { return warp_group(*context_); }
  /// Values that the block's threads make together: write(told) has each thread write its part of
  /// T told[N], and all of them have `all` afterwards. `turn`: one more from call to call, else a
  /// sync() lies between them. Orders like sync().
  template <class T, int N, class Write>
  requires(sizeof(T) * N <= static_cast<std::size_t>(broadcast_bytes))
      CW_FN void make_together(T (&all)[N], std::size_t turn, const Write& write) const noexcept;

 private:
  const kernel_context* context_;
};

/// All threads of this rank's grid. Unlike the others it waits for other blocks, so it may fail:
/// timeout, peer_lost, aborted, or invalid when the launch was not resident.
/// It is no `group`: cooperative calls are made by at most a block. A grid shares a call by having
/// each block make its part of it, and sync().
class grid_group {
 public:
  CW_FN explicit grid_group(const kernel_context& c) noexcept : context_(&c) {}
  explicit grid_group(kernel_context&&) = delete;
  [[nodiscard]] CW_FN int rank() const noexcept;
  [[nodiscard]] CW_FN int size() const noexcept;
  [[nodiscard]] CW_FN status sync() const noexcept;
  /// The same, and the block that comes last first runs f(block), whose status is the same for all
  /// of its threads: what all blocks did before is ahead of it, and it is ahead of what they do
  /// afterwards. All return its status if that is not ok, unless one has failed before.
  template <class F>
  [[nodiscard]] CW_FN status sync(const F& f) const noexcept;

 private:
  const kernel_context* context_;
};

/// One outcome for the group from its threads' own: ok when all are ok, else the gravest of theirs.
/// Orders like sync().
template <group G>
[[nodiscard]] CW_FN inline status agree(const G& g, status mine) noexcept {
  if (!g.any(mine != status::ok)) return status::ok;
  for (int s = static_cast<int>(gravest_status); s > 0; --s) {
    if (g.any(mine == static_cast<status>(s))) return static_cast<status>(s);
  }
  return status::ok;
}

/// Runs `f` in the leader of `g` and gives its result to all.
/// Order: what `f` acquired is visible to the whole group afterwards.
template <group G, class F>
[[nodiscard]] CW_FN inline auto leader_of(const G& g, F&& f) noexcept {
  using result = decltype(f());
  if constexpr (std::is_same_v<result, status>) {
    return agree(g, g.rank() == 0 ? f() : status::ok);  // one barrier as long as all is well
  } else {
    return g.broadcast(g.rank() == 0 ? f() : result{});
  }
}

/// f(g) with the calling thread's warp as g, as whatever group costs least: a warp of one thread is
/// a thread_group on a CPU.
template <class F>
[[nodiscard]] CW_FN inline auto with_warp(const kernel_context& ctx, const F& f) noexcept;

/// poll_until by the leader of `g`, the outcome given to all.
/// Order: what ready() acquired is visible to the whole group afterwards.
template <group G, class Predicate>
[[nodiscard]] CW_FN inline status poll_until(const G& g, Predicate&& ready,
                                             const wait_limits& limits) noexcept {
  return leader_of(g, [&] { return poll_until(ready, limits); });
}

}  // namespace crosswarp::device

#include "crosswarp/device/impl/group_impl.hpp"
