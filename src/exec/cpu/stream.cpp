// Streams, events and memory of the CPU.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "../backends.hpp"
#include "crosswarp/error.hpp"
#include "executor.hpp"

namespace crosswarp::exec::cpu {
namespace {

class cpu_event final : public event_backend {
 public:
  /// Shared with the streams that have it queued, which may outlive the event.
  struct state {
    std::mutex mutex;
    std::condition_variable changed;
    int pending = 0;
    std::chrono::steady_clock::time_point when;

    void fire() {
      const std::scoped_lock lock(mutex);
      when = std::chrono::steady_clock::now();
      --pending;
      changed.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return pending == 0; });
    }
  };

  [[nodiscard]] bool ready() const override {
    const std::scoped_lock lock(state_->mutex);
    return state_->pending == 0;
  }
  void sync() const override { state_->wait(); }
  [[nodiscard]] std::chrono::nanoseconds since(const event_backend& earlier) const override {
    return state_->when - static_cast<const cpu_event&>(earlier).state_->when;
  }
  std::shared_ptr<state> arm() {
    const std::scoped_lock lock(state_->mutex);
    ++state_->pending;
    return state_;
  }
  [[nodiscard]] std::shared_ptr<state> share() const { return state_; }

 private:
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

/// A thread that runs one task after the other.
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
    idle_.wait(lock, [&] { return tasks_.empty() && !busy_; });
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  void record(event_backend& e) override {
    submit([s = static_cast<cpu_event&>(e).arm()] { s->fire(); });
  }
  void wait(const event_backend& e) override {
    submit([s = static_cast<const cpu_event&>(e).share()] { s->wait(); });
  }
  void copy(void* dst, const void* src, std::size_t bytes) override {
    submit([=] { std::memcpy(dst, src, bytes); });
  }
  void run(cpu_grid grid) override {
    check_fits(grid.shape);
    grid.owner = owner_;
    submit([g = std::move(grid)] { run_grid(g); });
  }
  void set_owner(std::uint32_t owner) override { owner_ = owner; }

 private:
  void submit(std::function<void()> task) {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_one();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr failed;
      try {
        task();
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      if (failure_ == nullptr) failure_ = failed;
      idle_.notify_all();
    }
  }

  std::uint32_t owner_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: starts when all else is there
};

class cpu_backend final : public backend {
 public:
  std::unique_ptr<stream_backend> make_stream(device_ref /*d*/) override {
    return std::make_unique<cpu_stream>();
  }
  std::unique_ptr<event_backend> make_event(device_ref /*d*/) override {
    return std::make_unique<cpu_event>();
  }
  void* allocate(device_ref /*d*/, memory_kind /*kind*/, std::size_t bytes) override {
    constexpr std::size_t alignment = 256;
    void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment +
                                                (bytes == 0 ? alignment : 0));
    if (p == nullptr) {
      throw error(errc::out_of_memory, "buffer", std::to_string(bytes) + " bytes on the CPU");
    }
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
