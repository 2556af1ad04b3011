#include "transports/verbs/soft_nic.hpp"

#include <algorithm>
#include <cstring>
#include <future>

#include "core/log.hpp"
#include "crosswarp/buffer.hpp"
#include "exec/cpu/executor.hpp"

namespace crosswarp::verbs {

using mlx5::cqe_opcode;
using mlx5::opcode;
using mlx5::swapped;
using mlx5::syndrome;

namespace {

constexpr std::size_t bells_per_page = 1024;
constexpr int entries_per_visit = 64;
constexpr std::ptrdiff_t most_qps = 0xfff;

template <class T>
std::atomic_ref<T> shared(T& word) noexcept {
  return std::atomic_ref<T>(word);
}

}  // namespace

// ---- what it keeps

struct soft_nic::qp {
  explicit qp(const qp_setup& s) : setup(s), sent(s.queues.sent), received(s.queues.received) {}

  qp_setup setup;
  std::uint32_t qpn = 0;
  bell_page* page = nullptr;
  std::size_t bell = 0;
  endpoint_state state = endpoint_state::made;
  endpoint_address self;
  endpoint_address peer;
  completion_writer sent;
  completion_writer received;
  bool overrun = false;  ///< of a completion queue: nothing can be told any more

  // Requester.
  std::uint64_t head = 0;    ///< the entry that is carried out, or the next
  std::uint64_t target = 0;  ///< rung for
  bool read = false;         ///< `now` is the entry at `head`
  bool delayed = false;      ///< it has had its delay
  bool awaiting = false;     ///< an answer
  bool active = false;       ///< in the list of those
  int retries = 0;
  int not_ready = 0;
  clock::time_point not_before{};
  entry now;
  std::vector<piece> pieces;  ///< its data, checked

  // Responder.
  std::uint64_t next_receive = 0;
};

/// Doorbells of queue pairs whose kernels run on one device, next to each other so that to look at
/// all of them takes little.
struct soft_nic::bell_page {
  explicit bell_page(device_ref d) : device(d), words(d, bells_per_page, memory_kind::pinned) {}
  device_ref device;
  buffer<std::uint64_t> words;
  std::vector<std::uint64_t> seen;
  std::vector<qp*> owners;  ///< null: free
};

// ---- making and ending

soft_nic::soft_nic(std::uint64_t fabric, std::uint32_t number, const rdma::soft_options& o)
    : fabric_(fabric), number_(number), options_(o), random_(o.seed + number) {
  thread_ = std::thread([this] { work(); });
}

soft_nic::~soft_nic() {
  stop();
}

void soft_nic::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    posted_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_one();
  thread_.join();
}

void soft_nic::post(std::function<void()> f) {
  {
    const std::scoped_lock lock(mutex_);
    posts_.push_back(std::move(f));
    posted_.store(true, std::memory_order_relaxed);  // the lock orders what it speaks of
  }
  wake_.notify_one();
}

/// Has the thread run `f` and waits for it.
template <class F>
auto soft_nic::run(F&& f) {
  // Shared: the thread may still be leaving it when the result is there.
  const auto task = std::make_shared<std::packaged_task<decltype(f())()>>(std::forward<F>(f));
  auto result = task->get_future();
  post([task] { (*task)(); });
  return result.get();
}

void soft_nic::set_wire(std::unique_ptr<wire> w) {
  run([&] { wire_ = std::move(w); });
}

std::uint32_t soft_nic::add_memory(const memory_range& m, access allowed) {
  return run([&] { return keys_.add(m, allowed); });
}
void soft_nic::remove_memory(std::uint32_t key) {
  run([&] { keys_.remove(key); });
}

soft_nic::made_qp soft_nic::add_qp(const qp_setup& s) {
  // A page is made here, not by the thread: that may have to wait for the device.
  std::unique_ptr<bell_page> fresh;
  for (;;) {
    const auto made = run([&] { return try_add_qp(s, fresh); });
    if (made) return *made;
    fresh = std::make_unique<bell_page>(s.kernels);
  }
}

