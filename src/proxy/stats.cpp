#include "crosswarp/stats.hpp"

#include <cstdio>

namespace crosswarp {

std::string print_stats(const std::vector<operation_stats>& all) {
  const auto line = [](const char* format, auto... parts) {
    char text[160];
    std::snprintf(text, sizeof(text), format, parts...);
    return std::string(text);
  };
  std::string out = line("%-19s %12s %16s %10s %20s %20s\n", "operation", "count", "bytes",
                         "failures", "mean slot wait, us", "mean completion, us");
  for (const operation_stats& s : all) {
    if (s.count == 0) continue;
    const auto mean_us = [&](std::chrono::nanoseconds t) {
      return static_cast<double>(t.count()) * 1e-3 / static_cast<double>(s.count);
    };
    out += line("%-19s %12llu %16llu %10llu %20.3f %20.3f\n", s.name.c_str(),
                static_cast<unsigned long long>(s.count), static_cast<unsigned long long>(s.bytes),
                static_cast<unsigned long long>(s.failures), mean_us(s.waited_for_slot),
                mean_us(s.to_completion));
  }
  return out;
}

}  // namespace crosswarp
