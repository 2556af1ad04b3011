// A thread of a CPU kernel that switches by its own will. Needs Boost.Context.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <functional>

#include "sanitizers.hpp"

namespace crosswarp::exec::cpu {

/// One fiber. It is run to its end before it is destroyed, by one OS thread.
///
/// Uses Boost's bare context switch rather than boost::context::fiber: ThreadSanitizer must be told
/// of a switch at the moment it happens, and the wrapper's own bookkeeping would run on the wrong
/// side of it.
class fiber {
 public:
  /// `ordered`: whether a switch orders memory in the eyes of ThreadSanitizer. Real threads'
  /// switches do not, so the deterministic scheduler says no. Throws std::bad_alloc.
  fiber(std::function<void()> entry, bool ordered);
  ~fiber();
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Runs the fiber until it yields or ends. Not from inside a fiber.
  void resume() { enter(); }
  /// Back to the one who called resume(). From inside this fiber only.
  void yield() { leave(false); }
  [[nodiscard]] bool done() const noexcept { return done_; }

  static constexpr std::size_t stack_bytes = 256 * 1024;

 private:
  static void trampoline(boost::context::detail::transfer_t from);
  // The switch itself, with the sanitizers told; `last`: this side never comes back.
  // Without sanitizers it is inline: after a switch every return is mispredicted, so each frame
  // less between a kernel's wait and the switch is a dozen nanoseconds less.
#if CW_ASAN || CW_TSAN
  void enter();
  void leave(bool last);
#else
  void enter() {
    inside_ = boost::context::detail::jump_fcontext(inside_, this).fctx;
  }
  void leave(bool last) {
    done_ = last;
    outside_ = boost::context::detail::jump_fcontext(outside_, nullptr).fctx;
  }
#endif

  void* stack_;  // with a guard page at its low end
  boost::context::detail::fcontext_t inside_ = nullptr;
  boost::context::detail::fcontext_t outside_ = nullptr;
  std::function<void()> entry_;
  bool done_ = false;
  bool ordered_;
  bool started_ = false;
#if CW_ASAN
  void* outside_fake_ = nullptr;
  void* inside_fake_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
#endif
#if CW_TSAN
  void* tsan_outside_ = nullptr;
  void* tsan_inside_ = nullptr;
#endif
};

}  // namespace crosswarp::exec::cpu
