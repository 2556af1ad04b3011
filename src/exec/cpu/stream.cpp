// Streams, events and memory of the CPU.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "../backends.hpp"
#include "crosswarp/error.hpp"
#include "executor.hpp"

namespace crosswarp::exec::cpu {
namespace {

class cpu_event final : public event_backend {
 public:
  /// One record(). Shared with the streams that have it queued, which may outlive the event.
  struct point {
    std::mutex mutex;
    std::condition_variable changed;
    bool passed = false;
    std::chrono::steady_clock::time_point when;

    void pass() {
      const std::scoped_lock lock(mutex);
      when = std::chrono::steady_clock::now();
      passed = true;
      changed.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return passed; });
    }
  };

  [[nodiscard]] bool ready() const override {
    const auto p = last();
    const std::scoped_lock lock(p->mutex);
    return p->passed;
  }
  void sync() const override { last()->wait(); }
  [[nodiscard]] std::chrono::nanoseconds since(const event_backend& earlier) const override {
    return last()->when - of(earlier).last()->when;
  }
  std::shared_ptr<point> renew() {
    const std::scoped_lock lock(mutex_);
    return last_ = std::make_shared<point>();
  }
  /// The latest record, as of now.
  [[nodiscard]] std::shared_ptr<point> last() const {
    const std::scoped_lock lock(mutex_);
    return last_;
  }
  static const cpu_event& of(const event_backend& e) {
    const auto* mine = dynamic_cast<const cpu_event*>(&e);
    if (mine == nullptr) {
      throw error(errc::invalid_argument, "event", "an event of another kind of device");
    }
    return *mine;
  }

 private:
  static std::shared_ptr<point> passed_point() {
    auto p = std::make_shared<point>();
    p->pass();
    return p;
  }
  mutable std::mutex mutex_;
  std::shared_ptr<point> last_ = passed_point();
};

/// Runs one task after the other: a thread of its own does, or whoever waits for the stream, so
/// that a short task and a sync() behind it need no other thread's turn.
class cpu_stream final : public stream_backend {
 public:
  cpu_stream() : thread_([this] { serve(); }) {}
  ~cpu_stream() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  cpu_stream(const cpu_stream&) = delete;
  cpu_stream& operator=(const cpu_stream&) = delete;

  void sync() override {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (can_take()) run_next(lock);
      if (is_idle()) break;
      lock.unlock();
      spin_until([&] { return is_idle(); });
      lock.lock();
      idle_.wait(lock, [&] { return is_idle(); });
    }
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  void record(event_backend& e) override {
    refuse_in_recording();
    submit([p = const_cast<cpu_event&>(cpu_event::of(e)).renew()] { p->pass(); });
  }
  void wait(const event_backend& e) override {
    refuse_in_recording();
    submit([p = cpu_event::of(e).last()] { p->wait(); });
  }
  void copy(void* dst, const void* src, std::size_t bytes) override {
    keep_or_submit([=] { std::memcpy(dst, src, bytes); });
  }
  void run(cpu_grid grid) override {
    check_fits(grid.shape);
    grid.owner = owner_;
    keep_or_submit([g = std::move(grid)] { run_grid(g); });
  }
  void set_owner(std::uint32_t owner) override { owner_ = owner; }

  using task_list = std::vector<std::function<void()>>;
  void begin_recording() override {
    refuse_in_recording();
    recorded_.emplace();
  }
  std::unique_ptr<recording_backend> end_recording() override;
  [[nodiscard]] bool is_recording() const override { return recorded_.has_value(); }

 private:
  friend class cpu_recording;
  void refuse_in_recording() const {
    if (recorded_) {
      throw error(errc::not_supported, "stream",
                  "it is being recorded, and a CPU records launches and copies alone");
    }
  }
  void keep_or_submit(std::function<void()> task) {
    if (recorded_) {
      recorded_->push_back(std::move(task));
    } else {
      submit(std::move(task));
    }
  }
  void submit(std::function<void()> task) {
    {
      const std::scoped_lock lock(mutex_);
      tasks_.push_back(std::move(task));
      queued_.store(tasks_.size(), std::memory_order_relaxed);
    }
    wake_.notify_one();
  }

