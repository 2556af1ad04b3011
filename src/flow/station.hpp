// A rank's part in a graph of a world: its mail, its share of symmetric memory, and the thread that
// hands letters to routers. One lock is over all of a rank's routers.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "crosswarp/world.hpp"
#include "flow/mail.hpp"
#include "flow/waits.hpp"

namespace crosswarp::flow::impl {

/// Who gets letters.
class addressee {
 public:
  virtual ~addressee() = default;
  /// All its links are made; until then its letters wait.
  [[nodiscard]] virtual bool is_complete() const = 0;
  /// With the lock held.
  virtual void handle(const message& m) = 0;
  /// No letters come any more: returns when what it had queued on streams is done.
  virtual void finish() = 0;
};

class station {
 public:
  /// Collective; the world outlives it.
  station(world& w, std::shared_ptr<waits> limits);
  ~station();
  station(const station&) = delete;
  station& operator=(const station&) = delete;

  [[nodiscard]] world& of() const noexcept { return world_; }
  [[nodiscard]] std::mutex& mutex() const noexcept { return mutex_; }
  /// Symmetric, until close(). Collective.
  [[nodiscard]] const symmetric_buffer<std::byte>& allocate(std::size_t bytes);
  /// The number that letters have to name.
  std::uint32_t add(const std::shared_ptr<addressee>& a);

  /// Nothing is copied any more of what this rank has sent: its memory may go.
  void stop_copies();

  // ---- with the lock held

  /// Also not from when the world is broken: not everybody who hears of it calls stop_copies().
  [[nodiscard]] bool copies() const noexcept { return copies_ && !is_broken(); }
  void post(int rank, const message& m);
  /// When `c` has passed, and `*failed` is ok; else the world is aborted.
  void post_after(const completion& c, const status* failed, int rank, const message& m);
  /// Throws error(invalid_argument) after close().
  void check_running(const char* call) const;

  /// Ends the thread and gives the memory back. Collective, as long as the world holds: no rank's
  /// letters or bytes are under way to one that has gone.
  void close() noexcept;

 private:
  struct later {
    completion when;
    const status* failed;  // may be null
    int rank;
    message what;
  };

  void run() noexcept;
  void await_word();
  /// One round. True when anything moved.
  bool work();
  bool post_what_is_due();
  bool hand_out();
  [[nodiscard]] bool is_broken() const noexcept;
  void break_world(const std::string& why) noexcept;
  void stop() noexcept;

  world& world_;
  const std::shared_ptr<waits> limits_;
  const device::wait_limits faults_;
  std::unique_ptr<mail> mail_;
  std::deque<symmetric_buffer<std::byte>> memory_;  // in the order of making
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  // ---- with the lock
  bool stop_ = false;
  bool copies_ = true;
  bool news_ = false;  // the thread has something to look at
  std::vector<std::weak_ptr<addressee>> addressees_;
  std::map<std::uint32_t, std::deque<message>> came_;  // by addressee
  std::vector<std::deque<message>> going_;             // by rank
  std::vector<later> later_;
  // ---- the thread's own
  std::vector<std::deque<message>> taken_;  // by rank: what the mail has still to take
  std::deque<message> fresh_;
  std::thread thread_;
};

}  // namespace crosswarp::flow::impl
