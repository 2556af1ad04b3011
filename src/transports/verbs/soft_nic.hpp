// A network adapter in software: one thread that carries out what kernels put into mlx5's queues.
//
// All of its state belongs to the thread; other threads have it run what they want done. A queue
// pair is a requester, which reads entries and sends requests, and a responder, which answers the
// requests of others; between them is a wire.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "transports/verbs/nic_queues.hpp"
#include "transports/verbs/wire.hpp"

namespace crosswarp::verbs {

class soft_nic {
 public:
  /// `number`: of this device in `fabric`.
  soft_nic(std::uint64_t fabric, std::uint32_t number, const rdma::soft_options& o);
  ~soft_nic();
  soft_nic(const soft_nic&) = delete;
  soft_nic& operator=(const soft_nic&) = delete;

  /// Where its requests go; before the first queue pair connects.
  void set_wire(std::unique_ptr<wire> w);

  // ---- any thread but its own

  std::uint32_t add_memory(const memory_range& m, access allowed);
  void remove_memory(std::uint32_t key);
  struct made_qp {
    std::uint32_t qpn = 0;
    std::uint64_t* doorbell = nullptr;
    nic_call* call = nullptr;
  };
  /// Receives that queue pairs share, by a number of this NIC's.
  std::uint32_t add_shared(const shared_setup& s);
  /// No queue pair has them.
  void remove_shared(std::uint32_t which);
  /// `shared`: a number as above; 0: it has receives of its own.
  made_qp add_qp(const qp_setup& s, std::uint32_t shared = 0);
  void remove_qp(std::uint32_t qpn);
  void connect(std::uint32_t qpn, const endpoint_address& peer);
  endpoint_state state_of(std::uint32_t qpn);
  void set_link(bool up) noexcept { link_.store(up, std::memory_order_relaxed); }
  [[nodiscard]] bool has_link() const noexcept { return link_.load(std::memory_order_relaxed); }

  /// Ends its thread. What it is asked afterwards is not done.
  void stop();

  /// A kernel on a CPU thread rang, and said whose bell.
  void hear() const noexcept;

  /// Has the thread run `f`, soon.
  void post(std::function<void()> f);

  // ---- its own thread

  /// Answers a request that came over a wire. What the answer points to is valid until the next.
  answer respond(const request& r);
  /// The answer to a request of ours.
  void deliver(const answer& a);
  /// What is under way to that NIC is not answered any more.
  void lose(const station& nic);

 private:
  using clock = std::chrono::steady_clock;
  struct flight;
  struct shared_queue;
  struct qp;
  struct bell_page;

  template <class F>
  auto run(F&& f);

  std::optional<made_qp> try_add_qp(const qp_setup& s, std::uint32_t shared,
                                    std::unique_ptr<bell_page>& fresh);

  // ---- the thread
  void work();
  void rouse() const noexcept;
  void expect_bells() noexcept;
  bool hear_posts();
  bool look_at_bells(bool all, bool next);
  bool hear_group(bell_page& page, std::size_t first);
  bool serve_all();
  void rest(clock::duration idle_for);

  // ---- requester
  void hear_bell(qp& q, std::uint64_t bell);
  bool serve(qp& q);
  bool is_late(qp& q);
  [[nodiscard]] bool read(qp& q, std::uint64_t index);
  [[nodiscard]] bool start(qp& q);
  [[nodiscard]] bool must_wait(qp& q);
  [[nodiscard]] bool gather();
  [[nodiscard]] bool transmit(qp& q);
  static void go_back(qp& q, std::uint32_t psn);
  void retry(qp& q, int& tried, int limit, clock::duration after, mlx5::syndrome why);
  void finish_oldest(qp& q, const answer& a);
  [[nodiscard]] bool take_answer(qp& q, const flight& f, const answer& a);
  void succeed(qp& q, const flight& f);
  void mark_failed(qp& q);
  void fail(qp& q, mlx5::syndrome why);
  void abandon(qp& q);
  void end_in_error(qp& q, mlx5::syndrome why);
  void flush(qp& q);

  // ---- responder
  answer answer_write(qp& q, const request& r);
  answer answer_send(qp& q, const request& r);
  answer answer_read(qp& q, const request& r);
  answer answer_atomic(qp& q, const request& r);
  answer refuse(qp& q, mlx5::syndrome why);
  [[nodiscard]] static bool has_receive(const qp& q);
  [[nodiscard]] static std::uint64_t take_receive(qp& q);
  [[nodiscard]] static receive_entry next_receive(qp& q);
  [[nodiscard]] bool aim(const receive_entry& at, std::uint64_t offset, std::uint64_t bytes);
  static std::uint64_t end_receive(qp& q);
  bool flush_receives(qp& q);
  bool end_shared(qp& q);
  answer finish_receive(qp& q, const request& r);
  answer fail_receive(qp& q, mlx5::syndrome here, mlx5::syndrome there);

  // ---- completions
  void complete(qp& q, completion_writer& to, const cqe_values& v);

  [[nodiscard]] qp* find(std::uint32_t qpn) const noexcept;
  [[nodiscard]] bool chance(int of_thousand);

  const std::uint64_t fabric_;
  const std::uint32_t number_;
  const rdma::soft_options options_;
  std::unique_ptr<wire> wire_;
  key_table keys_;
  std::map<std::uint32_t, std::unique_ptr<qp>> qps_;
  std::map<std::uint32_t, std::unique_ptr<shared_queue>> shared_;
  std::uint32_t shared_made_ = 0;
  std::vector<qp*> by_number_;  ///< qps_ again, for a quick look
  std::uint32_t made_ = 0;
  std::vector<std::unique_ptr<bell_page>> pages_;
  std::size_t bell_turn_ = 0;  ///< the group that is looked at next, called for or not
  std::vector<qp*> active_;    ///< have entries to carry out
  std::vector<qp*> failed_;    ///< have receives to flush, now or later
  std::mt19937_64 random_;
  // The entry that was read last, if any. Not one for each queue pair: of a thousand they would
  // not be in a cache.
  const qp* now_of_ = nullptr;
  std::uint64_t now_index_ = 0;
  entry now_;
  std::vector<piece> pieces_;  ///< its data, checked
  std::vector<piece> aimed_;   ///< where a message goes, checked
  piece answered_;             ///< what the last answer points to
  std::atomic<bool> link_{true};
  // Kernels were launched: they may ring soon.
  std::atomic<bool> launched_{false};
  std::atomic<bool> asleep_{false};

  // What other threads want.
  std::mutex mutex_;
  int wake_ = -1;  ///< readable when there is something
  std::deque<std::function<void()>> posts_;
  std::atomic<bool> posted_{false};
  bool stop_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace crosswarp::verbs
