#include "proxy.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "exec/cpu/executor.hpp"
#include "memory/private_memory.hpp"

namespace crosswarp {

using device::proxy_call;
using device::proxy_command;
using device::proxy_op;
using device::signal_op;
using namespace proxy_impl;

namespace {

constexpr std::size_t operations_at_once = 1024;
constexpr std::size_t chunks_at_once = 16;
constexpr std::size_t chunk_bytes = 256 * 1024;
constexpr int commands_per_visit = 32;
constexpr int pieces_per_visit = 256;

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
  std::chrono::steady_clock::time_point read;  ///< when, if operations are timed
  std::uint64_t began = 0;                     ///< the same, if they are traced
  bool active = false;
  bool answered = false;  ///< before its end, because the world broke
  std::uint64_t result = 0;
  std::byte data[16] = {};  ///< of an inline put
};

/// Memory that an engine may touch, for some bytes of a range that it may not.
struct proxy::chunk : completion {
  operation* of = nullptr;
  std::uint64_t local = 0;
  std::size_t bytes = 0;
  buffer<std::byte> memory;
  explicit chunk(device_ref d) : memory(d, chunk_bytes, memory_kind::pinned) {}
};

/// One flush of the engine, for the quiets that wait for it.
struct proxy::flush : completion {
  proxy* owner = nullptr;
  std::vector<operation*> quiets;
};

/// Gives the turn back at the end of a scope.
class proxy::turn_end {
 public:
  explicit turn_end(proxy& p) noexcept : owner_(p) {}
  ~turn_end() {
    owner_.work_in_turn([this] { return owner_.work(); });
  }
  turn_end(const turn_end&) = delete;
  turn_end& operator=(const turn_end&) = delete;

 private:
  proxy& owner_;
};

struct proxy::queue {
  /// What came between two quiets.
  struct epoch {
    std::size_t open = 0;  ///< operations that are not done
    operation* quiet = nullptr;
    status failure = status::ok;  ///< of operations that nobody waits for
  };

  std::uint32_t index = 0;
  std::uint64_t head = 0;  ///< commands read
  /// Where the next command will be, and what its words will be tagged with.
  const device::proxy_entry* next = nullptr;
  std::uint32_t next_tag = 1;
  operation* current = nullptr;
  std::uint64_t first_epoch = 0;
  std::deque<epoch> epochs = std::deque<epoch>(1);
  std::vector<device::proxy_entry> fetched;  ///< copies of entries in a GPU's memory
};

// ---- making and ending

proxy::proxy(device_ref d, const proxy_options& options, int rank, int size,
             std::vector<bool> reached, std::unique_ptr<engine> e, trace::recorder* traced)
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
      timed_(crosswarp::options::read_integer("CROSSWARP_STATS").value_or(0) != 0),
      trace_(traced),
      dead_(static_cast<std::size_t>(size)),
      told_(static_cast<std::size_t>(size) + 1) {
  reset_stats();
  const bool fetch = d.kind() == device_kind::cuda && options.queue_kind == memory_kind::device;
  for (int i = 0; i < options.queues; ++i) {
    queues_.push_back(std::make_unique<queue>());
    queues_.back()->index = static_cast<std::uint32_t>(i);
    if (fetch) queues_.back()->fetched.resize(static_cast<std::size_t>(options.depth));
    find_next(*queues_.back());
  }
  if (fetch) tails_seen_.resize(queues_.size());
  if (d.kind() == device_kind::cuda) {
    // Now: nothing may be allocated while a kernel waits.
    while (chunks_.size() < chunks_at_once) {
      chunks_.push_back(std::make_unique<chunk>(device_));
      free_chunks_.push_back(chunks_.back().get());
    }
  }
  bell_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_descriptor_ < 0) throw error::from_errno(errno, "proxy", "eventfd");
  launches_ = exec::on_launch(d, [this] {
    launched_.store(true, std::memory_order_relaxed);
    rouse();
  });
  if (options.thread) thread_ = std::thread([this] { run(); });
}

