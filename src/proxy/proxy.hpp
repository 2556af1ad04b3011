// The host's half of reverse offload: reads commands of this rank's kernels, has an engine carry
// them out, and answers.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "crosswarp/proxy.hpp"
#include "crosswarp/stats.hpp"
#include "decode.hpp"
#include "engine.hpp"
#include "exec/backends.hpp"
#include "trace/recorder.hpp"

namespace crosswarp {

class proxy {
 public:
  /// `options` with its numbers filled in.
  proxy(device_ref d, const proxy_options& options, int rank, int size, std::vector<bool> reached,
        std::unique_ptr<proxy_impl::engine> e, trace::recorder* traced = nullptr);
  /// Stops the thread. What kernels still wait for is not answered.
  ~proxy();
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;

  [[nodiscard]] device::proxy_memory memory() noexcept;
  [[nodiscard]] proxy_impl::capabilities can() const noexcept { return engine_->can(); }
  [[nodiscard]] std::vector<operation_stats> stats();
  void reset_stats();

  /// Makes memory reachable for commands, in two steps: what offer_region() returns goes to every
  /// rank's install_region(), by rank, with everybody's sizes.
  std::vector<std::byte> offer_region(std::uint16_t id, const proxy_impl::region_info& mine);
  void install_region(std::uint16_t id, proxy_impl::region_info mine,
                      std::vector<std::size_t> sizes, std::vector<std::vector<std::byte>> offers);
  void remove_region(std::uint16_t id) noexcept;
  /// The first that is not in use, the same on all ranks.
  [[nodiscard]] std::uint16_t free_region() const;
  /// Waits until every command of this rank is carried out and visible remotely; false when it took
  /// too long.
  bool finish_all(std::chrono::nanoseconds at_most);

  /// Some work on the calling thread; false when there was none, or when another thread is at it.
  bool progress() noexcept;
  /// The same, on the thread of a kernel that waits for an answer.
  void lend() noexcept;
  /// That thread has its answer: what is left needs another one.
  void end_lending() noexcept;
  /// A thread of this process issued a command and does not wait for it: carries it out now, or
  /// sees to it that another thread does.
  void attend(std::uint32_t queue) noexcept;

  /// Runs `f` while nobody works for this proxy.
  void hold(const std::function<void()>& f);

  /// Rank `pe` died: commands to it are answered with peer_lost from now on.
  void lose(int pe) noexcept;
  /// The world is broken: every command is answered with `why` from now on.
  void refuse(status why) noexcept;

 private:
  struct operation;
  struct chunk;
  struct flush;
  struct queue;
  class turn_end;

  // ---- whose turn it is
  bool take_turn() noexcept;
  template <class F>
  bool work_in_turn(F&& work) noexcept;
  template <class F>
  bool keep_going(F&& f) noexcept;
  void give_up(const char* why) noexcept;

  // ---- commands; in turn only
  bool work() noexcept;
  void hear_news();
  void find_next(queue& q) const noexcept;
  [[nodiscard]] static bool has_next(const queue& q) noexcept;
  bool drain(queue& q);
  bool read_next(queue& q);
  void recheck(operation& op);
  void fetch_entries();
  void admit(queue& q, operation& op);
  /// Gives the engine what it takes of an operation; true when it has all of it.
  bool start(operation& op);
  bool start_range(operation& op);
  bool start_blocks(operation& op);
  bool start_signal(operation& op);
  bool start_atomic(operation& op);
  bool start_collective(operation& op);
  bool start_part(operation& op, std::uint64_t remote, std::uint64_t local, std::uint64_t bytes);
  template <class F>
  bool hand_over(operation& op, F&& f);
  void part_done(operation& op, status s);
  status read_local(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept;
  status write_local(std::uint64_t to, const std::byte* from, std::size_t bytes) const noexcept;
  status copy_gpu(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept;
  void finish(operation& op);
  void count(const operation& op);
  void note(const operation& op);
  void log_failure(const operation& op) noexcept;
  void reply(const queue& q, std::uint64_t ticket, std::uint64_t value, status s) noexcept;
  void settle(queue& q);
  bool flush_quiets();
  [[nodiscard]] bool direct(std::uint64_t address, std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::byte* here(std::uint16_t region, std::uint64_t offset) const noexcept;
  [[nodiscard]] operation* free_operation();
  [[nodiscard]] chunk* free_chunk();

  // ---- the thread
  void run();
  bool gpu_may_ask(std::chrono::nanoseconds idle_for);
  bool rest(std::chrono::nanoseconds idle_for);
  void stand_by(std::chrono::nanoseconds at_most);
  void sleep_on_bell(const timespec& at_most, int other);
  void rouse() noexcept;
  [[nodiscard]] bool commands_wait() const noexcept;

  device_ref device_;
  proxy_options options_;
  std::vector<bool> reached_;
  std::vector<std::vector<std::size_t>> region_bytes_;  // by id, by rank; empty: none
  std::vector<proxy_impl::region_info> regions_;        // by id, this rank's
  proxy_impl::limits_of_world bounds_;
  std::unique_ptr<proxy_impl::engine> engine_;

  buffer<device::proxy_entry> entries_;
  buffer<device::proxy_reply> replies_;
  buffer<device::proxy_head> heads_;
  buffer<device::proxy_tail> tails_;
  buffer<std::uint64_t> seats_;

  std::vector<std::unique_ptr<queue>> queues_;
  std::vector<device::proxy_tail> tails_seen_;  // copies, when queues are in a GPU's memory
  std::vector<std::unique_ptr<operation>> operations_;
  std::vector<operation*> free_operations_;
  std::vector<std::unique_ptr<chunk>> chunks_;
  std::vector<chunk*> free_chunks_;
  std::vector<operation*> quiets_;  // whose queue has nothing under way before them
  std::vector<std::unique_ptr<flush>> flushes_;
  std::vector<flush*> free_flushes_;
  std::shared_ptr<proxy_impl::completion> last_mark_;  // of finish_all()
  std::size_t first_queue_ = 0;                        // to look at
  queue* last_active_ = nullptr;                       // had the last command
  bool unread_ = false;                                // a queue may hold more than was read of it
  std::size_t under_way_ = 0;                          // calls that the engine has not completed

  static constexpr std::size_t kinds = device::proxy_calls;
  std::array<operation_stats, kinds> stats_;
  bool timed_;              // whether operations are
  trace::recorder* trace_;  // null: not traced

  // Whose turn it is: one thread works at a time.
  static constexpr std::uint32_t taken = 1;  // somebody works
  static constexpr std::uint32_t again = 2;  // and is to look again, for a command that it may miss
  std::atomic<std::uint32_t> turn_{0};
  std::atomic<bool> pending_{false};     // under_way_ > 0, for those whose turn it is not
  std::atomic<std::uint32_t> lends_{0};  // how often kernels lent their thread
  // The sleeping thread.
  std::atomic<bool> asleep_{false};
  int bell_descriptor_ = -1;
  std::atomic<bool> stop_{false};
  // News for who works.
  std::mutex news_mutex_;
  std::vector<int> lost_;
  std::atomic<bool> news_{false};
  std::atomic<status> refusal_{status::ok};
  std::vector<bool> dead_;
  std::vector<std::uint32_t> told_;  // by rank, then for none: bits of outcomes that were logged

  std::atomic<bool> launched_{true};  // on the GPU, since its streams were last seen idle
  std::shared_ptr<void> launches_;    // while it lives, launches wake the thread
  std::thread thread_;                // last: starts when all else is there
};

}  // namespace crosswarp
