#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "crosswarp/error.hpp"
#include "exec/cpu/executor.hpp"
#include "transports/verbs/soft_parts.hpp"

namespace crosswarp::verbs {
namespace {

/// Of a queue pair's number, which has 24 bits: which place is its own. 64 ranks of a process that
/// have an endpoint to each other, and more queues than one, need as many.
constexpr unsigned place_bits = 14;
constexpr std::uint32_t place_of_number = (1U << place_bits) - 1;
constexpr std::ptrdiff_t most_qps = place_of_number;

}  // namespace

// ---- making and ending

soft_nic::soft_nic(std::uint64_t fabric, std::uint32_t number, const rdma::soft_options& o)
    : fabric_(fabric), number_(number), options_(o), random_(o.seed + number) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw error::from_errno(errno, "soft nic", "eventfd");
  thread_ = std::thread([this] { work(); });
}

soft_nic::~soft_nic() {
  stop();
  close(wake_);
}

/// After a flag was set that rest() looks at. In one order with it: either it sees the flag, or
/// this sees that it sleeps.
void soft_nic::rouse() const noexcept {
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof(one));  // full: is awake
}

/// Relaxed, since it comes with every ring: when it is missed, the NIC naps once more.
void soft_nic::hear() const noexcept {
  if (asleep_.load(std::memory_order_relaxed)) rouse();
}
void call_nic(nic_call& c) noexcept {
  c.rang.store(true, std::memory_order_release);  // pairs with look_at_bells()
  c.nic.hear();
}

/// Any thread: those that launch kernels.
void soft_nic::expect_bells() noexcept {
  launched_.store(true, std::memory_order_seq_cst);
  rouse();
}

void soft_nic::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    posted_.store(true, std::memory_order_seq_cst);
  }
  rouse();
  thread_.join();
}

void soft_nic::post(std::function<void()> f) {
  {
    const std::scoped_lock lock(mutex_);
    posts_.push_back(std::move(f));
    posted_.store(true, std::memory_order_seq_cst);  // the lock orders what it speaks of
  }
  rouse();
}

/// Has the thread run `f` and waits for it.
template <class F>
auto soft_nic::run(F&& f) {
  // Shared: the thread may still be leaving it when the result is there.
  const auto task = std::make_shared<std::packaged_task<decltype(f())()>>(std::forward<F>(f));
  auto result = task->get_future();
  post([task] { (*task)(); });
  return result.get();
}

void soft_nic::set_wire(std::unique_ptr<wire> w) {
  run([&] { wire_ = std::move(w); });
}

std::uint32_t soft_nic::add_memory(const memory_range& m, access allowed) {
  return run([&] { return keys_.add(m, allowed); });
}
void soft_nic::remove_memory(std::uint32_t key) {
  run([&] { keys_.remove(key); });
}

std::uint32_t soft_nic::add_shared(const shared_setup& s) {
  return run([&] {
    shared_[++shared_made_] = std::make_unique<shared_queue>(shared_queue{s});
    return shared_made_;
  });
}
void soft_nic::remove_shared(std::uint32_t which) {
  run([&] { shared_.erase(which); });
}

soft_nic::made_qp soft_nic::add_qp(const qp_setup& s, std::uint32_t shared) {
  // A page is made here, not by the thread: that may have to wait for the device.
  std::unique_ptr<bell_page> fresh;
  for (;;) {
    const auto made = run([&] { return try_add_qp(s, shared, fresh); });
    if (made) return *made;
    fresh = std::make_unique<bell_page>(s.kernels, *this);
  }
}

