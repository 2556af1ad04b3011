// In place of the verbs backend in a build without its headers.
#include "crosswarp/error.hpp"
#include "transports/verbs/backend.hpp"

namespace crosswarp::verbs {

std::shared_ptr<fabric> verbs_fabric() {
  throw error(errc::not_supported, "rdma context",
              "built without <infiniband/verbs.h>; install libibverbs-dev and build again");
}

}  // namespace crosswarp::verbs
