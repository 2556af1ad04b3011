#include "proxy.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "crosswarp/error.hpp"
#include "exec/cpu/executor.hpp"
#include "local_memory.hpp"

namespace crosswarp {

using device::proxy_command;
using device::proxy_op;
using device::signal_op;
using namespace proxy_impl;

namespace {

constexpr std::size_t operations_at_once = 1024;
constexpr std::size_t chunks_at_once = 16;
constexpr std::size_t chunk_bytes = 256 * 1024;
constexpr int commands_per_visit = 32;

template <class T>
std::atomic_ref<T> shared(T& word) noexcept {
  return std::atomic_ref<T>(word);
}

void set_worse(status& s, status other) noexcept {
  if (static_cast<int>(other) > static_cast<int>(s)) s = other;
}

}  // namespace

/// A command on its way.
struct proxy::operation : completion {
  proxy* owner = nullptr;
  queue* from = nullptr;
  std::uint64_t ticket = 0;
  std::uint64_t epoch = 0;
  proxy_command c;
  std::uint64_t started = 0;  ///< bytes or blocks that the engine was given
  bool data_started = false;  ///< only the signal is left
  int parts = 0;              ///< not yet done; one for the start itself
  status outcome = status::ok;
  std::uint64_t result = 0;
  std::byte data[16] = {};  ///< of an inline put
};

/// Memory that an engine may touch, for some bytes of a range that it may not.
struct proxy::chunk : completion {
  operation* of = nullptr;
  std::uint64_t local = 0;
  std::size_t bytes = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(chunk_bytes);
};

/// One flush of the engine, for the quiets that wait for it.
struct proxy::flush : completion {
  proxy* owner = nullptr;
  std::vector<operation*> quiets;
};

struct proxy::queue {
  /// What came between two quiets.
  struct epoch {
    std::size_t open = 0;  ///< operations that are not done
    operation* quiet = nullptr;
  };

  std::uint32_t index = 0;
  std::uint64_t head = 0;  ///< commands read
  operation* current = nullptr;
  status failure = status::ok;  ///< of an operation that nobody waits for
  std::uint64_t first_epoch = 0;
  std::deque<epoch> epochs = std::deque<epoch>(1);
  std::vector<device::proxy_entry> fetched;  ///< copies of entries in a GPU's memory
};

// ---- making and ending

proxy::proxy(device_ref d, const proxy_options& options, int rank, int size,
             std::vector<bool> reached, std::unique_ptr<engine> e)
    : device_(d),
      options_(options),
      reached_(std::move(reached)),
      bounds_{rank, size, &reached_, &region_bytes_},
      engine_(std::move(e)),
      entries_(d,
               static_cast<std::size_t>(options.queues) * static_cast<std::size_t>(options.depth),
               options.queue_kind),
      replies_(d, entries_.size(), memory_kind::pinned),
      heads_(d, static_cast<std::size_t>(options.queues), memory_kind::pinned),
      tails_(d, static_cast<std::size_t>(options.queues)),
      seats_(d, entries_.size()),
      dead_(static_cast<std::size_t>(size)) {
  const bool fetch = d.kind() == device_kind::cuda && options.queue_kind == memory_kind::device;
  for (int i = 0; i < options.queues; ++i) {
    queues_.push_back(std::make_unique<queue>());
    queues_.back()->index = static_cast<std::uint32_t>(i);
    if (fetch) queues_.back()->fetched.resize(static_cast<std::size_t>(options.depth));
  }
  bell_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_descriptor_ < 0) throw error::from_errno(errno, "proxy", "eventfd");
  if (options.thread) thread_ = std::thread([this] { run(); });
}

proxy::~proxy() {
  stop_.store(true);
  rouse();
  if (thread_.joinable()) thread_.join();
  close(bell_descriptor_);
}

device::proxy_memory proxy::memory() noexcept {
  return {entries_.data(),
          replies_.data(),
          heads_.data(),
          tails_.data(),
          seats_.data(),
          static_cast<std::uint32_t>(options_.queues),
          static_cast<std::uint32_t>(options_.depth),
          this};
}

