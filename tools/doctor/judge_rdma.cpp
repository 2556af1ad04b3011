// Network adapters, and what GPUs lack to drive them.
#include <fmt/core.h>

#include <algorithm>

#include "words.hpp"

namespace crosswarp::tool::doctor_impl {
namespace {

bool is_active(const rdma_port& p) {
  return p.state == "ACTIVE";
}

/// A RoCE port whose packets would go nowhere: it has no address that routers know.
bool lacks_address(const rdma_port& p) {
  return is_active(p) && p.link == "Ethernet" &&
         std::none_of(p.gids.begin(), p.gids.end(),
                      [](const rdma_gid& g) { return g.type == "RoCE v2" && g.is_ipv4(); });
}

std::string name_of(const rdma_port& p) {
  return fmt::format("{}:{} {} {}", p.device, p.number, p.state, p.link);
}

}  // namespace

finding judge_rdma(const rdma_facts& f) {
  constexpr auto area = "rdma";
  if (f.devices.empty()) {
    return hint(area, fmt::format("no device{}", f.rxe_module ? "; rdma_rxe is loaded" : ""),
                "none is needed; for one in software: modprobe rdma_rxe; rdma link add rxe0 type "
                "rxe netdev NAME");
  }
  if (f.nodes.empty()) {
    return hint(area, joined(f.devices) + ", but no /dev/infiniband/uverbs*",
                "modprobe ib_uverbs; in a container --device /dev/infiniband");
  }
  if (!f.forbidden.empty()) {
    return problem(area, joined(f.devices) + ", but this user may not open " + joined(f.forbidden),
                   "chmod 666 by a udev rule, or add the user to the group that owns them");
  }
  if (!f.library_error.empty()) {
    return problem(area, joined(f.devices) + ", but " + f.library_error,
                   "apt-get install libibverbs1 ibverbs-providers");
  }
  std::vector<std::string> ports;
  std::transform(f.ports.begin(), f.ports.end(), std::back_inserter(ports), name_of);
  if (std::none_of(f.ports.begin(), f.ports.end(), is_active)) {
    return hint(area, "no active port: " + joined(ports),
                "cable and ip link; INIT on InfiniBand: a subnet manager (opensm) must run");
  }
  const auto mute = std::find_if(f.ports.begin(), f.ports.end(), lacks_address);
  if (mute != f.ports.end()) {
    return hint(area, name_of(*mute) + ", but no GID of RoCE v2 with an IPv4 address",
                "ip addr add ADDRESS/24 dev its network interface; crosswarp info lists GIDs, "
                "endpoint_options::gid_index chooses one");
  }
  return ok(area, joined(ports));
}

finding judge_gpu_rdma(const rdma_facts& f, const cuda_facts& cuda) {
  constexpr auto area = "gpu rdma";
  if (cuda.gpus.empty()) return skipped(area, "no GPU");
  if (f.mlx5.empty()) {
    return hint(
        area, "no mlx5 adapter: a thread stands between kernels and other devices",
        "none is needed; for kernels that ring doorbells themselves: a ConnectX-5 or newer");
  }
  const bool dma_buf = cuda.driver_file.find("Open Kernel Module") != std::string::npos;
  if (!f.peer_memory && !dma_buf) {
    return hint(area, joined(f.mlx5) + " cannot read the memory of GPUs",
                "modprobe nvidia_peermem, or NVIDIA's open kernel modules, which have dma-buf");
  }
  if (!f.may_map_doorbells) {
    return hint(area, "GPUs may not write the doorbells of " + joined(f.mlx5),
                "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in "
                "/etc/modprobe.d, then reboot; or run as root");
  }
  return ok(area, fmt::format("{}, by {}", joined(f.mlx5), dma_buf ? "dma-buf" : "nvidia_peermem"));
}

}  // namespace crosswarp::tool::doctor_impl
