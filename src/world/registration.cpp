// Memory of the caller's that becomes symmetric.
#include "crosswarp/world.hpp"
#include "state.hpp"

namespace crosswarp {

struct registration::state {
  crosswarp::world_impl::state* owner;
  std::size_t bytes;
  std::unique_ptr<mapped::mapping> mapping;
  world_impl::peers_here peers;
  std::uint16_t region;
};

registration::registration(world& w, void* p, std::size_t bytes) {
  const trace::span traced(w.state().recorder(), trace::host_call::register_memory, bytes);
  auto mapping = mapped::map_existing(w.state().request(), p, bytes);
  std::optional<world_impl::peers_here> peers;
  std::string why;
  try {
    peers = w.state().table_of(*mapping);
  } catch (const error& e) {
    why = e.what();
  }
  mapped::agree_to_share(w.state().request(), why);
  const std::uint16_t region =
      w.state().add_region(*mapping, bytes, w.options().device.kind() == device_kind::cpu);
  state_ = std::make_unique<state>(
      state{&w.state(), bytes, std::move(mapping), std::move(*peers), region});
}

registration::~registration() {
  if (!state_) return;
  const bool told = state_->owner->boot->told();
  try {
    // Nobody unmaps what another rank may still use.
    state_->owner->finish_commands();
    state_->owner->boot->barrier(state_->owner->options.timeout);
  } catch (...) {
    // The world is broken: the others have stopped.
    state_->owner->tell_swallowed("end of a registration", told);
  }
  state_->owner->remove_region(state_->region);
}

registration::registration(registration&&) noexcept = default;
const device::peer_table& registration::peers() const noexcept {
  return state_->peers.view;
}
int registration::rank() const noexcept {
  return state_->owner->boot->rank();
}
std::size_t registration::bytes() const noexcept {
  return state_->bytes;
}
std::uint16_t registration::region() const noexcept {
  return state_->region;
}

}  // namespace crosswarp
