#include "executor.hpp"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

#include "crosswarp/schedule.hpp"
#include "sanitizers.hpp"
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

/// A wait of a plain OS thread: spins while every waiter has a core of its own, else yields at
/// once; after a long time it sleeps, since nobody is in a hurry then. Who spins yields now and
/// then, too: whom it waits for may be somebody that nobody announced, without a core.
bool relax_thread(std::uint32_t spin) noexcept {
  constexpr std::uint32_t eager = 1000;
  constexpr std::uint32_t patient = 20'000;
  if (spin < eager && !crowded()) {
    if (spin % 32 != 0) {
      pause();
      return false;
    }
    sched_yield();
    return true;
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
#if CROSSWARP_LOADED_LATE
  thread_local running_thread state;
#else
  // Looked up at every wait: without a call into the dynamic linker, also in a shared library.
  __attribute__((tls_model("initial-exec"))) thread_local running_thread state;
#endif
  return state;
}

void announce_load(int threads) noexcept {
  announced_load.fetch_add(threads, std::memory_order_relaxed);
}

bool crowded() noexcept {
  return announced_load.load(std::memory_order_relaxed) > cores();
}

namespace {

/// Who works for a rank's kernels, by the rank's number in this process. A rank whose place is
/// taken does without: its proxy has a thread.
struct helper {
  std::atomic<std::uint32_t> owner{0};
  std::atomic<proxy*> who{nullptr};
};
std::array<helper, 512> helpers;

void call_helper() noexcept {
  const running_thread& r = running();
  const std::uint32_t owner = r.decides != nullptr ? r.decides->who().owner : r.who.owner;
  const helper& h = helpers[owner % helpers.size()];
  if (owner == 0 || h.owner.load(std::memory_order_acquire) != owner) return;
  if (proxy* p = h.who.load(std::memory_order_relaxed)) lend_thread(*p);
}

}  // namespace

void set_helper(std::uint32_t owner, proxy* p) noexcept {
  helper& h = helpers[owner % helpers.size()];
  if (p != nullptr) {
    std::uint32_t nobody = 0;
    proxy* none = nullptr;
    if (h.who.compare_exchange_strong(none, p)) h.owner.compare_exchange_strong(nobody, owner);
  } else if (h.owner.load() == owner) {
    h.owner.store(0);
    h.who.store(nullptr);
  }
}

bool relax(std::uint32_t spin) noexcept {
  // What a kernel waits for may have to come through its rank's proxy.
  if (spin % 8 == 0) call_helper();
  if (scheduler* s = running().decides) return s->on_wait(spin);
  return relax_thread(spin);
}

std::uint64_t now_ns() noexcept {
  if (scheduler* s = running().decides) return s->now_ns();
  return real_now_ns();
}

std::uint32_t current_block() noexcept {
  const running_thread& r = running();
  return static_cast<std::uint32_t>(r.decides != nullptr ? r.decides->who().block : r.who.block);
}

void note_progress() noexcept {
  if (scheduler* s = running().decides) s->on_progress();
}

void before_atomic(const void* address, access kind, device::scope scope) noexcept {
  const running_thread& r = running();
  check_scope(address, scope, r.decides != nullptr ? r.decides->who() : r.who);
  if (r.decides != nullptr) r.decides->on_atomic(kind);
}

namespace {

/// Says for how long so many OS threads of kernels want a core.
class load_note {
 public:
  explicit load_note(int threads) noexcept : threads_(threads) { announce_load(threads_); }
  ~load_note() { announce_load(-threads_); }
  load_note(const load_note&) = delete;
  load_note& operator=(const load_note&) = delete;

 private:
  int threads_;
};

}  // namespace

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
    running_thread& here = running();
    here.decides = this;
    std::uint32_t idle = 0;  // fibers in a row that only went on waiting
    while (!fibers_.empty()) {
      moved_ = false;
      const std::size_t before = fibers_.size();
      for (const auto& f : fibers_) {
        current_ = f.get();
        here.now = &f->body;
        f->body.resume();
      }
      std::erase_if(fibers_, [](const auto& f) { return f->body.done(); });
      // When a whole round only waited, it is for another OS thread: let that one run.
      idle = moved_ || fibers_.size() != before ? 0 : idle + static_cast<std::uint32_t>(before);
      if (idle > 0) relax_thread(idle);
    }
    running() = {};
  }

  bool on_wait(std::uint32_t spin) noexcept override {
    moved_ = moved_ || spin == 1;  // a new wait: something came before it
    current_->body.yield();
    return spin % 16 == 0;
  }
  void on_atomic(access /*kind*/) noexcept override {}
  void on_progress() noexcept override { moved_ = true; }
  std::uint64_t now_ns() noexcept override { return real_now_ns(); }
  [[nodiscard]] const identity& who() const noexcept override { return current_->owner->who; }

 private:
  std::vector<std::unique_ptr<kernel_fiber>> fibers_;
  kernel_fiber* current_ = nullptr;
  bool moved_ = false;
};

