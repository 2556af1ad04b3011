#include "crosswarp/world.hpp"

#include <exception>

#include "core/log.hpp"
#include "memory/self_test.hpp"
#include "state.hpp"

namespace crosswarp {

using world_impl::break_world;
using world_impl::reason_of;

world::world(const world_options& options) {
  const auto boot = world_impl::make_environment_bootstrap(options.timeout);
  try {
    state_ = std::make_unique<world_impl::state>(options, boot, nullptr);
    if (options.self_test) memory::self_test(*this, state_->test_lines);
    barrier();
  } catch (...) {
    break_world(*boot, reason_of(std::current_exception()));
    throw;
  }
}

world::world(std::unique_ptr<world_impl::state> s) noexcept : state_(std::move(s)) {}
world::world(world&&) noexcept = default;

world::~world() {
  if (!state_) return;
  if (std::uncaught_exceptions() > 0) {
    break_world(*state_->boot, "an exception left the scope of its world");
  }
  state_->depart();
}

int world::rank() const noexcept {
  return state_->boot->rank();
}
int world::size() const noexcept {
  return state_->boot->size();
}
int world::node_count() const noexcept {
  return state_->who.nodes;
}
int world::node_of(int rank) const {
  return state_->who.node.at(static_cast<std::size_t>(rank));
}
const world_options& world::options() const noexcept {
  return state_->options;
}
stream& world::stream() noexcept {
  return state_->stream;
}
device::world world::device() const noexcept {
  return state_->view;
}

void world::barrier() {
  const trace::span traced(state_->recorder(), trace::host_call::barrier);
  state_->check("barrier");
  state_->boot->barrier(state_->options.timeout);
}

std::vector<std::vector<std::byte>> world::allgather(std::span<const std::byte> mine) {
  const trace::span traced(state_->recorder(), trace::host_call::allgather, mine.size());
  return state_->boot->allgather({mine.begin(), mine.end()}, state_->options.timeout);
}

void world::put(const std::string& key, std::span<const std::byte> value) {
  const trace::span traced(state_->recorder(), trace::host_call::put, value.size());
  state_->boot->put("user." + key, {value.begin(), value.end()});
}
std::vector<std::byte> world::get(const std::string& key) {
  const trace::span traced(state_->recorder(), trace::host_call::get);
  return state_->boot->get("user." + key, state_->options.timeout);
}

void world::abort(const std::string& why) noexcept {
  if (break_world(*state_->boot, why)) log::error(rank(), "world: aborted: ", why);
}

void world::check() const {
  state_->check("world");
}

bool world::has_proxy() const noexcept {
  return state_->proxy != nullptr || state_->rdma != nullptr;
}
bool world::progress() noexcept {
  return state_->proxy != nullptr && state_->proxy->progress();
}

std::vector<operation_stats> world::stats() const {
  return state_->stats();
}
void world::reset_stats() {
  state_->reset_stats();
}

std::string world::path_to(int rank) const {
  if (rank == this->rank()) return "self";
  if (state_->by_proxy.at(static_cast<std::size_t>(rank))) {
    if (state_->rdma) return "rdma (" + state_->rdma->name() + ")";
    return "proxy (" + std::string(state_->proxy->can().name) + ")";
  }
  return state_->heap->base.at(static_cast<std::size_t>(rank)) == nullptr ? "none"
                                                                          : state_->heap->how;
}

bool world::is_mapped(int rank) const {
  const auto i = static_cast<std::size_t>(rank);
  return rank == this->rank() || (!state_->by_proxy.at(i) && state_->heap->base.at(i) != nullptr);
}

}  // namespace crosswarp
