// Bodies of socket.hpp: what connects sockets, and calls to the host.
#pragma once

#include "crosswarp/device/socket.hpp"

namespace crosswarp::device::socket {

namespace impl {

inline constexpr std::uint32_t place_free = 0;
inline constexpr std::uint32_t place_taken = 1;
inline constexpr std::uint32_t place_left = 2;
inline constexpr std::uint32_t no_place = ~std::uint32_t{0};
/// The host answers calls when its thread looks next; it has this long.
inline constexpr std::uint64_t answer_ns = 10'000'000'000;

CW_FN inline std::int64_t errno_of(status s, const wait_limits& l) noexcept;

}  // namespace impl

// ---- calls

/// Somebody left this place before the answer came. Once it is there the place is free; a socket
/// that it brought belongs to nobody and is closed.
CW_FN inline bool service::reclaim(std::uint32_t place) const noexcept {
  call_place& p = m_.places[place];
  const system_atomic<std::uint64_t> answered(m_.replies[place].number);
  // Relaxed: only whether it is worth a try. Who waits does not write.
  if (answered.load(order::relaxed) !=
      system_atomic<std::uint64_t>(m_.call_bells[place]).load(order::relaxed)) {
    return false;
  }
  const device_atomic<std::uint32_t> state(p.state);
  std::uint32_t left = impl::place_left;
  // Pairs with the release in ask(), for `number`, which the answer orders as well if it is there.
  const auto acquire = order::acquire;  // unseen: it is there but in the rare case below
  if (!state.compare_exchange(left, impl::place_taken, acquire)) return false;
  // pairs with worker::answer()
  if (answered.load(order::acquire) != p.number) {
    // Reclaimed and left again since the look above. Pairs with the acquire above.
    state.store(impl::place_left, order::release);  // unseen: too seldom
    return false;
  }
  const call was = m_.requests[place].what;
  const handle brought(m_.replies[place].result);
  if ((was == call::listen || was == call::connect) && brought) {
    adopt(brought, was == call::listen);
    (void)end(brought, closed | reset);
  }
  return true;
}

CW_FN inline std::uint32_t service::take_place(const wait_limits& l) const noexcept {
  std::uint32_t found = impl::no_place;
  (void)poll_until(
      [&] {
        for (std::uint32_t i = 0; i < m_.calls; ++i) {
          const device_atomic<std::uint32_t> state(m_.places[i].state);
          std::uint32_t was = state.load(order::relaxed);  // who waits does not write
          // acquire: pairs with the release in ask(), by who had the place before
          if ((was == impl::place_free &&
               state.compare_exchange(was, impl::place_taken, order::acquire)) ||
              (was == impl::place_left && reclaim(i))) {
            found = i;
            return true;
          }
        }
        return false;
      },
      l);
  return found;
}

/// Has the host do it, and returns what it answers.      Callers: one thread.
CW_FN inline std::int64_t service::ask(const call_request& r) const noexcept {
  const wait_limits l = limits_.within(impl::answer_ns);
  const std::uint32_t place = take_place(l);
  if (place == impl::no_place) return -ETIMEDOUT;
  call_place& p = m_.places[place];
  m_.requests[place] = r;
  const std::uint64_t number = ++p.number;
  // pairs with worker::hear_calls()
  system_atomic<std::uint64_t>(m_.call_bells[place]).store(number, order::release);
  call_host<socket_impl::call_workers>(m_.host);
  const system_atomic<std::uint64_t> answered(m_.replies[place].number);
  deadline by(l);
  // pairs with worker::answer()
  const status outcome = wait_for([&] { return answered.load(order::acquire) == number; }, by);
  const std::int64_t result =
      outcome == status::ok ? m_.replies[place].result : impl::errno_of(outcome, l);
  // pairs with the acquire in take_place() and reclaim()
  device_atomic<std::uint32_t>(p.state).store(
      outcome == status::ok ? impl::place_free : impl::place_left, order::release);
  return result;
}

// ---- sockets that begin

/// Makes a socket that the host has given the kernel's. What the host wrote about it is ordered by
/// how the handle came.
CW_FN inline void service::adopt(handle s, bool listener) const noexcept {
  const std::uint32_t i = s.index();
  const news& n = m_.state[i];
  const auto word = [](const std::uint64_t& w) {
    return system_atomic<std::uint64_t>(const_cast<std::uint64_t&>(w)).load(order::relaxed);
  };
  own_state& own = m_.own[i];
  own.sender.head = own.sender.from = own.sender.start = mark::of(word(n.sent)).position();
  own.sender.ring = word(n.send_ring);
  own.sender.sent = word(n.sent);
  own.sender.lane = 0;
  own.sender.shut = own.sender.refused = 0;
  // Relaxed: as the handle is passed on, see is_valid(). Atomic, as one whose handle is stale may
  // look.
  device_atomic<std::uint64_t>(own.receiver.tail).store(n.start, order::relaxed);
  own.receiver.start = own.receiver.seen = n.start;
  own.receiver.lane = 0;
  own.receiver.ring_bits = no_ring_bits;
  own.receiver.shut = 0;
  own.shared.error_told = 0;
  system_atomic<std::uint64_t>(m_.drained[i]).store(n.start, order::relaxed);
  system_atomic<std::uint64_t>(m_.moved[i])
      .store(own.sender.from << 8U | ring_place::of(own.sender.ring).epoch(), order::relaxed);
  device_atomic<std::uint32_t>(own.shared.life)
      .store(s.generation() | (listener ? listener_life : 0U), order::relaxed);
  ring_bell(s, 0);
}

template <group G>
CW_FN inline handle service::listen(const G& g, const address& where, int backlog) const {
  g.sync();
  return handle(leader_of(g, [&] {
    call_request r;
    r.what = call::listen;
    r.value = backlog;
    r.where = where;
    const std::int64_t result = ask(r);
    if (result >= 0) adopt(handle(result), true);
    return result;
  }));
}

template <group G>
CW_FN inline handle service::start_connect(const G& g, const address& where) const {
  g.sync();
  return handle(leader_of(g, [&] {
    call_request r;
    r.what = call::connect;
    r.where = where;
    const std::int64_t result = ask(r);
    if (result >= 0) adopt(handle(result), false);
    return result;
  }));
}

CW_FN inline std::int64_t service::wait_connected(handle s, const wait_limits& l) const noexcept {
  const std::uint32_t i = s.index();
  const system_atomic<std::uint64_t> word(m_.state[i].sent);
  mark sent;
  deadline by(l);
  const status outcome = wait_for(
      [&] {
        // pairs with slot::tell_sent(), for the error
        sent = mark::of(word.load(order::acquire));  // unseen: the error is an atomic
        return sent.has(connected | broken);
      },
      by);
  if (outcome != status::ok) return impl::errno_of(outcome, l);
  return sent.has(connected) ? 0 : tell_error(i, error_of(i), -EPIPE);
}

template <group G>
CW_FN inline handle service::connect(const G& g, const address& where, patience p) const {
  const handle s = start_connect(g, where);
  if (!s) return s;
  return handle(leader_of(g, [&] {
    const std::int64_t result = wait_connected(s, p.within(limits_));
    if (result == 0) return s.value();
    (void)end(s, closed | reset);
    return result;
  }));
}

/// A handle, or -EAGAIN when there is none.
CW_FN inline std::int64_t service::take_connection(handle listener, mark head) const noexcept {
  const std::uint32_t i = listener.index();
  const device_atomic<std::uint64_t> tail(m_.own[i].receiver.tail);
  std::uint64_t at = tail.load(order::relaxed);
  for (;;) {
    if ((at & listener_closed) != 0) return -EBADF;
    // Others may have taken more than this thread knows of.
    if (at >= head.position()) return -EAGAIN;
    const ring_place ring =
        ring_place::of(system_atomic<std::uint64_t>(m_.state[i].ring[0]).load(order::relaxed));
    auto* const entries = reinterpret_cast<std::uint64_t*>(m_.rings + ring.offset());
    const std::uint64_t entry =
        system_atomic<std::uint64_t>(entries[at & (ring.bytes() / sizeof(std::uint64_t) - 1)])
            .load(order::relaxed);
    // Relaxed: `head` orders the entry; this only says whose it is. The host reuses a place when
    // its socket's bell was rung, so the entry was the one at `at` if nobody took it before.
    if (tail.compare_exchange(at, at + 1, order::relaxed)) return static_cast<std::int64_t>(entry);
  }
}

CW_FN inline std::int64_t service::wait_connection(handle listener,
                                                   const wait_limits& l) const noexcept {
  const role what = role_of(listener);
  if (what == role::none) return -EBADF;
  if (what == role::stream) return -EINVAL;
  const std::uint32_t i = listener.index();
  std::int64_t result = -EAGAIN;
  deadline by(l);
  const status outcome = wait_for(
      [&] {
        // pairs with slot::tell_received()
        const mark head =
            mark::of(system_atomic<std::uint64_t>(m_.state[i].received).load(order::acquire));
        result = take_connection(listener, head);
        if (result == -EAGAIN && head.has(failed)) {
          result = -static_cast<std::int64_t>(
              system_atomic<std::uint64_t>(m_.state[i].error).load(order::relaxed));
        }
        return result != -EAGAIN || !is_valid(listener);
      },
      by);
  if (outcome != status::ok) return impl::errno_of(outcome, l);
  return result == -EAGAIN ? -EBADF : result;
}

template <group G>
CW_FN inline handle service::accept(const G& g, handle listener, patience p) const {
  g.sync();
  return handle(leader_of(g, [&] {
    const std::int64_t result = wait_connection(listener, p.within(limits_));
    if (result >= 0) adopt(handle(result), false);
    return result;
  }));
}

// ---- what is known of it

template <group G>
CW_FN inline std::int64_t service::set_option(const G& g, handle s, option which,
                                              std::int64_t value) const {
  return leader_of(g, [&]() -> std::int64_t {
    if (!is_valid(s)) return -EBADF;
    call_request r;
    r.what = call::set_option;
    r.which = which;
    r.socket = static_cast<std::uint64_t>(s.value());
    r.value = value;
    return ask(r);
  });
}

template <group G>
CW_FN inline std::int64_t service::get_option(const G& g, handle s, option which) const {
  return leader_of(g, [&]() -> std::int64_t {
    if (!is_valid(s)) return -EBADF;
    call_request r;
    r.what = call::get_option;
    r.which = which;
    r.socket = static_cast<std::uint64_t>(s.value());
    return ask(r);
  });
}

template <group G>
CW_FN inline std::int64_t service::peer_name(const G& g, handle s, address* name) const {
  return leader_of(g, [&]() -> std::int64_t {
    if (!is_valid(s)) return -EBADF;
    const std::uint32_t i = s.index();
    // pairs with slot::tell_sent(): the names were written before
    const mark sent = mark::of(system_atomic<std::uint64_t>(m_.state[i].sent).load(order::acquire));
    if (!sent.has(connected)) return -ENOTCONN;
    *name = m_.called[i].peer;
    return 0;
  });
}

template <group G>
CW_FN inline std::int64_t service::own_name(const G& g, handle s, address* name) const {
  return leader_of(g, [&]() -> std::int64_t {
    const role what = role_of(s);
    if (what == role::none) return -EBADF;
    const std::uint32_t i = s.index();
    const mark sent = mark::of(system_atomic<std::uint64_t>(m_.state[i].sent).load(order::acquire));
    if (what == role::stream && !sent.has(connected)) return -ENOTCONN;
    *name = m_.called[i].own;
    return 0;
  });
}

}  // namespace crosswarp::device::socket