/// Blocks dealt out to as many OS threads as there are cores; their threads are fibers.
[[maybe_unused]] void run_on_fibers(running_grid& g, const launch_shape& shape) {
  const int workers = std::min(shape.blocks, cores());
  // All fibers exist before the first runs: it may wait for the last.
  std::vector<round_robin> turns(static_cast<std::size_t>(workers));
  for (int b = 0; b < shape.blocks; ++b) {
    turns[static_cast<std::size_t>(b % workers)].add(g, *g.blocks[static_cast<std::size_t>(b)]);
  }
  const load_note note(workers - 1);  // the calling thread is its rank's, which is counted
  thread_cache::instance().run_together(workers,
                                        [&](int w) { turns[static_cast<std::size_t>(w)].run(); });
}

#endif

/// Every kernel thread an OS thread: what ThreadSanitizer understands best, and what waits fastest
/// where each has a core.
void run_on_threads(running_grid& g, const launch_shape& shape) {
  const int total = shape.blocks * shape.threads;
  const load_note note(total - 1);  // the calling thread is its rank's, which is counted
  thread_cache::instance().run_together(total, [&](int i) {
    block& b = *g.blocks[static_cast<std::size_t>(i / shape.threads)];
    run_as(b.who, [&] { g.run_thread(b, i % shape.threads); });
  });
}

}  // namespace

namespace {

[[maybe_unused]] std::size_t max_mappings() {
  std::size_t n = 0;
  return std::ifstream("/proc/sys/vm/max_map_count") >> n && n > 4000 ? n : 65530;
}

/// Threads that can exist at once.
std::size_t most_threads() {
#if CROSSWARP_HAVE_FIBERS && !CW_TSAN
  // A fiber that does little touches two pages of its stack and some of its block.
  constexpr std::size_t bytes_each = 16 * 1024;
  const std::size_t at_most = max_mappings() / 2 - 1000;  // a stack and its guard are two
#else
  constexpr std::size_t bytes_each = 64 * 1024;
  constexpr std::size_t at_most = 4000;
#endif
  const std::size_t memory = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::min(at_most, memory / bytes_each);
}

}  // namespace

