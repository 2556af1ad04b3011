#include "variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "crosswarp/options.hpp"

namespace crosswarp::tool {

std::vector<std::string> unknown_variables() {
  std::vector<std::string> all;
  const auto& known = options::all();
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view name = std::string_view(*v).substr(0, std::string_view(*v).find('='));
    const auto is_it = [&](const options::setting& s) { return s.name == name; };
    // UCX's own settings, for its use by this library alone.
    const bool of_ucx = name.starts_with("CROSSWARP_UCX_");
    if (name.starts_with("CROSSWARP_") && !of_ucx &&
        std::none_of(known.begin(), known.end(), is_it)) {
      all.emplace_back(name);
    }
  }
  return all;
}

}  // namespace crosswarp::tool
