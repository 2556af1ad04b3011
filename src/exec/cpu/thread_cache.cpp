#include "thread_cache.hpp"

#include <condition_variable>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace crosswarp::exec::cpu {

struct thread_cache::state {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> jobs;
  std::size_t idle = 0;
  bool stopping = false;
  std::vector<std::thread> threads;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      wake.wait(lock, [&] { return stopping || !jobs.empty(); });
      --idle;
      if (jobs.empty()) return;
      const auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  /// Every queued job has a thread of its own that is free to take it.
  void submit(std::function<void()> job) {
    const std::scoped_lock lock(mutex);
    jobs.push_back(std::move(job));
    if (jobs.size() > idle) {
      threads.emplace_back([this] { serve(); });
    } else {
      wake.notify_one();
    }
  }
};

thread_cache& thread_cache::instance() {
  static thread_cache cache;
  return cache;
}

thread_cache::thread_cache() : state_(new state) {}

thread_cache::~thread_cache() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& t : state_->threads) t.join();
  delete state_;
}

void thread_cache::run_together(int n, const std::function<void(int)>& f) {
  // Shared, so that the last to count down may still touch it after the caller has gone on.
  const auto rest = std::make_shared<std::latch>(n - 1);
  for (int i = 1; i < n; ++i) {
    state_->submit([&f, i, rest] {
      f(i);
      rest->count_down();
    });
  }
  f(0);
  rest->wait();
}

}  // namespace crosswarp::exec::cpu