namespace {

/// The right to work, taken from whoever has it.
class turn {
 public:
  explicit turn(std::atomic<bool>& busy) : busy_(busy) {
    while (busy_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  ~turn() { busy_.store(false, std::memory_order_release); }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace

void proxy::add_region(std::uint16_t id, region_info mine, std::vector<std::size_t> sizes) {
  const turn now(busy_);
  if (region_bytes_.size() <= id) {
    region_bytes_.resize(id + std::size_t{1});
    regions_.resize(id + std::size_t{1});
  }
  engine_->add_region(id, mine);
  regions_[id] = std::move(mine);
  region_bytes_[id] = std::move(sizes);
}

void proxy::remove_region(std::uint16_t id) noexcept {
  const turn mine(busy_);
  region_bytes_[id].clear();
  regions_[id] = {};
  engine_->remove_region(id);
}

std::uint16_t proxy::free_region() const noexcept {
  const auto it = std::find_if(region_bytes_.begin(), region_bytes_.end(),
                               [](const auto& sizes) { return sizes.empty(); });
  return static_cast<std::uint16_t>(it - region_bytes_.begin());
}

// ---- who works

bool proxy::progress() noexcept {
  constexpr int rounds = 4;
  bool moved = false;
  for (int i = 0; i < rounds; ++i) {
    if (busy_.exchange(true, std::memory_order_acq_rel)) return moved;
    // pairs with attend(): the command that it is about is seen by work()
    again_.exchange(false, std::memory_order_acq_rel);
    moved = work() || moved;
    // pairs with attend()'s look at busy_: then its again_ is seen below
    busy_.exchange(false, std::memory_order_acq_rel);
    if (!again_.load(std::memory_order_relaxed)) return moved;
  }
  rouse();
  return moved;
}

void proxy::attend() noexcept {
  // Who is at work may have passed the new command: then it looks again.
  again_.store(true, std::memory_order_release);
  progress();
  // This thread goes its way; what is under way needs one that stays.
  if (under_way_.load(std::memory_order_relaxed) > 0) rouse();
}

bool proxy::work() noexcept {
  if (news_.load(std::memory_order_acquire)) hear_news();
  bool moved = false;
  for (const auto& q : queues_) moved = drain(*q) || moved;
  moved = flush_quiets() || moved;
  return engine_->progress() || moved;
}

void proxy::hear_news() noexcept {
  const std::scoped_lock lock(news_mutex_);
  news_.store(false, std::memory_order_relaxed);
  for (const int pe : lost_) {
    dead_[static_cast<std::size_t>(pe)] = true;
    engine_->lose(pe);
  }
  lost_.clear();
}

void proxy::lose(int pe) noexcept {
  {
    const std::scoped_lock lock(news_mutex_);
    lost_.push_back(pe);
    news_.store(true, std::memory_order_release);
  }
  rouse();
}

void proxy::refuse(status why) noexcept {
  refusal_.store(why, std::memory_order_relaxed);
}

// ---- reading commands

bool proxy::drain(queue& q) {
  bool moved = false;
  const std::uint64_t before = q.head;
  for (int i = 0; i < commands_per_visit; ++i) {
    if (q.current == nullptr && !read_next(q)) break;
    moved = true;
    if (q.current == nullptr) continue;  // done already
    operation& op = *q.current;
    if (!start(op)) break;
    q.current = nullptr;
    part_done(op, status::ok);
  }
  if (q.head != before) {
    // In one go for all that were read. pairs with proxy_queue::is_free()
    shared(heads_.data()[q.index].consumed).store(q.head, std::memory_order_release);
  }
  return moved;
}

bool proxy::read_next(queue& q) {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  const auto slot = static_cast<std::size_t>(q.head % depth);
  const auto tag = static_cast<std::uint32_t>(q.head / depth) + 1;
  if (!q.fetched.empty()) fetch_entries(q);
  const device::proxy_entry& entry =
      q.fetched.empty() ? entries_.data()[q.index * depth + slot] : q.fetched[slot];
  const auto c = read_command(entry, tag);
  if (!c) return false;
  operation* const op = free_operation();
  if (op == nullptr) return false;
  op->from = &q;
  op->ticket = q.head++;
  op->c = *c;
  op->started = 0;
  op->data_started = false;
  op->parts = 1;
  op->outcome = status::ok;
  op->result = 0;
  admit(q, *op);
  return true;
}

/// Entries in a GPU's memory: the host cannot look there, so it copies what came since.
void proxy::fetch_entries(queue& q) {
  static_cast<void>(q);
}

/// Into the order of its queue; refused commands end here.
void proxy::admit(queue& q, operation& op) {
  op.epoch = q.first_epoch + q.epochs.size() - 1;
  if (op.c.op == proxy_op::quiet) {
    q.epochs.back().quiet = &op;
    q.epochs.emplace_back();
    settle(q);
    return;
  }
  ++q.epochs.back().open;
  set_worse(op.outcome, refusal_.load(std::memory_order_relaxed));
  set_worse(op.outcome, validate(op.c, bounds_));
  if (op.outcome == status::ok && dead_[static_cast<std::size_t>(op.c.pe)] &&
      op.c.op != proxy_op::fence) {
    op.outcome = status::peer_lost;
  }
  if (op.outcome != status::ok) {
    finish(op);
    return;
  }
  q.current = &op;
}

proxy::operation* proxy::free_operation() {
  if (free_operations_.empty()) {
    if (operations_.size() == operations_at_once) return nullptr;
    auto made = std::make_unique<operation>();
    made->owner = this;
    made->done = [](completion& c, status s) {
      auto& op = static_cast<operation&>(c);
      --op.owner->under_way_;
      op.owner->part_done(op, s);
    };
    free_operations_.push_back(made.get());
    operations_.push_back(std::move(made));
  }
  operation* const op = free_operations_.back();
  free_operations_.pop_back();
  return op;
}

proxy::chunk* proxy::free_chunk() {
  if (free_chunks_.empty()) {
    if (chunks_.size() == chunks_at_once) return nullptr;
    chunks_.push_back(std::make_unique<chunk>());
    free_chunks_.push_back(chunks_.back().get());
  }
  chunk* const c = free_chunks_.back();
  free_chunks_.pop_back();
  return c;
}

// ---- starting them

bool proxy::start(operation& op) {
  switch (op.c.op) {
    case proxy_op::put:
    case proxy_op::put_inline:
      return start_range(op) && start_signal(op);
    case proxy_op::get:
      return start_range(op);
    case proxy_op::put_strided:
    case proxy_op::get_strided:
      return start_blocks(op);
    case proxy_op::atomic:
      return start_atomic(op);
    case proxy_op::fence:
      return engine_->fence();
    case proxy_op::barrier:
    case proxy_op::broadcast:
    case proxy_op::reduce:
      return start_collective(op);
    case proxy_op::none:
    case proxy_op::quiet:
      break;
  }
  return true;
}

std::byte* proxy::here(std::uint16_t region, std::uint64_t offset) const noexcept {
  return regions_[region].base + offset;
}

/// The engine may have this memory. One that knows GPU memory judges addresses itself.
bool proxy::direct(std::uint64_t address, std::uint64_t bytes) const noexcept {
  return (device_.kind() == device_kind::cuda && engine_->can().gpu_memory) ||
         std::any_of(regions_.begin(), regions_.end(), [&](const region_info& r) {
           const auto base = reinterpret_cast<std::uintptr_t>(r.base);
           return r.base != nullptr && address >= base && address - base <= r.bytes &&
                  bytes <= r.bytes - (address - base);
         });
}

/// One contiguous piece. Memory that the engine may not know goes through chunks.
bool proxy::start_part(operation& op, std::uint64_t remote, std::uint64_t local,
                       std::uint64_t bytes) {
  const place there{op.c.pe, op.c.region, remote};
  const bool get = op.c.op == proxy_op::get || op.c.op == proxy_op::get_strided;
  auto* const address = reinterpret_cast<std::byte*>(local);
  if (op.c.op == proxy_op::put_inline || direct(local, bytes)) {
    ++op.parts;
    ++under_way_;
    if (get ? engine_->get(there, address, bytes, op) : engine_->put(there, address, bytes, op)) {
      return true;
    }
    --op.parts;
    --under_way_;
    return false;
  }
  chunk* const piece = free_chunk();
  if (piece == nullptr) return false;
  piece->of = &op;
  piece->local = local;
  piece->bytes = bytes;
  piece->done = [](completion& c, status s) {
    auto& p = static_cast<chunk&>(c);
    operation& of = *p.of;
    proxy& owner = *of.owner;
    const bool arrived = of.c.op == proxy_op::get || of.c.op == proxy_op::get_strided;
    if (arrived && s == status::ok) {
      s = write_private(reinterpret_cast<std::byte*>(p.local), p.memory.data(), p.bytes);
    }
    owner.free_chunks_.push_back(&p);
    --owner.under_way_;
    owner.part_done(of, s);
  };
  if (!get) {
    if (const status s = read_private(piece->memory.data(), address, bytes); s != status::ok) {
      free_chunks_.push_back(piece);
      set_worse(op.outcome, s);
      return true;
    }
  }
  ++op.parts;
  ++under_way_;
  if (get ? engine_->get(there, piece->memory.data(), bytes, *piece)
          : engine_->put(there, piece->memory.data(), bytes, *piece)) {
    return true;
  }
  --op.parts;
  --under_way_;
  free_chunks_.push_back(piece);
  return false;
}

bool proxy::start_range(operation& op) {
  if (op.c.op == proxy_op::put_inline) {
    if (op.started > 0 || op.c.width == 0) return true;
    std::memcpy(op.data, &op.c.local, 8);
    std::memcpy(op.data + 8, &op.c.bytes, 8);
    if (!start_part(op, op.c.remote, reinterpret_cast<std::uintptr_t>(op.data), op.c.width)) {
      return false;
    }
    op.started = op.c.width;
    return true;
  }
  const bool whole = direct(op.c.local, op.c.bytes);
  while (op.started < op.c.bytes && op.outcome == status::ok) {
    const std::uint64_t left = op.c.bytes - op.started;
    const std::uint64_t bytes = whole ? left : std::min<std::uint64_t>(left, chunk_bytes);
    if (!start_part(op, op.c.remote + op.started, op.c.local + op.started, bytes)) return false;
    op.started += bytes;
  }
  return true;
}

bool proxy::start_blocks(operation& op) {
  const std::uint64_t total = op.c.bytes * op.c.c;  // the check of its strides has bounded it
  const bool dense = op.c.a == op.c.bytes && op.c.b == op.c.bytes;
  while (op.started < total && op.outcome == status::ok) {
    const std::uint64_t block = op.started / op.c.bytes;
    const std::uint64_t within = op.started % op.c.bytes;
    const std::uint64_t remote = op.c.remote + block * op.c.a + within;
    const std::uint64_t local = op.c.local + block * op.c.b + within;
    std::uint64_t bytes = dense ? total - op.started : op.c.bytes - within;
    if (!direct(local, bytes)) bytes = std::min<std::uint64_t>(bytes, chunk_bytes);
    if (!start_part(op, remote, local, bytes)) return false;
    op.started += bytes;
  }
  return true;
}

bool proxy::start_signal(operation& op) {
  const auto how = static_cast<signal_op>(op.c.what);
  if (how == signal_op::none || op.outcome != status::ok) return true;
  if (!op.data_started) {
    if (!engine_->fence()) return false;
    op.data_started = true;
  }
  ++op.parts;
  ++under_way_;
  if (engine_->atomic(how == signal_op::set ? amo::set : amo::add, 8,
                      {op.c.pe, op.c.signal_region, op.c.a}, op.c.b, 0, nullptr, op)) {
    return true;
  }
  --op.parts;
  --under_way_;
  return false;
}

bool proxy::start_atomic(operation& op) {
  const auto what = static_cast<amo>(op.c.what);
  const bool fetches = (op.c.flags & proxy_command::wants_reply) != 0 || op.c.local != 0;
  ++op.parts;
  ++under_way_;
  if (engine_->atomic(what, op.c.width, {op.c.pe, op.c.region, op.c.remote}, op.c.a, op.c.b,
                      fetches ? &op.result : nullptr, op)) {
    return true;
  }
  --op.parts;
  --under_way_;
  return false;
}

bool proxy::start_collective(operation& op) {
  ++op.parts;
  ++under_way_;
  bool taken = false;
  if (op.c.op == proxy_op::barrier) {
    taken = engine_->barrier(op);
  } else if (op.c.op == proxy_op::broadcast) {
    taken = engine_->broadcast(op.c.pe, here(op.c.region, op.c.remote),
                               here(op.c.signal_region, op.c.c), op.c.bytes, op);
  } else {
    taken = engine_->reduce(static_cast<reduction>(op.c.what), static_cast<element>(op.c.width),
                            here(op.c.region, op.c.remote), here(op.c.signal_region, op.c.c),
                            op.c.bytes, op);
  }
  if (taken) return true;
  --op.parts;
  --under_way_;
  return false;
}

// ---- ending them

void proxy::part_done(operation& op, status s) {
  set_worse(op.outcome, s);
  if (--op.parts == 0) finish(op);
}

void proxy::finish(operation& op) {
  queue& q = *op.from;
  if (op.c.op == proxy_op::atomic && op.c.local != 0 && op.outcome == status::ok) {
    auto* const to = reinterpret_cast<std::byte*>(op.c.local);
    set_worse(op.outcome,
              write_private(to, reinterpret_cast<const std::byte*>(&op.result), op.c.width));
  }
  if ((op.c.flags & proxy_command::wants_reply) != 0) {
    reply(q, op.ticket, op.result, op.outcome);
  } else {
    set_worse(q.failure, op.outcome);
  }
  --q.epochs[static_cast<std::size_t>(op.epoch - q.first_epoch)].open;
  free_operations_.push_back(&op);
  settle(q);
}

/// Quiets before which nothing is under way any more can have their flush.
void proxy::settle(queue& q) {
  while (q.epochs.front().quiet != nullptr && q.epochs.front().open == 0) {
    quiets_.push_back(q.epochs.front().quiet);
    q.epochs.pop_front();
    ++q.first_epoch;
  }
}

/// One flush for all quiets of this round.
bool proxy::flush_quiets() {
  if (quiets_.empty()) return false;
  auto all = std::make_unique<flush>();
  all->owner = this;
  all->quiets = quiets_;
  all->done = [](completion& c, status s) {
    const std::unique_ptr<flush> f(static_cast<flush*>(&c));
    proxy& owner = *f->owner;
    --owner.under_way_;
    for (operation* op : f->quiets) {
      set_worse(s, std::exchange(op->from->failure, status::ok));
      owner.reply(*op->from, op->ticket, 0, s);
      owner.free_operations_.push_back(op);
    }
  };
  ++under_way_;
  flush* const f = all.release();
  quiets_.clear();
  if (engine_->flush(*f)) return true;
  --under_way_;
  quiets_ = f->quiets;
  delete f;
  return false;
}

void proxy::reply(const queue& q, std::uint64_t ticket, std::uint64_t value, status s) noexcept {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  device::proxy_reply& r = replies_.data()[q.index * depth + ticket % depth];
  const auto tag = static_cast<std::uint32_t>(ticket / depth) + 1;
  shared(r.value).store(value, std::memory_order_relaxed);
  // pairs with proxy_queue::wait_reply(), is_free()
  shared(r.stamp).store(static_cast<std::uint64_t>(tag) << 32U |
                            static_cast<std::uint32_t>(static_cast<std::int32_t>(s)),
                        std::memory_order_release);
}

// ---- the thread

void proxy::run() {
  // Naps are short; the default slack would double them.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  using clock = std::chrono::steady_clock;
  constexpr auto patience = std::chrono::microseconds(50);
  auto active = clock::now();
  for (int look = 0; !stop_.load(std::memory_order_relaxed); ++look) {
    if (progress()) {
      active = clock::now();
      continue;
    }
    if (exec::cpu::crowded()) std::this_thread::yield();
    if (look % 16 == 0 && clock::now() - active > patience) {
      rest();
      active = clock::now() - patience + std::chrono::microseconds(5);
    }
  }
}

bool proxy::commands_wait() const noexcept {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  for (const auto& q : queues_) {
    // Read without the turn: at worst a look too many.
    const std::uint64_t head =
        shared(heads_.data()[q->index].consumed).load(std::memory_order_relaxed);
    const auto& word = entries_.data()[q->index * depth + head % depth].words[0];
    const std::uint64_t seen =
        shared(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(seen >> 32U) == static_cast<std::uint32_t>(head / depth) + 1) {
      return true;
    }
  }
  return false;
}

/// Sleeps until there is something to do. A GPU cannot wake a thread, so its commands are looked
/// for every few tens of microseconds.
void proxy::rest() {
  constexpr timespec nap{0, 30'000};
  const bool gpu = device_.kind() == device_kind::cuda;
  // pairs with rouse(): one of the two sees the other
  asleep_.exchange(true, std::memory_order_acq_rel);
  bool armed = false;
  if (!busy_.exchange(true, std::memory_order_acq_rel)) {
    armed = engine_->arm();
    busy_.exchange(false, std::memory_order_acq_rel);
  }
  const bool engine_wakes = engine_->wake_descriptor() >= 0;
  if (armed && !again_.load(std::memory_order_relaxed) && !(!gpu && commands_wait())) {
    pollfd wakers[2] = {{bell_descriptor_, POLLIN, 0}, {engine_->wake_descriptor(), POLLIN, 0}};
    const bool bounded = gpu || (under_way_.load(std::memory_order_relaxed) > 0 && !engine_wakes);
    constexpr timespec long_nap{0, 100'000'000};
    ppoll(wakers, engine_wakes ? 2 : 1, bounded ? &nap : &long_nap, nullptr);
    std::uint64_t count = 0;
    if ((wakers[0].revents & POLLIN) != 0) {
      [[maybe_unused]] const ssize_t n = read(bell_descriptor_, &count, sizeof(count));
    }
  }
  asleep_.exchange(false, std::memory_order_acq_rel);
}

void proxy::rouse() noexcept {
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(bell_descriptor_, &one, sizeof(one));
}

// ---- what CPU kernels call

void exec::cpu::lend_thread(proxy& p) noexcept {
  p.progress();
}
void exec::cpu::call_proxy(proxy& p) noexcept {
  p.attend();
}

}  // namespace crosswarp
