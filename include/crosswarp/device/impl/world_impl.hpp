// Bodies of world.hpp.
#pragma once

#include "crosswarp/device/world.hpp"

namespace crosswarp::device {

// All ranks meet in one step: each writes its count to its line at every other rank, then waits
// for the lines at home. A group of at least `size` threads does all of that at once.
template <group G>
CW_FN inline status barrier::wait(const G& g) const noexcept {
  signal_line* const own = lines_.local();
  const auto ranks = static_cast<std::size_t>(size_);
  // The broadcast orders what all threads did before ahead of each thread's set() below.
  const std::uint64_t count = leader_of(g, [&] { return ++own[ranks].word; });
  status mine = status::ok;
  for (int pe = g.rank(); pe < size_; pe += g.size()) {
    if (pe == rank_) continue;
    signal_line* const theirs = lines_.find(pe);
    if (theirs == nullptr) {
      mine = status::unreachable;
    } else {
      signal(theirs[rank_]).set(count);  // pairs with wait() below, on rank pe
    }
  }
  deadline by(limits_);
  for (int pe = g.rank(); pe < size_ && mine == status::ok; pe += g.size()) {
    by.blame(pe);
    if (pe != rank_) mine = signal(own[pe]).wait(count, by);
  }
  return agree(g, mine);
}

}  // namespace crosswarp::device
