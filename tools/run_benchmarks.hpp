// Benchmarks by name, for the commands that show them.
#pragma once

#include <fstream>

#include "benchmarks/bench.hpp"

namespace crosswarp::tool {

/// All rows of the named benchmarks: exec, memory, proxy, shmem.
std::vector<bench::row> run_benchmarks(const std::vector<std::string>& names,
                                       const bench::setup& s);

/// Rank 0's rows of a rank benchmark, on the setup's ranks.
std::vector<bench::row> run_ranks(const std::string& name, const bench::setup& s);

/// Ranks that are threads share a GPU: what has to be set before it is first used.
void prepare_shared_gpu(device_ref device);

/// For what will be measured: opened first, so that nothing is measured in vain. Throws error that
/// names the option.
std::ofstream create_file(const std::string& path, const std::string& option);

}  // namespace crosswarp::tool
