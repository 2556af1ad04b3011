// A piece of the symmetric heap, the same on all ranks.
#include <algorithm>

#include "exec/backends.hpp"
#include "state.hpp"

namespace crosswarp::world_impl {

heap_block::heap_block(world& w, std::size_t bytes_asked, std::size_t alignment)
    : owner_(&w.state()), offset_(0) {
  const trace::span traced(owner_->recorder(), trace::host_call::allocate, bytes_asked);
  struct asked {
    std::size_t bytes, alignment, history;
    bool operator==(const asked&) const = default;
  };
  const asked mine{bytes_asked, alignment, owner_->blocks.history()};
  const std::vector<asked> all = w.allgather(mine);
  for (int r = 0; r < w.size(); ++r) {
    const asked& a = all[static_cast<std::size_t>(r)];
    if (a == mine) continue;
    const std::string why = a.history != mine.history
                                ? "made or destroyed other symmetric memory before"
                                : "asked for " + std::to_string(a.bytes) + " bytes aligned to " +
                                      std::to_string(a.alignment) + ", this rank for " +
                                      std::to_string(bytes_asked) + " aligned to " +
                                      std::to_string(alignment);
    throw error(errc::asymmetric, "symmetric allocation", why, r);
  }
  offset_ = owner_->blocks.allocate(bytes_asked, alignment, owner_->heap->alignment);
  // Memory that nobody had before is zero. What was used is cleared before anybody may write it.
  const std::size_t end = offset_ + bytes_asked;
  const std::size_t used = std::min(end, owner_->touched) - std::min(offset_, owner_->touched);
  owner_->touched = std::max(owner_->touched, end);
  if (used == 0) return;
  const std::vector<std::byte> zeros(std::min<std::size_t>(used, 1U << 20U));
  for (std::size_t at = 0; at < used; at += zeros.size()) {
    exec::copy_now(owner_->options.device, heap_base(*owner_, w.rank()) + offset_ + at,
                   zeros.data(), std::min(zeros.size(), used - at));
  }
  w.barrier();
}

heap_block::~heap_block() {
  if (owner_ != nullptr) owner_->blocks.release(offset_);
}

heap_block::heap_block(heap_block&& o) noexcept
    : owner_(std::exchange(o.owner_, nullptr)), offset_(o.offset_) {}

const device::peer_table& heap_peers(const state& s) noexcept {
  return s.view.peers;
}
int rank_of(const state& s) noexcept {
  return s.boot->rank();
}
device_ref device_of(const state& s) noexcept {
  return s.options.device;
}
std::byte* heap_base(const state& s, int pe) {
  return s.heap->base.at(static_cast<std::size_t>(pe));
}

}  // namespace crosswarp::world_impl