/// Nothing when there is no doorbell left; `fresh` is taken when it is needed and there.
std::optional<soft_nic::made_qp> soft_nic::try_add_qp(const qp_setup& s,
                                                      std::unique_ptr<bell_page>& fresh) {
  auto number = std::find(by_number_.begin(), by_number_.end(), nullptr);
  if (number - by_number_.begin() == most_qps) {
    throw error(errc::out_of_memory, "rdma endpoint",
                std::to_string(most_qps) + " endpoints of this device are there already");
  }
  auto page = std::find_if(pages_.begin(), pages_.end(), [&](const auto& p) {
    return p->device == s.kernels &&
           (p->owners.size() < bells_per_page ||
            std::find(p->owners.begin(), p->owners.end(), nullptr) != p->owners.end());
  });
  if (page == pages_.end()) {
    if (fresh == nullptr) return {};
    page = pages_.insert(page, std::move(fresh));
  }
  bell_page& at = **page;
  auto place = std::find(at.owners.begin(), at.owners.end(), nullptr);
  if (place == at.owners.end()) place = at.owners.insert(place, nullptr);
  if (number == by_number_.end()) number = by_number_.insert(number, nullptr);
  auto made = std::make_unique<qp>(s);
  // Counted up with each use of a place, so that an answer to an old one finds no new one. From 1:
  // a doorbell that was never rung shows 0.
  const auto place_number = static_cast<std::uint32_t>(number - by_number_.begin()) + 1;
  made->qpn = (++made_ & 0xfffU) << 12U | place_number;
  made->self = {fabric_, number_, made->qpn};
  made->page = &at;
  made->bell = static_cast<std::size_t>(place - at.owners.begin());
  at.seen.resize(at.owners.size());
  at.seen[made->bell] = 0;
  at.words.data()[made->bell] = 0;
  *place = made.get();
  *number = made.get();
  const made_qp result{made->qpn, at.words.data() + made->bell};
  qps_[made->qpn] = std::move(made);
  return result;
}

void soft_nic::remove_qp(std::uint32_t qpn) {
  run([&] {
    qp& q = *qps_.at(qpn);
    q.page->owners[q.bell] = nullptr;
    by_number_[(qpn & 0xfffU) - 1] = nullptr;
    std::erase(active_, &q);
    std::erase(failed_, &q);
    qps_.erase(qpn);
  });
}

void soft_nic::connect(std::uint32_t qpn, const endpoint_address& peer) {
  run([&] {
    qp& q = *qps_.at(qpn);
    if (q.state != endpoint_state::made) {
      throw error(errc::invalid_argument, "connect",
                  "the endpoint is connected already, or has failed; make another one");
    }
    q.peer = peer;
    q.state = endpoint_state::ready;
  });
}

endpoint_state soft_nic::state_of(std::uint32_t qpn) {
  return run([&] { return qps_.at(qpn)->state; });
}

/// Null when there is none.
soft_nic::qp* soft_nic::find(std::uint32_t qpn) const noexcept {
  const std::size_t place = (qpn & 0xfffU) - std::size_t{1};
  qp* const q = place < by_number_.size() ? by_number_[place] : nullptr;
  return q != nullptr && q->qpn == qpn ? q : nullptr;
}

bool soft_nic::chance(int of_thousand) {
  return of_thousand > 0 && random_() % 1000 < static_cast<std::uint64_t>(of_thousand);
}

// ---- the thread

void soft_nic::work() {
  auto last = clock::now();
  for (std::uint32_t look = 1;; ++look) {
    if (posted_.load(std::memory_order_relaxed) && !hear_posts()) return;
    const bool rung = look_at_bells();
    const bool moved = serve_all();
    if (rung || moved) {
      last = clock::now();
      look = 0;
      continue;
    }
    // Kernel threads may want this core.
    if (look % 32 == 0 || exec::cpu::crowded()) std::this_thread::yield();
    if (look % 64 == 0) rest(clock::now() - last);
  }
}

/// What other threads want; false when that is the end.
bool soft_nic::hear_posts() {
  std::deque<std::function<void()>> posts;
  {
    const std::scoped_lock lock(mutex_);
    posted_.store(false, std::memory_order_relaxed);
    posts.swap(posts_);
    if (stop_) return false;
  }
  for (const auto& f : posts) f();
  return true;
}

/// Sleeps a little when nothing was to be done for a while: the longer ago, the longer, and at most
/// a millisecond. A GPU cannot wake a thread, so doorbells are looked for all the time.
void soft_nic::rest(clock::duration idle_for) {
  using us = std::chrono::microseconds;
  constexpr us patience(100);
  constexpr us recently(2000);
  constexpr us long_ago(50'000);
  if (idle_for < patience) return;
  const us nap = idle_for < recently ? us(20) : idle_for < long_ago ? us(200) : us(1000);
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, nap, [this] { return posted_.load(std::memory_order_relaxed); });
}

