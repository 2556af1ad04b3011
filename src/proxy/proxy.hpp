// The host's half of reverse offload: reads commands of this rank's kernels, has an engine carry
// them out, and answers.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "crosswarp/proxy.hpp"
#include "decode.hpp"
#include "engine.hpp"

namespace crosswarp {

class proxy {
 public:
  /// `options` with its numbers filled in.
  proxy(device_ref d, const proxy_options& options, int rank, int size, std::vector<bool> reached,
        std::unique_ptr<proxy_impl::engine> e);
  /// Stops the thread. What kernels still wait for is not answered.
  ~proxy();
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;

  [[nodiscard]] device::proxy_memory memory() noexcept;
  [[nodiscard]] proxy_impl::capabilities can() const noexcept { return engine_->can(); }

  /// Collective: makes memory reachable for commands. `sizes` by rank.
  void add_region(std::uint16_t id, proxy_impl::region_info mine, std::vector<std::size_t> sizes);
  void remove_region(std::uint16_t id) noexcept;
  /// The first that is not in use, the same on all ranks.
  [[nodiscard]] std::uint16_t free_region() const noexcept;

  /// Some work on the calling thread; false when there was none, or when another thread is at it.
  bool progress() noexcept;
  /// A command was issued by a thread of this process that does not wait for it: carries it out
  /// now, or sees to it that another thread does.
  void attend() noexcept;

  /// Rank `pe` died: commands to it are answered with peer_lost from now on.
  void lose(int pe) noexcept;
  /// The world is broken: every command is answered with `why` from now on.
  void refuse(status why) noexcept;

 private:
  struct operation;
  struct chunk;
  struct flush;
  struct queue;

  // ---- commands; who works only
  bool work() noexcept;
  void hear_news() noexcept;
  bool drain(queue& q);
  bool read_next(queue& q);
  void fetch_entries(queue& q);
  void admit(queue& q, operation& op);
  /// Gives the engine what it takes of an operation; true when it has all of it.
  bool start(operation& op);
  bool start_range(operation& op);
  bool start_blocks(operation& op);
  bool start_signal(operation& op);
  bool start_atomic(operation& op);
  bool start_collective(operation& op);
  bool start_part(operation& op, std::uint64_t remote, std::uint64_t local, std::uint64_t bytes);
  void part_done(operation& op, status s);
  void finish(operation& op);
  void reply(const queue& q, std::uint64_t ticket, std::uint64_t value, status s) noexcept;
  void settle(queue& q);
  bool flush_quiets();
  [[nodiscard]] bool direct(std::uint64_t address, std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::byte* here(std::uint16_t region, std::uint64_t offset) const noexcept;
  [[nodiscard]] operation* free_operation();
  [[nodiscard]] chunk* free_chunk();

  // ---- the thread
  void run();
  void rest();
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
  std::vector<std::unique_ptr<operation>> operations_;
  std::vector<operation*> free_operations_;
  std::vector<std::unique_ptr<chunk>> chunks_;
  std::vector<chunk*> free_chunks_;
  std::vector<operation*> quiets_;         // whose queue has nothing under way before them
  std::atomic<std::size_t> under_way_{0};  // calls that the engine has not completed

  // Who works: one thread at a time.
  std::atomic<bool> busy_{false};
  std::atomic<bool> again_{false};
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

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace crosswarp