proxy::~proxy() {
  launches_.reset();
  stop_.store(true);
  rouse();
  if (thread_.joinable()) thread_.join();
  engine_.reset();  // before what its operations point to
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

std::vector<std::byte> proxy::offer_region(std::uint16_t id, const region_info& mine) {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  return engine_->offer_region(id, mine);
}

void proxy::install_region(std::uint16_t id, region_info mine, std::vector<std::size_t> sizes,
                           std::vector<std::vector<std::byte>> offers) {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  if (region_bytes_.size() <= id) {
    region_bytes_.resize(id + std::size_t{1});
    regions_.resize(id + std::size_t{1});
  }
  engine_->install_region(id, std::move(offers));
  regions_[id] = std::move(mine);
  region_bytes_[id] = std::move(sizes);
}

void proxy::remove_region(std::uint16_t id) noexcept {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  region_bytes_[id].clear();
  regions_[id] = {};
  engine_->remove_region(id);
}

void proxy::hold(const std::function<void()>& f) {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  f();
}

std::uint16_t proxy::free_region() const {
  const auto it = std::find_if(region_bytes_.begin(), region_bytes_.end(),
                               [](const auto& sizes) { return sizes.empty(); });
  const auto id = it - region_bytes_.begin();
  if (id > std::numeric_limits<std::uint16_t>::max()) {
    throw error(errc::out_of_memory, "registration", "65536 of them are there already");
  }
  return static_cast<std::uint16_t>(id);
}

/// Until every command that kernels issued is carried out, and visible remotely.
bool proxy::finish_all(std::chrono::nanoseconds at_most) {
  struct mark : completion {
    std::atomic<bool> reached{false};
  };
  // Lives with the proxy: the engine may call it after this function has given up.
  const auto end = std::make_shared<mark>();
  end->done = [](completion& c, status /*s*/) { static_cast<mark&>(c).reached.store(true); };
  last_mark_ = end;
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  bool flushing = false;
  while (!end->reached.load() && std::chrono::steady_clock::now() < deadline) {
    if (take_turn()) {
      work_in_turn([&] {
        const bool moved = work();
        if (!flushing && !moved && under_way_ == 0 && !commands_wait()) {
          flushing = engine_->flush(*end);
        }
        return moved;
      });
    }
    std::this_thread::yield();
  }
  return end->reached.load();
}

// ---- whose turn it is

bool proxy::take_turn() noexcept {
  std::uint32_t nobody = 0;
  // acquire: what the one before did
  return turn_.compare_exchange_strong(nobody, taken, std::memory_order_acquire,
                                       std::memory_order_relaxed);
}

/// Runs `work` and gives the turn back; again while somebody asked for it meanwhile.
template <class F>
bool proxy::work_in_turn(F&& work) noexcept {
  constexpr int rounds = 4;
  bool moved = false;
  for (int i = 0;; ++i) {
    moved = work() || moved;
    pending_.store(under_way_ > 0 || unread_, std::memory_order_relaxed);
    std::uint32_t mine = taken;
    if (turn_.compare_exchange_strong(mine, 0, std::memory_order_acq_rel)) return moved;
    // Somebody asked. pairs with attend(): its command is seen by the next round
    turn_.fetch_and(~again, std::memory_order_acq_rel);
    if (i == rounds) break;
  }
  // Enough for a thread that has something else to do.
  turn_.store(0, std::memory_order_release);
  rouse();
  return moved;
}

bool proxy::progress() noexcept {
  return take_turn() && work_in_turn([this] { return work(); });
}

void proxy::lend() noexcept {
  lends_.fetch_add(1, std::memory_order_relaxed);
  if (progress()) exec::cpu::note_progress();
}

void proxy::end_lending() noexcept {
  if (pending_.load(std::memory_order_relaxed)) rouse();
}

void proxy::attend(std::uint32_t index) noexcept {
  while (!take_turn()) {
    // Who has the turn looks again; unless it has given it back at this moment.
    if ((turn_.fetch_or(again, std::memory_order_acq_rel) & taken) != 0) return;
    std::uint32_t left = again;
    turn_.compare_exchange_strong(left, 0, std::memory_order_relaxed);
  }
  const auto guarded = [&] { return keep_going([&] { return drain(*queues_[index]); }); };
  if (work_in_turn(guarded)) exec::cpu::note_progress();
  end_lending();
}

/// What an engine throws breaks this proxy and not the process.
template <class F>
bool proxy::keep_going(F&& f) noexcept {
  try {
    return f();
  } catch (const std::exception& e) {
    give_up(e.what());
  } catch (...) {
    give_up("an unknown exception");
  }
  return false;
}

void proxy::give_up(const char* why) noexcept {
  if (refusal_.load(std::memory_order_relaxed) == status::ok) {
    log::error(bounds_.rank, "proxy: every command fails from now on: ", why);
  }
  refuse(status::aborted);
}

bool proxy::work() noexcept {
  return keep_going([this] {
    if (news_.load(std::memory_order_acquire)) hear_news();
    if (!tails_seen_.empty()) fetch_entries();
    bool moved = false;
    unread_ = false;
    // Another one first each time, so that all have their share when something is scarce.
    first_queue_ = first_queue_ + 1 < queues_.size() ? first_queue_ + 1 : 0;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      const std::size_t at = first_queue_ + i;
      queue& q = *queues_[at < queues_.size() ? at : at - queues_.size()];
      if (drain(q)) {
        moved = true;
        last_active_ = &q;
      }
      // Whoever asked last is likely to ask next, and waits for an answer meanwhile.
      constexpr std::size_t often = 16;
      if (i % often == often - 1 && last_active_ != nullptr) {
        moved = drain(*last_active_) || moved;
      }
    }
    moved = flush_quiets() || moved;
    return engine_->progress() || moved;
  });
}

