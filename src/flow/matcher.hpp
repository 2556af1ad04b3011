// Which bytes of which send go into which free buffer: a router's rules at work, without memory,
// copies or threads.
//
// A send is queued at all outputs that may take of it, in the order of sends, until its last byte
// is given out. docs/design/flow.md argues that this neither loses, doubles nor blocks anything.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "crosswarp/flow_policy.hpp"

namespace crosswarp::flow::impl {

/// A send as the matcher knows it.
struct send_order {
  std::uint64_t id = 0;  ///< its sender's name for it
  int source = -1;       ///< input
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
};

/// So many bytes of a send, for one buffer.
struct grant {
  send_order of;
  int output = -1;
  int slot = -1;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  bool last = false;  ///< of its send: all has been given out
};

/// Called by one thread at a time.
class matcher {
 public:
  /// Throws error(invalid_argument).
  matcher(const fan& f, policy p);

  /// The next input or output. Throws error(invalid_argument) when there are no more.
  int add_input();
  int add_output(std::size_t packet_bytes, int buffers);
  [[nodiscard]] bool is_complete() const noexcept;
  /// Throws error(invalid_argument) unless all links are made.
  void check_complete() const;

  [[nodiscard]] const policy& rules() const noexcept { return policy_; }
  [[nodiscard]] const std::vector<int>& reach(int input) const {
    return reach_[static_cast<std::size_t>(input)];
  }
  /// Where a segment goes: asks the policy, and judges its answer. Changes nothing; any thread.
  /// Throws error(invalid_argument).
  [[nodiscard]] route checked_route(const segment& s, int source) const;

  void send(const send_order& what, const route& way);
  /// Nothing more of it is given out. Of one that is not queued: nothing.
  void withdraw(int source, std::uint64_t id);
  /// A second call changes nothing.
  void shutdown(int input);
  /// A buffer is free.
  void post(int output, int slot);
  /// Gives out all that can be, in rounds of one packet for each output, so that equals get equally
  /// much.
  void match(const std::function<void(const grant&)>& give);
  /// Nothing comes any more, and nothing waits.
  [[nodiscard]] bool ended(int output) const;

 private:
  /// What of a send is given out together: all, an output's copy of it, or an output's share.
  struct part {
    send_order of;
    std::size_t next;  // byte to be given out
    std::size_t end;
    spread how;
    std::vector<int> candidates;
    std::shared_ptr<std::size_t> left;  // bytes to be given out, over all parts of the send
    [[nodiscard]] bool done() const noexcept { return next == end; }
  };
  struct output {
    std::size_t packet_bytes;
    std::deque<int> posted;  // slots, the next to fill first
    std::deque<std::shared_ptr<part>> sends;
  };

  bool match_one(int output, const std::function<void(const grant&)>& give);
  [[nodiscard]] bool may_take(int output, const part& p) const;

  const fan fan_;
  const policy policy_;
  std::vector<bool> open_;  // by input that has a link
  std::vector<output> outputs_;
  std::vector<std::vector<int>> reach_;  // by input
  std::vector<int> senders_;             // by output: that have not shut down
};

}  // namespace crosswarp::flow::impl
