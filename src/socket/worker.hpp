// A thread behind a service: hears what kernels ask for, and has an engine do it.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "crosswarp/socket.hpp"
#include "engine.hpp"
#include "lanes.hpp"
#include "slot.hpp"
#include "trace/recorder.hpp"
#include "transports/tcp/address.hpp"

namespace crosswarp::socket_impl {

class workers;

class worker {
 public:
  /// Of those places whose number is `index` modulo the number of workers.
  worker(workers& all, std::uint32_t index, std::unique_ptr<engine> e);
  ~worker();
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  // ---- who made it
  void start();
  void quit() noexcept;
  void join() noexcept;
  // When all have ended:
  /// True when there was mail.
  bool read_last_mail() noexcept;
  void drop_descriptors() noexcept;

  // ---- any thread
  void rouse() noexcept;
  void add_to(socket::service_stats& s) const;
  [[nodiscard]] int places_left() const noexcept { return places_left_.load(); }
  /// Sets a place aside; false when none is left.
  [[nodiscard]] bool reserve() noexcept;
  [[nodiscard]] int bell() const noexcept { return bell_; }
  [[nodiscard]] int engine_descriptor() const noexcept { return engine_->descriptor(); }
  /// Whether somebody roused it since the last look.
  bool was_called() noexcept;

  // ---- threads of CPU kernels
  /// Takes a turn; true when there has been nothing to do for a while.
  bool lend() noexcept;
  void attend(std::uint32_t place) noexcept;
  void attend_calls() noexcept;

 private:
  using clock = std::chrono::steady_clock;
  enum class kind : std::uint8_t { free, listener, connection };
  struct waiting {
    handle connection;
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
    bool lost = false;          ///< bytes have come that no kernel will read, or were not sent
    clock::time_point since{};  ///< of the last byte or the last room for one; of the end, once
                                ///< the kernel has closed it
    // For the trace.
    std::uint64_t bytes = 0;      ///< that went by TCP, both ways
    std::uint64_t begun_at = 0;   ///< the last of what trace::socket_event begins with, in ticks
    std::uint64_t closed_at = 0;  ///< the kernel's close

    std::string peer;                 ///< whom it counts against, see per_peer
    handle listener;                  ///< that it came from
    std::optional<unsigned> offered;  ///< a lane, in which the other end was not met yet
    lane_link lane;                   ///< that its kernels were told of
    // Of a listener.
    device::socket::address own;  ///< kernels may write over what they were told
    std::deque<waiting> queue;    ///< connections that no kernel was seen to take
    /// Before those, in their order: which their workers have yet to take on, and where one has
    /// failed to, no handle.
    std::deque<std::optional<handle>> coming;
    std::uint64_t first_coming = 0;  ///< its number
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

  // ---- letters: what one worker has another do, in that one's turn
  using letter = std::function<void(worker&)>;
  template <class F>
  void post(worker& to, F&& f);
  /// `f(worker, entry)` where the listener is, if it still is.
  template <class F>
  void tell(handle listener, F&& f);
  void put_mail(letter l);

  // ---- in turn only
  bool turn();
  bool hear_mail();
  bool hear_bells(bool all);
  bool hear_bells_of(std::size_t first, std::size_t end);
  bool hear_bell_of(std::uint32_t rank);
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
  void hand_out(std::uint32_t place, std::uint64_t number, const device::socket::call_request& r);
  void answer(std::uint32_t place, std::uint64_t number, std::int64_t result);
  std::int64_t carry_out(const device::socket::call_request& r);
  std::int64_t start_listen(const device::socket::call_request& r);
  std::int64_t start_connect(const device::socket::call_request& r);
  [[nodiscard]] entry* find(handle named);

