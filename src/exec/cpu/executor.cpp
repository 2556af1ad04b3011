#include "executor.hpp"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "crosswarp/schedule.hpp"
#include "thread_cache.hpp"
#if CROSSWARP_HAVE_FIBERS
#include "fiber.hpp"
#endif

namespace crosswarp::exec::cpu {
namespace {

std::atomic<int> announced_load{0};

int cores() noexcept {
  static const int n = [] {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }();
  return n;
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::uint64_t real_now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

/// A wait of a plain OS thread: spins for some tens of microseconds while every waiter has a core
/// of its own, else yields at once; after a long time it sleeps, since nobody is in a hurry then.
bool relax_thread(std::uint32_t spin) noexcept {
  constexpr std::uint32_t eager = 1000;
  constexpr std::uint32_t patient = 20'000;
  const bool crowded = announced_load.load(std::memory_order_relaxed) > cores();
  if (spin < eager && !crowded) {
    pause();
    return spin % 64 == 0;
  }
  if (spin < patient) {
    sched_yield();
  } else {
    const timespec nap{0, 50'000};
    nanosleep(&nap, nullptr);
  }
  return true;
}

}  // namespace

running_thread& running() noexcept {
  thread_local running_thread state;
  return state;
}

void announce_load(int threads) noexcept {
  announced_load.fetch_add(threads, std::memory_order_relaxed);
}

bool relax(std::uint32_t spin) noexcept {
  if (scheduler* s = running().decides) return s->on_wait(spin);
  return relax_thread(spin);
}

std::uint64_t now_ns() noexcept {
  if (scheduler* s = running().decides) return s->now_ns();
  return real_now_ns();
}

void note_progress() noexcept {
  if (scheduler* s = running().decides) s->on_progress();
}

void before_atomic(const void* address, access kind, device::scope scope) noexcept {
  const running_thread& r = running();
  check_scope(address, scope, r.who);
  if (r.decides != nullptr) r.decides->on_atomic(kind);
}

namespace {

/// One launch's blocks and what they share.
struct running_grid {
  explicit running_grid(const cpu_grid& grid) : launch(begin_launch()) {
    for (int b = 0; b < grid.shape.blocks; ++b) {
      blocks.push_back(std::make_unique<block>(grid, b, words, launch));
    }
  }
  ~running_grid() { end_launch(launch); }
  running_grid(const running_grid&) = delete;
  running_grid& operator=(const running_grid&) = delete;

  device::grid_words words{};
  std::uint32_t launch;
  std::vector<std::unique_ptr<block>> blocks;
  first_exception failure;

  /// The whole life of one kernel thread.
  void run_thread(block& b, int t) noexcept {
    try {
      b.run_thread(t);
    } catch (...) {
      failure.capture();
    }
  }
};

/// Runs as the only thread that `who` has on this OS thread.
template <class F>
void run_as(const identity& who, F&& f) {
  running().who = who;
  f();
  running().who = {};
}

#if CROSSWARP_HAVE_FIBERS

struct kernel_fiber {
  kernel_fiber(running_grid& g, block& b, int t, bool synchronises)
      : owner(&b), body([&g, &b, t] { g.run_thread(b, t); }, synchronises) {}
  block* owner;
  fiber body;
};

/// Runs its fibers in turn. They wait by yielding.
class round_robin final : public scheduler {
 public:
  void add(running_grid& g, block& b) {
    for (int t = 0; t < b.grid.shape.threads; ++t) {
      fibers_.push_back(std::make_unique<kernel_fiber>(g, b, t, true));
    }
  }

  void run() {
    running().decides = this;
    for (std::uint32_t idle_rounds = 0; !fibers_.empty();) {
      moved_ = false;
      const std::size_t before = fibers_.size();
      for (const auto& f : fibers_) {
        current_ = f.get();
        running().who = f->owner->who;
        f->body.resume();
      }
      std::erase_if(fibers_, [](const auto& f) { return f->body.done(); });
      // When a whole round only waited, it is for another OS thread: let that one run.
      idle_rounds = moved_ || fibers_.size() != before ? 0 : idle_rounds + 1;
      if (idle_rounds > 0) relax_thread(idle_rounds);
    }
    running() = {};
  }

  bool on_wait(std::uint32_t spin) noexcept override {
    current_->body.yield();
    return spin % 16 == 0;
  }
  void on_atomic(access /*kind*/) noexcept override {}
  void on_progress() noexcept override { moved_ = true; }
  std::uint64_t now_ns() noexcept override { return real_now_ns(); }

 private:
  std::vector<std::unique_ptr<kernel_fiber>> fibers_;
  kernel_fiber* current_ = nullptr;
  bool moved_ = false;
};

/// Blocks dealt out to as many OS threads as there are cores; their threads are fibers.
void run_on_fibers(running_grid& g, const launch_shape& shape) {
  const int workers = std::min(shape.blocks, cores());
  const auto work = [&](int w) {
    try {
      round_robin turn;
      for (int b = w; b < shape.blocks; b += workers) {
        turn.add(g, *g.blocks[static_cast<std::size_t>(b)]);
      }
      turn.run();
    } catch (...) {
      g.failure.capture();
    }
  };
  thread_cache::instance().run_together(workers, work);
}

#endif

/// Every kernel thread an OS thread: what ThreadSanitizer understands best.
[[maybe_unused]] void run_on_threads(running_grid& g, const launch_shape& shape) {
  const int total = shape.blocks * shape.threads;
  thread_cache::instance().run_together(total, [&](int i) {
    block& b = *g.blocks[static_cast<std::size_t>(i / shape.threads)];
    run_as(b.who, [&] { g.run_thread(b, i % shape.threads); });
  });
}

}  // namespace

void check_fits(const launch_shape& shape) {
#if CROSSWARP_HAVE_FIBERS && !defined(__SANITIZE_THREAD__)
  // A fiber that does little touches two pages of its stack and some of its block.
  constexpr std::size_t bytes_each = 16 * 1024;
  constexpr std::size_t at_most = 200'000;
#else
  constexpr std::size_t bytes_each = 64 * 1024;
  constexpr std::size_t at_most = 4000;
#endif
  const std::size_t memory = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t limit = std::min(at_most, memory / bytes_each);
  const std::size_t threads =
      static_cast<std::size_t>(shape.blocks) * static_cast<std::size_t>(shape.threads);
  if (threads <= limit) return;
  throw error(errc::does_not_fit, "launch",
              "all " + std::to_string(threads) + " threads (" + std::to_string(shape.blocks) +
                  " blocks of " + std::to_string(shape.threads) +
                  ") must exist at once, and this CPU executor holds " + std::to_string(limit));
}

void run_grid(const cpu_grid& grid) {
  running_grid g(grid);
  if (grid.shape.blocks == 1 && grid.shape.threads == 1) {
    run_as(g.blocks[0]->who, [&] { g.run_thread(*g.blocks[0], 0); });
  } else {
#if CROSSWARP_HAVE_FIBERS && !defined(__SANITIZE_THREAD__)
    run_on_fibers(g, grid.shape);
#else
    run_on_threads(g, grid.shape);
#endif
  }
  g.failure.rethrow_if_any();
}

#if CROSSWARP_HAVE_FIBERS && CROSSWARP_CHECKED

namespace {

/// Runs fibers one at a time; the schedule picks the next at each atomic operation, barrier and
/// wait. All decisions are made outside the fibers: to ThreadSanitizer a fiber is a thread, and
/// what two of them both touch here would be a race, so they leave only a relaxed note.
class deterministic final : public scheduler {
 public:
  explicit deterministic(schedule& s) : schedule_(s) {}

  void add(running_grid& g) {
    for (const auto& b : g.blocks) {
      for (int t = 0; t < b->grid.shape.threads; ++t) {
        tasks_.push_back(std::make_unique<task>(g, *b, t));
      }
    }
  }

  void run() {
    running().decides = this;
    std::size_t last = tasks_.size();
    while (!tasks_.empty()) {
      std::vector<std::size_t> able = runnable();
      if (able.empty()) {
        let_time_pass();
        continue;
      }
      const auto preferred = std::find(able.begin(), able.end(), last);
      const std::size_t pick =
          schedule_.choose(able.size(), static_cast<std::size_t>(preferred - able.begin()));
      last = step(able[pick]);
    }
    running() = {};
  }

  bool on_wait(std::uint32_t /*spin*/) noexcept override {
    leave(note::waits);
    return true;
  }
  void on_atomic(access kind) noexcept override {
    leave(kind == access::load ? note::reads : note::writes);
  }
  void on_progress() noexcept override { leave(note::writes); }
  std::uint64_t now_ns() noexcept override { return clock_.load(std::memory_order_relaxed); }

 private:
  enum class note : std::uint8_t { reads, writes, waits };
  struct task {
    task(running_grid& g, block& b, int t) : fiber(g, b, t, false) {}
    kernel_fiber fiber;
    std::atomic<note> left{note::writes};
    bool waits = false;    // until somebody writes
    bool writing = false;  // its write happens between this step and its next stop
  };

  /// Everybody waits for somebody: only a deadline can end it. A barrier has none.
  void let_time_pass() {
    constexpr std::uint64_t second = 1'000'000'000;
    if (clock_.fetch_add(second, std::memory_order_relaxed) / second > 1'000'000) {
      const std::size_t stuck = tasks_.size();
      for (auto& t : tasks_) (void)t.release();  // a suspended fiber cannot be destroyed
      running() = {};
      throw error(errc::timeout, "launch",
                  "deadlock: " + std::to_string(stuck) + " threads wait in barriers, schedule " +
                      schedule_.describe());
    }
    for (const auto& t : tasks_) t->waits = false;
  }

  void leave(note n) noexcept {
    task* const me = current_.load(std::memory_order_relaxed);
    me->left.store(n, std::memory_order_relaxed);
    me->fiber.body.yield();
  }

  [[nodiscard]] std::vector<std::size_t> runnable() const {
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i]->waits) able.push_back(i);
    }
    return able;
  }

