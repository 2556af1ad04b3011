// The world as a kernel sees it: who am I, where is everybody's memory, and meeting them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/profile.hpp"
#include "crosswarp/device/proxy.hpp"
#include "crosswarp/device/signal.hpp"

namespace crosswarp::device {

/// How a byte reaches a peer. One field of the peer; operations branch on it once.
enum class path : std::uint8_t {
  none,    ///< not at all (another machine, and nothing that reaches it is built in)
  self,    ///< this rank's own memory
  mapped,  ///< loads, stores and atomics
  proxy,   ///< commands to the host, see proxy.hpp
  rdma,    ///< entries for an adapter, see rdma_path.hpp; the same calls as for the proxy
};

/// A rank's part of some symmetric memory, as seen from here.
struct peer {
  std::byte* base = nullptr;  ///< null unless `how` is self or mapped
  path how = path::none;
};

/// Everybody's part of some symmetric memory.
struct peer_table {
  const peer* all = nullptr;  ///< by rank, in memory that kernels read
  int ranks = 0;              ///< that it has
  // Ranks from `first` on, so many, whose parts lie at equal distances: found without a look at the
  // table. Every acquire empties a GPU's first cache, and with it the table.
  std::byte* even = nullptr;  ///< of rank `first`
  std::ptrdiff_t distance = 0;
  int first = 0;
  int count = 0;
  scope reach = scope::system;  ///< that takes in all kernels which use this memory, see signal

  /// Null when it cannot be reached by loads and stores.
  [[nodiscard]] CW_FN std::byte* base(int rank) const noexcept {
    const auto k = static_cast<unsigned>(rank - first);
    const auto found =
        reinterpret_cast<std::uintptr_t>(even) + static_cast<std::uintptr_t>(distance) * k;
    // A compiler may do this before it is known to be wanted, so it never leaves the table.
    const bool looks = k >= static_cast<unsigned>(count) &&
                       static_cast<unsigned>(rank) < static_cast<unsigned>(ranks);
    return load_or(looks, &all[rank].base, found);
  }
};

/// Symmetric memory of `T`: every rank has its own copy. A plain view, valid while its
/// symmetric_buffer or registration lives.
template <class T>
class symmetric {
 public:
  symmetric() = default;
  CW_FN symmetric(const peer_table& peers, int rank, std::size_t offset, std::size_t size,
                  std::uint16_t region = 0) noexcept
      : peers_(peers), rank_(rank), region_(region), offset_(offset), size_(size) {}

  /// Elements on each rank.
  [[nodiscard]] CW_FN std::size_t size() const noexcept { return size_; }
  /// This rank's copy.
  [[nodiscard]] CW_FN T* local() const noexcept { return at(rank_); }
  /// Rank `pe`'s copy, which must be mapped here.
  [[nodiscard]] CW_FN T* at(int pe) const noexcept {
    return reinterpret_cast<T*>(peers_.base(pe) + offset_);
  }
  /// The same; null when it cannot be reached by loads and stores.
  [[nodiscard]] CW_FN T* find(int pe) const noexcept {
    return peers_.base(pe) == nullptr ? nullptr : at(pe);
  }
  [[nodiscard]] CW_FN path path_to(int pe) const noexcept { return peers_.all[pe].how; }
  /// For signals in it.
  [[nodiscard]] CW_FN scope reach() const noexcept { return peers_.reach; }
  /// As elements of another type, from byte `first` on.
  template <class U>
  [[nodiscard]] CW_FN symmetric<U> part(std::size_t first) const noexcept {
    return {peers_, rank_, offset_ + first, (size_ * sizeof(T) - first) / sizeof(U), region_};
  }
  /// Element `i` of any rank's copy, for commands to the proxy.
  [[nodiscard]] CW_FN remote_address remote(std::size_t i = 0) const noexcept {
    return {offset_ + i * sizeof(T), region_};
  }

 private:
  peer_table peers_;
  int rank_ = 0;
  std::uint16_t region_ = 0;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
};

/// A barrier in use by one group: it counts in a register, so it is the fast way to meet many
/// times. While it is open, nobody else on this rank uses the same barrier.
class open_barrier {
 public:
  /// Waits for all ranks.
  /// Visibility: what any thread of `g` did before, on any rank, is visible after it to every
  ///             thread of every rank's group.
  /// Callers:    all threads of `g`, on every rank.
  /// Fails:      timeout, peer_lost, aborted; unreachable when a rank's memory is not mapped.
  ///             A barrier that has failed is of no more use.
  template <group G>
  [[nodiscard]] CW_FN status wait(const G& g) noexcept;

 private:
  friend class barrier;
  CW_FN open_barrier(const symmetric<signal_line>& lines, int rank, int size,
                     const wait_limits& limits, int first, std::uint64_t count) noexcept
      : lines_(lines),
        rank_(rank),
        size_(size),
        limits_(limits),
        own_(lines.local()),
        first_(first < size ? lines.find(first) : nullptr),
        count_(count) {}

  symmetric<signal_line> lines_;
  int rank_;
  int size_;
  wait_limits limits_;
  // Looked up once: every acquire empties a GPU's first cache, and with it the table of peers.
  signal_line* own_;
  signal_line* first_;   // of the first peer that this thread tells
  std::uint64_t count_;  // barriers passed, equal in all threads of the group
};

/// A barrier of all ranks of a world. One group per rank may be inside at a time; for more, the
/// host makes one barrier for each.
class barrier {
 public:
  /// Signal lines that each rank provides: one for each rank, written by that rank alone, and one
  /// for the owner's count of barriers passed.
  [[nodiscard]] CW_FN static constexpr std::size_t lines(int ranks) noexcept {
    return static_cast<std::size_t>(ranks) + 1;
  }

  barrier() = default;
  CW_FN barrier(symmetric<signal_line> lines, int rank, int size,
                const wait_limits& limits) noexcept
      : lines_(lines), rank_(rank), size_(size), limits_(limits) {}

  template <group G>
  [[nodiscard]] CW_FN open_barrier open(const G& g) const noexcept;

  /// Meets once; see open_barrier::wait.
  template <group G>
  [[nodiscard]] CW_FN status wait(const G& g) const noexcept {
    return open(g).wait(g);
  }

 private:
  symmetric<signal_line> lines_;
  int rank_ = 0;
  int size_ = 1;
  wait_limits limits_;
};

/// Got from crosswarp::world::device(), passed to kernels by value, valid while the world lives.
struct world {
  int rank = 0;
  int size = 1;
  peer_table peers;                   ///< each rank's symmetric heap
  wait_limits limits;                 ///< for every wait that names no others
  barrier all;                        ///< the world's own barrier
  device::proxy proxy;                ///< the way to ranks that are not mapped
  mapped_profile* profile = nullptr;  ///< null unless asked for

  /// The barrier of all ranks; see open_barrier::wait.
  template <group G>
  [[nodiscard]] CW_FN status barrier_all(const G& g) const noexcept {
    return all.wait(g);
  }
};

}  // namespace crosswarp::device

#include "crosswarp/device/impl/world_impl.hpp"
