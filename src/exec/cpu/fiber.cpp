#include "fiber.hpp"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#if CW_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if CW_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace crosswarp::exec::cpu {
namespace {

namespace ctx = boost::context::detail;

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
    if (mprotect(base, guard_bytes, PROT_NONE) != 0) {
      munmap(base, fiber::stack_bytes);
      throw std::bad_alloc();
    }
    return base;
  }
  void give(void* base) {
#if CW_ASAN
    __asan_unpoison_memory_region(static_cast<char*>(base) + guard_bytes,
                                  fiber::stack_bytes - guard_bytes);
#endif
    const std::scoped_lock lock(mutex_);
    if (free_.size() < keep) {
      free_.push_back(base);
    } else {
      munmap(base, fiber::stack_bytes);
    }
  }

 private:
  static constexpr std::size_t guard_bytes = 4096;
  static constexpr std::size_t keep = 4096;
  ~stack_cache() {
    for (void* base : free_) munmap(base, fiber::stack_bytes);
  }
  std::mutex mutex_;
  std::vector<void*> free_;
};

}  // namespace

fiber::fiber(std::function<void()> entry, bool ordered)
    : stack_(stack_cache::instance().take()), entry_(std::move(entry)), ordered_(ordered) {
  // Stacks lie at equal distances, so their tops would all fall into the same few cache sets and
  // push each other out. Each begins some lines further down than the last.
  static std::atomic<unsigned> count{0};
  const std::size_t shift = count.fetch_add(1, std::memory_order_relaxed) % 128 * 320;
  inside_ = ctx::make_fcontext(static_cast<std::byte*>(stack_) + stack_bytes - shift,
                               stack_bytes - shift, &fiber::trampoline);
#if CW_TSAN
  tsan_inside_ = __tsan_create_fiber(0);
#endif
}

fiber::~fiber() {
#if CW_TSAN
  __tsan_destroy_fiber(tsan_inside_);
#endif
  stack_cache::instance().give(stack_);
}

#if CW_ASAN || CW_TSAN

CW_NO_TSAN void fiber::enter() {
#if CW_ASAN
  __sanitizer_start_switch_fiber(&outside_fake_, stack_, stack_bytes);
#endif
#if CW_TSAN
  // The first switch hands over what was prepared for the fiber, like starting a thread.
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, ordered_ || !started_ ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
  started_ = true;
  inside_ = ctx::jump_fcontext(inside_, this).fctx;
#if CW_ASAN
  __sanitizer_finish_switch_fiber(outside_fake_, nullptr, nullptr);
#endif
}

CW_NO_TSAN void fiber::leave(bool last) {
#if CW_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &inside_fake_, outside_bottom_, outside_size_);
#endif
#if CW_TSAN
  // The last switch hands back what the fiber did, like joining a thread.
  __tsan_switch_to_fiber(tsan_outside_, ordered_ || last ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
  done_ = last;
  outside_ = ctx::jump_fcontext(outside_, nullptr).fctx;
#if CW_ASAN
  __sanitizer_finish_switch_fiber(inside_fake_, &outside_bottom_, &outside_size_);
#endif
}

#endif

CW_NO_TSAN void fiber::trampoline(ctx::transfer_t from) {
  auto* const self = static_cast<fiber*>(from.data);
  self->outside_ = from.fctx;
#if CW_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_bottom_, &self->outside_size_);
#endif
  self->entry_();
  self->leave(true);
}

}  // namespace crosswarp::exec::cpu