  /// Lets task `i` go on to its next stop; returns where it is afterwards.
  std::size_t step(std::size_t i) {
    task& t = *tasks_[i];
    current_.store(&t, std::memory_order_relaxed);
    running().who = t.fiber.owner->who;
    t.fiber.body.resume();
    const bool ended = t.fiber.body.done();
    const note n = t.left.load(std::memory_order_relaxed);
    if (t.writing || ended) {
      for (const auto& other : tasks_) other->waits = false;
    }
    t.writing = n == note::writes;
    t.waits = n == note::waits;
    if (!ended) return i;
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(i));
    return tasks_.size();
  }

  schedule& schedule_;
  std::vector<std::unique_ptr<task>> tasks_;
  std::atomic<task*> current_{nullptr};
  std::atomic<std::uint64_t> clock_{1};
};

}  // namespace

void run_scheduled(const std::vector<cpu_grid>& grids, schedule& s) {
  std::vector<std::unique_ptr<running_grid>> running_grids;
  deterministic decide(s);
  for (const cpu_grid& g : grids) {
    running_grids.push_back(std::make_unique<running_grid>(g));
    decide.add(*running_grids.back());
  }
  decide.run();
  for (const auto& g : running_grids) g->failure.rethrow_if_any();
}

bool scheduling_available() noexcept { return true; }

#else

void run_scheduled(const std::vector<cpu_grid>& /*grids*/, schedule& /*s*/) {
  throw error(errc::not_supported, "launch",
              "deterministic schedules need a checked build with Boost.Context");
}

bool scheduling_available() noexcept { return false; }

#endif

}  // namespace crosswarp::exec::cpu
