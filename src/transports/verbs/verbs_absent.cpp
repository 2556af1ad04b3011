// In place of the backends verbs and mlx5 in a build without their headers.
#include "crosswarp/error.hpp"
#include "transports/verbs/backend.hpp"

namespace crosswarp::verbs {

namespace {
[[noreturn]] void refuse() {
  throw error(errc::not_supported, "rdma context",
              "built without <infiniband/mlx5dv.h>; install libibverbs-dev and build again");
}
}  // namespace

std::shared_ptr<fabric> verbs_fabric() {
  refuse();
}
std::shared_ptr<fabric> mlx5_fabric() {
  refuse();
}

}  // namespace crosswarp::verbs
