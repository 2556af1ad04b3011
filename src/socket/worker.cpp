#include "worker.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "exec/cpu/executor.hpp"
#include "workers.hpp"

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

/// At most so much for one socket before it is another's turn. A GPU's kernel works on a part of a
/// ring while another part is filled.
std::uint64_t bytes_per_turn(bool beside_kernels, const socket::service_options& o) {
  constexpr std::uint64_t most = 256 * 1024;
  return beside_kernels ? std::clamp<std::uint64_t>(o.most_ring_bytes / 4, 16 * 1024, most) : most;
}

/// Idle for longer: it may be for much longer.
constexpr std::chrono::microseconds recently(2000);

}  // namespace

/// What nobody is there to be told of: no memory. Kernels learn that nothing works any more.
template <class F>
bool worker::keep_going(F&& work) noexcept {
  try {
    return work();
  } catch (const std::exception& e) {
    log::error(-1, "sockets: ", e.what(), "; all of them are shut down");
    all_.stop();
    return false;
  }
}

// ---- making and ending

worker::worker(workers& all, std::uint32_t index, std::unique_ptr<engine> e)
    : all_(all),
      index_(index),
      m_(all.m),
      options_(all.options),
      bytes_at_once_(bytes_per_turn(all.hears_itself, all.options)),
      engine_(std::move(e)),
      around_(all.around),
      spare_(tcp::open_spare()),
      bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (bell_ < 0) throw error::from_errno(errno, "eventfd");
  for (std::uint32_t i = index; i < m_.sockets; i += all_.count()) {
    entries_.push_back(std::make_unique<entry>(m_, all_.pool, limits_of(options_), i));
    free_.push_back(i);
  }
  places_left_ = static_cast<int>(free_.size());
  bells_seen_.resize(entries_.size());
  calls_seen_.resize(m_.calls);
}

void worker::start() {
  thread_ = std::thread([this] { run(); });
}

void worker::quit() noexcept {
  quit_.store(true, std::memory_order_release);  // what kernels did, which have ended, is before it
  rouse();
}

void worker::join() noexcept {
  if (thread_.joinable()) thread_.join();
}

void worker::drop_descriptors() noexcept {
  for (const auto& e : entries_) {
    (void)keep_going([&] {
      // What is left had not enough time to leave: its end must not look like one in order.
      drop_descriptor(*e, e->is == kind::connection);
      return true;
    });
  }
}

worker::~worker() {
  if (spare_ >= 0) close(spare_);
  close(bell_);
}

