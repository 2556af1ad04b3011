// Ways around TCP between ends of one world, as hosts see them: how two ends find each other, and
// when a lane may be used again. What goes through them is the kernels' affair.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "crosswarp/device/socket_memory.hpp"
#include "crosswarp/world.hpp"
#include "transports/mapped/mapped.hpp"
#include "world/state.hpp"

namespace crosswarp::socket_impl {

using device::socket::lane_link;

/// A rank's lanes, and those of all ranks that it has mapped. Any thread may use it; a lane is its
/// connection's worker's.
class lanes {
 public:
  /// Collective; throws error(asymmetric) when ranks ask for different ones.
  lanes(world& w, int count, std::size_t bytes);
  /// Collective: nobody unmaps what another rank's kernels may still write.
  ~lanes();
  lanes(const lanes&) = delete;
  lanes& operator=(const lanes&) = delete;

  /// For kernels.
  void show(device::socket::memory& m) const noexcept;

  /// Says that this rank has a connection between these; a lane for it, if there is one left. The
  /// other end finds it, or is found, if it is of this world and says so, too.
  std::optional<unsigned> offer(const device::socket::names& ends);
  /// The way to the other end, once it is known.
  [[nodiscard]] lane_link find(unsigned own) const;
  /// Gives a lane back that nobody has found. False: somebody has, see find().
  bool withdraw(unsigned own);
  /// Ends this end's streams in the place of kernels that have ended. False when there is something
  /// that they have not read.
  bool finish(lane_link link) const;
  /// The rank that the world has lost; -1: none.
  [[nodiscard]] int lost_rank() const;
  /// This end's kernels use it no more. The lane is free when the other end has left, too.
  void leave(lane_link link);

 private:
  using lane = device::socket::lane;
  [[nodiscard]] lane& at(int rank, unsigned which) const noexcept;
  [[nodiscard]] std::optional<unsigned> take();
  bool match(unsigned own);
  void collect();

  world_impl::state& world_;
  const unsigned count_;
  const std::size_t bytes_;
  std::unique_ptr<mapped::mapping> memory_;
  std::optional<world_impl::peers_here> peers_;
  std::vector<int> reached_;      // ranks
  std::mutex guard_;              // of those below
  std::vector<unsigned> free_;    // own lanes
  std::vector<unsigned> ending_;  // that this end has left
};

}  // namespace crosswarp::socket_impl
