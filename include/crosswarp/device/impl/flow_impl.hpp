// Bodies of device/flow.hpp.
#pragma once

#include "crosswarp/device/flow.hpp"

namespace crosswarp::device::flow {

namespace impl {

CW_FN inline std::size_t packet_offset(const link& l, std::uint64_t index) noexcept {
  return link::packets_at(l.buffers) + static_cast<std::size_t>(index) * l.stride();
}

/// Where a word of a slot lies in a link's memory.
CW_FN inline std::size_t slot_offset(std::uint64_t index) noexcept {
  return sizeof(link_memory) + static_cast<std::size_t>(index) * sizeof(slot_lines);
}

CW_FN inline remote_address behind(remote_address base, std::size_t bytes) noexcept {
  return {base.offset + bytes, base.region};
}

/// At the end of a link: what this side has put at the other is there. Its memory may be given back
/// when both sides have met, so nothing may be under way to it then.
template <group G>
CW_FN inline status settle(const G& g, const link& l) noexcept {
  return l.theirs != nullptr ? status::ok : l.proxy.queue(0).quiet(g);
}

}  // namespace impl

// ---- sender

template <group G>
CW_FN inline sender sender::open(const G& g, const link& l) noexcept {
  return {l, leader_of(g, [&] { return l.sends ? l.mine->sender.kept : progress{0, 1}; })};
}

CW_FN inline std::byte* sender::packet_at() const noexcept {
  auto* base = reinterpret_cast<std::byte*>(link_.theirs != nullptr ? link_.theirs : link_.mine);
  return base + impl::packet_offset(link_, slot());
}

CW_FN inline std::byte* sender::buffer() const noexcept {
  return packet_at() + sizeof(packet_header);
}

template <group G>
CW_FN inline status sender::reserve(const G& g, const wait_limits& limits) noexcept {
  if (ended_ || link_.buffers == 0) return status::invalid;
  if (position_ < link_.buffers) return status::ok;  // never used
  // Released was the packet of a lap before.
  return wait(g, signal(link_.mine->slot(slot()).free, link_.reach), position_ + 1 - link_.buffers,
              limits);
}

template <group G>
CW_FN inline status sender::publish(const G& g, const packet_header& h) noexcept {
  std::byte* const at = packet_at();
  if (g.rank() == 0) *reinterpret_cast<packet_header*>(at) = h;
  const std::uint64_t index = slot();
  status s = status::ok;
  if (link_.theirs != nullptr) {
    notify(g, signal(link_.theirs->slot(index).full, link_.reach), position_ + 1);
  } else {
    // The image is written again when the packet was released: it has arrived then.
    s = link_.proxy.queue(0).put_signal_nbi(
        g, link_.peer, impl::behind(link_.memory, impl::packet_offset(link_, index)), at,
        sizeof(packet_header) + h.bytes,
        impl::behind(link_.memory, impl::slot_offset(index) + offsetof(slot_lines, full)),
        position_ + 1, signal_op::set);
  }
  ++position_;
  if (g.rank() == 0) link_.mine->sender.kept = {position_, ended_ ? 1U : 0U};
  return s;
}

template <group G>
CW_FN inline status sender::send(const G& g, std::size_t bytes, std::uint64_t tag) noexcept {
  if (ended_ || bytes > link_.packet_bytes) return status::invalid;
  return bytes == 0 ? status::ok : publish(g, {bytes, tag});
}

template <group G>
CW_FN inline status sender::send(const G& g, const void* from, std::size_t bytes,
                                 std::uint64_t tag) noexcept {
  if (ended_) return status::invalid;
  for (std::size_t at = 0; at < bytes;) {
    if (const status s = reserve(g); s != status::ok) return s;
    const std::size_t left = bytes - at;
    const std::size_t n = left < link_.packet_bytes ? left : link_.packet_bytes;
    copy(g, buffer(), static_cast<const std::byte*>(from) + at, n);
    if (const status s = send(g, n, tag); s != status::ok) return s;
    at += n;
  }
  return status::ok;
}

template <group G>
CW_FN inline status sender::shutdown(const G& g) noexcept {
  if (!link_.sends) return status::invalid;
  if (ended_) return status::ok;
  if (const status s = reserve(g); s != status::ok) return s;
  ended_ = true;
  const status s = publish(g, {0, 0});
  return s == status::ok ? impl::settle(g, link_) : s;
}

// ---- receiver

template <group G>
CW_FN inline receiver receiver::open(const G& g, const link& l) noexcept {
  return {l, leader_of(g, [&] { return l.receives ? l.mine->receiver.kept : progress{0, 0}; })};
}

template <group G>
CW_FN inline void receiver::keep(const G& g) const noexcept {
  if (g.rank() == 0) link_.mine->receiver.kept = {position_, ended_ ? 1U : 0U};
}

template <group G>
CW_FN inline status receiver::receive(const G& g, packet& p, const wait_limits& limits) noexcept {
  if (!link_.receives) return status::invalid;
  if (ended_) return status::closed;
  const signal full(link_.mine->slot(slot()).full, link_.reach);
  if (const status s = wait(g, full, position_ + 1, limits); s != status::ok) return s;
  std::byte* const at =
      reinterpret_cast<std::byte*>(link_.mine) + impl::packet_offset(link_, slot());
  const packet_header h = *reinterpret_cast<const packet_header*>(at);
  if (h.bytes == 0) {
    ended_ = true;
    keep(g);
    const status s = impl::settle(g, link_);  // releases
    return s == status::ok ? status::closed : s;
  }
  p = {at + sizeof(packet_header), static_cast<std::size_t>(h.bytes), h.tag};
  return status::ok;
}

template <group G>
CW_FN inline status receiver::release(const G& g) noexcept {
  if (!link_.receives) return status::invalid;
  const std::uint64_t index = slot();
  status s = status::ok;
  if (link_.theirs != nullptr) {
    notify(g, signal(link_.theirs->slot(index).free, link_.reach), position_ + 1);
  } else {
    s = link_.proxy.queue(0).put_value(
        g, link_.peer,
        impl::behind(link_.memory, impl::slot_offset(index) + offsetof(slot_lines, free)),
        position_ + 1, sizeof(std::uint64_t));
  }
  ++position_;
  keep(g);
  return s;
}

}  // namespace crosswarp::device::flow
