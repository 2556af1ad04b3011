// ibverbs devices as a backend: each has a thread that forwards for its queue pairs.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "transports/verbs/patience.hpp"
#include "transports/verbs/verbs_qp.hpp"

namespace crosswarp::verbs {
namespace {

using namespace std::chrono_literals;

/// Forwards for the queue pairs of one device. Members may be called by any thread.
class forwarder {
 public:
  explicit forwarder(std::shared_ptr<verbs_context> c) : context_(std::move(c)) {
    const int events = context_->context()->async_fd;
    fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK);
    thread_ = std::thread([this] { work(); });
  }
  ~forwarder();
  forwarder(const forwarder&) = delete;
  forwarder& operator=(const forwarder&) = delete;

  [[nodiscard]] const std::shared_ptr<verbs_context>& context() const noexcept { return context_; }

  /// Runs `f` while the thread uses no queue pair.
  template <class F>
  auto alone(F&& f) {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    const std::scoped_lock lock(mutex_);
    wanted_.fetch_sub(1, std::memory_order_relaxed);
    changed_ = true;
    wake_.notify_one();
    return f();
  }
  void add(verbs_qp& q) {
    alone([&] { pairs_.push_back(&q); });
  }
  void remove(verbs_qp& q) {
    alone([&] { std::erase(pairs_, &q); });
  }
  void add(verbs_shared& s) {
    alone([&] { shared_.push_back(&s); });
  }
  void remove(verbs_shared& s) {
    alone([&] { std::erase(shared_, &s); });
  }

 private:
  using clock = std::chrono::steady_clock;

  void work() {
    auto last = clock::now();
    for (std::uint32_t look = 1;; ++look) {
      std::unique_lock lock(mutex_);
      if (stop_) return;
      bool moved = look % 16 == 0 && hear_events();
      for (verbs_shared* s : shared_) moved = s->step() || moved;
      for (verbs_qp* q : pairs_) moved = q->step() || moved;
      if (moved) {
        last = clock::now();
      } else if (look % 64 == 0) {
        rest(lock, clock::now() - last);
      }
      lock.unlock();
      // The device may be software that wants this core, and so may kernels.
      if (!moved) std::this_thread::yield();
      while (wanted_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
    }
  }

  /// Sleeps a little when nothing was to be done for a while: a GPU cannot wake a thread, so
  /// doorbells are looked for all the time.
  void rest(std::unique_lock<std::mutex>& lock, clock::duration idle_for) {
    if (idle_for < 100us) return;
    const auto nap = idle_for < 2ms ? 20us : idle_for < 50ms ? 200us : 1000us;
    changed_ = false;
    wake_.wait_for(lock, nap, [this] { return changed_; });
  }

  /// What the device tells of queue pairs besides completions.
  bool hear_events() {
    ibv_async_event e{};
    if (context_->library.get_async_event(context_->context(), &e) != 0) return false;
    switch (e.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR: {
        const auto q = std::find_if(pairs_.begin(), pairs_.end(),
                                    [&](verbs_qp* p) { return p->is(e.element.qp); });
        if (q != pairs_.end()) (*q)->mark_failed();
        break;
      }
      default:
        break;
    }
    context_->library.ack_async_event(&e);
    return true;
  }

  std::shared_ptr<verbs_context> context_;
  std::atomic<int> wanted_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool changed_ = false;
  bool stop_ = false;
  std::vector<verbs_shared*> shared_;
  std::vector<verbs_qp*> pairs_;
  std::thread thread_;  // last: starts when all else is there
};

forwarder::~forwarder() {
  alone([&] { stop_ = true; });
  thread_.join();
}

class forwarded_shared final : public shared_receives {
 public:
  forwarded_shared(forwarder& f, const shared_setup& s) : forwarder_(f), receives_(f.context(), s) {
    forwarder_.add(receives_);
  }
  ~forwarded_shared() override { forwarder_.remove(receives_); }
  forwarded_shared(const forwarded_shared&) = delete;
  forwarded_shared& operator=(const forwarded_shared&) = delete;
  /// Null when there are none.
  static const verbs_shared* of(const shared_receives* s) noexcept {
    return s == nullptr ? nullptr : &static_cast<const forwarded_shared*>(s)->receives_;
  }

 private:
  forwarder& forwarder_;
  verbs_shared receives_;
};

class forwarded_pair final : public queue_pair {
 public:
  forwarded_pair(forwarder& f, const qp_setup& s)
      : forwarder_(f), pair_(f.context(), s, forwarded_shared::of(s.shared)) {
    forwarder_.add(pair_);
  }
  ~forwarded_pair() override { forwarder_.remove(pair_); }
  forwarded_pair(const forwarded_pair&) = delete;
  forwarded_pair& operator=(const forwarded_pair&) = delete;
  [[nodiscard]] std::uint32_t qpn() const noexcept override { return pair_.qpn(); }
  [[nodiscard]] std::uint64_t* doorbell() const noexcept override { return pair_.doorbell(); }
  [[nodiscard]] endpoint_address address() const noexcept override { return pair_.address(); }
  void connect(const endpoint_address& peer) override {
    forwarder_.alone([&] { pair_.connect(peer); });
  }
  [[nodiscard]] endpoint_state state() override {
    return forwarder_.alone([&] { return pair_.state(); });
  }

 private:
  forwarder& forwarder_;
  verbs_qp pair_;
};

class verbs_adapter final : public adapter {
 public:
  explicit verbs_adapter(std::shared_ptr<verbs_context> c) : forwarder_(std::move(c)) {}
  [[nodiscard]] const std::string& name() const noexcept override { return context()->name(); }
  [[nodiscard]] int ports() const noexcept override { return context()->limits().phys_port_cnt; }
  [[nodiscard]] bool is_active(int port) override { return context()->is_active(port); }
  [[nodiscard]] std::chrono::nanoseconds retry_after() const noexcept override {
    return adapters_retry_after;
  }
  std::unique_ptr<registered> register_memory(const memory_range& m, access allowed) override {
    return std::make_unique<verbs_registered>(context(), m, allowed);
  }
  std::unique_ptr<queue_pair> make_queue_pair(const qp_setup& s) override {
    return std::make_unique<forwarded_pair>(forwarder_, s);
  }
  std::unique_ptr<shared_receives> make_shared_receives(const shared_setup& s) override {
    return std::make_unique<forwarded_shared>(forwarder_, s);
  }
  void set_link(bool /*up*/) override { refuse_link(name()); }

 private:
  [[nodiscard]] const std::shared_ptr<verbs_context>& context() const noexcept {
    return forwarder_.context();
  }
  forwarder forwarder_;
};

}  // namespace

std::shared_ptr<fabric> verbs_fabric() {
  return fabric_of<verbs_adapter>::get([] {
    const ibverbs& l = ibverbs::load();
    return open_all(
        l, [](ibv_device*) { return true; }, l.open_device);
  });
}

}  // namespace crosswarp::verbs
