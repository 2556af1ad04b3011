// How a world's ranks reach those that are not mapped: by the proxy's commands, or by entries for
// the soft NIC.
#include <algorithm>

#include "core/log.hpp"
#include "crosswarp/options.hpp"
#include "proxy/load.hpp"
#include "proxy/staged.hpp"
#include "socket.hpp"
#include "state.hpp"
#include "trace/traced_engine.hpp"

namespace crosswarp::world_impl {

namespace {

std::string choose_engine(const std::string& wanted, bool all_mapped) {
  if (wanted != "auto") return wanted;
  if (all_mapped) return "local";
  return proxy_impl::find_engine("ucx").there ? "ucx" : "";
}

/// As many queues as blocks run at once, unless told.
int queue_count(const world_options& o) {
  if (o.proxy.queues > 0) return o.proxy.queues;
  for (const device_info& d : devices()) {
    if (d.device.kind() == o.device.kind() && d.device.ordinal() == o.device.ordinal()) {
      return std::max(1, d.multiprocessors);
    }
  }
  return 1;
}

}  // namespace

/// Ranks that are not mapped, or all others when the options say so, are reached by commands.
void state::start_proxy() {
  const int size = boot->size();
  by_proxy.assign(static_cast<std::size_t>(size), false);
  const path_choice path = options.proxy.path;
  if (path == path_choice::rdma) return start_rdma();
  // The same on all ranks, so that all of them make an engine or none.
  if (path == path_choice::mapped || (path == path_choice::automatic && who.nodes == 1)) return;
  bool all_mapped = true;
  for (int r = 0; r < size; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const bool mapped = heap->base[i] != nullptr;
    all_mapped = all_mapped && mapped;
    by_proxy[i] = r == boot->rank() || path == path_choice::proxy || !mapped;
  }
  const std::string name =
      agree_on_engine(choose_engine(options.proxy.engine, who.nodes == 1 && all_mapped));
  if (name.empty()) {
    by_proxy.assign(by_proxy.size(), false);
    if (boot->rank() == 0) {
      log::warn(0, "ranks of different machines have no path: no engine ucx: ",
                proxy_impl::find_engine("ucx").where_or_why);
    }
    return;
  }
  if (name == "local" && !all_mapped) {
    throw error(errc::not_supported, "engine local",
                "it copies between mapped ranks, and not all of these are");
  }
  if (name == "local" && options.proxy.staged) {
    throw error(errc::not_supported, "engine local", "it stages nothing; see CROSSWARP_STAGING");
  }
  proxy_options o = options.proxy;
  o.queues = queue_count(options);
  o.thread = o.thread && options.device.scheduler() == nullptr;
  proxy_impl::engine_setup setup;
  setup.rank = boot->rank();
  setup.size = size;
  setup.meet = [this](bytes mine) { return boot->allgather(std::move(mine), options.timeout); };
  setup.reached = by_proxy;
  auto engine = proxy_impl::make_engine(name, options.device, setup);
  const bool on_host =
      options.device.kind() == device_kind::cpu || options.heap_kind == memory_kind::pinned;
  if (options.proxy.staged) {
    engine = proxy_impl::make_staged(std::move(engine), options.device, setup);
  } else if (!on_host && !engine->can().gpu_memory) {
    throw error(errc::not_supported, "engine " + name,
                "it cannot reach a GPU's memory: put the heap in host memory with "
                "CROSSWARP_HEAP_KIND=pinned, or let CROSSWARP_STAGING=always copy through it");
  }
  if (trace) engine = trace::make_traced(std::move(engine), trace->events());
  proxy = std::make_unique<crosswarp::proxy>(options.device, o, boot->rank(), size, by_proxy,
                                             std::move(engine), recorder());
  add_region(*heap, heap_bytes(*this), on_host);
  log::info(boot->rank(), "engine ", name, " carries out the proxy's commands to ",
            std::count(by_proxy.begin(), by_proxy.end(), true), " of ", size, " ranks");
}

/// All ranks are reached by entries.
void state::start_rdma() {
  const int size = boot->size();
  by_proxy.assign(static_cast<std::size_t>(size), true);
  const bool on_host =
      options.device.kind() == device_kind::cpu || options.heap_kind == memory_kind::pinned;
  if (!on_host) {
    throw error(errc::not_supported, "path rdma",
                "the soft NIC's atomics on a GPU's memory are not atomic to its kernels: put the "
                "heap in host memory with CROSSWARP_HEAP_KIND=pinned");
  }
  // All ranks of a process share a soft NIC, which has 4095 endpoints.
  constexpr int most = 2048;
  rdma_path::setup s;
  s.device = options.device;
  s.rank = boot->rank();
  s.size = size;
  s.queues = std::clamp(most / size / size, 1, queue_count(options));
  s.machines = who.nodes > 1;
  s.limits = view.limits;
  s.meet = [this](bytes mine) { return boot->allgather(std::move(mine), options.timeout); };
  rdma = std::make_unique<rdma_path>(s);
  add_region(*heap, heap_bytes(*this), on_host);
  log::info(boot->rank(), "entries for ", rdma->name(), " reach all ", size, " ranks");
}

/// All ranks take the same engine, or none starts.
std::string state::agree_on_engine(const std::string& mine) {
  const auto all = boot->allgather(packer().text(mine).take(), options.timeout);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string theirs = unpacker(all[r]).text();
    if (theirs == mine) continue;
    std::string why = "takes engine '" + theirs;
    why.append("', this rank '").append(mine).append("'; see CROSSWARP_ENGINE");
    throw error(errc::asymmetric, "proxy", why, static_cast<int>(r));
  }
  return mine;
}

std::uint16_t state::add_region(const mapped::mapping& m, std::size_t size, bool on_host) {
  if (rdma) return rdma->add_region(m.base[static_cast<std::size_t>(boot->rank())], size);
  if (!proxy) return 0;
  const std::uint16_t id = proxy->free_region();
  const proxy_impl::region_info mine{m.base[static_cast<std::size_t>(boot->rank())], size, on_host,
                                     m.base};
  constexpr std::uintptr_t word = 8;
  const bool aligned = reinterpret_cast<std::uintptr_t>(mine.base) % word == 0;
  const auto all = boot->allgather(
      packer().u64(size).u32(aligned ? 1 : 0).blob(proxy->offer_region(id, mine)).take(),
      options.timeout);
  std::vector<std::size_t> sizes;
  std::vector<bytes> offers;
  for (std::size_t r = 0; r < all.size(); ++r) {
    unpacker u(all[r]);
    sizes.push_back(u.u64());
    if (u.u32() == 0) {
      throw error(errc::invalid_argument, "registration", "memory is not aligned to 8 bytes",
                  static_cast<int>(r));
    }
    offers.push_back(u.blob());
  }
  proxy->install_region(id, mine, std::move(sizes), std::move(offers));
  return id;
}

void state::remove_region(std::uint16_t id) {
  if (proxy) proxy->remove_region(id);
  if (rdma) rdma->remove_region(id);
}

}  // namespace crosswarp::world_impl
