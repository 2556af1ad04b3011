#include "flow/station.hpp"

#include <algorithm>
#include <chrono>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {

station::station(world& w, std::shared_ptr<waits> limits)
    : world_(w),
      limits_(std::move(limits)),
      faults_(w.device().limits),
      mail_(std::make_unique<mail>(w)),
      going_(static_cast<std::size_t>(w.size())),
      taken_(static_cast<std::size_t>(w.size())),
      thread_([this] { run(); }) {}

station::~station() {
  close();
}

const symmetric_buffer<std::byte>& station::allocate(std::size_t bytes) {
  return memory_.emplace_back(world_, bytes);
}

std::uint32_t station::add(const std::shared_ptr<addressee>& a) {
  const std::scoped_lock lock(mutex_);
  addressees_.push_back(a);
  return static_cast<std::uint32_t>(addressees_.size() - 1);
}

void station::stop_copies() {
  const std::scoped_lock lock(mutex_);
  copies_ = false;
}

void station::post(int rank, const message& m) {
  if (rank == world_.rank()) {
    came_[m.router].push_back(m);
  } else {
    going_[static_cast<std::size_t>(rank)].push_back(m);
  }
  news_ = true;
  posted_.notify_one();
}

void station::post_after(const completion& c, const status* failed, int rank, const message& m) {
  later_.push_back({c, failed, rank, m});
  news_ = true;
  posted_.notify_one();
}

void station::check_running(const char* call) const {
  if (stop_) throw error(errc::invalid_argument, call, "the context of this link has ended");
}

// ---- the thread

void station::run() noexcept {
  using std::chrono::microseconds;
  constexpr microseconds shortest(20);
  constexpr microseconds longest(1000);
  microseconds nap = shortest;
  try {
    while (!is_broken()) {
      const bool moved = work() || world_.progress();
      std::unique_lock lock(mutex_);
      if (stop_) return;
      const bool news = moved || posted_.wait_for(lock, nap, [this] { return news_ || stop_; });
      nap = news ? shortest : std::min(2 * nap, longest);
    }
  } catch (const std::exception& e) {
    const auto* const told = dynamic_cast<const error*>(&e);
    if (told != nullptr && told->code() == errc::peer_lost) await_word();
    if (!is_broken()) break_world(e.what());  // else it follows from what all know
  }
}

/// A command may find out that a rank is gone before the host has heard of it, and of which.
void station::await_word() {
  const auto end = std::chrono::steady_clock::now() + world_.options().timeout;
  while (!is_broken() && std::chrono::steady_clock::now() < end) {
    std::unique_lock lock(mutex_);
    if (posted_.wait_for(lock, std::chrono::milliseconds(1), [this] { return stop_; })) return;
  }
}

bool station::work() {
  bool moved = false;
  {
    const std::scoped_lock lock(mutex_);
    news_ = false;
    moved = post_what_is_due();
    moved = hand_out() || moved;
    for (std::size_t r = 0; r < going_.size(); ++r) {
      taken_[r].insert(taken_[r].end(), going_[r].begin(), going_[r].end());
      going_[r].clear();
    }
  }
  moved = mail_->step(taken_, fresh_) || moved;
  const std::scoped_lock lock(mutex_);
  for (const message& m : fresh_) came_[m.router].push_back(m);
  fresh_.clear();
  return moved;
}

bool station::post_what_is_due() {
  std::vector<later> now;
  std::vector<later> still;
  for (later& l : later_) (l.when.ready() ? now : still).push_back(std::move(l));
  later_ = std::move(still);
  for (const later& l : now) {
    if (l.failed != nullptr && *l.failed != status::ok) {
      throw error(*l.failed == status::peer_lost ? errc::peer_lost : errc::system, "flow::link",
                  std::string("a packet did not arrive: ") + to_string(*l.failed), l.rank);
    }
    post(l.rank, l.what);
  }
  return !now.empty();
}

bool station::hand_out() {
  bool moved = false;
  for (auto& [number, letters] : came_) {
    if (number >= addressees_.size()) continue;
    const auto to = addressees_[number].lock();
    if (to == nullptr || !to->is_complete()) continue;
    // What it does may bring it more, from itself.
    for (; !letters.empty(); moved = true) {
      const message m = letters.front();
      letters.pop_front();
      to->handle(m);
    }
  }
  return moved;
}

bool station::is_broken() const noexcept {
  return device::impl::read_fault(faults_) != 0;
}

void station::break_world(const std::string& why) noexcept {
  try {
    stop_copies();
    limits_->abort(why);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the world is told in any case
  }
  world_.abort("flow: " + why);
}

// ---- the end

void station::stop() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  posted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void station::close() noexcept {
  if (!mail_) return;
  const bool leaves_early = std::uncaught_exceptions() > 0;
  try {
    if (!leaves_early && !is_broken()) world_.barrier();  // nobody needs this rank any more
    stop();
    for (const auto& a : addressees_) {
      if (const auto to = a.lock()) to->finish();
    }
    later_.clear();
    if (!leaves_early && !is_broken()) {
      mail_->flush();
      world_.barrier();  // and nothing is under way
    }
  } catch (const std::exception& e) {
    if (!is_broken()) break_world(e.what());
    stop();
  }
  memory_.clear();
  mail_.reset();
}

}  // namespace crosswarp::flow::impl
