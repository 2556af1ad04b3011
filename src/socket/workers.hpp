// The threads behind a service. Each owns every n-th place of the table with all that belongs to
// it; what concerns another's place goes there as a letter. What they share is here, and is little:
// which places are free, and how many connections an address has.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "worker.hpp"

namespace crosswarp::socket_impl {

class workers {
 public:
  static constexpr int most = 64;

  /// One for each engine. `hears_itself`: kernels are on a GPU, and do not call attend(). `around`
  /// and `traced`: of a world's service, else null.
  workers(const device::socket::memory& m, ring_pool& pool, const socket::service_options& o,
          std::vector<std::unique_ptr<engine>> engines, bool hears_itself, lanes* around,
          trace::recorder* traced);
  ~workers();
  workers(const workers&) = delete;
  workers& operator=(const workers&) = delete;

  // ---- any thread
  void stop() noexcept;
  [[nodiscard]] bool is_stopped() const noexcept { return stop_.load(std::memory_order_relaxed); }
  [[nodiscard]] socket::service_stats stats() const;

  // ---- threads of CPU kernels
  /// One that waits: does some work, or sleeps a little until there is some.
  void lend() noexcept;
  /// One that rang a bell, or made a call: has it heard.
  void attend(std::uint32_t place) noexcept { owner(place).attend(place); }
  void attend_calls() noexcept { all_.front()->attend_calls(); }

  // ---- workers
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] worker& owner(std::uint32_t place) const noexcept { return *all_[place % count_]; }
  /// Sets a place aside and says whose: of those who have most left. Null when the table is full;
  /// then all listeners are woken when a place becomes free.
  [[nodiscard]] worker* reserve() noexcept;
  /// Whether somebody may wait for a place. Asked once for each that becomes free, after it has.
  [[nodiscard]] bool is_short_of_places() noexcept { return short_of_places_.exchange(false); }
  /// False when there are as many connections from there as there may be. An empty name counts for
  /// nobody.
  [[nodiscard]] bool admit_peer(const std::string& name);
  void dismiss_peer(const std::string& name);

  template <class F>
  void for_each(F&& f) const {
    for (const auto& w : all_) f(*w);
  }

  const device::socket::memory m;
  const socket::service_options options;
  ring_pool& pool;
  const bool hears_itself;
  lanes* const around;
  trace::recorder* const traced;

 private:
  [[nodiscard]] worker* try_reserve() const noexcept;
  void sleep() noexcept;
  void end() noexcept;

  const std::uint32_t count_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> short_of_places_{false};
  std::atomic<bool> sleeper_{false};  // a kernel's thread sleeps on the engines, for all
  std::mutex peers_guard_;
  std::map<std::string, int> per_peer_;
  std::vector<std::unique_ptr<worker>> all_;  // last: their threads use what is above
};

template <class F>
void worker::tell(handle listener, F&& f) {
  if (!listener) return;
  post(all_.owner(listener.index()), [listener, f = std::forward<F>(f)](worker& w) {
    if (entry* const l = w.find(listener)) f(w, *l);
  });
}

}  // namespace crosswarp::socket_impl