void proxy::hear_news() {
  std::vector<int> lost;
  {
    const std::scoped_lock lock(news_mutex_);
    news_.store(false, std::memory_order_relaxed);
    lost.swap(lost_);
  }
  for (const int pe : lost) {
    dead_[static_cast<std::size_t>(pe)] = true;
    engine_->lose(pe);
  }
  const status why = refusal_.load(std::memory_order_relaxed);
  if (why == status::ok) return;
  // Whoever waits is told now; what is under way may still end, and nobody hears of it.
  for (const auto& op : operations_) {
    if (!op->active || op->answered) continue;
    op->answered = true;
    if ((op->c.flags & proxy_command::wants_reply) != 0) reply(*op->from, op->ticket, 0, why);
  }
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
  news_.store(true, std::memory_order_release);
  rouse();
}

// ---- reading commands

void proxy::find_next(queue& q) const noexcept {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  const std::uint64_t slot = q.head % depth;
  q.next = q.fetched.empty() ? entries_.data() + q.index * depth + slot : q.fetched.data() + slot;
  q.next_tag = static_cast<std::uint32_t>(q.head / depth + 1);
}

/// A quick look: most queues are empty most of the time.
bool proxy::has_next(const queue& q) noexcept {
  auto& word = const_cast<std::uint64_t&>(q.next->words[0]);
  return static_cast<std::uint32_t>(shared(word).load(std::memory_order_relaxed) >> 32U) ==
         q.next_tag;
}

bool proxy::drain(queue& q) {
  if (q.current == nullptr && !has_next(q)) return false;
  bool moved = false;
  const std::uint64_t before = q.head;
  if (q.current != nullptr) recheck(*q.current);
  int i = 0;
  for (; i < commands_per_visit; ++i) {
    if (q.current == nullptr && !read_next(q)) break;
    moved = true;
    if (q.current == nullptr) continue;  // done already
    operation& op = *q.current;
    if (!start(op)) break;
    q.current = nullptr;
    part_done(op, status::ok);
  }
  unread_ = unread_ || i == commands_per_visit;
  if (q.head != before) {
    // In one go for all that were read. pairs with proxy_queue::is_free()
    shared(heads_.data()[q.index].consumed).store(q.head, std::memory_order_release);
  }
  return moved;
}

/// A command that waited for room: what it names may be gone.
void proxy::recheck(operation& op) {
  set_worse(op.outcome, validate(op.c, bounds_));
  set_worse(op.outcome, refusal_.load(std::memory_order_relaxed));
  if (names_rank(op.c.op) && dead_[static_cast<std::size_t>(op.c.pe)]) {
    set_worse(op.outcome, status::peer_lost);
  }
}

bool proxy::read_next(queue& q) {
  const auto c = read_command(*q.next, q.next_tag);
  if (!c) return false;
  operation* const op = free_operation();
  if (op == nullptr) return false;
  op->from = &q;
  op->ticket = q.head++;
  find_next(q);
  op->c = *c;
  op->started = 0;
  op->data_started = false;
  op->parts = 1;
  op->outcome = status::ok;
  if (timed_) op->read = std::chrono::steady_clock::now();
  if (trace_ != nullptr) op->began = device::trace_ticks();
  op->active = true;
  op->answered = false;
  op->result = 0;
  admit(q, *op);
  return true;
}

