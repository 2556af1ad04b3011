// Benchmarks by name, for the commands that show them.
#pragma once

#include "benchmarks/bench.hpp"

namespace crosswarp::tool {

/// All rows of the named benchmarks: exec, memory, proxy.
std::vector<bench::row> run_benchmarks(const std::vector<std::string>& names,
                                       const bench::setup& s);

}  // namespace crosswarp::tool
