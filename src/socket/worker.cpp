#include "worker.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "core/log.hpp"
#include "exec/cpu/executor.hpp"
#include "transports/tcp/address.hpp"

namespace crosswarp::socket_impl {

namespace words = device::socket;

namespace {

template <class T>
std::atomic_ref<T> shared(T& word) noexcept {
  return std::atomic_ref<T>(word);
}

ring_limits limits_of(const socket::service_options& o) {
  return {static_cast<unsigned>(std::bit_width(o.ring_bytes) - 1),
          static_cast<unsigned>(std::bit_width(o.most_ring_bytes) - 1)};
}

int open_spare() {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

}  // namespace

// ---- making and ending

worker::worker(const words::memory& m, ring_pool& pool, const socket::service_options& o,
               std::unique_ptr<engine> e)
    : m_(m), options_(o), pool_(pool), engine_(std::move(e)), spare_(open_spare()) {
  for (std::uint32_t i = 0; i < m_.sockets; ++i) {
    entries_.push_back(std::make_unique<entry>(m_, pool_, limits_of(o), i));
    free_.push_back(i);
  }
  bells_seen_.resize(m_.sockets);
  calls_seen_.resize(m_.calls);
  thread_ = std::thread([this] { run(); });
}

worker::~worker() {
  quit_.store(true, std::memory_order_release);  // what kernels did, which have ended, is before it
  thread_.join();
  for (const auto& e : entries_) {
    if (e->fd >= 0) close(e->fd);
  }
  if (spare_ >= 0) close(spare_);
}

socket::service_stats worker::stats() const {
  constexpr auto relaxed = std::memory_order_relaxed;
  socket::service_stats s;
  s.accepted = counters_.accepted.load(relaxed);
  s.connected = counters_.connected.load(relaxed);
  s.received_bytes = counters_.received_bytes.load(relaxed);
  s.sent_bytes = counters_.sent_bytes.load(relaxed);
  s.refused = counters_.refused.load(relaxed);
  s.timed_out = counters_.timed_out.load(relaxed);
  s.breaches = counters_.breaches.load(relaxed);
  s.ring_bytes = counters_.ring_bytes.load(relaxed);
  s.sockets = counters_.sockets.load(relaxed);
  return s;
}

// ---- the thread

void worker::run() {
  // Naps are short; the default slack would double them.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  auto last = clock::now();
  clock::time_point ending{};
  for (std::uint32_t look = 1;; ++look) {
    now_ = clock::now();
    if (stop_.load(std::memory_order_relaxed) && !stopped_) refuse_all();
    if (quit_.load(std::memory_order_acquire)) {  // pairs with ~worker()
      if (!closing_) ending = now_;
      if (close_all(ending)) return;
    }
    if (turn()) {
      last = now_;
      look = 0;
      continue;
    }
    // Kernel threads may want this core.
    if (look % 32 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look % 16 == 0) rest(now_ - last);
  }
}

/// One look at everything; true when something was to be done.
bool worker::turn() {
  const bool rung = hear_bells();
  const bool called = hear_calls();
  const bool drained = look_at_stalled();
  const bool moved = serve_all();
  const bool told = hear_engine(std::chrono::nanoseconds(0));
  if (now_ - last_sweep_ > std::chrono::milliseconds(20)) sweep(now_);
  return rung || called || drained || moved || told;
}

/// Sleeps until the engine has something, a little at a time: the longer nothing was to be done,
/// the longer, and at most a millisecond. A GPU cannot wake a thread, so bells are looked at all
/// the time.
void worker::rest(clock::duration idle_for) {
  using us = std::chrono::microseconds;
  constexpr us patience(100);
  constexpr us recently(2000);
  constexpr us long_ago(50'000);
  if (idle_for < patience) return;
  hear_engine(idle_for < recently ? us(20) : idle_for < long_ago ? us(200) : us(1000));
}

bool worker::hear_bells() {
  bool any = false;
  for (std::uint32_t i = 0; i < m_.sockets; ++i) {
    // Relaxed: most of them have not changed.
    if (shared(m_.bells[i]).load(std::memory_order_relaxed) == bells_seen_[i]) continue;
    // pairs with service::ring_bell()
    bells_seen_[i] = shared(m_.bells[i]).load(std::memory_order_acquire);
    any = true;
    if (entries_[i]->is != kind::free) hear_bell(*entries_[i], mark::of(bells_seen_[i]));
  }
  return any;
}

void worker::hear_bell(entry& e, mark bell) {
  const bool was_taken = e.words.is_taken();
  if (!e.words.hear(bell) || !e.words.look_at_drained()) breach(e);
  if (!was_taken && e.words.is_taken()) note_taken(e);
  if (e.words.is_closed()) e.since = now_;
  wake(e);
}

bool worker::hear_calls() {
  bool any = false;
  for (std::uint32_t i = 0; i < m_.calls; ++i) {
    // pairs with service::ask()
    const std::uint64_t number = shared(m_.call_bells[i]).load(std::memory_order_acquire);
    if (number == calls_seen_[i]) continue;
    calls_seen_[i] = number;
    // Copied, then judged: the kernel may change it at any time.
    const words::call_request r = m_.requests[i];
    answer(i, number, stopped_ ? -ESHUTDOWN : carry_out(r));
    any = true;
  }
  return any;
}

bool worker::hear_engine(std::chrono::nanoseconds at_most) {
  done_.clear();
  engine_->wait(at_most, done_);
  for (const completion& c : done_) {
    entry& e = *entries_[c.token];
    if (e.fd < 0) continue;  // ended by one before it
    if (c.which == direction::input) e.input_waits = false;
    if (c.which == direction::output) {
      e.output_waits = false;
      if (e.connecting) finish_connect(e, c.result);
    }
    if (c.which == direction::end) hear_end(e);
    wake(e);
  }
  return !done_.empty();
}

/// Each of those with work once, so that nobody waits for one that has much.
bool worker::serve_all() {
  if (active_.empty()) return false;
  std::vector<std::uint32_t> now;
  now.swap(active_);
  for (const std::uint32_t i : now) {
    entry& e = *entries_[i];
    e.active = false;
    if (e.is != kind::free && serve(e)) wake(e);
  }
  return true;
}

/// True when there may be more to do at once.
bool worker::serve(entry& e) {
  if (e.is == kind::listener) {
    if (e.words.is_closed()) {
      close_listener(e);
      return false;
    }
    return accept_some(e);
  }
  const bool sent = send(e);
  if (end_if_done(e)) return false;
  const bool received = receive(e);
  return sent || received;
}

/// Those whose ring was full: kernels do not ring when they have read.
bool worker::look_at_stalled() {
  bool any = false;
  for (std::size_t k = 0; k < stalled_.size();) {
    entry& e = *entries_[stalled_[k]];
    const bool lives = e.is == kind::connection && e.fd >= 0;
    if (lives && !e.words.look_at_drained()) breach(e);
    if (lives && e.words.is_full()) {
      ++k;
      continue;
    }
    e.stalled = false;
    stalled_[k] = stalled_.back();
    stalled_.pop_back();
    wake(e);
    any = true;
  }
  return any;
}

/// Deadlines.
void worker::sweep(clock::time_point now) {
  last_sweep_ = now;
  for (const auto& p : entries_) {
    entry& e = *p;
    if (e.is != kind::connection || e.fd < 0 || e.connecting) continue;
    const auto passed = [&](std::chrono::nanoseconds limit) {
      return limit.count() > 0 && now - e.since > limit;
    };
    if (e.words.is_closed()) {
      if (now - e.since <= options_.linger) continue;
      drop_descriptor(e, true);
      wake(e);
    } else if (!e.words.has_ended() && passed(e.heard ? options_.idle : options_.first_byte)) {
      fail(e, ETIMEDOUT, true);
    } else {
      continue;
    }
    counters_.timed_out.fetch_add(1, std::memory_order_relaxed);
  }
  counters_.ring_bytes.store(pool_.bytes_in_use(), std::memory_order_relaxed);
}

/// Ends what kernels wait for. What they have sent still leaves.
void worker::refuse_all() {
  stopped_ = true;
  for (const auto& e : entries_) {
    if (e->is == kind::free) continue;
    e->words.set_error(ESHUTDOWN);
    if (!e->words.has_ended()) e->words.end_received();
    e->words.refuse_send();
  }
}

/// Closes what kernels have not; true when nothing is left that has time to leave.
bool worker::close_all(clock::time_point since) {
  if (!closing_) {
    hear_bells();  // all that kernels said
    hear_calls();
    closing_ = true;
    for (const auto& e : entries_) {
      if (e->is == kind::free) continue;
      e->words.close();
      wake(*e);
    }
  }
  const bool left = std::any_of(entries_.begin(), entries_.end(),
                                [](const auto& e) { return e->is != kind::free; });
  return !left || now_ - since > options_.linger;
}

// ---- calls

void worker::answer(std::uint32_t place, std::uint64_t number, std::int64_t result) {
  m_.replies[place].result = result;
  // pairs with service::ask() and reclaim(): the result, and what a new socket's words say
  shared(m_.replies[place].number).store(number, std::memory_order_release);
}

std::int64_t worker::carry_out(const words::call_request& r) {
  switch (r.what) {
    case words::call::listen:
      return start_listen(r);
    case words::call::connect:
      return start_connect(r);
    case words::call::set_option:
    case words::call::get_option: {
      const entry* const e = find(r.socket);
      if (e == nullptr || e->fd < 0) return -EBADF;
      if (r.what == words::call::get_option) return tcp::get_option(e->fd, r.which);
      return tcp::set_option(e->fd, r.which, r.value);
    }
  }
  return -ENOSYS;
}

std::int64_t worker::start_listen(const words::call_request& r) {
  entry* const e = take_entry(true);
  if (e == nullptr) return -EMFILE;
  e->backlog = static_cast<std::size_t>(
      std::clamp<std::int64_t>(r.value, 1, static_cast<std::int64_t>(e->words.connections())));
  e->fd = tcp::make_listener(tcp::to_system(r.where), static_cast<int>(e->backlog));
  const int failed = e->fd < 0 ? e->fd : engine_->add(e->index, e->fd);
  if (failed < 0) {
    if (e->fd >= 0) close(e->fd);
    e->fd = -1;
    release(*e);
    return failed;
  }
  e->words.called() = {tcp::own_name(e->fd), {}};
  listeners_.push_back(e->index);
  wake(*e);
  return e->words.who().value();
}

std::int64_t worker::start_connect(const words::call_request& r) {
  entry* const e = take_entry(false);
  if (e == nullptr) return -EMFILE;
  const tcp::system_address where = tcp::to_system(r.where);
  e->fd = tcp::make_socket(where);
  const int failed = e->fd < 0 ? e->fd : engine_->add(e->index, e->fd);
  if (failed < 0) {
    if (e->fd >= 0) close(e->fd);
    e->fd = -1;
    release(*e);
    return failed;
  }
  e->connecting = true;
  e->since = now_;
  const int result = engine_->connect(e->index, where.storage, where.bytes);
  if (result != engine::in_progress) finish_connect(*e, result);
  return e->words.who().value();
}

/// Null unless a kernel has it.
worker::entry* worker::find(std::uint64_t h) {
  const handle named(static_cast<std::int64_t>(h));
  if (!named || named.index() >= entries_.size()) return nullptr;
  entry& e = *entries_[named.index()];
  return e.is != kind::free && e.words.who() == named ? &e : nullptr;
}

// ---- entries

/// Null when the table is full, or there is no memory for rings.
worker::entry* worker::take_entry(bool listener) {
  if (free_.empty()) return nullptr;
  entry& e = *entries_[free_.front()];
  if (!e.words.begin(listener)) return nullptr;
  free_.pop_front();
  e.is = listener ? kind::listener : kind::connection;
  e.input_waits = e.output_waits = e.connecting = e.fin_sent = e.heard = false;
  e.listener = nullptr;
  counters_.sockets.fetch_add(1, std::memory_order_relaxed);
  return &e;
}

void worker::release(entry& e) {
  e.words.end();
  if (!e.peer.empty() && --per_peer_[e.peer] == 0) per_peer_.erase(e.peer);
  e.peer.clear();
  if (e.listener != nullptr) {
    --e.listener->connections;
    note_taken(e);
  }
  e.is = kind::free;
  free_.push_back(e.index);
  counters_.sockets.fetch_sub(1, std::memory_order_relaxed);
  wake_listeners();
}

void worker::wake(entry& e) {
  if (e.active || e.is == kind::free) return;
  e.active = true;
  active_.push_back(e.index);
}

void worker::drop_descriptor(entry& e, bool reset) {
  if (e.fd < 0) return;
  engine_->remove(e.index);
  if (reset) tcp::reset_on_close(e.fd);
  close(e.fd);
  e.fd = -1;
}

/// The connection is over; the kernel learns why when it has read what came before.
void worker::fail(entry& e, int error, bool reset) {
  e.connecting = false;
  e.words.break_send(error);
  if (!e.words.has_ended()) e.words.end_received();
  drop_descriptor(e, reset);
}

void worker::breach(entry& e) {
  log::warn(-1, "socket ", e.index,
            ": a kernel wrote a position that cannot be; the connection is reset");
  counters_.breaches.fetch_add(1, std::memory_order_relaxed);
  fail(e, EPROTO, true);
}

}  // namespace crosswarp::socket_impl