bool soft_nic::look_at_bells() {
  bool any = false;
  for (const auto& page : pages_) {
    std::uint64_t* const words = page->words.data();
    for (std::size_t i = 0; i < page->owners.size(); ++i) {
      // Relaxed: most of them have not changed.
      if (shared(words[i]).load(std::memory_order_relaxed) == page->seen[i]) continue;
      if (page->owners[i] == nullptr) continue;
      const std::uint64_t bell =
          shared(words[i]).load(std::memory_order_acquire);  // pairs with mlx5_provider::ring()
      page->seen[i] = bell;
      hear_bell(*page->owners[i], bell);
      any = true;
    }
  }
  return any;
}

bool soft_nic::serve_all() {
  if (active_.empty() && failed_.empty()) return false;
  if (options_.shuffle) std::shuffle(active_.begin(), active_.end(), random_);
  bool moved = false;
  // By index: what is served may add others.
  for (std::size_t i = 0; i < active_.size(); ++i) moved = serve(*active_[i]) || moved;
  std::erase_if(active_, [](qp* q) {
    q->active = q->head != q->target;
    return !q->active;
  });
  for (qp* q : failed_) moved = flush_receives(*q) || moved;
  return moved;
}

// ---- requester

void soft_nic::hear_bell(qp& q, std::uint64_t bell) {
  const auto target = rung_until(bell, q.setup.queues, q.qpn, q.head, q.setup.send_depth);
  if (target) q.target = *target;
  if (q.state == endpoint_state::failed) {
    if (target) flush(q);
    return;
  }
  if (!target || q.state != endpoint_state::ready) {
    fail(q, syndrome::local_qp_operation);
    return;
  }
  if (!q.active) {
    q.active = true;
    active_.push_back(&q);
  }
}

/// Hostile: not yet.
bool soft_nic::is_late(qp& q) {
  if (options_.delay.count() == 0 || q.delayed) return false;
  q.delayed = true;
  const auto wait = random_() % static_cast<std::uint64_t>(options_.delay.count());
  q.not_before = clock::now() + std::chrono::nanoseconds(wait);
  return true;
}

bool soft_nic::serve(qp& q) {
  if (q.awaiting || q.head == q.target) return false;
  if (q.state == endpoint_state::failed) {
    flush(q);
    return true;
  }
  if (q.not_before != clock::time_point{}) {
    if (clock::now() < q.not_before) return false;
    q.not_before = {};
  }
  const int entries = options_.shuffle ? static_cast<int>(random_() % 4) + 1 : entries_per_visit;
  bool moved = false;
  for (int i = 0;
       i < entries && q.head != q.target && !q.awaiting && q.state == endpoint_state::ready; ++i) {
    if (is_late(q)) break;
    start(q);
    moved = true;
    if (q.not_before != clock::time_point{}) break;
  }
  return moved;
}

void soft_nic::start(qp& q) {
  if (!q.read) {
    const std::uint64_t available = q.target - q.head;
    if (!read_entry(q.setup.queues.send, q.setup.send_depth, q.head, available, q.qpn, q.now)) {
      fail(q, syndrome::local_qp_operation);
      return;
    }
    q.read = true;
  }
  if (q.now.op == opcode::nop) {
    succeed(q);
    return;
  }
  // Again with each try: memory may be gone, and a write's data is what it is when it is sent.
  if (!gather(q)) {
    fail(q, syndrome::local_protection);
    return;
  }
  transmit(q);
}

/// The entry's own memory, as far as it may be used so.
bool soft_nic::gather(qp& q) {
  const entry& e = q.now;
  q.pieces.clear();
  if (e.inlined) {
    q.pieces.push_back(own_piece(e.inline_data.data(), e.bytes));
    return true;
  }
  const bool written = e.op == opcode::rdma_read || is_atomic(e.op);
  const access want = written ? access::local_write : access::none;
  return std::all_of(e.data.begin(), e.data.begin() + static_cast<std::ptrdiff_t>(e.segments),
                     [&](const entry::segment& s) {
                       if (s.bytes == 0) return true;
                       q.pieces.emplace_back();
                       return keys_.find(s.key, s.address, s.bytes, want, q.pieces.back()) ==
                              key_table::verdict::ok;
                     });
}

void soft_nic::transmit(qp& q) {
  const entry& e = q.now;
  request r;
  r.from = q.self;
  r.to = q.peer;
  r.op = e.op;
  r.imm = e.imm;
  r.address = e.remote;
  r.rkey = e.rkey;
  r.bytes = e.bytes;
  r.word = e.word;
  if (e.op != opcode::rdma_read && !is_atomic(e.op)) r.payload = q.pieces;
  q.awaiting = true;
  if (!has_link() || chance(options_.lost)) {
    deliver({.to = q.self, .what = answer::kind::none});
    return;
  }
  wire_->send(r);
}