  // ---- entries
  [[nodiscard]] entry& at(std::uint32_t place) const;
  [[nodiscard]] std::uint32_t token_of(const entry& e) const;  ///< for the engine: its rank here
  entry* take_entry(bool listener);
  void give_place_back(worker& whose);
  void release(entry& e);
  void wake(entry& e);
  void drop_descriptor(entry& e, bool reset);
  void fail(entry& e, int error, bool reset);
  [[nodiscard]] std::uint64_t ticks() const noexcept;
  void note_event(trace::socket_event what, const entry& e, std::uint64_t begun,
                  status how = status::ok) noexcept;
  void breach(entry& e);

  // ---- listeners
  void wake_listeners();
  void wake_if_starved(entry& l);
  bool accept_some(entry& l);
  void pass_on(entry& l, worker& to, int fd, const device::socket::address& from);
  struct arrival {
    handle listener;
    std::uint64_t number = 0;
    int fd = -1;
    device::socket::address from;
    std::string peer;  ///< see entry
  };
  void admit(const arrival& a);
  void line_up(const arrival& a, handle connection);
  void refuse(int fd);
  [[nodiscard]] bool refuse_for_want_of_descriptors(entry& l);
  void look_for_descriptors();
  static void note_taken(worker& w, entry& l, handle connection);
  void drop_untaken(handle connection);
  void close_listener(entry& l);

  // ---- connections
  void finish_connect(entry& e, int result);
  void try_connect(entry& e, const tcp::system_address& where);
  bool knock_again();
  bool receive(entry& e);
  void note_received(entry& e, int n);
  bool send(entry& e);
  void note_sent(entry& e, int n);
  void hear_end(entry& e);
  bool end_if_done(entry& e);

  // ---- ways around TCP
  void offer_lane(entry& e, const device::socket::names& called);
  bool settle_lane(entry& e, bool withdraws);
  bool look_at_lanes();
  void leave_lane(entry& e);
  void reset_lost();

  workers& all_;
  const std::uint32_t index_;
  const device::socket::memory& m_;
  const socket::service_options& options_;
  const std::uint64_t bytes_at_once_;
  std::unique_ptr<engine> engine_;
  lanes* const around_;
  std::vector<std::unique_ptr<entry>> entries_;  // of its places, in order
  std::vector<std::uint64_t> bells_seen_;        // likewise
  std::array<std::uint32_t, 64> rang_last_{};    // ranks of places, some of them twice at first
  std::size_t next_of_last_ = 0;
  std::size_t next_bell_ = 0;
  bool rested_ = false;
  std::vector<std::uint64_t> calls_seen_;
  std::deque<std::uint32_t> free_;   // places, longest free first
  std::atomic<int> places_left_{0};  // those that nobody has set aside
  std::vector<std::uint32_t> listeners_;
  std::vector<std::uint32_t> active_;    // to be served
  std::vector<std::uint32_t> stalled_;   // whose ring is full
  std::vector<std::uint32_t> offering_;  // who may be found in a lane
  struct knock {
    handle connection;
    tcp::system_address where;
  };
  std::vector<knock> knocking_;  // at backlogs that are full
  clock::time_point next_knock_{};
  std::vector<completion> done_;
  int spare_;                          // a descriptor, for when there is no other
  bool short_of_descriptors_ = false;  // listeners wait for one
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
    std::atomic<int> sockets{0};
  } counters_;

  // Whose turn it is: one thread works at a time.
  std::atomic<bool> taken_{false};
  std::atomic<bool> again_{false};       // who works is to look again
  std::atomic<bool> unheard_{false};     // a bell was rung that nobody heard
  std::atomic<std::uint32_t> lends_{0};  // how often kernels lent their thread
  std::atomic<bool> leftover_{false};    // somebody is to be served again, and soon
  int bell_ = -1;                        // an eventfd that wakes the worker's own thread
  clock::time_point last_{};             // something was to be done
  std::atomic<bool> quit_{false};

  std::mutex mail_guard_;
  std::vector<letter> mail_;
  std::atomic<bool> has_mail_{false};

  std::thread thread_;
};

template <class F>
void worker::post(worker& to, F&& f) {
  if (&to == this) {
    f(*this);
  } else {
    to.put_mail(letter(std::forward<F>(f)));
  }
}

}  // namespace crosswarp::socket_impl
