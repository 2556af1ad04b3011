#include "thread_cache.hpp"

#include <condition_variable>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "crosswarp/error.hpp"

namespace crosswarp::exec::cpu {

struct thread_cache::state {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> jobs;
  std::size_t bound = 0;  // threads that have a job or will take a queued one
  bool stopping = false;
  std::vector<std::thread> threads;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || !jobs.empty(); });
      if (jobs.empty()) return;
      const auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      lock.lock();
      --bound;
    }
  }

  /// Threads come first: when they cannot be had, no job of the batch has started.
  void submit(std::vector<std::function<void()>> batch) {
    const std::scoped_lock lock(mutex);
    try {
      for (; bound + batch.size() > threads.size();) threads.emplace_back([this] { serve(); });
    } catch (const std::system_error& e) {
      throw error(errc::does_not_fit, "launch",
                  std::to_string(batch.size()) + " threads at once: " + e.what());
    }
    bound += batch.size();
    for (auto& job : batch) jobs.push_back(std::move(job));
    wake.notify_all();
  }
};

thread_cache& thread_cache::instance() {
  static thread_cache cache;
  return cache;
}

thread_cache::thread_cache() : state_(std::make_unique<state>()) {}

thread_cache::~thread_cache() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& t : state_->threads) t.join();
}

void thread_cache::run_together(int n, const std::function<void(int)>& f) {
  // Shared, so that the last to count down may still touch it after the caller has gone on.
  const auto rest = std::make_shared<std::latch>(n - 1);
  std::vector<std::function<void()>> others;
  for (int i = 1; i < n; ++i) {
    others.emplace_back([&f, i, rest] {
      f(i);
      rest->count_down();
    });
  }
  state_->submit(std::move(others));
  f(0);
  rest->wait();
}

}  // namespace crosswarp::exec::cpu