void soft_nic::deliver(const answer& a) {
  qp* const q = find(a.to.qpn);
  if (q == nullptr || !q->awaiting) return;  // it is gone, or has failed meanwhile
  q->awaiting = false;
  const auto& o = q->setup.options;
  switch (a.what) {
    case answer::kind::done:
      if (take_answer(*q, a)) {
        succeed(*q);
      } else {
        fail(*q, syndrome::local_protection);
      }
      break;
    case answer::kind::not_ready:
      retry(*q, q->not_ready, o.not_ready_retries, o.not_ready_after, syndrome::receiver_not_ready);
      break;
    case answer::kind::refused:
      fail(*q, a.why);
      break;
    case answer::kind::none:
      retry(*q, q->retries, o.retries, o.retry_after, syndrome::retries_exceeded);
      break;
  }
}

void soft_nic::retry(qp& q, int& tried, int limit, clock::duration after, syndrome why) {
  if (++tried > limit) {
    fail(q, why);
  } else {
    q.not_before = clock::now() + after;
  }
}

/// Puts what was fetched where the entry wants it.
bool soft_nic::take_answer(qp& q, const answer& a) {
  if (q.now.op == opcode::rdma_read) return copy_pieces(q.pieces, a.payload);
  if (!is_atomic(q.now.op)) return true;
  if (q.now.word.width == 8) {
    const piece held = own_piece(&a.word, sizeof(a.word));
    return copy_pieces(q.pieces, std::span(&held, 1));
  }
  const std::uint32_t word = swapped(static_cast<std::uint32_t>(a.word));  // as adapters do
  const piece held = own_piece(&word, sizeof(word));
  return copy_pieces(q.pieces, std::span(&held, 1));
}

void soft_nic::succeed(qp& q) {
  const std::uint64_t index = q.head;
  q.head += q.now.blocks;
  q.read = false;
  q.delayed = false;
  q.retries = 0;
  q.not_ready = 0;
  if (q.now.signalled) complete(q, q.sent, {.of = q.now.op, .index = index, .bytes = q.now.bytes});
}

void soft_nic::mark_failed(qp& q) {
  if (q.state == endpoint_state::failed) return;
  q.state = endpoint_state::failed;
  failed_.push_back(&q);
}

/// Ends the entry at the head with an error, and with it the queue pair. When there is no entry,
/// the doorbell made no sense.
void soft_nic::fail(qp& q, syndrome why) {
  mark_failed(q);
  q.awaiting = false;
  q.not_before = {};
  end_in_error(q, why);
  flush(q);
}

/// An entry that is not carried out. Only how long it is matters.
void soft_nic::end_in_error(qp& q, syndrome why) {
  const std::uint64_t index = q.head;
  q.now.op = opcode::nop;
  if (q.head != q.target) {
    (void)read_entry(q.setup.queues.send, q.setup.send_depth, index, q.target - index, q.qpn,
                     q.now);
    q.head += q.now.blocks;
  }
  q.read = false;
  complete(q, q.sent,
           {.what = cqe_opcode::requester_error, .of = q.now.op, .index = index, .why = why});
}

void soft_nic::flush(qp& q) {
  while (q.head != q.target) end_in_error(q, syndrome::flushed);
}

bool soft_nic::flush_receives(qp& q) {
  const std::uint64_t posted = posted_receives(q);
  const bool any = q.next_receive != posted;
  while (q.next_receive != posted) {
    complete(
        q, q.received,
        {.what = cqe_opcode::responder_error, .index = q.next_receive++, .why = syndrome::flushed});
  }
  return any;
}

// ---- responder

answer soft_nic::respond(const request& r) {
  qp* const q = find(r.to.qpn);
  const bool expected = q != nullptr && q->state == endpoint_state::ready && has_link() &&
                        q->peer.device == r.from.device && q->peer.qpn == r.from.qpn;
  answer a;
  if (expected) {
    if (is_send(r.op)) {
      a = answer_send(*q, r);
    } else if (r.op == opcode::rdma_read) {
      a = answer_read(*q, r);
    } else if (is_atomic(r.op)) {
      a = answer_atomic(*q, r);
    } else {
      a = answer_write(*q, r);
    }
  }
  a.to = r.from;
  return a;
}