  // Changed under the mutex. Who spins looks without it, and again with it.
  [[nodiscard]] bool can_take() const noexcept {
    return queued_.load(std::memory_order_relaxed) != 0 && !busy_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_idle() const noexcept {
    return queued_.load(std::memory_order_relaxed) == 0 && !busy_.load(std::memory_order_relaxed);
  }

  /// To sleep and to be woken costs far more than a short kernel; so both sides first spin for a
  /// moment, unless others want the core. False: it was in vain.
  template <class Condition>
  static bool spin_until(Condition&& met) {
    for (std::uint32_t spin = 1; spin < 1000 && !crowded(); ++spin) {
      if (met()) return true;
      relax(spin);
      if (spin % 32 == 0) sched_yield();  // the other side may sit on this very core
    }
    return false;
  }

  /// Runs the first task, which can_take() has found.
  void run_next(std::unique_lock<std::mutex>& lock) {
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_.store(true, std::memory_order_relaxed);
    queued_.store(tasks_.size(), std::memory_order_relaxed);
    lock.unlock();
    std::exception_ptr failed;
    try {
      task();
    } catch (...) {
      failed = std::current_exception();
    }
    task = nullptr;  // what it holds ends before anybody is told
    lock.lock();
    if (failure_ == nullptr) failure_ = failed;
    busy_.store(false, std::memory_order_relaxed);
    // Not after each task: to look and go back to sleep would cost its waiter a turn each time.
    if (is_idle()) idle_.notify_all();
  }

  /// Who runs a task in sync() stays until there are none, so nothing is left for this thread to be
  /// woken for again.
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (!can_take()) {
        if (stopping_) return;
        lock.unlock();
        const bool came = spin_until([&] { return can_take(); });
        lock.lock();
        if (!came) wake_.wait(lock, [&] { return stopping_ || can_take(); });
      }
      run_next(lock);
    }
  }

  std::uint32_t owner_ = 0;
  std::optional<task_list> recorded_;  // while it is recorded
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<std::size_t> queued_{0};  // of tasks_
  std::atomic<bool> busy_{false};       // somebody runs a task
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: starts when all else is there
};

class cpu_recording final : public recording_backend {
 public:
  explicit cpu_recording(cpu_stream::task_list tasks) : tasks_(std::move(tasks)) {}
  void replay(stream_backend& on) override {
    for (const auto& task : tasks_) dynamic_cast<cpu_stream&>(on).keep_or_submit(task);
  }

 private:
  cpu_stream::task_list tasks_;
};

std::unique_ptr<recording_backend> cpu_stream::end_recording() {
  return std::make_unique<cpu_recording>(*std::exchange(recorded_, std::nullopt));
}

class cpu_backend final : public backend {
 public:
  std::unique_ptr<stream_backend> make_stream(device_ref /*d*/) override {
    return std::make_unique<cpu_stream>();
  }
  std::unique_ptr<event_backend> make_event(device_ref /*d*/) override {
    return std::make_unique<cpu_event>();
  }
  void* allocate(device_ref /*d*/, memory_kind /*kind*/, std::size_t bytes) override {
    // Whole pages: a registration may share them. Large ones where there is room for some: who
    // goes to and fro in much memory waits for the translation of addresses, too.
    constexpr std::size_t page = 4096;
    constexpr std::size_t large_page = std::size_t{2} << 20U;
    const std::size_t unit = bytes >= large_page ? large_page : page;
    const std::size_t length = std::max(unit, (bytes + unit - 1) / unit * unit);
    void* p = std::aligned_alloc(unit, length);
    if (p == nullptr) {
      throw error(errc::out_of_memory, "buffer", std::to_string(bytes) + " bytes on the CPU");
    }
    // Without them it goes on as well.
    if (unit == large_page) (void)madvise(p, length, MADV_HUGEPAGE);
    return std::memset(p, 0, bytes);
  }
  void release(device_ref /*d*/, memory_kind /*kind*/, void* p) noexcept override { std::free(p); }
  void copy_now(device_ref /*d*/, void* dst, const void* src, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
  }
};

}  // namespace

backend& instance() {
  static cpu_backend b;
  return b;
}

}  // namespace crosswarp::exec::cpu