/// Queues in a GPU's memory: the host cannot look there, so it copies what came since.
void proxy::fetch_entries() {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  exec::copy_now(device_, tails_seen_.data(), tails_.data(),
                 tails_seen_.size() * sizeof(device::proxy_tail));
  for (const auto& q : queues_) {
    // A ticket was taken for each of these; what is not written yet is copied again.
    const std::uint64_t end = std::min(tails_seen_[q->index].next, q->head + depth);
    for (std::uint64_t at = q->head; at < end;) {
      const std::uint64_t slot = at % depth;
      const std::uint64_t run = std::min(end - at, depth - slot);
      exec::copy_now(device_, q->fetched.data() + slot, entries_.data() + q->index * depth + slot,
                     run * sizeof(device::proxy_entry));
      at += run;
    }
  }
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
  set_worse(op.outcome, validate(op.c, bounds_));
  if (op.outcome == status::ok) {
    const bool lost = is_collective(op.c.op)
                          ? std::find(dead_.begin(), dead_.end(), true) != dead_.end()
                          : names_rank(op.c.op) && dead_[static_cast<std::size_t>(op.c.pe)];
    if (lost) op.outcome = status::peer_lost;
    set_worse(op.outcome, refusal_.load(std::memory_order_relaxed));
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
    chunks_.push_back(std::make_unique<chunk>(device_));
    free_chunks_.push_back(chunks_.back().get());
  }
  chunk* const c = free_chunks_.back();
  free_chunks_.pop_back();
  return c;
}

// ---- starting them

