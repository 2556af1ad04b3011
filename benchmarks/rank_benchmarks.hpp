// What benchmarks on ranks share.
#pragma once

#include "bench.hpp"

namespace crosswarp::bench {

/// Ranks, device and path of a world.
row base_row(const world& w, const char* what);
bool on_gpu(const world& w);

/// Gigabytes per second of `repeat` runs of `f`, which queues on the world's stream.
double copy_rate(world& w, std::size_t bytes, int repeat, const std::function<void()>& f);

/// Null when there is none of that name.
rank_benchmark find_proxy_benchmark(const std::string& name);
rank_benchmark find_shmem_benchmark(const std::string& name);
rank_benchmark find_coll_benchmark(const std::string& name);

}  // namespace crosswarp::bench
