// What `crosswarp tune` measures, and what follows from it.
#pragma once

#include "bench.hpp"
#include "crosswarp/coll.hpp"

namespace crosswarp::bench {

/// What rows of one algorithm with one size of blocks are called: "pull, blocks of 8192 bytes".
std::string series_of(coll_algorithm how, std::size_t block);

/// The rules that lose least, over all sizes, against the fastest at each: the sum of logarithms,
/// so that all sizes count alike. Throws error(system) when an algorithm's rows are missing.
coll_tuning best_tuning(const std::vector<row>& rows);

}  // namespace crosswarp::bench