void worker::add_to(socket::service_stats& s) const {
  constexpr auto relaxed = std::memory_order_relaxed;
  s.accepted += counters_.accepted.load(relaxed);
  s.connected += counters_.connected.load(relaxed);
  s.around += counters_.around.load(relaxed);
  s.received_bytes += counters_.received_bytes.load(relaxed);
  s.sent_bytes += counters_.sent_bytes.load(relaxed);
  s.refused += counters_.refused.load(relaxed);
  s.timed_out += counters_.timed_out.load(relaxed);
  s.breaches += counters_.breaches.load(relaxed);
  s.sockets_of_thread.push_back(counters_.sockets.load(relaxed));
  s.sockets += s.sockets_of_thread.back();
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
  // pairs with attend_by(): what came too late for `work`. A letter, too, whose ring may have been
  // heard by a thread that then found the turn taken.
  if (again_.exchange(false, std::memory_order_acq_rel) ||
      has_mail_.load(std::memory_order_relaxed)) {
    rouse();
  }
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

bool worker::lend() noexcept {
  // What answers a peer of this machine comes within this time; to sleep costs a core that has to
  // be woken, twice for each byte that goes there and back.
  constexpr std::chrono::microseconds patience(200);
  lends_.fetch_add(1, std::memory_order_relaxed);
  bool idle = false;
  (void)work_in_turn([&] {
    const bool any = turn();
    idle = !any && now_ - last_ > patience;
    return any;
  });
  return idle;
}

void worker::attend(std::uint32_t place) noexcept {
  attend_by([&] { return hear_bell_of(place / all_.count()) && serve_at_once(); });
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
      is_called = !all_.hears_itself && stalled_.empty();
      return any;
    });
    if (did == outcome::worked) {
      look = 0;
      continue;
    }
    // Kernel threads may want this core, or whom it has just sent something.
    if (look % 8 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look % 16 == 0 || idle_for > recently) rest(idle_for, is_called);
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
  // Of a GPU's kernel that is asked now and then: what it answers is heard without a nap.
  const us patience(all_.hears_itself ? 1000 : 100);
  constexpr us long_ago(50'000);
  if (idle_for < patience) return;
  const us longest(is_called ? 10'000 : 1000);
  rested_ = true;
  (void)sleep(idle_for < recently ? us(20) : idle_for < long_ago ? us(200) : longest, true);
}

/// True when somebody called.
bool worker::sleep(std::chrono::nanoseconds at_most, bool for_engine) noexcept {
  const timespec limit{0, at_most.count()};
  pollfd wakers[2] = {{bell_, POLLIN, 0}, {engine_->descriptor(), POLLIN, 0}};
  ppoll(wakers, for_engine ? 2 : 1, &limit, nullptr);
  return (wakers[0].revents & POLLIN) != 0 && was_called();
}

bool worker::was_called() noexcept {
  std::uint64_t count = 0;
  return read(bell_, &count, sizeof(count)) > 0;
}

void worker::rouse() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(bell_, &one, sizeof(one));
}

// ---- letters

void worker::put_mail(letter l) {
  const std::lock_guard lock(mail_guard_);
  mail_.push_back(std::move(l));
  // Who reads the first finds those behind it.
  if (mail_.size() > 1) return;
  has_mail_.store(true, std::memory_order_relaxed);
  rouse();
}

bool worker::hear_mail() {
  if (!has_mail_.load(std::memory_order_relaxed)) return false;  // the lock orders
  std::vector<letter> now;
  {
    const std::lock_guard lock(mail_guard_);
    has_mail_.store(false, std::memory_order_relaxed);
    now.swap(mail_);
  }
  for (const letter& l : now) {
    // One that fails takes no other along: they hold descriptors, places and calls.
    (void)keep_going([&] {
      l(*this);
      return true;
    });
  }
  return true;
}

bool worker::read_last_mail() noexcept {
  return keep_going([&] {
    closing_ = true;
    return hear_mail();
  });
}

// ---- in turn

/// One look at everything; true when something was to be done.
bool worker::turn() {
  if (all_.is_stopped() && !stopped_) refuse_all();
  const bool written = hear_mail();
  // Of CPU kernels those are left that nobody could hear at once.
  const bool rings = all_.hears_itself || unheard_.exchange(false, std::memory_order_acquire);
  const bool rung = rings && hear_bells(!all_.hears_itself || std::exchange(rested_, false));
  const bool called = hear_calls();
  const bool drained = look_at_stalled();
  // Whom the engine names is served at once; one that gathers has to be given work first.
  const bool named = !engine_->gathers() && hear_engine();
  const bool moved = serve_all();
  const bool told = engine_->gathers() && hear_engine();
  const bool met = look_at_lanes();
  const bool knocked = knock_again();
  if (now_ > next_sweep_) {
    sweep(now_);
    // However many there are, it takes no more than a hundredth of the time.
    next_sweep_ = now_ + std::max<clock::duration>(std::chrono::milliseconds(20),
                                                   100 * (clock::now() - now_));
  }
  return written || rung || called || drained || named || moved || told || met || knocked;
}

