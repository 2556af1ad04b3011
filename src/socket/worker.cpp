#include "worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
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

/// What nobody is there to be told of: no memory. Kernels learn that nothing works any more.
template <class F>
bool worker::keep_going(F&& work) noexcept {
  try {
    return work();
  } catch (const std::exception& e) {
    log::error(-1, "sockets: ", e.what(), "; all of them are shut down");
    stop();
    return false;
  }
}

// ---- making and ending

worker::worker(const words::memory& m, ring_pool& pool, const socket::service_options& o,
               std::unique_ptr<engine> e, bool hears_itself, lanes* around)
    : m_(m),
      options_(o),
      pool_(pool),
      engine_(std::move(e)),
      hears_itself_(hears_itself),
      around_(around),
      spare_(open_spare()),
      bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (bell_ < 0) throw error::from_errno(errno, "eventfd");
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
  rouse();
  thread_.join();
  for (const auto& e : entries_) {
    (void)keep_going([&] {
      drop_descriptor(*e, false);
      return true;
    });
  }
  if (spare_ >= 0) close(spare_);
  close(bell_);
}

socket::service_stats worker::stats() const {
  constexpr auto relaxed = std::memory_order_relaxed;
  socket::service_stats s;
  s.accepted = counters_.accepted.load(relaxed);
  s.connected = counters_.connected.load(relaxed);
  s.around = counters_.around.load(relaxed);
  s.received_bytes = counters_.received_bytes.load(relaxed);
  s.sent_bytes = counters_.sent_bytes.load(relaxed);
  s.refused = counters_.refused.load(relaxed);
  s.timed_out = counters_.timed_out.load(relaxed);
  s.breaches = counters_.breaches.load(relaxed);
  s.ring_bytes = counters_.ring_bytes.load(relaxed);
  s.sockets = counters_.sockets.load(relaxed);
  return s;
}

// ---- whose turn it is

/// `work` unless another thread is at it.
template <class F>
worker::outcome worker::work_in_turn(F&& work) noexcept {
  if (taken_.exchange(true, std::memory_order_acq_rel)) return outcome::busy;
  now_ = clock::now();
  const bool any = keep_going(work);
  if (any) last_ = now_;
  taken_.exchange(false, std::memory_order_acq_rel);
  // pairs with attend_by(): what came too late for `work`
  if (again_.exchange(false, std::memory_order_acq_rel)) rouse();
  return any ? outcome::worked : outcome::idle;
}

/// `work` here, or soon on another thread.
template <class F>
void worker::attend_by(F&& work) noexcept {
  if (work_in_turn(work) != outcome::busy) return;
  unheard_.store(true, std::memory_order_release);  // pairs with turn(): the bell was rung before
  again_.store(true, std::memory_order_relaxed);
  // If this finds the turn taken, by an exchange, that turn's end comes later and sees `again_`.
  (void)work_in_turn(work);
}

void worker::lend() noexcept {
  lends_.fetch_add(1, std::memory_order_relaxed);
  bool idle = false;
  const auto look = [&] {
    const bool any = turn();
    idle = !any && now_ - last_ > std::chrono::microseconds(10);
    return any;
  };
  if (work_in_turn(look) == outcome::worked || !idle) return;
  // One sleeps on the engine, for all: who rings a bell has it heard itself.
  if (sleeper_.exchange(true, std::memory_order_acquire)) return;
  (void)sleep(std::chrono::microseconds(50), true);
  sleeper_.store(false, std::memory_order_release);
  (void)work_in_turn(look);
}

void worker::attend(std::uint32_t place) noexcept {
  attend_by([&] { return hear_bell_of(place) && serve_at_once(); });
  if (leftover_.load(std::memory_order_relaxed)) rouse();
}

void worker::attend_calls() noexcept {
  attend_by([&] { return hear_calls(); });
}

// ---- the thread

void worker::run() {
  // Naps are short; the default slack would double them.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  constexpr std::chrono::microseconds shortest_nap(50);
  constexpr std::chrono::microseconds longest_nap(1000);
  auto nap = shortest_nap;
  std::uint32_t lends = 0;
  clock::time_point ending{};
  for (std::uint32_t look = 1;; ++look) {
    if (quit_.load(std::memory_order_acquire) && ends(ending)) return;  // pairs with ~worker()
    // Kernels that wait do the work themselves, and best alone.
    if (const std::uint32_t now = lends_.load(std::memory_order_relaxed); now != lends) {
      lends = now;
      nap = std::min(2 * nap, longest_nap);
      if (!sleep(nap, false)) continue;
    }
    nap = shortest_nap;
    clock::duration idle_for{};
    bool is_called = false;
    const outcome did = work_in_turn([&] {
      const bool any = turn();
      idle_for = now_ - last_;
      is_called = !hears_itself_ && stalled_.empty();
      return any;
    });
    if (did == outcome::worked) {
      look = 0;
      continue;
    }
    // Kernel threads may want this core.
    if (look % 32 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look % 16 == 0) rest(idle_for, is_called);
  }
}

