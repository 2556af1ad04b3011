// Bodies of socket.hpp: lanes, by which two ends of one world go around TCP.
#pragma once

#include "crosswarp/device/socket.hpp"

namespace crosswarp::device::socket {

/// Call it after a mark with `around` was read with acquire.
CW_FN inline lane_link service::link_of(std::uint32_t i) const noexcept {
  // Relaxed: written before the mark.
  return lane_link::of(system_atomic<std::uint64_t>(m_.state[i].lane).load(order::relaxed));
}

/// Whether something of it may change without the host's doing.
CW_FN inline bool service::uses_lane(handle s) const noexcept {
  if (m_.lanes.size() == 0 || !is_stream(s)) return false;
  // Relaxed: only whether it is worth a look.
  return mark::of(system_atomic<std::uint64_t>(m_.state[s.index()].received).load(order::relaxed))
      .has(around);
}

// ---- receiving

CW_FN inline service::arrival service::look_received(std::uint32_t i) const noexcept {
  // pairs with slot::tell_received()
  return arrived(i,
                 mark::of(system_atomic<std::uint64_t>(m_.state[i].received).load(order::acquire)));
}

/// What `tcp` says, which was read with acquire.
CW_FN inline service::arrival service::arrived(std::uint32_t i, mark tcp) const noexcept {
  const auto& own = m_.own[i].receiver;
  arrival a;
  a.tcp = tcp;
  a.end = a.tcp.position();
  a.over = a.tcp.has(ended | failed);
  if (!a.tcp.has(around)) return a;
  const lane_link link = link_of(i);
  lane& mine = own_lane(link);
  // After the look at TCP: the other end writes here before its host ends TCP, so who sees that end
  // sees all of this. Pairs with publish().
  const mark head = mark::of(system_atomic<std::uint64_t>(mine.in.head).load(order::acquire));
  if (!head.has(begun)) return a;
  // Relaxed: written before the first head.
  const std::uint64_t from =
      own.start + system_atomic<std::uint64_t>(mine.in.from).load(order::relaxed);
  if (own.tail < from) {  // what was sent before still comes by TCP
    a.end = impl::smaller(a.end, from);
    return a;
  }
  a.end = own.start + head.position();
  a.way = link;
  a.cut_short = a.over && !head.has(finished);
  a.over = a.over || head.has(finished);
  return a;
}

// ---- sending

/// With the next byte.
CW_FN inline void service::leave_tcp(std::uint32_t i) const noexcept {
  auto& own = m_.own[i].sender;
  const lane_link link = link_of(i);
  own.lane = link.word();
  own.from = own.head;
  // Relaxed: the first head orders it.
  system_atomic<std::uint64_t>(peer_lane(link).in.from).store(own.from - own.start, order::relaxed);
}

CW_FN inline void service::publish(std::uint32_t i) const noexcept {
  const auto& own = m_.own[i].sender;
  const unsigned flags = begun | (own.shut != 0 ? finished : 0U);
  // pairs with look_received(): the bytes, and where they begin
  system_atomic<std::uint64_t>(peer_lane(lane_link::of(own.lane)).in.head)
      .store(mark(own.head - own.start, flags).word(), order::release);
}

CW_FN inline mark service::read_by_peer(std::uint32_t i) const noexcept {
  lane& mine = own_lane(lane_link::of(m_.own[i].sender.lane));
  // pairs with consume() and end_lane(): the bytes before it have been read
  return mark::of(system_atomic<std::uint64_t>(mine.out.tail).load(order::acquire));
}

// ---- ending

/// Tells the other end in its lane; returns how the socket ends: by a reset when bytes were not
/// read. Of a reset the lane says nothing: TCP brings it.
CW_FN inline unsigned service::end_lane(std::uint32_t i, unsigned how) const noexcept {
  auto& own = m_.own[i];
  const arrival a = look_received(i);
  if (!a.tcp.has(around)) return how;
  if (a.way && a.end != own.receiver.tail) how |= reset;
  if ((how & reset) != 0) return how;
  const lane_link link = link_of(i);
  if (own.sender.lane != 0 && own.sender.shut == 0) {
    own.sender.shut = 1;
    publish(i);
  }
  const mark last(own.receiver.tail - own.receiver.start, closed);
  const system_atomic<std::uint64_t> tail(peer_lane(link).out.tail);
  // pairs with read_by_peer(): nobody reads any more
  tail.store(last.word(), order::release);  // unseen: who sends on has mostly seen TCP's end
  return how;
}

}  // namespace crosswarp::device::socket
