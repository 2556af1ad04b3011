#include "tune.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "crosswarp/error.hpp"

namespace crosswarp::bench {
namespace {

/// Microseconds by bytes.
using times = std::map<std::size_t, double>;

/// Of one algorithm, by the size of blocks.
std::map<std::size_t, times> series(const std::vector<row>& rows, coll_algorithm how) {
  std::map<std::size_t, times> all;
  const std::string begin = series_of(how, 0);
  const std::string name = begin.substr(0, begin.find('0'));
  for (const row& r : rows) {
    if (!r.what.starts_with(name)) continue;
    std::size_t block = 0;
    std::istringstream(r.what.substr(name.size())) >> block;
    all[block][r.bytes.value_or(0)] = r.median;
  }
  if (all.empty()) {
    throw error(errc::system, "tune", std::string("nothing was measured of ") + to_string(how));
  }
  return all;
}

/// What is lost up to each of `sizes`, none of them, one, ...: sums of logarithms of how many times
/// the fastest it takes; endless from where it cannot be taken.
std::vector<double> losses(const times& t, const times& fastest) {
  std::vector<double> sums = {0};
  for (const auto& [bytes, best] : fastest) {
    const auto found = t.find(bytes);
    sums.push_back(found == t.end() ? std::numeric_limits<double>::infinity()
                                    : sums.back() + std::log(found->second / best));
  }
  return sums;
}

times fastest_of(const std::vector<row>& rows) {
  times fastest;
  for (const row& r : rows) {
    const auto [at, added] = fastest.emplace(r.bytes.value_or(0), r.median);
    if (!added) at->second = std::min(at->second, r.median);
  }
  return fastest;
}

}  // namespace

std::string series_of(coll_algorithm how, std::size_t block) {
  return std::string(to_string(how)) + ", blocks of " + std::to_string(block) + " bytes";
}

coll_tuning best_tuning(const std::vector<row>& rows) {
  const times fastest = fastest_of(rows);
  std::vector<std::size_t> sizes = {0};
  for (const auto& [bytes, us] : fastest) sizes.push_back(bytes);
  const auto push = losses(series(rows, coll_algorithm::push).begin()->second, fastest);
  double least = std::numeric_limits<double>::infinity();
  coll_tuning best;
  for (const auto& [block, pull_times] : series(rows, coll_algorithm::pull)) {
    const auto pull = losses(pull_times, fastest);
    for (const auto& [long_block, two_shot_times] : series(rows, coll_algorithm::two_shot)) {
      const auto two_shot = losses(two_shot_times, fastest);
      // The first i sizes are pushed, those up to j pulled.
      for (std::size_t i = 0; i < sizes.size() && std::isfinite(push[i]); ++i) {
        for (std::size_t j = i; j < sizes.size(); ++j) {
          const double loss = push[i] + pull[j] - pull[i] + two_shot.back() - two_shot[j];
          if (!(loss < least)) continue;
          least = loss;
          best = {.push = sizes[i], .pull = sizes[j], .block = block, .long_block = long_block};
        }
      }
    }
  }
  return best;
}

}  // namespace crosswarp::bench
