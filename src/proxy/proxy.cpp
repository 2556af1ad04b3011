#include "proxy.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "exec/cpu/executor.hpp"
#include "operation.hpp"

namespace crosswarp {

using device::proxy_call;
using device::proxy_command;
using namespace proxy_impl;

// ---- making and ending

proxy::proxy(device_ref d, const proxy_options& options, int rank, int size,
             std::vector<bool> reached, std::unique_ptr<engine> e, trace::recorder* traced)
    : device_(d),
      options_(options),
      reached_(std::move(reached)),
      bounds_{rank, size, &reached_, &region_bytes_},
      engine_(std::move(e)),
      entries_(d,
               static_cast<std::size_t>(options.queues) * static_cast<std::size_t>(options.depth),
               options.queue_kind),
      replies_(d, entries_.size(), memory_kind::pinned),
      heads_(d, static_cast<std::size_t>(options.queues), memory_kind::pinned),
      tails_(d, static_cast<std::size_t>(options.queues)),
      seats_(d, entries_.size()),
      timed_(crosswarp::options::read_integer("CROSSWARP_STATS").value_or(0) != 0),
      trace_(traced),
      dead_(static_cast<std::size_t>(size)),
      told_(static_cast<std::size_t>(size) + 1) {
  reset_stats();
  const bool fetch = d.kind() == device_kind::cuda && options.queue_kind == memory_kind::device;
  for (int i = 0; i < options.queues; ++i) {
    queues_.push_back(std::make_unique<queue>());
    queues_.back()->index = static_cast<std::uint32_t>(i);
    if (fetch) queues_.back()->fetched.resize(static_cast<std::size_t>(options.depth));
    find_next(*queues_.back());
  }
  if (fetch) tails_seen_.resize(queues_.size());
  if (d.kind() == device_kind::cuda) {
    // Now: nothing may be allocated while a kernel waits.
    while (chunks_.size() < chunk::at_once) {
      chunks_.push_back(std::make_unique<chunk>(device_));
      free_chunks_.push_back(chunks_.back().get());
    }
  }
  bell_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_descriptor_ < 0) throw error::from_errno(errno, "proxy", "eventfd");
  launches_ = exec::on_launch(d, [this] {
    launched_.store(true, std::memory_order_relaxed);
    rouse();
  });
  if (options.thread) thread_ = std::thread([this] { run(); });
}

proxy::~proxy() {
  launches_.reset();
  stop_.store(true);
  rouse();
  if (thread_.joinable()) thread_.join();
  engine_.reset();  // before what its operations point to
  close(bell_descriptor_);
}

device::proxy_memory proxy::memory() noexcept {
  return {entries_.data(),
          replies_.data(),
          heads_.data(),
          tails_.data(),
          seats_.data(),
          static_cast<std::uint32_t>(options_.queues),
          static_cast<std::uint32_t>(options_.depth),
          this};
}

std::vector<std::byte> proxy::offer_region(std::uint16_t id, const region_info& mine) {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  return engine_->offer_region(id, mine);
}

void proxy::install_region(std::uint16_t id, region_info mine, std::vector<std::size_t> sizes,
                           std::vector<std::vector<std::byte>> offers) {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  if (region_bytes_.size() <= id) {
    region_bytes_.resize(id + std::size_t{1});
    regions_.resize(id + std::size_t{1});
  }
  engine_->install_region(id, std::move(offers));
  regions_[id] = std::move(mine);
  region_bytes_[id] = std::move(sizes);
}

void proxy::remove_region(std::uint16_t id) noexcept {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  region_bytes_[id].clear();
  regions_[id] = {};
  engine_->remove_region(id);
}

void proxy::hold(const std::function<void()>& f) {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  f();
}

std::uint16_t proxy::free_region() const {
  const auto it = std::find_if(region_bytes_.begin(), region_bytes_.end(),
                               [](const auto& sizes) { return sizes.empty(); });
  const auto id = it - region_bytes_.begin();
  if (id > std::numeric_limits<std::uint16_t>::max()) {
    throw error(errc::out_of_memory, "registration", "65536 of them are there already");
  }
  return static_cast<std::uint16_t>(id);
}

