// In place of metis.cpp where METIS was not found.
#include "crosswarp/graph.hpp"

namespace crosswarp::graph {

bool has_metis() noexcept {
  return false;
}

renumbered metis(const csr& /*g*/, int /*ranks*/) {
  throw error(errc::not_supported, "metis",
              "this build has no METIS: install libmetis-dev and configure again, or use "
              "edge_balanced()");
}

}  // namespace crosswarp::graph
