#include "flow/waits.hpp"

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {

void waits::await(const char* call, const std::function<bool()>& ready) const {
  std::exception_ptr thrown;  // a poll lets nothing through
  const status s = device::poll_until(
      [&] {
        try {
          return aborted_.load(std::memory_order_acquire) || ready();
        } catch (...) {
          thrown = std::current_exception();
          return true;
        }
      },
      limits_);
  if (thrown) std::rethrow_exception(thrown);
  switch (s) {
    case status::ok:
      if (!ready()) check(call);
      return;
    case status::timeout:
      throw error(errc::timeout, call,
                  "nothing came within " + std::to_string(limits_.timeout_ns / 1'000'000) +
                      " ms: does the other end still send, release its buffers, and shut down?");
    default: {
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
  aborted_.store(true, std::memory_order_release);  // pairs with await(), check()
}

void waits::check(const char* call) const {
  if (!aborted_.load(std::memory_order_acquire)) return;  // pairs with abort()
  const std::scoped_lock lock(mutex_);
  throw error(errc::aborted, call, why_);
}

}  // namespace crosswarp::flow::impl
