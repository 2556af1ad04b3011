// Which engines a service has.
#include "engine.hpp"

#include <algorithm>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::socket_impl {

namespace {

constexpr const char* variable = "CROSSWARP_SOCKET_ENGINE";

socket::engine_kind from_environment() {
  const std::string text = options::read(variable).value_or("auto");
  if (text == "auto") return socket::engine_kind::automatic;
  if (text == "epoll") return socket::engine_kind::epoll;
  if (text == "io_uring") return socket::engine_kind::io_uring;
  throw error(errc::invalid_argument, variable, "'" + text + "': auto, epoll or io_uring");
}

}  // namespace

chosen_engines make_engines(socket::engine_kind wanted, int count) {
  const auto all_by = [&](auto make) {
    std::vector<std::unique_ptr<engine>> all(static_cast<std::size_t>(count));
    std::generate(all.begin(), all.end(), make);
    return all;
  };
  if (wanted == socket::engine_kind::automatic) wanted = from_environment();
  if (wanted != socket::engine_kind::io_uring) return {all_by(make_epoll_engine), "epoll", ""};
  try {
    return {all_by(make_uring_engine), "io_uring", ""};
  } catch (const error& e) {
    log::warn(-1, "sockets: no io_uring, so epoll: ", e.what());
    return {all_by(make_epoll_engine), "epoll", e.what()};
  }
}

}  // namespace crosswarp::socket_impl
