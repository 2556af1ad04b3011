// In place of the engine io_uring in a build without liburing.
#include "crosswarp/error.hpp"
#include "socket/engine.hpp"

namespace crosswarp::socket_impl {

std::unique_ptr<engine> make_uring_engine() {
  throw error(errc::not_supported, "io_uring",
              "built without liburing; install liburing-dev and build again");
}

}  // namespace crosswarp::socket_impl