/// Until every command that kernels issued is carried out, and visible remotely.
bool proxy::finish_all(std::chrono::nanoseconds at_most) {
  struct mark : completion {
    std::atomic<bool> reached{false};
  };
  // Lives with the proxy: the engine may call it after this function has given up.
  const auto end = std::make_shared<mark>();
  end->done = [](completion& c, status /*s*/) { static_cast<mark&>(c).reached.store(true); };
  last_mark_ = end;
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  bool flushing = false;
  while (!end->reached.load() && std::chrono::steady_clock::now() < deadline) {
    if (take_turn()) {
      work_in_turn([&] {
        const bool moved = work();
        if (!flushing && !moved && under_way_ == 0 && !commands_wait()) {
          flushing = engine_->flush(*end);
        }
        return moved;
      });
    }
    std::this_thread::yield();
  }
  return end->reached.load();
}

// ---- whose turn it is

bool proxy::take_turn() noexcept {
  std::uint32_t nobody = 0;
  // acquire: what the one before did
  return turn_.compare_exchange_strong(nobody, taken, std::memory_order_acquire,
                                       std::memory_order_relaxed);
}

bool proxy::progress() noexcept {
  return take_turn() && work_in_turn([this] { return work(); });
}

void proxy::lend() noexcept {
  lends_.fetch_add(1, std::memory_order_relaxed);
  if (progress()) exec::cpu::note_progress();
}

void proxy::end_lending() noexcept {
  if (pending_.load(std::memory_order_relaxed)) rouse();
}

void proxy::attend(std::uint32_t index) noexcept {
  while (!take_turn()) {
    // Who has the turn looks again; unless it has given it back at this moment.
    if ((turn_.fetch_or(again, std::memory_order_acq_rel) & taken) != 0) return;
    std::uint32_t left = again;
    turn_.compare_exchange_strong(left, 0, std::memory_order_relaxed);
  }
  const auto guarded = [&] { return keep_going([&] { return drain(*queues_[index]); }); };
  if (work_in_turn(guarded)) exec::cpu::note_progress();
  end_lending();
}

void proxy::give_up(const char* why) noexcept {
  if (refusal_.load(std::memory_order_relaxed) == status::ok) {
    log::error(bounds_.rank, "proxy: every command fails from now on: ", why);
  }
  refuse(status::aborted);
}

// ---- counters

std::vector<operation_stats> proxy::stats() {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  return {stats_.begin(), stats_.end()};
}

void proxy::reset_stats() {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  for (std::size_t i = 0; i < kinds; ++i) {
    stats_[i] = {};
    stats_[i].name = name_of(static_cast<proxy_call>(i));
  }
}

// ---- what breaks

void proxy::hear_news() {
  std::vector<int> lost;
  {
    const std::scoped_lock lock(news_mutex_);
    news_.store(false, std::memory_order_relaxed);
    lost.swap(lost_);
  }
  for (const int pe : lost) {
    dead_[static_cast<std::size_t>(pe)] = true;
    engine_->lose(pe);
  }
  const status why = refusal_.load(std::memory_order_relaxed);
  if (why == status::ok) return;
  // Whoever waits is told now; what is under way may still end, and nobody hears of it.
  for (const auto& op : operations_) {
    if (!op->active || op->answered) continue;
    op->answered = true;
    if ((op->c.flags & proxy_command::wants_reply) != 0) reply(*op->from, op->ticket, 0, why);
  }
}

void proxy::lose(int pe) noexcept {
  {
    const std::scoped_lock lock(news_mutex_);
    lost_.push_back(pe);
    news_.store(true, std::memory_order_release);
  }
  rouse();
}

void proxy::refuse(status why) noexcept {
  refusal_.store(why, std::memory_order_relaxed);
  news_.store(true, std::memory_order_release);
  rouse();
}

// ---- the thread