/// This end has failed, too: nobody answers for it any more.
answer soft_nic::refuse(qp& q, syndrome why) {
  mark_failed(q);
  if (!q.awaiting) flush(q);  // else when its own answer has come
  return {.what = answer::kind::refused, .why = why};
}

std::uint64_t soft_nic::posted_receives(const qp& q) const {
  return posted_until(q.setup.queues, q.next_receive, q.setup.receive_depth);
}

answer soft_nic::answer_write(qp& q, const request& r) {
  const bool imm = has_imm(r.op);
  if (imm && (posted_receives(q) == q.next_receive || chance(options_.not_ready))) {
    return {.what = answer::kind::not_ready};
  }
  if (r.bytes > 0) {
    piece to;
    if (keys_.find(r.rkey, r.address, r.bytes, access::remote_write, to) !=
        key_table::verdict::ok) {
      return refuse(q, syndrome::remote_access);
    }
    if (!copy_pieces(std::span(&to, 1), r.payload)) return refuse(q, syndrome::remote_operation);
  }
  return imm ? finish_receive(q, r) : answer{.what = answer::kind::done};
}

answer soft_nic::answer_send(qp& q, const request& r) {
  if (posted_receives(q) == q.next_receive || chance(options_.not_ready)) {
    return {.what = answer::kind::not_ready};
  }
  mlx5::data_segment s{};
  std::memcpy(&s, q.setup.queues.receive + (q.next_receive & (q.setup.receive_depth - 1)),
              sizeof(s));
  if (r.bytes > swapped(s.byte_count)) {
    return fail_receive(q, syndrome::local_length, syndrome::remote_invalid_request);
  }
  piece to;
  if (r.bytes > 0 && keys_.find(swapped(s.lkey), swapped(s.addr), r.bytes, access::local_write,
                                to) != key_table::verdict::ok) {
    return fail_receive(q, syndrome::local_protection, syndrome::remote_operation);
  }
  if (!copy_pieces(std::span(&to, 1), r.payload)) {
    return fail_receive(q, syndrome::local_protection, syndrome::remote_operation);
  }
  return finish_receive(q, r);
}

answer soft_nic::finish_receive(qp& q, const request& r) {
  const cqe_opcode what = r.op == opcode::send       ? cqe_opcode::responder_send
                          : r.op == opcode::send_imm ? cqe_opcode::responder_send_imm
                                                     : cqe_opcode::responder_write_imm;
  complete(q, q.received,
           {.what = what, .of = r.op, .index = q.next_receive++, .bytes = r.bytes, .imm = r.imm});
  return {.what = answer::kind::done};
}

/// The receive that was posted is no good: both ends hear of it, in other words.
answer soft_nic::fail_receive(qp& q, syndrome here, syndrome there) {
  complete(q, q.received,
           {.what = cqe_opcode::responder_error, .index = q.next_receive++, .why = here});
  return refuse(q, there);
}

answer soft_nic::answer_read(qp& q, const request& r) {
  answer a{.what = answer::kind::done};
  if (r.bytes == 0) return a;
  if (keys_.find(r.rkey, r.address, r.bytes, access::remote_read, answered_) !=
      key_table::verdict::ok) {
    return refuse(q, syndrome::remote_access);
  }
  a.payload = std::span(&answered_, 1);
  return a;
}

answer soft_nic::answer_atomic(qp& q, const request& r) {
  const auto width = static_cast<std::uint64_t>(r.word.width);
  if (r.address % width != 0) return refuse(q, syndrome::remote_invalid_request);
  piece at;
  if (keys_.find(r.rkey, r.address, width, access::remote_atomic, at) != key_table::verdict::ok) {
    return refuse(q, syndrome::remote_access);
  }
  const auto before = update(at, r.word);
  if (!before) return refuse(q, syndrome::remote_operation);
  return {.what = answer::kind::done, .word = *before};
}

// ---- completions

void soft_nic::complete(qp& q, completion_writer& to, const cqe_values& v) {
  if (q.overrun) return;
  if (to.is_full()) {
    // There is no place to say it in: kernels look at the event now and then.
    q.overrun = true;
    shared(*q.setup.event)
        .store(static_cast<std::uint64_t>(syndrome::local_qp_operation), std::memory_order_relaxed);
    log::error(-1, "soft nic: a completion queue of endpoint ", q.qpn,
               " is full: completions are not read, or update_cq_dbr_record() is missing");
    mark_failed(q);
    return;
  }
  to.write(q.qpn, v);
}

}  // namespace crosswarp::verbs
