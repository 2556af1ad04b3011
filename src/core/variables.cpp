#include "variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string_view>

#include "crosswarp/options.hpp"
#include "log.hpp"

namespace crosswarp::options {
namespace {

constexpr std::string_view prefix = "CROSSWARP_";

/// Read by others: UCX, for its use by this library alone; the tests; make and the scripts.
bool is_of_others(std::string_view name) {
  constexpr std::string_view scripts[] = {"CROSSWARP_COMMIT", "CROSSWARP_CUDA", "CROSSWARP_JOBS",
                                          "CROSSWARP_STRICT"};
  return name.starts_with("CROSSWARP_UCX_") || name.starts_with("CROSSWARP_TEST_") ||
         std::find(std::begin(scripts), std::end(scripts), name) != std::end(scripts);
}

bool is_known(std::string_view name) {
  const auto& known = all();
  return std::any_of(known.begin(), known.end(), [&](const setting& s) { return s.name == name; });
}

/// How many letters must be changed, added or taken away.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> unknown_variables() {
  std::vector<std::string> found;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view name = std::string_view(*v).substr(0, std::string_view(*v).find('='));
    if (name.starts_with(prefix) && !is_of_others(name) && !is_known(name)) {
      found.emplace_back(name);
    }
  }
  return found;
}

std::string nearest_variable(const std::string& unknown) {
  std::string_view best;
  std::size_t least = unknown.size();
  for (const setting& s : all()) {
    const std::size_t d = distance(unknown, s.name);
    // Up to half of what follows the common prefix, and not more than three letters.
    const std::size_t alike = std::min<std::size_t>(3, (s.name.size() - prefix.size()) / 2);
    if (d <= alike && d < least) {
      least = d;
      best = s.name;
    }
  }
  return std::string(best);
}

std::vector<std::string> complaints_about_variables() {
  std::vector<std::string> lines;
  for (const std::string& name : unknown_variables()) {
    const std::string meant = nearest_variable(name);
    lines.push_back(name + " is set, but nobody reads it; " +
                    (meant.empty() ? "crosswarp info --env lists those that are read"
                                   : "did you mean " + meant + "?"));
  }
  return lines;
}

void log_unknown_variables(int rank) {
  static std::atomic_flag told;
  if (told.test_and_set() || read("CROSSWARP_BOOTSTRAP")) return;
  for (const std::string& line : complaints_about_variables()) log::warn(rank, line);
}

}  // namespace crosswarp::options
