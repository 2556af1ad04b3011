// Bodies of socket.hpp: bytes. What connects sockets is in socket_call_impl.hpp.
#pragma once

#include "crosswarp/device/socket.hpp"

namespace crosswarp::device::socket {

namespace impl {

CW_FN inline std::uint64_t smaller(std::uint64_t a, std::uint64_t b) noexcept {
  return a < b ? a : b;
}

/// How a wait that did not succeed is told.
CW_FN inline std::int64_t errno_of(status s, const wait_limits& l) noexcept {
  if (s != status::timeout) return -ECANCELED;
  return l.timeout_ns == 0 ? -EAGAIN : -ETIMEDOUT;
}

/// `bytes` from position `at` on in a ring.
template <class Byte>
CW_FN inline pieces<Byte> cut(Byte* ring, std::uint64_t ring_bytes, std::uint64_t at,
                              std::uint64_t bytes) noexcept {
  const std::uint64_t offset = at & (ring_bytes - 1);
  const std::uint64_t first = smaller(bytes, ring_bytes - offset);
  return {static_cast<std::int64_t>(bytes), ring + offset, first, ring, bytes - first};
}

}  // namespace impl

// ---- waiting

template <class Predicate>
CW_FN inline status service::wait_for(Predicate&& ready, deadline& by, bool lends) const noexcept {
  // Who waits for a lane does not lend: the worker sleeps on descriptors, which a lane has not.
  const bool waits = by.limits().timeout_ns != 0 && lends;
  return poll_until(
      [&] {
        if (ready()) return true;
        return waits && call_host<socket_impl::lend_thread>(m_.host) && ready();
      },
      by);
}

// ---- who it is

CW_FN inline service::role service::role_of(handle s) const noexcept {
  if (!s || s.index() >= m_.sockets || s.generation() == 0) return role::none;
  // Relaxed: who passes a handle on orders what it did before.
  const std::uint32_t life =
      device_atomic<std::uint32_t>(m_.own[s.index()].shared.life).load(order::relaxed);
  if ((life & ~listener_life) != s.generation()) return role::none;
  return life == s.generation() ? role::stream : role::listener;
}

CW_FN inline handle service::at(std::uint32_t index) const noexcept {
  if (index >= m_.sockets) return handle(-EBADF);
  const std::uint32_t life =
      device_atomic<std::uint32_t>(m_.own[index].shared.life).load(order::relaxed);
  return life == 0 ? handle(-EBADF) : handle(index, life & ~listener_life);
}

CW_FN inline std::int64_t service::error_of(std::uint32_t i) const noexcept {
  // Relaxed: ordered by the mark that was read before.
  return -static_cast<std::int64_t>(
      system_atomic<std::uint64_t>(m_.state[i].error).load(order::relaxed));
}

/// The socket's error for the first who asks, `afterwards` for all others.
CW_FN inline std::int64_t service::tell_error(std::uint32_t i, std::int64_t error,
                                              std::int64_t afterwards) const noexcept {
  // Relaxed: who told it orders nothing.
  const device_atomic<std::uint32_t> told(m_.own[i].shared.error_told);
  return told.exchange(1, order::relaxed) != 0 ? afterwards : error;
}

/// How a wait ended. The death of the rank at the other end of a lane resets the connection.
CW_FN inline std::int64_t service::tell_outcome(std::uint32_t i, status s, const wait_limits& l,
                                                std::int64_t afterwards) const noexcept {
  if (s != status::peer_lost) return impl::errno_of(s, l);
  const system_atomic<std::uint64_t> word(m_.state[i].received);
  // pairs with slot::tell_received(), for the link
  const mark received = mark::of(word.load(order::acquire));  // unseen: the link is an atomic
  if (!received.has(around) || fault_rank(device::impl::read_fault(l)) != link_of(i).peer_rank()) {
    return -ECANCELED;
  }
  return tell_error(i, -ECONNRESET, afterwards);
}

CW_FN inline void service::ring_bell(handle s, unsigned flags) const noexcept {
  const std::uint32_t i = s.index();
  const auto& sender = m_.own[i].sender;
  const unsigned all =
      flags | taken | (sender.shut != 0 ? finished : 0U) | life_bits(s.generation());
  // What is in the lane is none of the worker's business.
  const std::uint64_t head = sender.lane != 0 ? sender.from : sender.head;
  // pairs with worker::hear_bell(): bytes, `moved` and `drained` are visible with it
  system_atomic<std::uint64_t>(m_.bells[i]).store(mark(head, all).word(), order::release);
  call_host<socket_impl::call_worker>(m_.host, i);
}

// ---- receiving

/// Reads where rings are, unless what is known is of the number that `seen` says, which was read
/// with acquire. An entry that is being written meanwhile is kept until its number shows. Until
/// then heads do not pass its position, so it is not chosen.
CW_FN inline void service::know_rings(std::uint32_t i, mark seen) const noexcept {
  auto& own = m_.own[i].receiver;
  const unsigned bits = seen.flags() & all_ring_bits;
  if (own.ring_bits == bits) return;
  news& n = m_.state[i];
  for (int k = 0; k < 2; ++k) {
    // Relaxed: `seen` orders them.
    own.ring[k] = system_atomic<std::uint64_t>(n.ring[k]).load(order::relaxed);
    own.ring_from[k] = system_atomic<std::uint64_t>(n.ring_from[k]).load(order::relaxed);
  }
  own.ring_bits = bits;
}

/// What has come by TCP and lies beyond the receiver's position.
CW_FN inline pieces<const std::byte> service::view_of(std::uint32_t i,
                                                      const arrival& a) const noexcept {
  know_rings(i, a.tcp);
  const auto& own = m_.own[i].receiver;
  const std::uint64_t tail = own.tail;
  const int newer = own.ring_from[1] > own.ring_from[0] ? 1 : 0;
  const bool is_new = own.ring_from[newer] <= tail;
  const ring_place ring = ring_place::of(own.ring[is_new ? newer : 1 - newer]);
  const std::uint64_t end = is_new ? a.end : impl::smaller(a.end, own.ring_from[newer]);
  return impl::cut<const std::byte>(m_.rings + ring.offset(), ring.bytes(), tail, end - tail);
}

/// `seen`: news::received as it was read with acquire some time ago.
CW_FN inline pieces<const std::byte> service::wait_readable(handle s, mark seen,
                                                            deadline& by) const noexcept {
  const role what = role_of(s);
  if (what == role::none) return {};
  if (what == role::listener) return {.result = -ENOTCONN};
  const std::uint32_t i = s.index();
  auto& mine = m_.own[i].receiver;
  arrival a;
  bool closed_meanwhile = false;  // its place may be another's by now
  status outcome = status::ok;
  if (!seen.has(around) && seen.position() > mine.tail) {
    a = arrived(i, seen);
  } else {
    outcome = wait_for(
        [&] {
          a = look_received(i);
          closed_meanwhile = !is_valid(s);
          return closed_meanwhile || a.end != mine.tail || a.over || mine.shut != 0;
        },
        by, mine.lane == 0);
  }
  if (closed_meanwhile) return {};
  if (outcome != status::ok) return {.result = tell_outcome(i, outcome, by.limits(), 0)};
  mine.lane = a.way.word();
  if (a.end == mine.tail) {
    mine.seen = mine.tail;
    if (a.tcp.has(failed)) return {.result = tell_error(i, error_of(i), 0)};
    return {.result = a.cut_short ? tell_error(i, -ECONNRESET, 0) : 0};
  }
  const std::byte* const ring =
      a.way ? m_.lane_rings.local() + a.way.own() * m_.lane_bytes : nullptr;
  const auto view = a.way
                        ? impl::cut(ring, m_.lane_bytes, mine.tail - mine.start, a.end - mine.tail)
                        : view_of(i, a);
  mine.seen = mine.tail + static_cast<std::uint64_t>(view.result);
  return view;
}

template <group G>
CW_FN inline pieces<const std::byte> service::recv_view(const G& g, handle s, patience p) const {
  g.sync();
  deadline by(p.within(limits_));
  return leader_of(g, [&] { return wait_readable(s, {}, by); });
}

template <group G>
CW_FN inline pieces<const std::byte> service::recv_view(const G& g, const poll_item& s,
                                                        patience p) const {
  g.sync();
  deadline by(p.within(limits_));
  return leader_of(g, [&] { return wait_readable(s.socket, s.seen(s.received), by); });
}

template <group G>
CW_FN inline std::int64_t service::consume(const G& g, handle s, std::uint64_t n) const {
  g.sync();  // all threads have read their part
  return leader_of(g, [&]() -> std::int64_t {
    if (!is_stream(s)) return -EBADF;
    const std::uint32_t i = s.index();
    auto& mine = m_.own[i].receiver;
    if (n > mine.seen - mine.tail) return -EINVAL;
    mine.tail += n;
    if (const lane_link way = lane_link::of(mine.lane); way) {
      // pairs with read_by_peer(): the bytes were read
      system_atomic<std::uint64_t>(peer_lane(way).out.tail)
          .store(mark(mine.tail - mine.start, 0).word(), order::release);
    } else {
      // pairs with slot::look_at_drained(): the bytes were read
      system_atomic<std::uint64_t>(m_.drained[i]).store(mine.tail, order::release);
    }
    return static_cast<std::int64_t>(n);
  });
}

template <group G>
CW_FN inline std::int64_t service::recv(const G& g, handle s, void* to, std::uint64_t n,
                                        patience p) const {
  if (n == 0) return leader_of(g, [&]() -> std::int64_t { return is_stream(s) ? 0 : -EBADF; });
  g.sync();
  deadline by(p.within(limits_));
  return recv_by(g, s, {}, to, n, by);
}

template <group G>
CW_FN inline std::int64_t service::recv(const G& g, const poll_item& s, void* to, std::uint64_t n,
                                        patience p) const {
  if (n == 0) return recv(g, s.socket, to, n, p);
  g.sync();
  deadline by(p.within(limits_));
  return recv_by(g, s.socket, s.seen(s.received), to, n, by);
}

template <group G>
CW_FN inline std::int64_t service::recv_by(const G& g, handle s, mark seen, void* to,
                                           std::uint64_t n, deadline& by) const {
  const auto v = leader_of(g, [&] { return wait_readable(s, seen, by); });
  if (v.result <= 0) return v.result;
  const std::uint64_t first = impl::smaller(n, v.first_bytes);
  const std::uint64_t second = impl::smaller(n - first, v.second_bytes);
  copy(g, to, v.first, first);
  copy(g, static_cast<std::byte*>(to) + first, v.second, second);
  return consume(g, s, first + second);
}

template <group G>
CW_FN inline std::int64_t service::recv_all(const G& g, handle s, void* to, std::uint64_t n,
                                            patience p) const {
  g.sync();
  std::uint64_t done = 0;
  deadline by(p.within(limits_));
  while (done < n) {
    const std::int64_t got = recv_by(g, s, {}, static_cast<std::byte*>(to) + done, n - done, by);
    if (got <= 0) return done != 0 ? static_cast<std::int64_t>(done) : got;
    done += static_cast<std::uint64_t>(got);
    if (done < n && leader_of(g, [&] { return by.passed() ? 1 : 0; }) != 0) break;
  }
  return static_cast<std::int64_t>(done);
}

// ---- sending

/// Whether the host has given another ring.
CW_FN inline bool service::is_new_ring(std::uint32_t i, mark sent) const noexcept {
  const unsigned known = ring_bits(ring_place::of(m_.own[i].sender.ring).epoch());
  return known != (sent.flags() & all_ring_bits);
}

/// Moves to the ring that the host has given, with the next byte.
CW_FN inline void service::follow_ring(std::uint32_t i, mark sent) const noexcept {
  if (!is_new_ring(i, sent)) return;
  auto& own = m_.own[i].sender;
  // Relaxed: `sent` orders it.
  const std::uint64_t ring =
      system_atomic<std::uint64_t>(m_.state[i].send_ring).load(order::relaxed);
  own.ring = ring;
  own.from = own.head;
  // Relaxed: the next bell orders it.
  system_atomic<std::uint64_t>(m_.moved[i])
      .store(own.from << 8U | ring_place::of(ring).epoch(), order::relaxed);
}

CW_FN inline std::uint64_t service::room_of(std::uint32_t i, mark sent) const noexcept {
  const auto& own = m_.own[i].sender;
  if (own.lane != 0) {
    const mark read = read_by_peer(i);
    if (read.has(closed)) return m_.lane_bytes;  // nobody reads it
    const std::uint64_t from = own.from - own.start;
    const std::uint64_t tail = read.position() > from ? read.position() : from;
    return m_.lane_bytes - (own.head - own.start - tail);
  }
  const std::uint64_t begin = sent.position() > own.from ? sent.position() : own.from;
  return ring_place::of(own.ring).bytes() - (own.head - begin);
}

/// `seen`: news::sent as it was read with acquire some time ago.
CW_FN inline pieces<std::byte> service::wait_room(handle s, mark seen, std::uint64_t at_least,
                                                  deadline& by) const noexcept {
  const role what = role_of(s);
  if (what == role::none) return {};
  if (what == role::listener) return {.result = -ENOTCONN};
  const std::uint32_t i = s.index();
  auto& own = m_.own[i];
  if (own.sender.shut != 0 || own.sender.refused != 0) return {.result = -EPIPE};
  mark sent;
  std::uint64_t room = 0;
  std::uint64_t most = 0;
  const auto suffices = [&](mark now) {
    sent = now;
    if (sent.has(broken)) return true;
    if (sent.has(around) && own.sender.lane == 0) leave_tcp(i);
    if (own.sender.lane == 0) follow_ring(i, sent);
    most = own.sender.lane != 0 ? m_.lane_bytes : ring_place::of(own.sender.ring).bytes();
    room = room_of(i, sent);
    return sent.has(connected) && (room >= at_least || at_least > most);
  };
  status outcome = status::ok;
  // What was seen is enough where there is much room; unless more has been seen since.
  const mark last = mark::of(own.sender.sent);
  const bool is_news = seen.has(connected) && !seen.has(broken | around) && !last.has(broken) &&
                       seen.position() >= last.position() && !is_new_ring(i, seen);
  const bool is_known = is_news && suffices(seen) && 2 * room >= most;
  if (!is_known) {
    outcome = wait_for(
        [&] {
          // pairs with slot::tell_sent(): the bytes before it have been read
          return suffices(
              mark::of(system_atomic<std::uint64_t>(m_.state[i].sent).load(order::acquire)));
        },
        by, own.sender.lane == 0);
  }
  own.sender.sent = sent.word();
  if (outcome != status::ok) return {.result = tell_outcome(i, outcome, by.limits(), -EPIPE)};
  if (sent.has(broken)) return {.result = tell_error(i, error_of(i), -EPIPE)};
  if (room < at_least) return {.result = -EMSGSIZE};
  if (const lane_link way = lane_link::of(own.sender.lane); way) {
    std::byte* const ring = m_.lane_rings.at(way.peer_rank()) + way.peer() * m_.lane_bytes;
    return impl::cut(ring, m_.lane_bytes, own.sender.head - own.sender.start, room);
  }
  const ring_place ring = ring_place::of(own.sender.ring);
  return impl::cut(m_.rings + ring.offset(), ring.bytes(), own.sender.head, room);
}

template <group G>
CW_FN inline pieces<std::byte> service::send_reserve(const G& g, handle s, std::uint64_t at_least,
                                                     patience p) const {
  g.sync();
  deadline by(p.within(limits_));
  return leader_of(g, [&] { return wait_room(s, {}, at_least, by); });
}

template <group G>
CW_FN inline pieces<std::byte> service::send_reserve(const G& g, const poll_item& s,
                                                     std::uint64_t at_least, patience p) const {
  g.sync();
  deadline by(p.within(limits_));
  return leader_of(g, [&] { return wait_room(s.socket, s.seen(s.sent), at_least, by); });
}

template <group G>
CW_FN inline std::int64_t service::commit(const G& g, handle s, std::uint64_t n) const {
  g.sync();  // all threads have written their part
  return leader_of(g, [&]() -> std::int64_t {
    if (!is_stream(s)) return -EBADF;
    const std::uint32_t i = s.index();
    auto& own = m_.own[i].sender;
    if (own.shut != 0) return -EPIPE;
    if (n > room_of(i, mark::of(own.sent))) return -EINVAL;  // of what was reserved
    own.head += n;
    if (own.lane == 0) {
      ring_bell(s, 0);
    } else {
      // As with TCP: what is sent to one who has closed is accepted once.
      if (n != 0 && read_by_peer(i).has(closed)) own.refused = 1;
      publish(i);
    }
    return static_cast<std::int64_t>(n);
  });
}

template <group G>
CW_FN inline std::int64_t service::send(const G& g, handle s, const void* from, std::uint64_t n,
                                        patience p) const {
  deadline by(p.within(limits_));
  return send_by(g, s, {}, from, n, by);
}

template <group G>
CW_FN inline std::int64_t service::send(const G& g, const poll_item& s, const void* from,
                                        std::uint64_t n, patience p) const {
  deadline by(p.within(limits_));
  return send_by(g, s.socket, s.seen(s.sent), from, n, by);
}

template <group G>
CW_FN inline std::int64_t service::send_by(const G& g, handle s, mark seen, const void* from,
                                           std::uint64_t n, deadline& by) const {
  const auto* const bytes = static_cast<const std::byte*>(from);
  std::uint64_t done = 0;
  do {
    const mark known = done == 0 ? seen : mark{};
    const auto room = leader_of(g, [&] { return wait_room(s, known, n == 0 ? 0 : 1, by); });
    if (room.result < 0) return done != 0 ? static_cast<std::int64_t>(done) : room.result;
    const std::uint64_t first = impl::smaller(n - done, room.first_bytes);
    const std::uint64_t second = impl::smaller(n - done - first, room.second_bytes);
    copy(g, room.first, bytes + done, first);
    copy(g, room.second, bytes + done + first, second);
    const std::int64_t sent = commit(g, s, first + second);
    if (sent < 0) return done != 0 ? static_cast<std::int64_t>(done) : sent;
    done += first + second;
  } while (done < n);
  return static_cast<std::int64_t>(done);
}

// ---- ending

template <group G>
CW_FN inline std::int64_t service::shutdown(const G& g, handle s, half which) const {
  g.sync();
  return leader_of(g, [&]() -> std::int64_t {
    const role what = role_of(s);
    if (what == role::none) return -EBADF;
    if (what == role::listener) return -ENOTCONN;
    const std::uint32_t i = s.index();
    auto& own = m_.own[i];
    if (which != half::send) own.receiver.shut = 1;
    if (which != half::receive && own.sender.shut == 0) {
      own.sender.shut = 1;
      if (own.sender.lane != 0) publish(i);
      ring_bell(s, 0);
    }
    return 0;
  });
}

CW_FN inline std::int64_t service::end(handle s, unsigned how) const noexcept {
  const role what = role_of(s);
  if (what == role::none) return -EBADF;
  const std::uint32_t i = s.index();
  auto& own = m_.own[i];
  std::uint32_t life = s.generation() | (what == role::listener ? listener_life : 0U);
  // Relaxed: one of those who close wins; the bell orders what it did.
  if (!device_atomic<std::uint32_t>(own.shared.life).compare_exchange(life, 0, order::relaxed)) {
    return -EBADF;
  }
  if (what == role::listener) {
    // From here on nobody takes connections; the host learns how many were.
    own.sender.head =
        device_atomic<std::uint64_t>(own.receiver.tail).fetch_or(listener_closed, order::relaxed);
  } else {
    how = end_lane(i, how);
  }
  ring_bell(s, how);
  return 0;
}

template <group G>
CW_FN inline std::int64_t service::close(const G& g, handle s) const {
  g.sync();
  return leader_of(g, [&] { return end(s, closed); });
}

template <group G>
CW_FN inline std::int64_t service::abort(const G& g, handle s) const {
  g.sync();
  return leader_of(g, [&] { return end(s, closed | reset); });
}

// ---- many

CW_FN inline std::uint16_t service::look_at(poll_item& item) const noexcept {
  const role what = role_of(item.socket);
  if (what == role::none) return event::invalid;
  const std::uint32_t i = item.socket.index();
  const auto& own = m_.own[i];
  if (what == role::listener) {
    // Relaxed: accept() looks again, with acquire, and sees no less.
    const mark head =
        mark::of(system_atomic<std::uint64_t>(m_.state[i].received).load(order::relaxed));
    const bool waits =
        head.has(failed) ||
        head.position() !=
            device_atomic<std::uint64_t>(m_.own[i].receiver.tail).load(order::relaxed);
    return waits ? static_cast<std::uint16_t>(event::readable & item.wanted) : 0;
  }
  // Both at once. Pairs with slot::tell_received() and tell_sent(), for who goes on with them.
  news& n = m_.state[i];
  static_assert(offsetof(news, sent) == offsetof(news, received) + sizeof(n.received));
  load_pair(n.received, n.sent, item.received, item.sent, order::acquire);
  item.looked_at = item.socket;
  const arrival a = arrived(i, mark::of(item.received));
  const mark sent = mark::of(item.sent);
  unsigned found = 0;
  if (a.end != own.receiver.tail || a.over || own.receiver.shut != 0) found |= event::readable;
  const bool leaves_tcp = sent.has(around) && own.sender.lane == 0;
  const bool leaves_ring = own.sender.lane == 0 && is_new_ring(i, sent);  // a new ring is empty
  const bool has_room = leaves_tcp || leaves_ring || room_of(i, sent) > 0;
  if (sent.has(broken) || (sent.has(connected) && has_room)) found |= event::writable;
  found &= item.wanted;
  if ((a.tcp.has(failed) || a.cut_short || sent.has(broken)) &&
      device_atomic<std::uint32_t>(m_.own[i].shared.error_told).load(order::relaxed) == 0) {
    found |= event::error;
  }
  if (a.over && (sent.has(broken) || own.sender.shut != 0)) found |= event::hang_up;
  return static_cast<std::uint16_t>(found);
}

template <group G>
CW_FN inline bool service::look_at_all(const G& g, poll_item* items, int n) const noexcept {
  bool mine = false;
  for (int k = g.rank(); k < n; k += g.size()) {
    items[k].ready = look_at(items[k]);
    mine = mine || items[k].ready != 0;
  }
  return g.any(mine);
}

/// After a look that found nothing: until it is worth another one.
template <group G>
CW_FN inline status service::wait_for_news(const G& g, poll_item* items, int n, watch& w,
                                           deadline& by) const noexcept {
  const bool once = by.limits().timeout_ns == 0;
  const system_atomic<std::uint64_t> activity(*m_.activity);
  // pairs with slot::tell_activity(): what changes after a look at it changes the word, too
  const auto look = [&] { return activity.load(order::acquire); };  // unseen: the news are atomics
  if (!once && !w.knows) {  // who finds something at once need not know
    if (g.rank() == 0) w.activity = look();
    w.knows = true;
    g.sync();
    return status::ok;
  }
  // No host notes what comes by lanes: these are looked at all the time.
  bool mine = false;
  for (int k = g.rank(); k < n; k += g.size()) mine = mine || uses_lane(items[k].socket);
  const bool looks = g.any(mine);
  const auto changed = [&] {
    if (once) return false;
    const std::uint64_t before = w.activity;
    w.activity = look();
    if (w.activity != before) return true;
    for (int k = 0; looks && k < n; ++k) {
      if (uses_lane(items[k].socket) && look_at(items[k]) != 0) return true;
    }
    return false;
  };
  return leader_of(g, [&] {
    const status s = wait_for(changed, by, !looks);
    return s == status::ok ? end_among_news(w, by) : s;
  });
}

/// Whether the wait is over though there are news, which may all be of others: where they come
/// without end, nobody would look at the clock, nor for the end of the world.
CW_FN inline status service::end_among_news(watch& w, deadline& by) const noexcept {
  constexpr unsigned now_and_then = 16;  // the fault may lie across a bus
  const fault_word fault =
      ++w.wakes % now_and_then == 0 ? device::impl::read_fault(by.limits()) : fault_word{0};
  if (fault != 0) return fault_status(fault);
  return by.passed() ? status::timeout : status::ok;
}

template <group G>
CW_FN inline std::int64_t service::poll(const G& g, poll_item* items, int n, patience p) const {
  g.sync();  // all see what any of them wrote into `items`
  deadline by(p.within(limits_));
  const bool once = by.limits().timeout_ns == 0;
  watch w;
  status s = status::ok;
  for (bool last = once; !look_at_all(g, items, n); last = s != status::ok) {
    if (s == status::ok) s = wait_for_news(g, items, n, w, by);
    if (last) return s == status::timeout ? 0 : -ECANCELED;
  }
  return leader_of(g, [&] {
    std::int64_t count = 0;
    for (int k = 0; k < n; ++k) count += items[k].ready != 0 ? 1 : 0;
    return count;
  });
}

}  // namespace crosswarp::device::socket