bool proxy::start(operation& op) {
  if (op.outcome != status::ok) return true;
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

/// The engine may have this memory: it is in a region, or the GPU's and the engine knows GPUs.
bool proxy::direct(std::uint64_t address, std::uint64_t bytes) const noexcept {
  const bool in_region = std::any_of(regions_.begin(), regions_.end(), [&](const region_info& r) {
    const auto base = reinterpret_cast<std::uintptr_t>(r.base);
    return r.base != nullptr && address >= base && address - base <= r.bytes &&
           bytes <= r.bytes - (address - base);
  });
  return in_region || (engine_->can().gpu_memory &&
                       exec::owns(device_, reinterpret_cast<const void*>(address), bytes));
}

/// Lets `f` start an engine's operation that ends with a call of `op`'s or a chunk's completion.
template <class F>
bool proxy::hand_over(operation& op, F&& f) {
  ++op.parts;
  ++under_way_;
  if (f()) return true;
  --op.parts;
  --under_way_;
  return false;
}

namespace {
bool reads_remote(proxy_op op) noexcept {
  return op == proxy_op::get || op == proxy_op::get_strided;
}
}  // namespace

/// One contiguous piece. Memory that the engine may not know goes through chunks.
bool proxy::start_part(operation& op, std::uint64_t remote, std::uint64_t local,
                       std::uint64_t bytes) {
  const place there{op.c.pe, op.c.region, remote};
  const bool get = reads_remote(op.c.op);
  auto* const address = reinterpret_cast<std::byte*>(local);
  if (direct(local, bytes)) {
    return hand_over(op, [&] {
      return get ? engine_->get(there, address, bytes, op)
                 : engine_->put(there, address, bytes, op);
    });
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
    if (reads_remote(of.c.op) && s == status::ok) {
      s = owner.write_local(p.local, p.memory.data(), p.bytes);
    }
    owner.free_chunks_.push_back(&p);
    --owner.under_way_;
    owner.part_done(of, s);
  };
  std::byte* const held = piece->memory.data();
  if (!get) {
    if (const status s = read_local(held, local, bytes); s != status::ok) {
      free_chunks_.push_back(piece);
      set_worse(op.outcome, s);
      return true;
    }
  }
  const bool taken_over = hand_over(op, [&] {
    return get ? engine_->get(there, held, bytes, *piece)
               : engine_->put(there, held, bytes, *piece);
  });
  if (!taken_over) free_chunks_.push_back(piece);
  return taken_over;
}

/// From and to addresses that a kernel gave, which may be anything.
status proxy::read_local(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept {
  const auto* address = reinterpret_cast<const std::byte*>(from);
  if (!exec::owns(device_, address, bytes)) return memory::read_private(to, address, bytes);
  return copy_gpu(to, address, bytes);
}

status proxy::write_local(std::uint64_t to, const std::byte* from,
                          std::size_t bytes) const noexcept {
  auto* address = reinterpret_cast<std::byte*>(to);
  if (!exec::owns(device_, address, bytes)) return memory::write_private(address, from, bytes);
  return copy_gpu(address, from, bytes);
}

status proxy::copy_gpu(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
  try {
    exec::copy_now(device_, to, from, bytes);
    return status::ok;
  } catch (const error&) {
    return status::invalid;
  }
}

bool proxy::start_range(operation& op) {
  if (op.c.op == proxy_op::put_inline) {
    if (op.started > 0 || op.c.width == 0) return true;
    std::memcpy(op.data, &op.c.local, 8);
    std::memcpy(op.data + 8, &op.c.bytes, 8);
    const place there{op.c.pe, op.c.region, op.c.remote};
    if (!hand_over(op, [&] { return engine_->put_small(there, op.data, op.c.width, op); })) {
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
  for (int pieces = 0; op.started < total && op.outcome == status::ok; ++pieces) {
    if (pieces == pieces_per_visit) return false;  // others want their turn too
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
  return hand_over(op, [&] {
    return engine_->atomic(how == signal_op::set ? amo::set : amo::add, 8,
                           {op.c.pe, op.c.signal_region, op.c.a}, op.c.b, 0, nullptr, op);
  });
}

bool proxy::start_atomic(operation& op) {
  const bool fetches = (op.c.flags & proxy_command::wants_reply) != 0 || op.c.local != 0;
  return hand_over(op, [&] {
    return engine_->atomic(static_cast<amo>(op.c.what), op.c.width,
                           {op.c.pe, op.c.region, op.c.remote}, op.c.a, op.c.b,
                           fetches ? &op.result : nullptr, op);
  });
}

bool proxy::start_collective(operation& op) {
  return hand_over(op, [&] {
    if (op.c.op == proxy_op::barrier) return engine_->barrier(op);
    std::byte* const to = here(op.c.region, op.c.remote);
    const std::byte* const from = here(op.c.signal_region, op.c.c);
    if (op.c.op == proxy_op::broadcast) {
      return engine_->broadcast(op.c.pe, to, from, op.c.bytes, op);
    }
    return engine_->reduce(static_cast<reduction>(op.c.what), static_cast<element>(op.c.width), to,
                           from, op.c.bytes, op);
  });
}

// ---- ending them

void proxy::part_done(operation& op, status s) {
  set_worse(op.outcome, s);
  if (--op.parts == 0) finish(op);
}

void proxy::finish(operation& op) {
  queue& q = *op.from;
  if (op.c.op == proxy_op::atomic && op.c.local != 0 && op.outcome == status::ok) {
    set_worse(op.outcome,
              write_local(op.c.local, reinterpret_cast<const std::byte*>(&op.result), op.c.width));
  }
  queue::epoch& e = q.epochs[static_cast<std::size_t>(op.epoch - q.first_epoch)];
  if ((op.c.flags & proxy_command::wants_reply) == 0) {
    set_worse(e.failure, op.outcome);
    if (op.outcome != status::ok) log_failure(op);
  } else if (!op.answered) {
    reply(q, op.ticket, op.result, op.outcome);
  }
  --e.open;
  count(op);
  op.active = false;
  free_operations_.push_back(&op);
  settle(q);
}

// ---- counting them

void proxy::count(const operation& op) {
  operation_stats& s = stats_[static_cast<std::size_t>(call_of(op.c))];
  ++s.count;
  if (op.outcome == status::ok) {
    s.bytes += bytes_of(op.c);
  } else {
    ++s.failures;
  }
  s.waited_for_slot += std::chrono::nanoseconds(op.c.waited_ns);
  if (timed_) s.to_completion += std::chrono::steady_clock::now() - op.read;
  if (trace_ != nullptr) note(op);
}

void proxy::note(const operation& op) {
  device::trace_record r;
  r.begin = op.began;
  r.end = device::trace_ticks();
  r.bytes = bytes_of(op.c);
  r.id = device::trace_id(op.from->index, op.ticket);
  r.pe = op.c.pe;
  r.kind = device::trace_kind::proxy;
  r.what = static_cast<std::uint8_t>(call_of(op.c));
  r.outcome = static_cast<std::uint8_t>(op.outcome);
  trace_->note_in_turn(r);
}

/// Of a command that nobody waits for: somebody may ask for it at a quiet, or never. Once for each
/// rank and outcome, since a kernel may fail a million times.
void proxy::log_failure(const operation& op) noexcept {
  const bool named = names_rank(op.c.op) && op.c.pe >= 0 && op.c.pe < bounds_.size;
  const std::size_t to = static_cast<std::size_t>(named ? op.c.pe : bounds_.size);
  // A lost rank and a broken world have been told where they were first known.
  if (refusal_.load(std::memory_order_relaxed) != status::ok || (named && dead_[to])) return;
  const std::uint32_t bit = 1U << static_cast<unsigned>(op.outcome);
  if ((told_[to] & bit) != 0) return;
  told_[to] |= bit;
  const std::string why = op.outcome == status::invalid ? what_is_wrong(op.c, bounds_) : "";
  log::error(bounds_.rank, "proxy: ", name_of(call_of(op.c)), ": ", to_string(op.outcome),
             why.empty() ? "" : ": ", why, " (rank ", op.c.pe, " of ", bounds_.size, ", queue ",
             op.from->index, "); quiet tells, others like it are not logged");
}

std::vector<operation_stats> proxy::stats() {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  return {stats_.begin(), stats_.end()};
}

void proxy::reset_stats() {
  while (!take_turn()) std::this_thread::yield();
  const turn_end end(*this);
  for (std::size_t i = 0; i < kinds; ++i) {
    stats_[i] = {};
    stats_[i].name = name_of(static_cast<proxy_call>(i));
  }
}

/// Quiets before which nothing is under way any more can have their flush.
void proxy::settle(queue& q) {
  while (q.epochs.front().quiet != nullptr && q.epochs.front().open == 0) {
    operation& quiet = *q.epochs.front().quiet;
    set_worse(quiet.outcome, q.epochs.front().failure);
    quiets_.push_back(&quiet);
    q.epochs.pop_front();
    ++q.first_epoch;
  }
}

/// One flush for all quiets of this round.
bool proxy::flush_quiets() {
  if (quiets_.empty()) return false;
  if (free_flushes_.empty()) {
    flushes_.push_back(std::make_unique<flush>());
    free_flushes_.push_back(flushes_.back().get());
  }
  flush& f = *free_flushes_.back();
  f.owner = this;
  f.done = [](completion& c, status s) {
    auto& done = static_cast<flush&>(c);
    proxy& owner = *done.owner;
    --owner.under_way_;
    for (operation* op : done.quiets) {
      set_worse(op->outcome, s);
      set_worse(op->outcome, owner.refusal_.load(std::memory_order_relaxed));
      if (!op->answered && (op->c.flags & proxy_command::wants_reply) != 0) {
        owner.reply(*op->from, op->ticket, 0, op->outcome);
      }
      owner.count(*op);
      op->active = false;
      owner.free_operations_.push_back(op);
    }
    done.quiets.clear();
    owner.free_flushes_.push_back(&done);
  };
  free_flushes_.pop_back();
  f.quiets.swap(quiets_);
  ++under_way_;
  if (engine_->flush(f)) return true;
  --under_way_;
  f.quiets.swap(quiets_);
  free_flushes_.push_back(&f);
  return false;
}

void proxy::reply(const queue& q, std::uint64_t ticket, std::uint64_t value, status s) noexcept {
  const auto depth = static_cast<std::uint64_t>(options_.depth);
  device::proxy_reply& r = replies_.data()[q.index * depth + ticket % depth];
  const std::uint64_t lap = ticket / depth;
  shared(r.value).store(value, std::memory_order_relaxed);
  // pairs with proxy_queue::wait_reply(), is_free()
  shared(r.stamp).store((lap + 1) << 8U | static_cast<std::uint8_t>(s), std::memory_order_release);
}

// ---- the thread

void proxy::run() {
  // Naps are short; the default slack would double them.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  using clock = std::chrono::steady_clock;
  constexpr auto patience = std::chrono::microseconds(50);
  constexpr std::uint32_t patient_looks = 256;  // time also passes for a thread without a core
  auto active = clock::now();
  std::uint32_t lends = 0;
  constexpr std::chrono::microseconds shortest_nap(50);
  constexpr std::chrono::microseconds longest_nap(1000);
  auto nap = shortest_nap;
  for (std::uint32_t look = 1; !stop_.load(std::memory_order_relaxed); ++look) {
    // Kernels that wait do the work themselves, and best alone: even to look whether they still do
    // takes a core from them.
    if (const std::uint32_t now = lends_.load(std::memory_order_relaxed); now != lends) {
      lends = now;
      stand_by(nap);
      nap = std::min(2 * nap, longest_nap);
      continue;
    }
    nap = shortest_nap;
    if (progress()) {
      active = clock::now();
      look = 0;
      continue;
    }
    if (look % 32 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look >= patient_looks && look % 16 == 0 && clock::now() - active > patience) {
      const auto since = active;
      while (!stop_.load(std::memory_order_relaxed) && rest(clock::now() - since)) {
      }
      active = clock::now();
      look = 0;
    }
  }
}

/// Sleeps a little, or until it is called.
void proxy::stand_by(std::chrono::nanoseconds at_most) {
  asleep_.exchange(true, std::memory_order_acq_rel);
  sleep_on_bell({0, at_most.count()}, -1);
  asleep_.exchange(false, std::memory_order_acq_rel);
}

void proxy::sleep_on_bell(const timespec& at_most, int other) {
  pollfd wakers[2] = {{bell_descriptor_, POLLIN, 0}, {other, POLLIN, 0}};
  ppoll(wakers, other >= 0 ? 2 : 1, &at_most, nullptr);
  std::uint64_t count = 0;
  if ((wakers[0].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t n = read(bell_descriptor_, &count, sizeof(count));
  }
}

bool proxy::commands_wait() const noexcept {
  return std::any_of(queues_.begin(), queues_.end(), [](const auto& q) { return has_next(*q); });
}

/// Whether a GPU's kernel may be about to ask for something. Asked only when it was still for a
/// while: looking at its streams takes time too.
bool proxy::gpu_may_ask(std::chrono::nanoseconds idle_for) {
  constexpr auto still = std::chrono::milliseconds(50);
  if (device_.kind() != device_kind::cuda) return false;
  if (idle_for < still) return true;
  if (!launched_.exchange(false, std::memory_order_relaxed)) return false;
  if (!exec::busy(device_)) return false;
  launched_.store(true, std::memory_order_relaxed);
  return true;
}

/// Sleeps until there may be something to do; true when there was nothing before. A GPU cannot wake
/// a thread, so while one of its streams is busy its commands are looked for.
bool proxy::rest(std::chrono::nanoseconds idle_for) {
  constexpr timespec short_nap{0, 20'000};
  constexpr timespec nap{0, 1'000'000};
  constexpr timespec deaf_nap{0, 3'000'000};
  constexpr auto recently = std::chrono::milliseconds(2);
  constexpr auto long_ago = std::chrono::milliseconds(50);
  constexpr timespec long_nap{0, 100'000'000};
  // pairs with rouse(): one of the two sees the other
  asleep_.exchange(true, std::memory_order_acq_rel);
  bool idle = false;
  if (take_turn()) {
    const bool armed = keep_going([this] { return engine_->arm(); });
    idle = !work_in_turn([this] { return work(); }) && armed;
  }
  if (idle && !news_.load(std::memory_order_acquire)) {
    const int other = engine_->wake_descriptor();
    // An engine that cannot wake anybody is looked after, the less the longer nothing came.
    const bool deaf = other < 0 && engine_->can().target_progress;
    const bool looks = (other < 0 && pending_.load(std::memory_order_relaxed)) ||
                       (deaf && idle_for < recently) || gpu_may_ask(idle_for);
    const bool peeks = deaf || device_.kind() == device_kind::cuda;
    sleep_on_bell(looks                         ? short_nap
                  : deaf && idle_for > long_ago ? deaf_nap
                  : peeks                       ? nap
                                                : long_nap,
                  other);
  }
  asleep_.exchange(false, std::memory_order_acq_rel);
  return idle;
}

void proxy::rouse() noexcept {
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(bell_descriptor_, &one, sizeof(one));
}

// ---- what CPU kernels call

void exec::cpu::lend_thread(proxy& p) noexcept {
  p.lend();
}
void exec::cpu::end_lending(proxy& p) noexcept {
  p.end_lending();
}
void exec::cpu::call_proxy(proxy& p, std::uint32_t queue) noexcept {
  p.attend(queue);
}

}  // namespace crosswarp
