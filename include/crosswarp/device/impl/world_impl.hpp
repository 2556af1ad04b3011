// Bodies of world.hpp.
#pragma once

#include "crosswarp/device/world.hpp"

namespace crosswarp::device {

template <group G>
CW_FN inline open_barrier barrier::open(const G& g) const noexcept {
  const std::uint64_t count = leader_of(g, [&] { return lines_.local()[size_].word; });
  return {lines_, rank_, size_, limits_, g.rank(), count};
}

// All ranks meet in one step: each writes its count to its line at every other rank, then waits
// for the lines at home. A group of at least `size` threads does all of that at once.
template <group G>
CW_FN inline status open_barrier::wait(const G& g) noexcept {
  ++count_;
  if (g.rank() == 0) own_[size_].word = count_;
  g.sync();  // what all threads did before is ahead of each thread's set()
  status mine = status::ok;
  for (int pe = g.rank(); pe < size_; pe += g.size()) {
    if (pe == rank_) continue;
    signal_line* const theirs = pe == g.rank() ? first_ : lines_.find(pe);
    if (theirs == nullptr) {
      mine = status::unreachable;
    } else {
      signal(theirs[rank_], lines_.reach()).set(count_);  // pairs with wait() below, on rank pe
    }
  }
  deadline by(limits_);
  for (int pe = g.rank(); pe < size_ && mine == status::ok; pe += g.size()) {
    by.blame(pe);
    if (pe != rank_) mine = signal(own_[pe], lines_.reach()).wait(count_, by);
  }
  return agree(g, mine);
}

}  // namespace crosswarp::device
