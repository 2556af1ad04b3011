// How the ranks of a job find each other and speak before any memory is shared.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "crosswarp/error.hpp"
#include "crosswarp/status.hpp"

namespace crosswarp::world_impl {

using bytes = std::vector<std::byte>;
using std::chrono::nanoseconds;

/// Shared by the members of a job and nobody else.
using secret_key = std::array<std::byte, 16>;
secret_key make_secret();
std::string to_hex(const secret_key& s);
secret_key secret_from_hex(const std::string& text);

/// What went wrong with a world, for people.
struct fault {
  status what = status::ok;
  int rank = -1;
  std::string why;
};
error to_error(const fault& f, const std::string& call);

/// Ways to meet. Collective calls are made by all ranks in the same order, one at a time per rank.
class bootstrap {
 public:
  virtual ~bootstrap() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const secret_key& secret() const noexcept { return secret_; }
  /// True when all ranks are threads of this process.
  [[nodiscard]] virtual bool in_process() const noexcept = 0;

  /// Everybody's bytes, by rank. Also a barrier.
  /// Throws error(timeout) naming a rank that did not come, error(peer_lost), error(aborted).
  virtual std::vector<bytes> allgather(bytes mine, nanoseconds timeout) = 0;
  void barrier(nanoseconds timeout) { allgather({}, timeout); }

  /// The last barrier: who has passed it is missed by nobody.
  virtual void part(nanoseconds timeout) { barrier(timeout); }

  /// A key is put once and seen by all ranks; get() waits for it.
  virtual void put(const std::string& key, bytes value) = 0;
  virtual bytes get(const std::string& key, nanoseconds timeout) = 0;

  /// Throws what broke the world, if anything did.
  virtual void check(const char* call) = 0;
  /// Tells all ranks, this one too, that the world is broken. The first report counts; returns
  /// whether this is it. Who calls it tells people.
  virtual bool fail(const fault& f) = 0;
  /// Whether somebody was told what broke the world: it was thrown, logged, or came by fail().
  [[nodiscard]] virtual bool told() = 0;
  /// A caller waits now, who is thrown what breaks the world: then nobody need log it.
  void set_waiting(bool on) noexcept { waiting_.store(on, std::memory_order_relaxed); }
  /// Ends the processes of all ranks with this exit code, whatever they are doing; the
  /// first call counts. `failed`: the others have a moment, for what they have to say about it.
  /// Returns where ranks are threads, or when nobody can be told.
  virtual void end_job(int /*code*/, bool /*failed*/) noexcept {}
  /// Says that this rank goes in good order. Nothing may be called afterwards.
  virtual void leave() noexcept = 0;

  /// `report` is called once, from any thread, when the world breaks; at once if it has.
  virtual void on_fault(std::function<void(const fault&)> report) = 0;

 protected:
  [[nodiscard]] bool waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }
  bootstrap(int rank, int size, const secret_key& s) : rank_(rank), size_(size), secret_(s) {}

 private:
  int rank_;
  int size_;
  secret_key secret_;
  std::atomic<bool> waiting_{false};
};

/// Tells all ranks that this one gives up; false when they gave up before.
bool break_world(bootstrap& b, const std::string& why) noexcept;
/// What an exception says.
std::string reason_of(const std::exception_ptr& e);

/// All ranks threads of this process. One bootstrap for each.
std::vector<std::shared_ptr<bootstrap>> make_local_bootstraps(int size);

/// Whether the environment names a job: the repository's launcher, PMIx (mpirun, srun), torchrun.
bool environment_has_job();
/// Joins that job; alone when there is none.
std::shared_ptr<bootstrap> make_environment_bootstrap(nanoseconds timeout);

}  // namespace crosswarp::world_impl
