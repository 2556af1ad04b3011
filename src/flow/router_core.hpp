// A router at work: pairs what is sent with the buffers that receivers have free.
//
// A buffer is in one of three hands: posted (the router's), matched (a copy is queued into it, and
// the receiver gets it) and held (by the receiver, until release() posts it again). A send is
// queued at all outputs that may take of it, in the order of sends, until its last byte is given
// out. docs/design/flow.md argues that this neither loses, doubles nor blocks anything.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/flow.hpp"
#include "flow/lane.hpp"
#include "flow/waits.hpp"

namespace crosswarp::flow::impl {

/// What an output is made of.
struct receiver {
  std::size_t packet_bytes;
  int buffers;
  place at;
  transport how;
};

class router_core {
 public:
  /// Throws error(invalid_argument).
  router_core(std::shared_ptr<waits> limits, device_ref near, const fan& f, policy p);

  /// The next input or output. Throws error(invalid_argument) when there are no more.
  int add_input(const place& at);
  int add_output(const receiver& r);

  // ---- see flow::link
  future<completion> send(int input, const segment& s, const completion& ready);
  void shutdown(int input);
  future<pending_segment> receive(int output);
  void release(int output, const pending_segment& s, const completion& used);

  [[nodiscard]] const policy& rules() const noexcept { return policy_; }
  [[nodiscard]] const fan& ends() const noexcept { return fan_; }
  [[nodiscard]] std::uint64_t sent_bytes(int input) const;
  [[nodiscard]] std::uint64_t received_bytes(int output) const;
  [[nodiscard]] std::string explain_way(int input, int output) const;

 private:
  /// A send as a whole: what its future waits for.
  struct whole {
    std::size_t left = 0;  // bytes to be given out, over all its parts
    // The last copy of each lane, which makes them in their order.
    std::map<const lane*, std::shared_ptr<event>> copies;
    std::shared_ptr<shared_value<completion>> promise;
  };
  /// What of a send is given out together: all, an output's copy of it, or an output's share.
  struct part {
    segment what;
    int source;
    completion ready;
    std::size_t next;  // byte to be given out
    std::size_t end;
    spread how;
    std::vector<int> candidates;
    std::shared_ptr<whole> of;
    [[nodiscard]] bool done() const noexcept { return next == end; }
  };
  struct slot {
    bool held = false;
    std::uint64_t lap = 0;
    completion free;  // when it may be overwritten
  };
  struct input {
    place at;
    bool open = true;
    std::uint64_t bytes = 0;
  };
  struct output {
    output(const receiver& made_of, device_ref near);
    receiver of;
    buffer<std::byte> memory;
    std::vector<slot> slots;
    std::deque<int> posted;  // slots, the next to fill first
    std::deque<std::shared_ptr<part>> sends;
    std::deque<pending_segment> arrived;
    std::deque<std::shared_ptr<shared_value<pending_segment>>> wanted;
    std::map<int, std::unique_ptr<lane>> lanes;  // by input
    std::uint64_t bytes = 0;
  };

  void make_lanes(int in, int out);
  [[nodiscard]] input& open_input(int index);
  [[nodiscard]] route checked_route(const segment& s, int source) const;
  void queue(const segment& s, int source, const completion& ready, const route& way,
             const std::shared_ptr<whole>& all);
  void queue_part(const std::shared_ptr<part>& p);
  void check_kind(const completion& c, const char* call) const;
  /// Gives out all that can be, in rounds of one packet for each output, so that equals get equally
  /// much.
  void match();
  bool match_one(int output);
  [[nodiscard]] bool may_take(int output, const part& p) const;
  void give(output& to, part& p);
  /// All of it is given out.
  void finish(whole& w) const;
  [[nodiscard]] completion after(std::vector<std::shared_ptr<event>> events) const;
  void deliver(output& to, pending_segment s);
  [[nodiscard]] bool ended(int output) const;
  void end_receives();

  const std::shared_ptr<waits> limits_;
  const device_ref near_;
  const fan fan_;
  const policy policy_;
  mutable std::mutex mutex_;
  std::vector<input> inputs_;
  std::vector<std::unique_ptr<output>> outputs_;
  std::vector<std::vector<int>> reach_;  // by input
  std::vector<int> senders_;             // by output: that have not shut down
};

}  // namespace crosswarp::flow::impl
