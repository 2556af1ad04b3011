// How a device shares out a call, and which algorithm is best up to which size.
#pragma once

#include <cstddef>

#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::coll_impl {

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

/// Threads of blocks of which a multiprocessor holds two.
constexpr std::size_t small_block = 256;

struct shape_rules {
  int blocks;                  ///< at most
  int threads;                 ///< of a block, at most
  std::size_t per_block;       ///< bytes that are worth a block of their own
  std::size_t long_per_block;  ///< in two shots
  std::size_t shelf;           ///< of each block's channel
  std::size_t push_per_block;  ///< bytes that a block pushes, so much room each sender has
  std::size_t packet_bytes;    ///< of a block's, as packets at each sender: what it may also show
  std::size_t push_bytes;      ///< of the whole call
  std::size_t pull_bytes;
  std::size_t two_shot_bytes;  ///< between machines; then a ring
  std::size_t early_bytes;     ///< up to here blocks are small, and placed early
};
/// `room`: blocks that each rank has room for; the same on all ranks, see chosen_tuning.
shape_rules rules_for(device_kind kind, int ranks, int room, const coll_tuning& tuning);
/// What this rank has room for.
int room_for_blocks(const world& w);

/// For so many bytes by so many blocks. A block that pushes has a thread for each packet, and a
/// warp for the words that ranks tell each other. Large blocks are not placed early, nor is what
/// follows them: it would take the place that other ranks' large blocks need.
launch_shape shape_for(const shape_rules& rules, std::size_t bytes, int blocks, bool pushes);

}  // namespace crosswarp::coll_impl
