// What links know of a router, wherever its ends are.
#pragma once

#include <deque>
#include <memory>
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

/// One for which somebody waits in `call`.
template <class T>
std::shared_ptr<shared_value<T>> promise_of(const std::shared_ptr<const patience>& limits,
                                            const char* call) {
  auto p = std::make_shared<shared_value<T>>();
  p->limits = limits;
  p->call = call;
  return p;
}

class router_base {
 public:
  virtual ~router_base() = default;
  router_base(const router_base&) = delete;
  router_base& operator=(const router_base&) = delete;

  /// The next input or output. Throws error(invalid_argument) when there are no more.
  virtual int add_input(const place& at, int rank) = 0;
  virtual int add_output(const receiver& r) = 0;

  // ---- see flow::link
  virtual future<completion> send(int input, const segment& s, const completion& ready) = 0;
  virtual void shutdown(int input) = 0;
  virtual future<pending_segment> receive(int output) = 0;
  virtual void release(int output, const pending_segment& s, const completion& used) = 0;

  [[nodiscard]] virtual std::uint64_t sent_bytes(int input) const = 0;
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
    /// A buffer is the receiver's now.
    void deliver(const grant& g, completion arrived);
    [[nodiscard]] future<pending_segment> receive(const std::shared_ptr<const patience>& limits,
                                                  bool ended);
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
      std::uint64_t lap = 0;
    };
    std::byte* base_;
    std::size_t stride_;
    std::vector<slot> slots_;
    std::deque<pending_segment> arrived_;
    std::deque<std::shared_ptr<shared_value<pending_segment>>> wanted_;
    std::uint64_t bytes_ = 0;  // delivered so far
  };

  [[nodiscard]] completion after(events of) const;
  /// Judges what a user sends. Throws error(invalid_argument).
  void check_segment(const segment& s, const completion& ready) const;
  void check_kind(const completion& c, const char* call) const;
  /// Whether a sender may send. Throws error(invalid_argument).
  void check_open(bool open) const;

  const std::shared_ptr<waits> limits_;
  const device_ref near_;
  matcher matcher_;
};

}  // namespace crosswarp::flow::impl
