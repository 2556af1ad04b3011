// OS threads that are kept for the next launch.
#pragma once

#include <functional>
#include <memory>

namespace crosswarp::exec::cpu {

/// Grows without bound while work needs it: kernels wait for each other, so a bounded pool could
/// hold back the very thread that the others wait for. Threads are joined when the process ends.
class thread_cache {
 public:
  static thread_cache& instance();
  /// Runs f(0) ... f(n - 1) all at once, f(0) on the calling thread; returns when all are done.
  /// `f` must not throw.
  void run_together(int n, const std::function<void(int)>& f);

  thread_cache(const thread_cache&) = delete;
  thread_cache& operator=(const thread_cache&) = delete;

 private:
  thread_cache();
  ~thread_cache();
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace crosswarp::exec::cpu
