#include "flow/world_core.hpp"

#include "crosswarp/error.hpp"
#include "flow/station.hpp"
#include "flow/world_router.hpp"
#include "world/state.hpp"

namespace crosswarp::flow::impl {
namespace {

class world_core final : public core {
 public:
  world_core(world& w, std::vector<device_ref> devices, std::vector<machine_spot> spots,
             const std::shared_ptr<waits>& limits)
      : core(std::move(devices), std::move(spots), limits),
        station_(std::make_shared<station>(w, limits)) {
    limits->set_stop([at = std::weak_ptr<station>(station_)] {
      if (const auto still = at.lock()) still->stop_copies();
    });
  }
  ~world_core() override { station_->close(); }

 private:
  void agree(std::size_t n, const std::string& what) override;
  [[nodiscard]] int here() const override { return station_->of().rank(); }
  std::shared_ptr<router_base> make_router(const fan& f, policy p, int near) override;
  /// One lock is over all of a rank's routers. Other ranks stop theirs when they hear of it.
  void stop_routers() override { station_->stop_copies(); }

  const std::shared_ptr<station> station_;
  int routers_ = 0;  // whose ends were not known
};

void world_core::agree(std::size_t n, const std::string& what) {
  const auto all = station_->of().allgather(std::as_bytes(std::span(what)));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string theirs(reinterpret_cast<const char*>(all[r].data()), all[r].size());
    if (theirs == what) continue;
    throw error(errc::asymmetric, "flow::context",
                "as number " + std::to_string(n) + " of the graph rank " + std::to_string(here()) +
                    " makes " + what + ", rank " + std::to_string(r) +
                    (theirs.rfind("a ", 0) == 0 ? " makes " + theirs : " makes none"),
                static_cast<int>(r));
  }
}

/// Their homes are spread evenly; that of a link is its receiver, who has the buffers.
std::shared_ptr<router_base> world_core::make_router(const fan& f, policy p, int near) {
  const int home = near >= 0 ? near : routers_++ % hosts();
  return world_router::make(station_, limits(), home, f, std::move(p));
}

}  // namespace

std::shared_ptr<core> make_world_core(world& w) {
  struct card {
    device_kind kind;
    int ordinal;
    machine_spot host;
  };
  const device_ref mine = w.options().device;
  machine_spot here = spot_here();
  here.machine = w.node_of(w.rank());
  std::vector<device_ref> devices;
  std::vector<machine_spot> spots;
  for (const card& c : w.allgather(card{mine.kind(), mine.ordinal(), here})) {
    devices.push_back(c.kind == device_kind::cpu ? device_ref::cpu() : device_ref::cuda(c.ordinal));
    spots.push_back(c.host);
  }
  return std::make_shared<world_core>(w, std::move(devices), std::move(spots),
                                      std::make_shared<waits>(w.device().limits, w.state().faults,
                                                              mine.kind() == device_kind::cpu));
}

}  // namespace crosswarp::flow::impl
