#include "fiber.hpp"

#include <sys/mman.h>

#include <mutex>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace crosswarp::exec::cpu {

// ---- stacks

/// Memory for fibers' stacks, each with a guard page at its low end; kept for the next launch.
class stack_cache {
 public:
  static stack_cache& instance() {
    static stack_cache cache;
    return cache;
  }
  void* take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        void* base = free_.back();
        free_.pop_back();
        return base;
      }
    }
    void* base = mmap(nullptr, fiber::stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    mprotect(base, guard_bytes, PROT_NONE);
    return base;
  }
  void give(void* base) {
    const std::scoped_lock lock(mutex_);
    if (free_.size() < keep) {
      free_.push_back(base);
    } else {
      munmap(base, fiber::stack_bytes);
    }
  }
  static constexpr std::size_t guard_bytes = 4096;

 private:
  static constexpr std::size_t keep = 4096;
  ~stack_cache() {
    for (void* base : free_) munmap(base, fiber::stack_bytes);
  }
  std::mutex mutex_;
  std::vector<void*> free_;
};

namespace {

// The fiber object owns its stack; Boost only borrows it.
struct borrowed_stack {
  static boost::context::stack_context allocate() { throw std::bad_alloc(); }
  static void deallocate(boost::context::stack_context& /*unused*/) noexcept {}
};

}  // namespace

// ---- what sanitizers must be told about a switch

struct fiber::sanitizer_state {
  explicit sanitizer_state(bool synchronises) : ordered(synchronises) {}
  [[maybe_unused]] bool ordered;
  [[maybe_unused]] bool started = false;
#if defined(__SANITIZE_ADDRESS__)
  void* outside_fake = nullptr;
  void* inside_fake = nullptr;
  const void* outside_bottom = nullptr;
  std::size_t outside_size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* outside = nullptr;
  void* inside = __tsan_create_fiber(0);
  ~sanitizer_state() { __tsan_destroy_fiber(inside); }
#endif
};

fiber::fiber(std::function<void()> entry, bool synchronises)
    : stack_(stack_cache::instance().take()), entry_(std::move(entry)),
      sanitizer_(std::make_unique<sanitizer_state>(synchronises)) {
  boost::context::stack_context borrowed;
  borrowed.size = stack_bytes;
  borrowed.sp = static_cast<std::byte*>(stack_) + stack_bytes;
  inside_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(borrowed.sp, borrowed.size, borrowed),
      borrowed_stack{}, [this](boost::context::fiber&& from) {
        outside_ = std::move(from);
        enter();
        entry_();
        done_ = true;
        leave(true);
        return std::move(outside_);
      });
}

fiber::~fiber() {
  inside_ = {};
  stack_cache::instance().give(stack_);
}

void fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_->outside_fake, stack_, stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  sanitizer_->outside = __tsan_get_current_fiber();
  const bool ordered = sanitizer_->ordered || !sanitizer_->started;
  sanitizer_->started = true;
  __tsan_switch_to_fiber(sanitizer_->inside, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
  inside_ = std::move(inside_).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_->outside_fake, nullptr, nullptr);
#endif
}

void fiber::enter() noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_->inside_fake, &sanitizer_->outside_bottom,
                                  &sanitizer_->outside_size);
#endif
}

void fiber::leave([[maybe_unused]] bool for_ever) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &sanitizer_->inside_fake,
                                 sanitizer_->outside_bottom, sanitizer_->outside_size);
#endif
#if defined(__SANITIZE_THREAD__)
  // The end of a fiber orders what it did before what its scheduler does next, like a join.
  const bool ordered = sanitizer_->ordered || for_ever;
  __tsan_switch_to_fiber(sanitizer_->outside, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
}

void fiber::yield() {
  leave(false);
  outside_ = std::move(outside_).resume();
  enter();
}

}  // namespace crosswarp::exec::cpu
