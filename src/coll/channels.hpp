// Channels of a communicator: the memory that ranks of a call meet in.
#pragma once

#include <algorithm>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/coll.hpp"
#include "crosswarp/device/coll.hpp"

namespace crosswarp::coll_impl {

/// No memory has more, and twice as much is still a number.
constexpr std::size_t most_bytes = ~std::size_t{0} / 2;

/// Each rank has its part of a shelf in all_to_all.
constexpr std::size_t least_shelf(int ranks) {
  return std::max<std::size_t>(4096, 64 * static_cast<std::size_t>(ranks));
}

/// Each run's first rank, and behind them the number of ranks. Ranks of a run are mapped to the
/// same ranks, and so to each other. Collective.
std::vector<int> runs_of(world& w);

/// How much memory some channels have.
struct channel_sizes {
  int channels;
  std::size_t shelf;
  std::size_t packets;
};

/// Where ranks are not mapped, each has room for all of them: shelves are shorter, and there are no
/// packets.
channel_sizes sizes_for(const world& w, channel_sizes wanted);

/// Some channels of one kind, with their memory. Where ranks are not mapped, a rank's own memory is
/// one of many pieces of equal size, and the others are its images of the other ranks'.
struct channel_set {
  channel_set(world& w, const channel_sizes& sizes, const buffer<int>& runs,
              std::uint32_t first_epoch);

  /// The fault word that calls return: 0, or a status, and the rank that disagrees if it is known.
  [[nodiscard]] fault_word failed() const;
  /// Where it is; each channel has its own.
  [[nodiscard]] std::byte* failed_word() const;

  std::size_t channel_bytes;
  std::size_t rank_bytes;  // of all channels
  bool images;
  symmetric_buffer<std::byte> work;
  symmetric_buffer<std::byte> mail;
  buffer<device::peer> peers;
  buffer<device::coll::rare_parts> rare;
  device::coll::parts view;

 private:
  /// Heaps, each moved to the piece that is, or shows, that rank's.
  [[nodiscard]] std::vector<device::peer> peers_of(const world& w) const;
  /// Where this rank's own piece begins.
  [[nodiscard]] std::size_t own_place() const;
};

}  // namespace crosswarp::coll_impl
