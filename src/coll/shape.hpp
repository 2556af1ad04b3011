// How a device shares out a call, and which algorithm is best up to which size.
#pragma once

#include <cstddef>

#include "crosswarp/coll.hpp"

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
  std::size_t push_bytes;      ///< of the whole call
  std::size_t pull_bytes;
  std::size_t two_shot_bytes;  ///< between machines; then a ring
  std::size_t early_bytes;     ///< up to here blocks are small, and placed early
};
shape_rules rules_for(world& w, const coll_tuning& tuning);

}  // namespace crosswarp::coll_impl
