// What links know of a router, wherever its ends are.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "crosswarp/flow.hpp"
#include "flow/lane.hpp"
#include "flow/matcher.hpp"
#include "flow/waits.hpp"

namespace crosswarp::flow::impl {

/// What an output is made of.
struct receiver {
  std::size_t packet_bytes;
  int buffers;
  place at;
  int rank;  ///< 0 in a context without a world
  transport how;
};

/// Of all buffers; wraps nowhere. Throws error(out_of_memory).
std::size_t bytes_of(std::size_t packet_bytes, int buffers);

class router_base : public std::enable_shared_from_this<router_base> {
 public:
  virtual ~router_base() = default;
  router_base(const router_base&) = delete;
  router_base& operator=(const router_base&) = delete;

  /// The next input or output. Throws error(invalid_argument) when there are no more.
  virtual int add_input(const place& at, int rank) = 0;
  virtual int add_output(const receiver& r) = 0;

  // ---- see flow::link
  future<completion> send(int input, const segment& s, const completion& ready);
  virtual void shutdown(int input) = 0;
  virtual future<pending_segment> receive(int output) = 0;
  virtual void release(int output, const pending_segment& s, const completion& used) = 0;

  /// As errors call it. `is_link`: a link without a router, so its one input needs no number.
  /// Before anybody uses it.
  void set_name(std::string name, bool is_link) {
    name_ = std::make_shared<const std::string>(std::move(name));
    is_link_ = is_link;
  }
  /// Nothing is given out any more.
  virtual void stop() {}
  /// Memory that copies read; it stays as long as their streams.
  void keep(std::shared_ptr<const void> memory);

  [[nodiscard]] std::uint64_t sent_bytes(int input) const;
  [[nodiscard]] virtual std::uint64_t received_bytes(int output) const = 0;
  [[nodiscard]] virtual std::string explain_way(int input, int output) const = 0;
  [[nodiscard]] const policy& rules() const noexcept { return matcher_.rules(); }

 protected:
  router_base(std::shared_ptr<waits> limits, device_ref near, const fan& f, policy p)
      : limits_(std::move(limits)), near_(near), matcher_(f, std::move(p)) {}

  using events = std::vector<std::shared_ptr<event>>;

  /// Whose hand each buffer of an output is in, and who waits for one: the receiver's side.
  class inbox {
   public:
    /// `base`: of the first buffer; they lie `stride` bytes apart.
    inbox(std::byte* base, std::size_t stride, int buffers)
        : base_(base), stride_(stride), slots_(static_cast<std::size_t>(buffers)) {}
    /// A buffer is the receiver's now; or what lies at `lent` is.
    void deliver(const grant& g, completion arrived, std::byte* lent = nullptr);
    void receive(const std::shared_ptr<shared_value<pending_segment>>& promise, bool ended);
    /// The slot that it frees. Throws error(invalid_argument).
    int give_back(const pending_segment& s);
    /// All who wait get an empty segment.
    void end();
    [[nodiscard]] std::byte* at(int index) const noexcept {
      return base_ + static_cast<std::size_t>(index) * stride_;
    }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

   private:
    struct slot {
      bool held = false;
      std::byte* data = nullptr;
      std::uint64_t lap = 0;
    };
    std::byte* base_;
    std::size_t stride_;
    std::vector<slot> slots_;
    std::deque<pending_segment> arrived_;
    std::deque<std::shared_ptr<shared_value<pending_segment>>> wanted_;
    std::uint64_t bytes_ = 0;  // delivered so far
  };

  /// A send until its last byte is given out.
  struct sending {
    int source;
    segment what;
    completion ready;
    std::shared_ptr<shared_value<completion>> promise;
    std::map<int, std::shared_ptr<event>> copies = {};  // by output: the last, of those in order
    bool given = false;                                 // all of it
    // ---- where packets are lent
    std::size_t lent = 0;  // packets that are with receivers
    events used = {};      // of those that came back
  };
  /// What every router knows of an input.
  struct sender {
    bool open = true;
    std::uint64_t bytes = 0;  // sent so far
  };

  /// Guards all of a router.
  [[nodiscard]] virtual std::mutex& mutex() const noexcept = 0;
  // ---- with the lock held
  /// Throws when nobody is there to carry out `call`.
  virtual void check_running(const char* call) const = 0;
  /// Takes a send to where it is matched.
  virtual void start(const send_order& o, const route& way) = 0;
  [[nodiscard]] sender& from(int input) { return senders_[static_cast<std::size_t>(input)]; }
  /// Withdrawn is what is not given out yet.
  virtual void take_back(int input, std::uint64_t id) = 0;
  /// Throws error(invalid_argument) for what cannot go that way.
  virtual void check_way(int /*input*/, const segment& /*s*/, const route& /*way*/) const {}
  /// What the output's inbox is asked for, with what an error says of it.
  [[nodiscard]] future<pending_segment> receive_from(inbox& in, int output, bool ended);
  /// When the last byte of it is given out, and nothing of it is lent.
  void complete_if_done(std::uint64_t id);

  [[nodiscard]] completion after(events of) const;
  [[nodiscard]] static const events& events_of(const completion& c) noexcept { return c.events_; }
  void check_kind(const completion& c, const char* call) const;

 private:
  std::vector<std::shared_ptr<const void>> kept_;  // first: it outlives streams of all who derive

 protected:
  const std::shared_ptr<waits> limits_;
  const device_ref near_;
  matcher matcher_;
  std::vector<sender> senders_;             // by input
  std::map<std::uint64_t, sending> sends_;  // of this rank, by number

 private:
  /// Who sent it waits for it no longer, and is told now: its memory may go.
  void withdraw(std::uint64_t id);
  /// Judges what a user sends. Throws error(invalid_argument).
  void check_segment(const segment& s, const completion& ready) const;
  /// Whether a sender may send. Throws error(invalid_argument).
  void check_open(const sender& s) const;

  template <class T>
  [[nodiscard]] std::shared_ptr<shared_value<T>> promise_of(const char* call, int end,
                                                            std::size_t bytes) const;

  std::shared_ptr<const std::string> name_;
  bool is_link_ = false;
  std::uint64_t next_send_ = 0;
};

}  // namespace crosswarp::flow::impl
