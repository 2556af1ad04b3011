#include <limits>
#include <string>

#include "crosswarp/error.hpp"
#include "crosswarp/flow_link.hpp"

namespace crosswarp::flow {
namespace {

std::size_t checked_bytes(std::size_t packet_bytes, int buffers) {
  if (packet_bytes == 0 || buffers < 1) {
    throw error(errc::invalid_argument, "device_link", "at least 1 buffer of at least 1 byte");
  }
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / 4;
  if (packet_bytes > most / static_cast<std::size_t>(buffers)) {
    throw error(errc::out_of_memory, "device_link",
                std::to_string(buffers) + " buffers of " + std::to_string(packet_bytes) + " bytes");
  }
  return device::flow::link::memory_bytes(packet_bytes, static_cast<std::uint64_t>(buffers));
}

void check_ranks(const world& w, int from, int to) {
  for (const int r : {from, to}) {
    if (r >= 0 && r < w.size()) continue;
    throw error(errc::invalid_argument, "device_link",
                "rank " + std::to_string(r) + " is none of " + std::to_string(w.size()));
  }
}

}  // namespace

device_link::device_link(world& w, int from, int to, std::size_t packet_bytes, int buffers)
    : memory_((check_ranks(w, from, to),
               symmetric_buffer<std::byte>(w, checked_bytes(packet_bytes, buffers)))) {
  const auto& all = std::get<symmetric_buffer<std::byte>>(memory_);
  const auto at = [&](int rank) {
    return reinterpret_cast<device::flow::link_memory*>(all.data(rank));
  };
  const auto symmetric = all.device();
  view_.mine = at(w.rank());
  view_.packet_bytes = packet_bytes;
  view_.buffers = static_cast<std::uint64_t>(buffers);
  view_.sends = w.rank() == from;
  view_.receives = w.rank() == to;
  view_.reach = symmetric.reach();
  if (!view_.sends && !view_.receives) return;
  const int peer = view_.sends ? to : from;
  view_.peer = peer;
  view_.limits = w.device().limits.for_peer(peer);
  // Not by loads and stores where another path was chosen, though it could be.
  view_.theirs = w.is_mapped(peer) ? at(peer) : nullptr;
  if (view_.theirs != nullptr) return;
  if (!w.has_proxy()) {
    throw error(errc::not_supported, "device_link",
                "no path leads to rank " + std::to_string(peer) + "; `crosswarp info` shows them",
                peer);
  }
  view_.memory = symmetric.remote();
  view_.proxy = w.device().proxy;
}

device_link::device_link(device_ref d, std::size_t packet_bytes, int buffers,
                         std::chrono::nanoseconds timeout)
    : memory_(buffer<std::byte>(d, checked_bytes(packet_bytes, buffers), memory_kind::pinned)) {
  view_.mine =
      reinterpret_cast<device::flow::link_memory*>(std::get<buffer<std::byte>>(memory_).data());
  view_.theirs = view_.mine;
  view_.packet_bytes = packet_bytes;
  view_.buffers = static_cast<std::uint64_t>(buffers);
  view_.sends = true;
  view_.receives = true;
  view_.limits.timeout_ns = static_cast<std::uint64_t>(timeout.count());
}

}  // namespace crosswarp::flow