/// Whether all is closed. Kernels have ended, so that this thread is alone.
bool worker::ends(clock::time_point& since) {
  bool over = false;
  (void)work_in_turn([&] {
    if (!closing_) since = now_;
    over = close_all(since);
    return false;
  });
  return over;
}

/// Sleeps until the engine has something, a little at a time: the longer nothing was to be done,
/// the longer. A GPU cannot wake a thread, so its bells are looked at each millisecond; CPU kernels
/// have theirs heard, and only room that they made in a full ring is to be found.
void worker::rest(clock::duration idle_for, bool is_called) {
  using us = std::chrono::microseconds;
  constexpr us patience(100);
  constexpr us recently(2000);
  constexpr us long_ago(50'000);
  if (idle_for < patience) return;
  const us longest(is_called ? 10'000 : 1000);
  (void)sleep(idle_for < recently ? us(20) : idle_for < long_ago ? us(200) : longest, true);
}

/// True when somebody called.
bool worker::sleep(std::chrono::nanoseconds at_most, bool for_engine) noexcept {
  const timespec limit{0, at_most.count()};
  pollfd wakers[2] = {{bell_, POLLIN, 0}, {engine_->descriptor(), POLLIN, 0}};
  ppoll(wakers, for_engine ? 2 : 1, &limit, nullptr);
  if ((wakers[0].revents & POLLIN) == 0) return false;
  std::uint64_t count = 0;
  return read(bell_, &count, sizeof(count)) > 0;
}

void worker::rouse() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(bell_, &one, sizeof(one));
}

// ---- in turn

/// One look at everything; true when something was to be done.
bool worker::turn() {
  if (stop_.load(std::memory_order_relaxed) && !stopped_) refuse_all();
  // Of CPU kernels those are left that nobody could hear at once.
  const bool rings = hears_itself_ || unheard_.exchange(false, std::memory_order_acquire);
  const bool rung = rings && hear_bells();
  const bool called = hear_calls();
  const bool drained = look_at_stalled();
  const bool moved = serve_all();
  const bool told = hear_engine();
  const bool met = look_at_lanes();
  if (now_ > next_sweep_) {
    sweep(now_);
    // However many there are, it takes no more than a hundredth of the time.
    next_sweep_ = now_ + std::max<clock::duration>(std::chrono::milliseconds(20),
                                                   100 * (clock::now() - now_));
  }
  return rung || called || drained || moved || told || met;
}

bool worker::hear_bells() {
  bool any = false;
  for (std::uint32_t i = 0; i < m_.sockets; ++i) any = hear_bell_of(i) || any;
  return any;
}

bool worker::hear_bell_of(std::uint32_t place) {
  // Relaxed: most of them have not changed.
  if (shared(m_.bells[place]).load(std::memory_order_relaxed) == bells_seen_[place]) return false;
  // pairs with service::ring_bell()
  bells_seen_[place] = shared(m_.bells[place]).load(std::memory_order_acquire);
  if (entries_[place]->is != kind::free) {
    hear_bell(*entries_[place], mark::of(bells_seen_[place]));
  }
  return true;
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

bool worker::hear_engine() {
  done_.clear();
  engine_->look(done_);
  for (const completion& c : done_) {
    entry& e = *entries_[c.token];
    if (e.fd < 0) continue;  // ended by one before it
    hear_completion(e, c);
    wake(e);
  }
  return !done_.empty();
}

void worker::hear_completion(entry& e, const completion& c) {
  const bool again = c.result == -EAGAIN;
  switch (c.which) {
    case direction::input:
      e.input_waits = false;
      if (!again) note_received(e, c.result);
      break;
    case direction::output:
      e.output_waits = false;
      if (e.connecting) {
        finish_connect(e, c.result);
      } else if (!again) {
        note_sent(e, c.result);
      }
      break;
    case direction::end:
      hear_end(e);
      break;
  }
}

/// Serves those with work, and those who may have more once again: most have none, and nobody has
/// to be woken for them.
bool worker::serve_at_once() {
  const bool any = serve_all();
  if (engine_->gathers()) (void)hear_engine();
  (void)serve_all();
  if (engine_->gathers()) (void)hear_engine();
  return any;
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
  leftover_.store(!active_.empty(), std::memory_order_relaxed);
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
  reset_lost();
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
      const bool all_read = !e->lane || e->words.is_closed() || around_->finish(e->lane);
      e->words.close(all_read ? words::closed : words::closed | words::reset);
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
  e.input_waits = e.output_waits = e.connecting = e.fin_sent = e.heard = e.lost = false;
  e.listener = nullptr;
  counters_.sockets.fetch_add(1, std::memory_order_relaxed);
  return &e;
}

void worker::release(entry& e) {
  leave_lane(e);
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
  settle_lane(e, true);  // another connection may have these names soon
  // Who closes without having read resets: also what the engine has read, or no kernel will.
  const bool unread = engine_->remove(e.index) || e.lost;
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

// ---- what CPU kernels call

void lend_thread(worker& w) noexcept {
  w.lend();
}
void call_worker(worker& w, std::uint32_t socket) noexcept {
  w.attend(socket);
}
void call_worker(worker& w) noexcept {
  w.attend_calls();
}

}  // namespace crosswarp::socket_impl