void check_fits(const launch_shape& shape) {
  static const std::size_t limit = most_threads();
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
#if CROSSWARP_HAVE_FIBERS && !CW_TSAN
    // A fiber that is alone on its OS thread would switch there and back at each look.
    const bool alone = grid.shape.threads == 1 && grid.shape.blocks <= cores();
    (alone ? run_on_threads : run_on_fibers)(g, grid.shape);
#else
    run_on_threads(g, grid.shape);
#endif
  }
  g.failure.rethrow_if_any();
  throw_breach_of(g.launch);
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
        tasks_.push_back(std::make_unique<task>(*this, g, *b, t));
      }
    }
  }

  void run() {
    running().decides = this;
    // Everybody starts before anybody does anything. If the last to start came after the first had
    // ended, the start would order the one behind the other and hide a race between them.
    for (const auto& t : tasks_) resume(*t);
    std::size_t last = tasks_.size();
    while (!tasks_.empty()) {
      const std::vector<std::size_t> able = runnable();
      if (able.empty()) {
        let_time_pass();
        continue;
      }
      time_step_ = second;
      const auto preferred = std::find(able.begin(), able.end(), last) - able.begin();
      last = step(able[schedule_.choose(able.size(), static_cast<std::size_t>(preferred))]);
    }
    running() = {};
  }

  bool on_wait(std::uint32_t /*spin*/) noexcept override {
    stop(note::waits);
    return true;
  }
  void on_atomic(access kind) noexcept override {
    stop(kind == access::load ? note::reads : note::writes);
  }
  void on_progress() noexcept override { progress_.store(true, std::memory_order_relaxed); }
  std::uint64_t now_ns() noexcept override { return clock_.load(std::memory_order_relaxed); }
  [[nodiscard]] const identity& who() const noexcept override {
    return current_.load(std::memory_order_relaxed)->owner.who;
  }

 private:
  static constexpr std::uint64_t second = 1'000'000'000;
  enum class note : std::uint8_t { starts, reads, writes, waits };
  struct task {
    task(deterministic& d, running_grid& g, block& b, int t)
        : owner(b),
          body(
              [&d, &g, &b, t] {
                d.stop(note::starts);
                g.run_thread(b, t);
              },
              false) {}
    block& owner;
    fiber body;
    std::atomic<note> left{note::starts};
    bool asleep = false;   // its last look found nothing, and nobody wrote since
    bool stale = false;    // somebody wrote since its look began
    bool writing = false;  // its write happens between this stop and its next
  };

  void stop(note n) noexcept {
    task* const me = current_.load(std::memory_order_relaxed);
    me->left.store(n, std::memory_order_relaxed);
    me->body.yield();
  }

  void resume(task& t) {
    current_.store(&t, std::memory_order_relaxed);
    t.body.resume();
  }

  [[nodiscard]] std::vector<std::size_t> runnable() const {
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i]->asleep) able.push_back(i);
    }
    return able;
  }

  /// Everybody waits for somebody: only a deadline can end it. Each looks once, in turn, which is
  /// no choice. A barrier has no deadline.
  void let_time_pass() {
    if (clock_.fetch_add(time_step_, std::memory_order_relaxed) > 1'000'000'000 * second) {
      const std::size_t stuck = tasks_.size();
      for (auto& t : tasks_) (void)t.release();  // a suspended fiber cannot be destroyed
      running() = {};
      throw error(errc::timeout, "launch",
                  "deadlock: " + std::to_string(stuck) + " threads wait in barriers, schedule " +
                      schedule_.describe());
    }
    time_step_ *= 2;
    for (std::size_t i = 0; i < tasks_.size();) {
      const std::size_t before = tasks_.size();
      tasks_[i]->asleep = false;
      // To the end of its look: until it waits again, writes, or ends.
      do {
        step(i);
      } while (tasks_.size() == before &&
               tasks_[i]->left.load(std::memory_order_relaxed) == note::reads);
      if (tasks_.size() == before) ++i;
    }
  }

  /// Lets task `i` go on to its next stop; returns where it is afterwards.
  std::size_t step(std::size_t i) {
    task& t = *tasks_[i];
    progress_.store(false, std::memory_order_relaxed);
    resume(t);
    const bool ended = t.body.done();
    if (t.writing || ended || progress_.load(std::memory_order_relaxed)) wake_all_but(t);
    const note n = t.left.load(std::memory_order_relaxed);
    t.writing = n == note::writes;
    t.asleep = n == note::waits && !t.stale;
    if (n == note::waits) t.stale = false;
    if (!ended) return i;
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(i));
    return tasks_.size();
  }

  void wake_all_but(const task& writer) {
    for (const auto& other : tasks_) {
      if (other.get() == &writer) continue;
      other->stale = !other->asleep;
      other->asleep = false;
    }
  }

  schedule& schedule_;
  std::vector<std::unique_ptr<task>> tasks_;
  std::atomic<task*> current_{nullptr};
  std::atomic<std::uint64_t> clock_{1};
  std::atomic<bool> progress_{false};
  std::uint64_t time_step_ = second;
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
  for (const auto& g : running_grids) {
    g->failure.rethrow_if_any();
    throw_breach_of(g->launch);
  }
}

bool scheduling_available() noexcept {
  return true;
}

#else

void run_scheduled(const std::vector<cpu_grid>& /*grids*/, schedule& /*s*/) {
  throw error(errc::not_supported, "launch",
              "deterministic schedules need a checked build with Boost.Context");
}

bool scheduling_available() noexcept {
  return false;
}

#endif

}  // namespace crosswarp::exec::cpu
