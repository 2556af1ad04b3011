// How the host waits in a dataflow graph, and what ends that.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "crosswarp/device/poll.hpp"
#include "crosswarp/flow.hpp"

namespace crosswarp::flow::impl {

class waits final : public patience {
 public:
  /// `keep`: what the fault word of `limits` lies in; may be null. `sleeps`: who waits leaves its
  /// core to others after a short while. They are who it waits for, on a CPU.
  waits(const device::wait_limits& limits, std::shared_ptr<const void> keep, bool sleeps)
      : limits_{.fault = limits.fault, .timeout_ns = limits.timeout_ns},
        keep_(std::move(keep)),
        sleeps_(sleeps) {}

  void await(const char* call, const std::function<bool()>& ready, const sleep& nap,
             const std::function<std::string()>& missing) const override;
  /// Called before a wait ends because the world is broken: who hears of it frees what it sent.
  /// Set before anybody waits.
  void set_stop(std::function<void()> stop) { stop_ = std::move(stop); }
  /// The first reason stays.
  void abort(const std::string& why);
  [[nodiscard]] bool is_aborted() const noexcept {
    return aborted_.load(std::memory_order_acquire);  // pairs with abort()
  }
  /// Throws when the context was aborted.
  void check(const char* call) const;

 private:
  const device::wait_limits limits_;
  const std::shared_ptr<const void> keep_;
  const bool sleeps_;
  std::function<void()> stop_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string why_;
};

}  // namespace crosswarp::flow::impl
