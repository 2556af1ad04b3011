// What benchmarks on ranks share.
#pragma once

#include "bench.hpp"

namespace crosswarp::bench {

/// Ranks, device and path of a world.
row base_row(const world& w, const char* what);
bool on_gpu(const world& w);

/// Gigabytes per second of `repeat` runs of `f`, which queues on the world's stream.
double copy_rate(world& w, std::size_t bytes, int repeat, const std::function<void()>& f);

/// What a kernel measured, or why it could not.
struct measured {
  double ns = 0;
  status outcome = status::ok;
};
/// Throws error unless all is well: what was measured would be nothing.
void check_outcome(status s);
/// Of the first block; those of all must be well.
double ns_of(const buffer<measured>& by_blocks);

/// Null when there is none of that name.
rank_benchmark find_proxy_benchmark(const std::string& name);
rank_benchmark find_shmem_benchmark(const std::string& name);
rank_benchmark find_coll_benchmark(const std::string& name);
rank_benchmark find_flow_benchmark(const std::string& name);

}  // namespace crosswarp::bench
