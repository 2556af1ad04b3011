// What a launch on a world needs of it.
#include "exec/cpu/executor.hpp"
#include "state.hpp"

namespace crosswarp::world_impl {

int gathered_ranks(const state& s) noexcept {
  return s.together ? s.together->size() : 1;
}

launch_note::launch_note(state& s) noexcept : of_(s), began_(s.trace ? device::trace_ticks() : 0) {}
launch_note::~launch_note() {
  of_.note_call(trace::host_call::launch, began_);
}

void gather_launch(state& s, const launch_part& mine,
                   const std::function<void(std::span<const launch_part>)>& start) {
  if (!s.together) return start(std::span(&mine, 1));
  s.together->meet(s.boot->rank(), s.launches++, mine, *s.boot, s.options.timeout, start);
}

void run_scheduled(
    state& s, std::span<const launch_part> parts,
    const std::function<std::function<void(const device::kernel_context&)>(const void*)>& body) {
  std::vector<exec::cpu_grid> grids;
  std::uint32_t owner = 1;
  for (const launch_part& p : parts) {
    p.stream->sync();
    grids.push_back({p.shape, body(p.bound), owner++});
  }
  exec::cpu::run_scheduled(grids, *s.options.device.scheduler());
}

}  // namespace crosswarp::world_impl
