#include "flow/spots.hpp"

namespace crosswarp::flow::impl {

machine_spot spot_of(const std::vector<int>& /*cores*/, const std::string& /*synthetic*/) {
  return {};
}

std::string knower_of_spots() {
  return {};
}

}  // namespace crosswarp::flow::impl