/// Nothing when there is no doorbell left; `fresh` is taken when it is needed and there.
std::optional<soft_nic::made_qp> soft_nic::try_add_qp(const qp_setup& s, std::uint32_t shared,
                                                      std::unique_ptr<bell_page>& fresh) {
  auto number = std::find(by_number_.begin(), by_number_.end(), nullptr);
  if (number - by_number_.begin() == most_qps) {
    throw error(errc::out_of_memory, "rdma endpoint",
                std::to_string(most_qps) + " endpoints of this device are there already");
  }
  auto page = std::find_if(pages_.begin(), pages_.end(), [&](const auto& p) {
    return p->device == s.kernels &&
           (p->owners.size() < bell_page::capacity ||
            std::find(p->owners.begin(), p->owners.end(), nullptr) != p->owners.end());
  });
  if (page == pages_.end()) {
    if (fresh == nullptr) return {};
    page = pages_.insert(page, std::move(fresh));
  }
  bell_page& at = **page;
  auto place = std::find(at.owners.begin(), at.owners.end(), nullptr);
  if (place == at.owners.end()) place = at.owners.insert(place, nullptr);
  if (number == by_number_.end()) number = by_number_.insert(number, nullptr);
  const auto bell = static_cast<std::size_t>(place - at.owners.begin());
  auto made = std::make_unique<qp>(s, nic_call{*this, at.rang[bell / bell_page::of_group]});
  // Counted up with each use of a place, so that an answer to an old one finds no new one. From 1:
  // a doorbell that was never rung shows 0.
  const auto place_number = static_cast<std::uint32_t>(number - by_number_.begin()) + 1;
  made->qpn = (++made_ << place_bits & 0xff'ffffU) | place_number;
  made->self = {fabric_, number_, made->qpn};
  made->shared = shared == 0 ? nullptr : shared_.at(shared).get();
  made->page = &at;
  made->bell = bell;
  *place = made.get();
  *number = made.get();
  const made_qp result{made->qpn, at.words.data() + bell, &made->call};
  qps_[made->qpn] = std::move(made);
  return result;
}

void soft_nic::remove_qp(std::uint32_t qpn) {
  run([&] {
    qp& q = *qps_.at(qpn);
    end_shared(q);
    bell_page& at = *q.page;
    at.owners[q.bell] = nullptr;
    at.seen[q.bell] = 0;
    at.words.data()[q.bell] = 0;
    while (!at.owners.empty() && at.owners.back() == nullptr) at.owners.pop_back();
    if (now_of_ == &q) now_of_ = nullptr;
    by_number_[(qpn & place_of_number) - 1] = nullptr;
    std::erase(active_, &q);
    std::erase(failed_, &q);
    qps_.erase(qpn);
  });
}

void soft_nic::connect(std::uint32_t qpn, const endpoint_address& peer) {
  run([&] {
    qp& q = *qps_.at(qpn);
    if (q.state != endpoint_state::made) {
      throw error(
          errc::invalid_argument, "connect",
          "the endpoint is connected already, or has failed; reset() it, or make another one");
    }
    wire_->learn(peer);
    q.peer = {peer.fabric, peer.device, peer.qpn};
    q.state = endpoint_state::ready;
  });
}

endpoint_state soft_nic::state_of(std::uint32_t qpn) {
  return run([&] { return qps_.at(qpn)->state; });
}

/// Null when there is none.
soft_nic::qp* soft_nic::find(std::uint32_t qpn) const noexcept {
  const std::size_t place = (qpn & place_of_number) - std::size_t{1};
  qp* const q = place < by_number_.size() ? by_number_[place] : nullptr;
  return q != nullptr && q->qpn == qpn ? q : nullptr;
}

bool soft_nic::chance(int of_thousand) {
  return of_thousand > 0 && random_() % 1000 < static_cast<std::uint64_t>(of_thousand);
}

// ---- the thread

void soft_nic::work() {
  auto last = clock::now();
  std::uint32_t round = 0;
  for (std::uint32_t look = 1;; ++look) {
    const bool posted = posted_.load(std::memory_order_relaxed);
    if (posted && !hear_posts()) return;
    if (launched_.load(std::memory_order_relaxed)) {
      launched_.store(false, std::memory_order_relaxed);
      last = clock::now();
    }
    const bool heard = wire_ != nullptr && wire_->progress();
    // Who fills queues by hand calls nobody: his turn comes also while others are busy all the
    // time.
    const bool rung = look_at_bells(posted || look % 64 == 0, ++round % 64 == 0);
    const bool moved = serve_all();
    if (heard || rung || moved) {
      last = clock::now();
      look = 0;
      continue;
    }
    // Kernel threads may want this core.
    if (look % 32 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look % 64 == 0) rest(clock::now() - last);
  }
}

/// What other threads want; false when that is the end.
bool soft_nic::hear_posts() {
  std::deque<std::function<void()>> posts;
  {
    const std::scoped_lock lock(mutex_);
    posted_.store(false, std::memory_order_relaxed);
    posts.swap(posts_);
    if (stop_) return false;
  }
  for (const auto& f : posts) f();
  return true;
}

/// Sleeps a little when nothing was to be done for a while: the longer ago, the longer, and at most
/// a millisecond. A GPU cannot wake a thread, so doorbells are looked for all the time, and more
/// often after a launch. A CPU can, see hear().
void soft_nic::rest(clock::duration idle_for) {
  using us = std::chrono::microseconds;
  constexpr us patience(100);
  constexpr us recently(2000);
  constexpr us long_ago(50'000);
  if (idle_for < patience) return;
  const us nap = idle_for < recently ? us(20) : idle_for < long_ago ? us(200) : us(1000);
  if (wire_ != nullptr && !wire_->arm()) return;
  pollfd ways[2] = {{wake_, POLLIN, 0}, {wire_ != nullptr ? wire_->descriptor() : -1, POLLIN, 0}};
  const timespec limit{0, std::chrono::nanoseconds(nap).count()};
  asleep_.store(true, std::memory_order_seq_cst);
  const bool wanted =
      posted_.load(std::memory_order_seq_cst) || launched_.load(std::memory_order_seq_cst);
  if (!wanted) ppoll(ways, std::size(ways), &limit, nullptr);
  asleep_.store(false, std::memory_order_relaxed);
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_, &rung, sizeof(rung));
}

/// At those of groups that were called for, and of the `next` one, whose turn it is, so that a look
/// takes no longer with more of them; or at `all`: of a GPU's kernels, which cannot call, it is all
/// of them in any case.
bool soft_nic::look_at_bells(bool all, bool next) {
  bool any = false;
  std::size_t group = 0;
  for (const auto& page : pages_) {
    for (std::size_t first = 0; first < page->owners.size(); first += bell_page::of_group) {
      std::atomic<bool>& rang = page->rang[first / bell_page::of_group];
      // Taken before the look: a ring that this misses is called for again. pairs with call_nic()
      const bool called =
          rang.load(std::memory_order_relaxed) && rang.exchange(false, std::memory_order_acquire);
      const bool its_turn = next && group == bell_turn_;
      if (called || all || its_turn || !page->calls) any = hear_group(*page, first) || any;
      ++group;
    }
  }
  if (next) bell_turn_ = bell_turn_ + 1 < group ? bell_turn_ + 1 : 0;
  return any;
}

bool soft_nic::hear_group(bell_page& page, std::size_t first) {
  bool any = false;
  std::uint64_t* const words = page.words.data();
  const std::size_t end = std::min(first + bell_page::of_group, page.owners.size());
  for (std::size_t i = first; i < end; ++i) {
    // Relaxed: most of them have not changed.
    if (shared(words[i]).load(std::memory_order_relaxed) == page.seen[i]) continue;
    if (page.owners[i] == nullptr) continue;
    const std::uint64_t bell =
        shared(words[i]).load(std::memory_order_acquire);  // pairs with mlx5_provider::ring()
    page.seen[i] = bell;
    hear_bell(*page.owners[i], bell);
    any = true;
  }
  return any;
}

bool soft_nic::serve_all() {
  if (active_.empty() && failed_.empty()) return false;
  if (options_.shuffle) std::shuffle(active_.begin(), active_.end(), random_);
  bool moved = false;
  // By index: what is served may add others.
  for (std::size_t i = 0; i < active_.size(); ++i) moved = serve(*active_[i]) || moved;
  std::erase_if(active_, [](qp* q) {
    q->active = q->head != q->target;
    return !q->active;
  });
  for (qp* q : failed_) moved = flush_receives(*q) || moved;
  return moved;
}

}  // namespace crosswarp::verbs
