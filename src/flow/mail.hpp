// What the ranks of a graph tell each other, and how it gets there: by links of kernels, so over
// every path that a world has.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/flow.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::flow::impl {

struct message {
  static constexpr int max_outputs = 128;
  enum class kind : std::uint8_t {
    send,      ///< to the router: a segment waits at its sender
    shutdown,  ///< to the router: nothing more comes by this input
    give,      ///< from the router to the sender: copy these bytes into this buffer
    arrived,   ///< from the sender to the receiver: they are there
    release,   ///< from the receiver to the router: this buffer is free
    ended,     ///< from the router to the receiver: so many packets, and no more
    withdraw,  ///< to the router: of this send nothing more is to be given out
  };
  kind what = kind::send;
  std::uint8_t how = 0;   ///< send: a spread
  std::uint8_t last = 0;  ///< give: of its send
  std::uint32_t router = 0;
  std::int32_t source = -1;  ///< input
  std::int32_t output = -1;
  std::int32_t slot = -1;
  std::uint64_t id = 0;      ///< of a send, its sender's name for it
  std::uint64_t number = 0;  ///< of a packet, by output; ended: how many there were
  std::uint64_t bytes = 0;   ///< arrived: 0 when the send was withdrawn
  std::uint64_t offset = 0;
  std::uint64_t tag = 0;
  std::uint64_t unit = 1;     ///< send: see route
  std::uint32_t reached = 0;  ///< send: outputs, in the order of the route
  std::array<std::uint16_t, max_outputs> outputs = {};
};

/// Letters to a rank or from it, where host and device reach them.
struct mail_bag {
  static constexpr int most = 8;
  std::int32_t count;
  std::int32_t taken;  ///< of those that were to go
  message letters[most];
};

/// Used by one thread; making it is collective.
class mail {
 public:
  explicit mail(world& w);

  /// Takes what fits from the front of each rank's letters, and appends what has come. Never waits
  /// for another rank. True when anything moved.
  bool step(std::vector<std::deque<message>>& to, std::deque<message>& came);
  /// What step() took has arrived. Throws error when it cannot.
  void flush();

 private:
  const int rank_;
  const int ranks_;
  const device::proxy proxy_;
  stream by_;
  symmetric_buffer<std::byte> memory_;
  buffer<device::flow::link> out_;  // by rank
  buffer<device::flow::link> in_;
  buffer<mail_bag> going_;
  buffer<mail_bag> coming_;
  buffer<status> flushed_;
};

}  // namespace crosswarp::flow::impl
