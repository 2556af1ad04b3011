#include "coll/shape.hpp"

#include <algorithm>

#include "crosswarp/world_launch.hpp"

namespace crosswarp::coll_impl {
namespace {

int multiprocessors(device_ref d) {
  for (const device_info& info : devices()) {
    if (info.device == d) return info.multiprocessors;
  }
  return 1;
}

}  // namespace

/// A rank on a CPU is one thread. On a GPU ranks may share the multiprocessors: all their blocks
/// have to be there at once, twice over when they are placed early.
int room_for_blocks(const world& w) {
  const device_ref d = w.options().device;
  if (d.kind() == device_kind::cpu) return 1;
  return std::max(1, (multiprocessors(d) - 4) / world_impl::gathered_ranks(w.state()));
}

/// Measured on an H200, see docs/measurements/coll.md.
shape_rules rules_for(device_kind kind, int ranks, int room, const coll_tuning& tuning) {
  if (kind == device_kind::cpu) {
    const std::size_t push = 1024;
    return {1,
            1,
            tuning.block,
            tuning.long_block,
            256U << 10U,
            push,
            push,
            std::min(push, tuning.push),
            tuning.pull,
            64U << 10U,
            0};
  }
  const int blocks = std::max(1, std::min(room, 128 / ranks));
  // One warp is left for the words that ranks tell each other.
  const std::size_t push = ranks == 2 ? (small_block - 32) * 8 : (small_block / 2) * 8;
  // Two of each block's, and 8 MiB of the heap in all at most.
  const std::size_t shelf = std::clamp<std::size_t>(
      (4U << 20U) / static_cast<std::size_t>(blocks) / 1024 * 1024, 32U << 10U, 128U << 10U);
  return {blocks,
          512,
          tuning.block,
          tuning.long_block,
          shelf,
          push,
          std::max<std::size_t>(push, 4U << 10U),
          std::min(push * static_cast<std::size_t>(blocks), tuning.push),
          tuning.pull,
          1U << 20U,
          ranks == 2 ? 4U << 20U : 1U << 20U};
}

launch_shape shape_for(const shape_rules& rules, std::size_t bytes, int blocks, bool pushes) {
  launch_shape shape{.blocks = blocks, .threads = rules.threads};
  if (bytes > rules.early_bytes) return shape;
  const std::size_t packets = bytes / static_cast<std::size_t>(blocks) / 8;
  const std::size_t threads = pushes ? std::min(small_block, round_up(packets, 32) + 32)
                                     : std::min<std::size_t>(small_block, bytes);
  shape.threads = std::min(rules.threads, static_cast<int>(std::max<std::size_t>(threads, 32)));
  shape.place_early = true;
  return shape;
}

}  // namespace crosswarp::coll_impl
