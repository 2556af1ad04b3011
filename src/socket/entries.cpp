// A worker's places in the table: how they are set aside, taken and given back, and how what is in
// them fails.
#include <unistd.h>

#include <utility>

#include "core/log.hpp"
#include "transports/tcp/address.hpp"
#include "workers.hpp"

namespace crosswarp::socket_impl {

worker::entry& worker::at(std::uint32_t place) const {
  return *entries_[place / all_.count()];
}

bool worker::reserve() noexcept {
  int left = places_left_.load();
  while (left > 0 && !places_left_.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

std::uint32_t worker::token_of(const entry& e) const {
  return e.index / all_.count();
}

void worker::give_place_back(worker& whose) {
  whose.places_left_.fetch_add(1);
  if (!all_.is_short_of_places()) return;
  all_.for_each([&](worker& w) { post(w, [](worker& me) { me.wake_listeners(); }); });
}

/// A place that was set aside. Null, and given back, when there is no memory for rings, or nothing
/// begins any more.
worker::entry* worker::take_entry(bool listener) {
  entry& e = at(free_.front());
  if (stopped_ || closing_ || !e.words.begin(listener)) {
    give_place_back(*this);
    return nullptr;
  }
  free_.pop_front();
  e.is = listener ? kind::listener : kind::connection;
  e.input_waits = e.output_waits = e.connecting = e.fin_sent = e.heard = e.lost = false;
  e.listener = {};
  e.bytes = e.closed_at = 0;
  e.begun_at = ticks();
  e.queue.clear();
  e.coming.clear();
  e.first_coming = 0;
  e.connections = 0;
  e.starved = false;
  counters_.sockets.fetch_add(1, std::memory_order_relaxed);
  return &e;
}

void worker::release(entry& e) {
  if (e.closed_at != 0) {
    note_event(trace::socket_event::close, e, e.closed_at,
               e.words.has_error() ? status::peer_lost : status::ok);
  }
  leave_lane(e);
  e.words.end();
  all_.dismiss_peer(std::exchange(e.peer, {}));
  tell(e.listener, [who = e.words.who()](worker& w, entry& l) {
    --l.connections;
    note_taken(w, l, who);
  });
  e.is = kind::free;
  free_.push_back(e.index);
  counters_.sockets.fetch_sub(1, std::memory_order_relaxed);
  give_place_back(*this);
}

void worker::wake(entry& e) {
  if (e.active || e.is == kind::free) return;
  e.active = true;
  active_.push_back(e.index);
}

void worker::drop_descriptor(entry& e, bool reset) {
  if (e.fd < 0) return;
  settle_lane(e, true);  // another connection may have these names soon
  // Who closes without having read resets: also what the engine has read, or no kernel will.
  const bool unread = engine_->remove(token_of(e)) || e.lost;
  if (reset || unread) tcp::reset_on_close(e.fd);
  close(e.fd);
  e.fd = -1;
}

/// The connection is over; the kernel learns why when it has read what came before.
void worker::fail(entry& e, int error, bool reset) {
  e.connecting = false;
  settle_lane(e, true);
  // The receiver's mark first: who polls and finds `broken` finds the error with recv(), too.
  e.words.set_error(error);
  if (!e.words.has_ended()) e.words.end_received();
  e.words.break_send(error);
  drop_descriptor(e, reset);
}

void worker::breach(entry& e) {
  log::warn(-1, "socket ", e.index,
            ": a kernel wrote a position that cannot be; the connection is reset");
  counters_.breaches.fetch_add(1, std::memory_order_relaxed);
  fail(e, EPROTO, true);
}

// ---- the trace

/// 0 where nobody wants to know.
std::uint64_t worker::ticks() const noexcept {
  return all_.traced == nullptr ? 0 : device::trace_ticks();
}

void worker::note_event(trace::socket_event what, const entry& e, std::uint64_t begun,
                        status how) noexcept {
  if (all_.traced == nullptr) return;
  device::trace_record r;
  r.begin = begun;
  r.end = ticks();
  r.bytes = what == trace::socket_event::close ? e.bytes : 0;
  r.pe = e.lane ? e.lane.peer_rank() : -1;
  r.block = index_;
  r.kind = device::trace_kind::socket;
  r.what = static_cast<std::uint8_t>(what);
  r.outcome = static_cast<std::uint8_t>(how);
  all_.traced->note(r);
}

}  // namespace crosswarp::socket_impl
