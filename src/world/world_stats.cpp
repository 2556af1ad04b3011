// What a world's ranks did, counted.
#include <cstdio>

#include "crosswarp/options.hpp"
#include "socket.hpp"
#include "state.hpp"

namespace crosswarp::world_impl {

bool state::wants_stats() {
  return crosswarp::options::read_integer("CROSSWARP_STATS").value_or(0) != 0;
}

std::vector<operation_stats> state::stats() const {
  std::vector<operation_stats> all;
  if (proxy) all = proxy->stats();
  if (rdma) all = rdma->stats();
  if (!profile) return all;
  const device::mapped_profile seen = profile->read().front();
  for (std::size_t i = 0; i < device::proxy_calls; ++i) {
    operation_stats s;
    s.name = std::string(proxy_impl::name_of(static_cast<device::proxy_call>(i))) + ", mapped";
    s.count = seen.by_call[i].calls;
    s.bytes = seen.by_call[i].bytes;
    s.mapped = true;
    all.push_back(std::move(s));
  }
  return all;
}

void state::reset_stats() {
  if (proxy) proxy->reset_stats();
  if (rdma) rdma->reset_stats();
  if (!profile) return;
  device::mapped_profile fresh{};
  if (trace) fresh.trace = trace->events().kernels();
  profile->write(std::span<const device::mapped_profile>(&fresh, 1));
}

/// Everybody's counters, added up, by rank 0 on stderr. Ranks of one process each show their own:
/// they do not end at one time.
void state::show_stats() {
  std::vector<operation_stats> sum = stats();
  std::string whose = "rank " + std::to_string(boot->rank());
  if (!boot->in_process()) {
    packer mine;
    for (const operation_stats& s : sum) {
      mine.u64(s.count).u64(s.bytes).u64(s.failures);
      mine.u64(static_cast<std::uint64_t>(s.waited_for_slot.count()));
      mine.u64(static_cast<std::uint64_t>(s.to_completion.count()));
    }
    const auto all = boot->allgather(mine.take(), options.timeout);
    if (boot->rank() != 0) return;
    for (std::size_t r = 1; r < all.size(); ++r) {
      unpacker theirs(all[r]);
      for (operation_stats& s : sum) {
        s.count += theirs.u64();
        s.bytes += theirs.u64();
        s.failures += theirs.u64();
        s.waited_for_slot += nanoseconds(theirs.u64());
        s.to_completion += nanoseconds(theirs.u64());
      }
    }
    whose = "all " + std::to_string(boot->size()) + " ranks";
  }
  std::fprintf(stderr, "crosswarp: what was done, %s\n%s", whose.c_str(), print_stats(sum).c_str());
}

}  // namespace crosswarp::world_impl
