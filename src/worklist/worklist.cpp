#include "crosswarp/worklist.hpp"

namespace crosswarp::worklist_impl {

void check(const world& w, const worklist_options& o) {
  const auto refuse = [](const std::string& why) {
    return error(errc::invalid_argument, "worklist", why);
  };
  if (o.workers < 1) throw refuse("workers: there is at least one");
  constexpr std::uint64_t most = std::uint64_t{1} << 30U;
  if (o.queue == 0 || o.queue > most || (o.queue & (o.queue - 1)) != 0) {
    throw refuse("queue: " + std::to_string(o.queue) + " is no power of two up to 2^30");
  }
  if (o.spill > most || o.park > most) throw refuse("spill and park: at most 2^30 each");
  for (int r = 0; r < w.size(); ++r) {
    if (!w.is_mapped(r) && r != w.rank()) {
      throw error(errc::not_supported, "worklist",
                  "its queues are reached by loads and stores, and the way there is '" +
                      w.path_to(r) + "'; use ranks of one machine, and not CROSSWARP_PATH=proxy",
                  r);
    }
  }
}

}  // namespace crosswarp::worklist_impl
