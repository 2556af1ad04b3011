// What a launch on a world needs of it.
#include "launch.hpp"

#include <algorithm>
#include <sstream>

#include "core/machine.hpp"
#include "crosswarp/options.hpp"
#include "exec/cpu/executor.hpp"
#include "state.hpp"

namespace crosswarp::world_impl {

int gathered_ranks(const state& s) noexcept {
  return s.together ? s.together->size() : 1;
}

std::string gpu_name(int ordinal, const std::optional<std::string>& visible) {
  if (!visible) return std::to_string(ordinal);
  std::istringstream all(*visible);
  std::string name;
  for (int i = 0; i <= ordinal; ++i) std::getline(all, name, ',');
  return name;
}

int ranks_of_one_device(world& w) {
  const device_ref d = w.options().device;
  std::string mine = machine_name() + "/";  // also where ranks pretend to be on several
  mine += d.kind() == device_kind::cuda
              ? gpu_name(d.ordinal(), options::read("CUDA_VISIBLE_DEVICES"))
              : d.name();
  const auto all = w.allgather(std::as_bytes(std::span(mine)));
  std::ptrdiff_t most = 0;
  for (const auto& name : all) most = std::max(most, std::count(all.begin(), all.end(), name));
  return static_cast<int>(most);
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