void proxy::run() {
  // Naps are short; the default slack would double them.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  using clock = std::chrono::steady_clock;
  constexpr auto patience = std::chrono::microseconds(50);
  constexpr std::uint32_t patient_looks = 256;  // time also passes for a thread without a core
  auto active = clock::now();
  std::uint32_t lends = 0;
  constexpr std::chrono::microseconds shortest_nap(50);
  constexpr std::chrono::microseconds longest_nap(1000);
  auto nap = shortest_nap;
  for (std::uint32_t look = 1; !stop_.load(std::memory_order_relaxed); ++look) {
    // Kernels that wait do the work themselves, and best alone: even to look whether they still do
    // takes a core from them.
    if (const std::uint32_t now = lends_.load(std::memory_order_relaxed); now != lends) {
      lends = now;
      stand_by(nap);
      nap = std::min(2 * nap, longest_nap);
      continue;
    }
    nap = shortest_nap;
    if (progress()) {
      active = clock::now();
      look = 0;
      continue;
    }
    if (look % 32 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look >= patient_looks && look % 16 == 0 && clock::now() - active > patience) {
      const auto since = active;
      while (!stop_.load(std::memory_order_relaxed) && rest(clock::now() - since)) {
      }
      active = clock::now();
      look = 0;
    }
  }
}

/// Sleeps a little, or until it is called.
void proxy::stand_by(std::chrono::nanoseconds at_most) {
  asleep_.exchange(true, std::memory_order_acq_rel);
  sleep_on_bell({0, at_most.count()}, -1);
  asleep_.exchange(false, std::memory_order_acq_rel);
}

void proxy::sleep_on_bell(const timespec& at_most, int other) {
  pollfd wakers[2] = {{bell_descriptor_, POLLIN, 0}, {other, POLLIN, 0}};
  ppoll(wakers, other >= 0 ? 2 : 1, &at_most, nullptr);
  std::uint64_t count = 0;
  if ((wakers[0].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t n = read(bell_descriptor_, &count, sizeof(count));
  }
}

/// Whether a GPU's kernel may be about to ask for something. Asked only when it was still for a
/// while: looking at its streams takes time too.
bool proxy::gpu_may_ask(std::chrono::nanoseconds idle_for) {
  constexpr auto still = std::chrono::milliseconds(50);
  if (device_.kind() != device_kind::cuda) return false;
  if (idle_for < still) return true;
  if (!launched_.exchange(false, std::memory_order_relaxed)) return false;
  if (!exec::busy(device_)) return false;
  launched_.store(true, std::memory_order_relaxed);
  return true;
}

/// Sleeps until there may be something to do; true when there was nothing before. A GPU cannot wake
/// a thread, so while one of its streams is busy its commands are looked for.
bool proxy::rest(std::chrono::nanoseconds idle_for) {
  constexpr timespec short_nap{0, 20'000};
  constexpr timespec nap{0, 1'000'000};
  constexpr timespec deaf_nap{0, 3'000'000};
  constexpr auto recently = std::chrono::milliseconds(2);
  constexpr auto long_ago = std::chrono::milliseconds(50);
  constexpr timespec long_nap{0, 100'000'000};
  // pairs with rouse(): one of the two sees the other
  asleep_.exchange(true, std::memory_order_acq_rel);
  bool idle = false;
  if (take_turn()) {
    const bool armed = keep_going([this] { return engine_->arm(); });
    idle = !work_in_turn([this] { return work(); }) && armed;
  }
  if (idle && !news_.load(std::memory_order_acquire)) {
    const int other = engine_->wake_descriptor();
    // An engine that cannot wake anybody is looked after, the less the longer nothing came.
    const bool deaf = other < 0 && engine_->can().target_progress;
    const bool looks = (other < 0 && pending_.load(std::memory_order_relaxed)) ||
                       (deaf && idle_for < recently) || gpu_may_ask(idle_for);
    const bool peeks = deaf || device_.kind() == device_kind::cuda;
    sleep_on_bell(looks                         ? short_nap
                  : deaf && idle_for > long_ago ? deaf_nap
                  : peeks                       ? nap
                                                : long_nap,
                  other);
  }
  asleep_.exchange(false, std::memory_order_acq_rel);
  return idle;
}

void proxy::rouse() noexcept {
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(bell_descriptor_, &one, sizeof(one));
}

// ---- what CPU kernels call

void exec::cpu::lend_thread(proxy& p) noexcept {
  p.lend();
}
void exec::cpu::end_lending(proxy& p) noexcept {
  p.end_lending();
}
void exec::cpu::call_proxy(proxy& p, std::uint32_t queue) noexcept {
  p.attend(queue);
}

}  // namespace crosswarp
