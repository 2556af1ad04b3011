// The thread behind a service: hears what kernels ask for, and has an engine do it.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <thread>

#include "crosswarp/socket.hpp"
#include "engine.hpp"
#include "lanes.hpp"
#include "slot.hpp"

namespace crosswarp::socket_impl {

class worker {
 public:
  /// `hears_itself`: kernels are on a GPU, and do not call attend(). `around`: of a world's
  /// service, else null.
  worker(const device::socket::memory& m, ring_pool& pool, const socket::service_options& o,
         std::unique_ptr<engine> e, bool hears_itself, lanes* around);
  ~worker();
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  // ---- any thread
  void stop() noexcept {
    stop_.store(true, std::memory_order_relaxed);
    rouse();
  }

  // ---- threads of CPU kernels
  /// One that waits: does some work, or sleeps a little until there is some.
  void lend() noexcept;
  /// One that rang a bell, or made a call: has it heard.
  void attend(std::uint32_t place) noexcept;
  void attend_calls() noexcept;
  [[nodiscard]] socket::service_stats stats() const;

 private:
  using clock = std::chrono::steady_clock;
  enum class kind : std::uint8_t { free, listener, connection };
  struct waiting {
    std::uint32_t place = 0;
    std::uint64_t position = 0;  ///< in the listener's ring
  };
  /// What the host knows of a place in the table.
  struct entry {
    entry(const device::socket::memory& m, ring_pool& p, ring_limits l, std::uint32_t i)
        : index(i), words(m, p, l, i) {}

    std::uint32_t index;
    slot words;
    kind is = kind::free;
    int fd = -1;               ///< none: free, or it failed and the kernel has yet to close it
    bool input_waits = false;  ///< the engine will say when it is worth a try
    bool output_waits = false;
    bool connecting = false;
    bool fin_sent = false;
    bool active = false;        ///< in the list of those
    bool stalled = false;       ///< in the list of those
    bool heard = false;         ///< a byte has come
    bool lost = false;          ///< bytes have come that no kernel will read
    clock::time_point since{};  ///< of the last byte; of the end, once the kernel has closed it
    std::string peer;           ///< whom it counts against, see per_peer
    entry* listener = nullptr;  ///< that it came from, while that lives
    std::optional<unsigned> offered;  ///< a lane, in which the other end was not met yet
    lane_link lane;                   ///< that its kernels were told of
    // Of a listener.
    std::deque<waiting> queue;  ///< connections that no kernel was seen to take
    std::size_t backlog = 0;
    int connections = 0;   ///< that live
    bool starved = false;  ///< there was no place for another one
  };

  // ---- whose turn it is
  enum class outcome : std::uint8_t {
    busy,  ///< another thread is at it
    idle,  ///< nothing was to be done
    worked,
  };
  template <class F>
  [[nodiscard]] outcome work_in_turn(F&& work) noexcept;
  template <class F>
  void attend_by(F&& work) noexcept;
  template <class F>
  bool keep_going(F&& work) noexcept;

  // ---- the thread
  void run();
  bool ends(clock::time_point& since);
  void rest(clock::duration idle_for, bool is_called);
  [[nodiscard]] bool sleep(std::chrono::nanoseconds at_most, bool for_engine) noexcept;
  void rouse() noexcept;

  // ---- in turn only
  bool turn();
  bool hear_bells();
  bool hear_bell_of(std::uint32_t place);
  void hear_bell(entry& e, mark bell);
  bool hear_calls();
  bool hear_engine();
  void hear_completion(entry& e, const completion& c);
  bool serve_all();
  bool serve_at_once();
  bool serve(entry& e);
  bool look_at_stalled();
  void sweep(clock::time_point now);
  void refuse_all();
  bool close_all(clock::time_point since);

  // ---- calls
  void answer(std::uint32_t place, std::uint64_t number, std::int64_t result);
  std::int64_t carry_out(const device::socket::call_request& r);
  std::int64_t start_listen(const device::socket::call_request& r);
  std::int64_t start_connect(const device::socket::call_request& r);
  [[nodiscard]] entry* find(std::uint64_t h);

  // ---- entries
  entry* take_entry(bool listener);
  void release(entry& e);
  void wake(entry& e);
  void drop_descriptor(entry& e, bool reset);
  void fail(entry& e, int error, bool reset);
  void breach(entry& e);

  // ---- listeners
  void wake_listeners();
  void wake_if_starved(entry& l);
  bool accept_some(entry& l);
  bool admit(entry& l, int fd, const sockaddr_storage& peer, socklen_t bytes);
  void refuse(int fd);
  void refuse_for_want_of_descriptors(entry& l);
  void note_taken(entry& e);
  void close_listener(entry& l);

  // ---- connections
  void finish_connect(entry& e, int result);
  bool receive(entry& e);
  void note_received(entry& e, int n);
  bool send(entry& e);
  void note_sent(entry& e, int n);
  void hear_end(entry& e);
  bool end_if_done(entry& e);

  // ---- ways around TCP
  void offer_lane(entry& e);
  bool settle_lane(entry& e, bool withdraws);
  bool look_at_lanes();
  void leave_lane(entry& e);
  void reset_lost();

  const device::socket::memory m_;
  const socket::service_options options_;
  ring_pool& pool_;
  std::unique_ptr<engine> engine_;
  const bool hears_itself_;
  lanes* around_;
  std::vector<std::unique_ptr<entry>> entries_;  // by place in the table
  std::vector<std::uint64_t> bells_seen_;
  std::vector<std::uint64_t> calls_seen_;
  std::deque<std::uint32_t> free_;  // longest free first
  std::vector<std::uint32_t> listeners_;
  std::vector<std::uint32_t> active_;    // to be served
  std::vector<std::uint32_t> stalled_;   // whose ring is full
  std::vector<std::uint32_t> offering_;  // who may be found in a lane
  std::vector<completion> done_;
  std::map<std::string, int> per_peer_;
  int spare_ = -1;  // a descriptor, for when there is no other
  bool stopped_ = false;
  bool closing_ = false;
  clock::time_point now_{};
  clock::time_point next_sweep_{};

  /// Written by the thread, read by all.
  struct counters {
    std::atomic<std::uint64_t> accepted{0};
    std::atomic<std::uint64_t> connected{0};
    std::atomic<std::uint64_t> around{0};
    std::atomic<std::uint64_t> received_bytes{0};
    std::atomic<std::uint64_t> sent_bytes{0};
    std::atomic<std::uint64_t> refused{0};
    std::atomic<std::uint64_t> timed_out{0};
    std::atomic<std::uint64_t> breaches{0};
    std::atomic<std::uint64_t> ring_bytes{0};
    std::atomic<int> sockets{0};
  } counters_;

  // Whose turn it is: one thread works at a time.
  std::atomic<bool> taken_{false};
  std::atomic<bool> again_{false};       // who works is to look again
  std::atomic<bool> unheard_{false};     // a bell was rung that nobody heard
  std::atomic<std::uint32_t> lends_{0};  // how often kernels lent their thread
  std::atomic<bool> leftover_{false};    // somebody is to be served again, and soon
  std::atomic<bool> sleeper_{false};     // one of these threads sleeps on the engine
  int bell_ = -1;                        // an eventfd that wakes the worker's own thread
  clock::time_point last_{};             // something was to be done
  std::atomic<bool> stop_{false};
  std::atomic<bool> quit_{false};
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace crosswarp::socket_impl
