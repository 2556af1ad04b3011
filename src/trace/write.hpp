// A trace as a file that chrome://tracing, Perfetto and `crosswarp trace` read.
#pragma once

#include <string>
#include <vector>

#include "recorder.hpp"

namespace crosswarp::trace {

struct rank_events {
  int rank = 0;
  std::string where;  ///< device and host, for people
  recorder::events events;
};

/// Throws error naming the file when it cannot be written, and leaves no part of it behind.
void write_json(const std::string& path, const std::vector<rank_events>& ranks);

/// Throws error, in the name of the option or variable that said so, when there can be no such
/// file. What was there of an earlier job is removed, so that nobody takes it for this one's.
void make_way(const std::string& path, const char* who_named_it = "CROSSWARP_TRACE");

/// "a/out.json" and "rank1": "a/out.rank1.json".
std::string with_part(const std::string& path, const std::string& part);

}  // namespace crosswarp::trace
