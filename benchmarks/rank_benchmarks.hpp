// What benchmarks on ranks share.
#pragma once

#include "bench.hpp"

namespace crosswarp::bench {

/// Ranks, device and path of a world.
row base_row(const world& w, const char* what);
bool on_gpu(const world& w);

/// Null when there is none of that name.
rank_benchmark find_proxy_benchmark(const std::string& name);

}  // namespace crosswarp::bench
