// What follows for policies from where endpoints are.
#include "flow/spots.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "crosswarp/error.hpp"

namespace crosswarp::flow {
namespace {

enum class kind : std::uint8_t { numa, package, machine, network };
constexpr std::array names{"within a NUMA node", "within a package", "within a machine",
                           "between machines"};

kind kind_of(const machine_spot& a, const machine_spot& b) {
  if (a.machine != b.machine) return kind::network;
  if (a.numa >= 0 && a.numa == b.numa) return kind::numa;
  if (a.package >= 0 && a.package == b.package) return kind::package;
  return kind::machine;
}

double median_of(std::vector<double> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

}  // namespace

machine_spot spot_here() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // More cores than a cpu_set_t has: then it is not known.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<int> cores;
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(static_cast<unsigned>(c), &allowed)) cores.push_back(c);
  }
  return impl::spot_of(cores);
}

policy by_topology(const bandwidth_table& ways, const std::vector<machine_spot>& spots, int rings) {
  if (spots.size() != ways.size()) {
    throw error(errc::invalid_argument, "topology",
                std::to_string(spots.size()) + " spots for " + std::to_string(ways.size()) +
                    " endpoints: give one for each");
  }
  (void)by_topology(ways, rings);  // judges the table
  const auto each_way = [&](const auto& f) {
    for (std::size_t a = 0; a < ways.size(); ++a) {
      for (std::size_t b = 0; b < ways.size(); ++b) {
        if (a != b && ways[a][b] > 0)
          f(a, b, static_cast<std::size_t>(kind_of(spots[a], spots[b])));
      }
    }
  };
  std::array<std::vector<double>, names.size()> measured;
  each_way([&](std::size_t a, std::size_t b, std::size_t k) { measured[k].push_back(ways[a][b]); });
  bandwidth_table typical = ways;
  each_way(
      [&](std::size_t a, std::size_t b, std::size_t k) { typical[a][b] = median_of(measured[k]); });
  policy p = by_topology(typical, rings);
  const std::string knower = impl::knower_of_spots();
  std::ostringstream why;
  why << p.why << " Ways by " << (knower.empty() ? "machine alone (no hwloc)" : knower) << ":";
  for (std::size_t k = 0; k < measured.size(); ++k) {
    if (measured[k].empty()) continue;
    why << " " << names[k] << " " << median_of(measured[k]) << " GB/s (" << measured[k].size()
        << "),";
  }
  p.why = why.str();
  p.why.back() = '.';
  return p;
}

}  // namespace crosswarp::flow