/// Of thousands, unless it is to be `all`: those that rang last, and of the others some at a time.
/// To look at all would take longer than what there is to do.
bool worker::hear_bells(bool all) {
  constexpr std::size_t at_a_time = 512;
  const std::size_t count = entries_.size();
  if (all || count <= at_a_time) return hear_bells_of(0, count);
  bool any = false;
  for (const std::uint32_t rank : rang_last_) any = hear_bells_of(rank, rank + 1) || any;
  const std::size_t end = std::min(next_bell_ + at_a_time, count);
  any = hear_bells_of(next_bell_, end) || any;
  next_bell_ = end < count ? end : 0;
  return any;
}

/// Of its places from `first` on, counted here. Of those that have not rung nothing is touched but
/// their bell: a thousand of them are a look at two rows of words.
bool worker::hear_bells_of(std::size_t first, std::size_t end) {
  const std::size_t step = all_.count();
  bool any = false;
  for (std::size_t rank = first; rank < end; ++rank) {
    std::uint64_t& bell = m_.bells[index_ + rank * step];
    // Relaxed: most of them have not changed.
    if (shared(bell).load(std::memory_order_relaxed) == bells_seen_[rank]) continue;
    any = hear_bell_of(static_cast<std::uint32_t>(rank)) || any;
    if (std::find(rang_last_.begin(), rang_last_.end(), rank) != rang_last_.end()) continue;
    rang_last_[next_of_last_++ % rang_last_.size()] = static_cast<std::uint32_t>(rank);
  }
  return any;
}

bool worker::hear_bell_of(std::uint32_t rank) {
  const std::uint32_t place = entries_[rank]->index;
  // pairs with service::ring_bell()
  const std::uint64_t now = shared(m_.bells[place]).load(std::memory_order_acquire);
  if (std::exchange(bells_seen_[rank], now) == now) return false;
  entry& e = *entries_[rank];
  if (e.is != kind::free) hear_bell(e, mark::of(now));
  return true;
}

void worker::hear_bell(entry& e, mark bell) {
  const bool was_taken = e.words.is_taken();
  if (!e.words.hear(bell) || !e.words.look_at_drained()) breach(e);
  if (!was_taken && e.words.is_taken()) {
    if (e.listener) note_event(trace::socket_event::accept, e, e.begun_at);
    tell(e.listener, [who = e.words.who()](worker& w, entry& l) { note_taken(w, l, who); });
  }
  if (e.words.is_closed()) {
    e.since = now_;
    if (e.is == kind::connection) e.closed_at = ticks();
  }
  wake(e);
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
    entry& e = at(i);
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
    entry& e = at(stalled_[k]);
    const bool lives = e.is == kind::connection && e.fd >= 0;
    if (lives && !e.words.look_at_drained()) breach(e);
    if (lives && e.words.is_full()) {
      ++k;
      continue;
    }
    e.stalled = false;
    if (!e.words.is_closed()) e.since = now_;  // until now the peer could say nothing
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
    } else if (!e.words.has_ended() && !e.stalled &&
               passed(e.heard ? options_.idle : options_.first_byte)) {
      fail(e, ETIMEDOUT, true);
    } else {
      continue;
    }
    counters_.timed_out.fetch_add(1, std::memory_order_relaxed);
  }
  reset_lost();
  look_for_descriptors();
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
    hear_bells(true);  // all that kernels said
    hear_calls();
    closing_ = true;
    for (const auto& e : entries_) {
      if (e->is == kind::free) continue;
      if (e->is == kind::connection && !e->words.is_closed()) {
        e->closed_at = ticks();
        e->since = now_;
      }
      const bool untaken = e->listener && !e->words.is_taken();
      const bool all_read = !e->lane || e->words.is_closed() || around_->finish(e->lane);
      e->words.close(all_read && !untaken ? words::closed : words::closed | words::reset);
      wake(*e);
    }
  }
  const bool left = std::any_of(entries_.begin(), entries_.end(),
                                [](const auto& e) { return e->is != kind::free; });
  return !left || now_ - since > options_.linger;
}

}  // namespace crosswarp::socket_impl
