#include "crosswarp/stats.hpp"

#include <algorithm>
#include <cstdio>

namespace crosswarp {

std::string print_stats(const std::vector<operation_stats>& all) {
  std::size_t widest = std::string("operation").size();
  for (const operation_stats& s : all) {
    if (s.count > 0) widest = std::max(widest, s.name.size());
  }
  const auto line = [&](std::string name, const char* format, auto... parts) {
    char text[160];
    std::snprintf(text, sizeof(text), format, parts...);
    name.resize(widest, ' ');
    return name + text;
  };
  std::string out = line("operation", " %12s %16s %10s %20s %20s\n", "count", "bytes", "failures",
                         "mean slot wait, us", "mean completion, us");
  for (const operation_stats& s : all) {
    if (s.count == 0) continue;
    const auto mean_us = [&](std::chrono::nanoseconds t, bool measured) {
      if (!measured) return std::string("-");
      char text[32];
      std::snprintf(text, sizeof(text), "%.3f",
                    static_cast<double>(t.count()) * 1e-3 / static_cast<double>(s.count));
      return std::string(text);
    };
    out +=
        line(s.name, " %12llu %16llu %10llu %20s %20s\n", static_cast<unsigned long long>(s.count),
             static_cast<unsigned long long>(s.bytes), static_cast<unsigned long long>(s.failures),
             mean_us(s.waited_for_slot, !s.mapped && !s.by_rdma).c_str(),
             mean_us(s.to_completion, s.to_completion.count() > 0).c_str());
  }
  return out;
}

}  // namespace crosswarp
