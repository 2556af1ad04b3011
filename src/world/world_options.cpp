// What the environment says about a world.
#include <algorithm>

#include "core/log.hpp"
#include "crosswarp/options.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp {

proxy_options proxy_options::from_environment() {
  proxy_options o;
  const auto one_of = [](const char* variable, std::initializer_list<const char*> words) {
    auto v = options::read(variable);
    if (!v || std::find(words.begin(), words.end(), *v) != words.end()) return v;
    std::string all;
    for (const char* w : words) all += (all.empty() ? "" : ", ") + std::string(w);
    throw error(errc::invalid_argument, variable, "'" + *v + "' is none of " + all);
  };
  if (const auto v = one_of("CROSSWARP_PATH", {"auto", "mapped", "proxy", "rdma"})) {
    o.path = *v == "mapped"  ? path_choice::mapped
             : *v == "proxy" ? path_choice::proxy
             : *v == "rdma"  ? path_choice::rdma
                             : path_choice::automatic;
  }
  if (const auto v = options::read("CROSSWARP_ENGINE")) o.engine = *v;
  constexpr long most = 65536;
  if (const auto v = options::read_integer("CROSSWARP_QUEUES")) {
    if (*v < 0 || *v > most) throw error(errc::invalid_argument, "CROSSWARP_QUEUES", "0 to 65536");
    o.queues = static_cast<int>(*v);
  }
  if (const auto v = options::read_integer("CROSSWARP_QUEUE_DEPTH")) {
    if (*v < 2 || *v > most || (*v & (*v - 1)) != 0) {
      throw error(errc::invalid_argument, "CROSSWARP_QUEUE_DEPTH",
                  "a power of two from 2 to 65536");
    }
    o.depth = static_cast<int>(*v);
  }
  if (const auto v = one_of("CROSSWARP_QUEUE_KIND", {"pinned", "device"})) {
    o.queue_kind = *v == "device" ? memory_kind::device : memory_kind::pinned;
  }
  if (const auto v = one_of("CROSSWARP_STAGING", {"never", "always"})) o.staged = *v == "always";
  if (const auto v = one_of("CROSSWARP_PROGRESS", {"thread", "user"})) o.thread = *v == "thread";
  return o;
}

world_options world_options::from_environment() {
  world_options o;
  if (const auto v = options::read("CROSSWARP_DEVICE")) o.device = device_ref::parse(*v);
  if (const auto v = options::read("CROSSWARP_HEAP")) {
    o.heap_bytes = options::parse_bytes(*v, "CROSSWARP_HEAP");
  }
  if (const auto v = options::read("CROSSWARP_HEAP_KIND")) {
    if (*v != "device" && *v != "pinned") {
      throw error(errc::invalid_argument, "CROSSWARP_HEAP_KIND",
                  "'" + *v + "' is neither device nor pinned");
    }
    o.heap_kind = *v == "pinned" ? memory_kind::pinned : memory_kind::device;
  }
  constexpr const char* seconds = "a whole number of seconds, from 1 to 31536000 (a year)";
  if (const auto v = options::read_integer("CROSSWARP_TIMEOUT", seconds)) {
    constexpr long year = 365L * 24 * 3600;
    if (*v < 1 || *v > year) {
      throw error(errc::invalid_argument, "CROSSWARP_TIMEOUT",
                  "'" + std::to_string(*v) + "' is not " + seconds);
    }
    o.timeout = std::chrono::seconds(*v);
  }
  o.proxy = proxy_options::from_environment();
  if (const auto v = options::read_integer("CROSSWARP_NODES")) o.nodes = static_cast<int>(*v);
  if (const auto v = options::read_integer("CROSSWARP_SELF_TEST")) o.self_test = *v != 0;
  (void)log::from_environment();  // read where it is needed; refused here
  return o;
}

}  // namespace crosswarp
