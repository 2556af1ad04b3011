#include "flow/waits.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {

// ---- what is waited for

void awaited::tell() {
  {
    const std::scoped_lock lock(mutex_);
    there_.store(true, std::memory_order_release);  // pairs with ready()
  }
  told_.notify_all();
}

void awaited::await() {
  {
    const std::scoped_lock lock(mutex_);
    if (given_up_) std::rethrow_exception(given_up_);
  }
  try {
    limits->await(
        call, [this] { return ready(); },
        [this](std::chrono::nanoseconds most) {
          std::unique_lock lock(mutex_);
          told_.wait_for(lock, most, [this] { return ready(); });
        },
        [this] { return missing(); });
  } catch (...) {
    if (!give_up) throw;
    give_up();
    const std::scoped_lock lock(mutex_);
    if (ready()) return;  // it came just then
    given_up_ = std::current_exception();
    throw;
  }
}

std::string awaited::missing() const {
  const std::string of = where ? *where : "a link";
  const auto at = [&](const char* side) {
    return end < 0 ? of : side + std::to_string(end) + " of " + of;
  };
  if (bytes == 0) {
    return "no segment came out of " + at("output ") +
           ": do its senders still send, and shut down?";
  }
  return "the " + std::to_string(bytes) + " bytes that went into " + at("input ") +
         " were not all taken, or, if lent, not all released: does a receiver receive and release?";
}

// ---- how

namespace {

/// Spins for a moment: to sleep and to be woken costs more than most waits take. Then sleeps, but
/// never for long, since nobody wakes it for an abort, a fault or the deadline.
template <class Ready>
status spin_and_sleep(const Ready& ready, const device::wait_limits& limits,
                      const patience::sleep& nap) {
  constexpr std::uint64_t spin_ns = 20'000;
  constexpr std::chrono::milliseconds longest(1);
  device::deadline by(limits);
  status s = device::poll_until(ready, limits.within(std::min(spin_ns, limits.timeout_ns)));
  while (s == status::timeout && !by.passed()) {
    nap(longest);
    s = device::poll_until(ready, limits.within(0));
  }
  return s;
}

}  // namespace

void waits::await(const char* call, const std::function<bool()>& ready, const sleep& nap,
                  const std::function<std::string()>& missing) const {
  std::exception_ptr thrown;  // a poll lets nothing through
  const auto is_over = [&] {
    try {
      return is_aborted() || ready();
    } catch (...) {
      thrown = std::current_exception();
      return true;
    }
  };
  const status s =
      sleeps_ && nap ? spin_and_sleep(is_over, limits_, nap) : device::poll_until(is_over, limits_);
  if (thrown) std::rethrow_exception(thrown);
  switch (s) {
    case status::ok:
      if (!ready()) check(call);
      return;
    case status::timeout:
      throw error(errc::timeout, call,
                  "within " + std::to_string(limits_.timeout_ns / 1'000'000) + " ms " + missing());
    default: {
      if (stop_) stop_();
      const fault_word fault = device::impl::read_fault(limits_);
      throw error(s == status::peer_lost ? errc::peer_lost : errc::aborted, call,
                  "the world is broken", fault_rank(fault));
    }
  }
}

void waits::abort(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (aborted_.load(std::memory_order_relaxed)) return;
  why_ = why;
  aborted_.store(true, std::memory_order_release);  // pairs with is_aborted()
}

void waits::check(const char* call) const {
  if (!is_aborted()) return;
  const std::scoped_lock lock(mutex_);
  throw error(errc::aborted, call, why_);
}

}  // namespace crosswarp::flow::impl
