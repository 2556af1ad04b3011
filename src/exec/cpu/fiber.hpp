// A thread of a CPU kernel that switches by its own will. Needs Boost.Context.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace crosswarp::exec::cpu {

/// One fiber. Created, resumed and destroyed by one OS thread; never moves to another.
class fiber {
 public:
  /// `synchronises`: whether a switch orders memory in the eyes of ThreadSanitizer. Real threads'
  /// switches do not, so the deterministic scheduler says no.
  fiber(std::function<void()> entry, bool synchronises);
  ~fiber();
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Runs the fiber until it yields or ends. Not from inside a fiber.
  void resume();
  /// Back to the one who called resume(). From inside this fiber only.
  void yield();
  [[nodiscard]] bool done() const noexcept { return done_; }

  static constexpr std::size_t stack_bytes = 256 * 1024;

 private:
  struct sanitizer_state;
  void enter() noexcept;   // just arrived in the fiber
  void leave(bool for_ever) noexcept;

  void* stack_;                    // with a guard page at its low end
  boost::context::fiber inside_;   // where to go on in the fiber; valid while it is suspended
  boost::context::fiber outside_;  // where to go back to; valid while it runs
  std::function<void()> entry_;
  std::unique_ptr<sanitizer_state> sanitizer_;
  bool done_ = false;
};

}  // namespace crosswarp::exec::cpu
