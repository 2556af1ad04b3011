// What a worker does for listeners and connections.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transports/tcp/address.hpp"
#include "workers.hpp"

namespace crosswarp::socket_impl {

namespace words = device::socket;

namespace {

constexpr int accepts_per_turn = 64;

/// What connections from one address have in common.
std::string peer_key(const words::address& a) {
  if (a.family != words::address::ipv4 && a.family != words::address::ipv6) return {};
  return std::string(reinterpret_cast<const char*>(a.host), sizeof(a.host)) +
         static_cast<char>(a.family);
}

}  // namespace

// ---- listeners

/// As start_connect(): in a place that was set aside.
std::int64_t worker::start_listen(const words::call_request& r) {
  entry* const e = take_entry(true);
  if (e == nullptr) return -EMFILE;
  e->backlog = static_cast<std::size_t>(
      std::clamp<std::int64_t>(r.value, 1, static_cast<std::int64_t>(e->words.connections())));
  e->fd = tcp::make_listener(tcp::to_system(r.where), static_cast<int>(e->backlog));
  const int failed = e->fd < 0 ? e->fd : engine_->add(token_of(*e), e->fd);
  if (failed < 0) {
    if (e->fd >= 0) close(e->fd);
    e->fd = -1;
    release(*e);
    return failed;
  }
  e->own = tcp::own_name(e->fd);
  e->words.called() = {e->own, {}};
  listeners_.push_back(e->index);
  wake(*e);
  return e->words.who().value();
}

/// A place has become free.
void worker::wake_listeners() {
  for (const std::uint32_t i : listeners_) wake_if_starved(at(i));
}

void worker::wake_if_starved(entry& l) {
  if (std::exchange(l.starved, false)) wake(l);
}

bool worker::accept_some(entry& l) {
  for (int i = 0; i < accepts_per_turn; ++i) {
    if (stopped_ || l.input_waits) return false;
    // Who finds no place here waits in Linux's backlog.
    const bool full = l.queue.size() + l.coming.size() >= l.backlog ||
                      (options_.per_listener > 0 && l.connections >= options_.per_listener);
    worker* const to = full ? nullptr : all_.reserve();
    l.starved = to == nullptr;
    if (l.starved) return false;
    sockaddr_storage peer{};
    socklen_t bytes = 0;
    const int fd = engine_->accept(token_of(l), peer, bytes);
    if (fd >= 0) {
      pass_on(l, *to, fd, tcp::from_system({peer, bytes}));
      continue;
    }
    give_place_back(*to);
    if (fd == engine::in_progress) {
      l.input_waits = true;
      return false;
    }
    if ((fd == -EMFILE || fd == -ENFILE) && !refuse_for_want_of_descriptors(l)) return false;
    // Others are of the connection, which is gone: the next one may be better.
  }
  return true;
}

/// To the worker who has set a place aside for it.
void worker::pass_on(entry& l, worker& to, int fd, const words::address& from) {
  arrival a{l.words.who(), l.first_coming + l.coming.size(), fd, from, {}};
  if (options_.per_peer > 0) a.peer = peer_key(from);
  if (!all_.admit_peer(a.peer)) {
    give_place_back(to);
    return refuse(fd);
  }
  l.coming.emplace_back();
  ++l.connections;
  post(to, [a](worker& w) { w.admit(a); });
}

void worker::admit(const arrival& a) {
  entry* const e = take_entry(false);
  if (e == nullptr) {
    all_.dismiss_peer(a.peer);
    tell(a.listener, [](worker&, entry& l) { --l.connections; });
    line_up(a, {});
    return refuse(a.fd);
  }
  e->listener = a.listener;
  e->peer = a.peer;
  if (engine_->add(token_of(*e), a.fd) < 0) {
    release(*e);
    line_up(a, {});
    return refuse(a.fd);
  }
  e->fd = a.fd;
  e->since = now_;
  if (options_.no_delay) (void)tcp::set_option(a.fd, words::option::no_delay, 1);
  const words::names called{tcp::own_name(a.fd), a.from};
  e->words.called() = called;
  e->words.note_connected();
  offer_lane(*e, called);
  counters_.accepted.fetch_add(1, std::memory_order_relaxed);
  wake(*e);
  line_up(a, e->words.who());
}

/// For kernels to accept, in the order in which peers came, whoever has taken them on first; no
/// handle: nobody has.
void worker::line_up(const arrival& a, handle connection) {
  post(all_.owner(a.listener.index()), [=](worker& w) {
    entry* const l = w.find(a.listener);
    if (l == nullptr) return w.drop_untaken(connection);
    l->coming[a.number - l->first_coming] = connection;
    for (; !l->coming.empty() && l->coming.front(); ++l->first_coming, l->coming.pop_front()) {
      const handle next = *l->coming.front();
      if (next) l->queue.push_back({next, l->words.push(next)});
    }
    w.wake_if_starved(*l);
  });
}

void worker::refuse(int fd) {
  counters_.refused.fetch_add(1, std::memory_order_relaxed);
  tcp::reset_on_close(fd);
  close(fd);
}

/// Gives up the spare descriptor to accept and reset one connection: otherwise it would stay at the
/// head of the backlog, and its peer would never learn. False when that was not enough: the
/// listener waits for the next look.
bool worker::refuse_for_want_of_descriptors(entry& l) {
  if (const int given_up = std::exchange(spare_, -1); given_up >= 0) close(given_up);
  sockaddr_storage peer{};
  socklen_t bytes = 0;
  const int fd = engine_->accept(token_of(l), peer, bytes);
  if (fd >= 0) refuse(fd);
  // No copy of the listener's, whose port would go on listening behind its close().
  spare_ = tcp::open_spare();
  l.input_waits = fd == engine::in_progress;
  if (fd != -EMFILE && fd != -ENFILE) return true;
  l.starved = short_of_descriptors_ = true;
  return false;
}

void worker::look_for_descriptors() {
  if (spare_ < 0) spare_ = tcp::open_spare();
  if (spare_ >= 0 && std::exchange(short_of_descriptors_, false)) wake_listeners();
}

/// A kernel has accepted it, so that its place in the listener's ring may be used again.
void worker::note_taken(worker& w, entry& l, handle connection) {
  std::erase_if(l.queue, [&](const waiting& x) { return x.connection == connection; });
  w.wake_if_starved(l);
}

void worker::drop_untaken(handle connection) {
  if (!connection) return;
  post(all_.owner(connection.index()), [=](worker& w) {
    entry* const e = w.find(connection);
    if (e == nullptr) return;
    w.drop_descriptor(*e, true);
    w.release(*e);
  });
}

/// Connections that nobody accepted are reset, as with Linux. Those before the listener's last
/// position were taken, though their bells may not have been seen.
void worker::close_listener(entry& l) {
  const auto queue = std::exchange(l.queue, {});
  for (const waiting& w : queue) {
    // At the end of the service each worker resets its own: it has seen all bells.
    if (!closing_ && w.position >= l.words.bell_position()) drop_untaken(w.connection);
  }
  tcp::remove_path(l.own);
  std::erase(listeners_, l.index);
  drop_descriptor(l, false);
  release(l);
}

// ---- connections

std::int64_t worker::start_connect(const words::call_request& r) {
  entry* const e = take_entry(false);
  if (e == nullptr) return -EMFILE;
  const tcp::system_address where = tcp::to_system(r.where);
  e->fd = tcp::make_socket(where);
  const int failed = e->fd < 0 ? e->fd : engine_->add(token_of(*e), e->fd);
  if (failed < 0) {
    if (e->fd >= 0) close(e->fd);
    e->fd = -1;
    release(*e);
    return failed;
  }
  e->connecting = true;
  e->since = now_;
  try_connect(*e, where);
  return e->words.who().value();
}

/// Where Linux would wait for room in a backlog, and does not because the descriptor does not
/// block, it is tried again until the kernel's patience ends.
void worker::try_connect(entry& e, const tcp::system_address& where) {
  const int result = engine_->connect(token_of(e), where.storage, where.bytes);
  if (result == -EAGAIN) {
    knocking_.push_back({e.words.who(), where});
  } else if (result != engine::in_progress) {
    finish_connect(e, result);
  }
}

bool worker::knock_again() {
  if (knocking_.empty() || now_ < next_knock_) return false;
  next_knock_ = now_ + std::chrono::milliseconds(1);
  const auto now = std::exchange(knocking_, {});
  for (const knock& k : now) {
    if (entry* const e = find(k.connection); e != nullptr && e->connecting) {
      try_connect(*e, k.where);
    }
  }
  return knocking_.size() < now.size();
}

void worker::finish_connect(entry& e, int result) {
  e.connecting = false;
  note_event(trace::socket_event::connect, e, e.begun_at,
             result >= 0            ? status::ok
             : result == -ETIMEDOUT ? status::timeout
                                    : status::unreachable);
  if (result < 0) return fail(e, -result, false);
  e.begun_at = ticks();
  if (options_.no_delay) (void)tcp::set_option(e.fd, words::option::no_delay, 1);
  const words::names called{tcp::own_name(e.fd), tcp::peer_name(e.fd)};
  e.words.called() = called;
  e.since = now_;
  e.words.note_connected();
  offer_lane(e, called);
  counters_.connected.fetch_add(1, std::memory_order_relaxed);
  wake(e);
}

/// True when there may be more.
bool worker::receive(entry& e) {
  if (e.fd < 0 || e.connecting || e.input_waits || e.words.has_ended()) return false;
  if (!e.words.look_at_drained()) {
    breach(e);
    return false;
  }
  const auto space = e.words.receive_space(bytes_at_once_);
  if (space.empty()) {  // nothing is read, so that the peer's window closes
    if (!e.stalled) stalled_.push_back(e.index);
    e.stalled = true;
    return false;
  }
  const int n = engine_->receive(token_of(e), space);
  if (n == engine::in_progress) {
    e.input_waits = true;
    return false;
  }
  note_received(e, n);
  return n > 0;
}

void worker::note_received(entry& e, int n) {
  if (e.words.has_ended()) {  // meanwhile, by stop()
    e.lost = e.lost || n > 0;
  } else if (n > 0) {
    if (!e.heard) note_event(trace::socket_event::first_byte, e, e.begun_at);
    e.heard = true;
    e.bytes += static_cast<std::uint64_t>(n);
    e.since = now_;
    counters_.received_bytes.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
    e.words.note_received(static_cast<std::uint64_t>(n));
  } else if (n < 0) {
    fail(e, -n, false);
  } else {
    settle_lane(e, true);  // kernels learn of the lane before they learn of the end
    e.words.end_received();
  }
}

/// True when there may be more.
bool worker::send(entry& e) {
  if (e.fd < 0 || e.connecting) return false;
  if (e.words.has_to_send()) {
    if (e.output_waits) return false;
    const int n = engine_->send(token_of(e), e.words.to_send(bytes_at_once_));
    if (n == engine::in_progress) {
      e.output_waits = true;
      return false;
    }
    note_sent(e, n);
    if (n < 0) return false;
    if (e.words.has_to_send()) return true;
  }
  if (e.words.is_finished() && !e.fin_sent) {
    e.fin_sent = true;
    shutdown(e.fd, SHUT_WR);
  }
  return false;
}

void worker::note_sent(entry& e, int n) {
  if (e.words.is_broken()) return;
  if (n < 0) {
    e.lost = true;  // of a stream that stops short the end must not look like one in order
    return e.words.break_send(-n);  // what the peer sent before is still to be read
  }
  e.bytes += static_cast<std::uint64_t>(n);
  counters_.sent_bytes.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
  e.words.note_sent(static_cast<std::uint64_t>(n));
}

/// The connection ended or failed, and nobody may be reading from it.
void worker::hear_end(entry& e) {
  if (e.connecting || !e.words.has_ended() || e.words.is_broken()) return;
  if (const int error = tcp::pending_error(e.fd); error != 0) e.words.break_send(error);
}

/// Ends a connection that the kernel has closed, once all of it has left.
bool worker::end_if_done(entry& e) {
  if (!e.words.is_closed()) return false;
  // As Linux does: who closes without having read resets.
  const bool reset = e.words.is_reset() || e.words.has_unread();
  const bool leaves = e.fd >= 0 && !e.connecting && !e.words.is_broken() && e.words.has_to_send();
  if (leaves && !reset) return false;
  drop_descriptor(e, reset);
  release(e);
  return true;
}

// ---- ways around TCP

/// For a connection within this machine, whose other end may be of this world. Not where bytes are
/// waited for: the worker does not see those in lanes.
void worker::offer_lane(entry& e, const words::names& called) {
  const auto& [own, peer] = called;
  const bool is_tcp = own.family == words::address::ipv4 || own.family == words::address::ipv6;
  if (around_ == nullptr || options_.first_byte.count() != 0 || options_.idle.count() != 0 ||
      !is_tcp || !std::equal(std::begin(own.host), std::end(own.host), std::begin(peer.host))) {
    return;
  }
  e.offered = around_->offer(called);
  if (!e.offered) return;
  offering_.push_back(e.index);
  settle_lane(e, false);
}

/// Tells kernels of the lane if the other end was met; else gives up waiting for it, if so asked.
bool worker::settle_lane(entry& e, bool withdraws) {
  if (!e.offered) return false;
  const unsigned own = *e.offered;
  if (!around_->find(own) && (!withdraws || around_->withdraw(own))) {
    if (withdraws) e.offered.reset();
    return false;
  }
  e.offered.reset();
  e.lane = around_->find(own);
  e.words.offer_lane(e.lane);
  counters_.around.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool worker::look_at_lanes() {
  // The other end is met as soon as its host has accepted; others are strangers.
  constexpr std::chrono::seconds patience(1);
  bool any = false;
  std::erase_if(offering_, [&](std::uint32_t i) {
    entry& e = at(i);
    any = settle_lane(e, now_ - e.since > patience) || any;
    return !e.offered;
  });
  return any;
}

/// TCP tells of a process that died as of one that closed; who sends by a lane would not learn it.
void worker::reset_lost() {
  const int lost = around_ == nullptr ? -1 : around_->lost_rank();
  if (lost < 0) return;
  for (const auto& e : entries_) {
    if (e->is == kind::connection && e->fd >= 0 && e->lane && e->lane.peer_rank() == lost) {
      fail(*e, ECONNRESET, true);
    }
  }
}

void worker::leave_lane(entry& e) {
  settle_lane(e, true);
  if (e.lane) around_->leave(e.lane);
  e.lane = {};
}

}  // namespace crosswarp::socket_impl
