// A link that kernels send and receive on themselves, with a few packets between them.
//
//   auto out = flow::sender::open(g, link);           // a producer
//   status s = out.send(g, values, bytes);            // waits while all packets are full
//   s = out.shutdown(g);
//
//   auto in = flow::receiver::open(g, link);          // a consumer
//   flow::packet p;
//   while (in.receive(g, p) == status::ok) {          // closed: all has been received
//     use(p.data, p.bytes);
//     in.release(g);                                  // the sender may fill it again
//   }
//
// The host makes the link, see flow_link.hpp, and may be at either end of one whose memory it
// reaches, as a thread_group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/world.hpp"

namespace crosswarp::device::flow {

/// How far a side has come.
struct progress {
  std::uint64_t position;  ///< packets sent, or released
  std::uint64_t ended;     ///< not 0: shut down, or the end was received
};
/// What it keeps of that from kernel to kernel; nobody else reads it.
struct alignas(line_bytes) own_line {
  progress kept;
};

/// A packet's words, each written by one side, with the other. Laps are told apart by positions, so
/// a word is not written again before the other side has seen it: what is sent afar may arrive in
/// another order than it was sent.
struct slot_lines {
  signal_line full;  ///< at the receiver: position + 1 of the packet that it holds
  signal_line free;  ///< at the sender: position + 1 of the packet that was released last
};

/// At the start of a packet.
struct packet_header {
  std::uint64_t bytes;  ///< 0: the end
  std::uint64_t tag;
};

/// What a link has at each of its ranks: this, its slots, its packets. Zero at the start.
struct link_memory {
  own_line sender;
  own_line receiver;

  [[nodiscard]] CW_FN slot_lines& slot(std::uint64_t index) noexcept {
    return reinterpret_cast<slot_lines*>(this + 1)[index];
  }
};

/// A link as one of its ends sees it. Got from flow::device_link::device(), by value; valid while
/// that lives.
struct link {
  /// From one packet to the next; headers lie on lines of their own.
  [[nodiscard]] CW_FN constexpr std::size_t stride() const noexcept {
    return stride_of(packet_bytes);
  }
  [[nodiscard]] CW_FN static constexpr std::size_t stride_of(std::size_t bytes) noexcept {
    return (sizeof(packet_header) + bytes + line_bytes - 1) / line_bytes * line_bytes;
  }
  [[nodiscard]] CW_FN static constexpr std::size_t packets_at(std::uint64_t buffers) noexcept {
    return sizeof(link_memory) + static_cast<std::size_t>(buffers) * sizeof(slot_lines);
  }
  [[nodiscard]] CW_FN static constexpr std::size_t memory_bytes(std::size_t packet,
                                                                std::uint64_t buffers) noexcept {
    return packets_at(buffers) + static_cast<std::size_t>(buffers) * stride_of(packet);
  }

  link_memory* mine = nullptr;
  link_memory* theirs = nullptr;  ///< null: behind the proxy
  std::size_t packet_bytes = 0;
  std::uint64_t buffers = 0;
  bool sends = false;
  bool receives = false;
  scope reach = scope::system;
  wait_limits limits;
  // ---- behind the proxy
  int peer = -1;
  remote_address memory;  ///< of `theirs`
  device::proxy proxy;
};

/// The sending end. One group uses it, all its threads hold equal copies, and each call is made by
/// all of them with the same arguments. A later kernel goes on where this one ends.
class sender {
 public:
  template <group G>
  [[nodiscard]] CW_FN static sender open(const G& g, const link& l) noexcept;

  /// Waits until buffer() may be filled: at most packet_bytes of the link.
  /// Order: the receiver has finished reading what it held before.
  /// Fails: invalid after shutdown(), or at the wrong end; timeout, peer_lost, aborted.
  template <group G>
  [[nodiscard]] CW_FN status reserve(const G& g) noexcept {
    return reserve(g, link_.limits);
  }
  /// The same with limits of one's own: link.limits.within(0) looks once.
  template <group G>
  [[nodiscard]] CW_FN status reserve(const G& g, const wait_limits& limits) noexcept;
  [[nodiscard]] CW_FN std::byte* buffer() const noexcept;
  /// Sends what any thread of `g` wrote to the reserved buffer(). Of no bytes: nothing.
  /// Visibility: to every thread of the group that receives it.
  /// Fails:      invalid (more than a packet holds, shut down); what the proxy's put_signal says.
  template <group G>
  [[nodiscard]] CW_FN status send(const G& g, std::size_t bytes, std::uint64_t tag = 0) noexcept;
  /// Sends a copy of `from`, in as many packets as it takes. On return `from` may be reused.
  template <group G>
  [[nodiscard]] CW_FN status send(const G& g, const void* from, std::size_t bytes,
                                  std::uint64_t tag = 0) noexcept;
  /// Nothing more comes: the receiver hears `closed` behind the last packet. Waits for a packet to
  /// say so in, and behind the proxy until all has arrived. A second call changes nothing.
  template <group G>
  [[nodiscard]] CW_FN status shutdown(const G& g) noexcept;

 private:
  CW_FN sender(const link& l, const progress& at) noexcept
      : link_(l), position_(at.position), ended_(at.ended != 0) {}
  template <group G>
  [[nodiscard]] CW_FN status publish(const G& g, const packet_header& h) noexcept;
  [[nodiscard]] CW_FN std::uint64_t slot() const noexcept { return position_ % link_.buffers; }
  /// Of the receiver, or the sender's own image of it, which the proxy reads.
  [[nodiscard]] CW_FN std::byte* packet_at() const noexcept;

  link link_;
  std::uint64_t position_;  // of the next packet
  bool ended_;
};

/// A packet as its receiver sees it, until release().
struct packet {
  std::byte* data = nullptr;  ///< aligned to 16 bytes
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
};

/// The receiving end; as for the sender, one group, all its threads with equal copies.
class receiver {
 public:
  template <group G>
  [[nodiscard]] CW_FN static receiver open(const G& g, const link& l) noexcept;

  /// Waits for the next packet; the same one until release().
  /// Order: everything that the sender's group wrote to it is visible to every thread of `g`.
  /// Fails: closed at the end, and ever after; then all releases have arrived, too. invalid at the
  ///        wrong end; timeout, peer_lost, aborted.
  template <group G>
  [[nodiscard]] CW_FN status receive(const G& g, packet& p) noexcept {
    return receive(g, p, link_.limits);
  }
  /// The same with limits of one's own: link.limits.within(0) looks once, for who receives on
  /// several links.
  template <group G>
  [[nodiscard]] CW_FN status receive(const G& g, packet& p, const wait_limits& limits) noexcept;
  /// Gives the packet back, which the last receive() got.
  /// Order: what any thread of `g` read from it was read before.
  /// Fails: invalid at the wrong end; what the proxy's put_value says.
  template <group G>
  [[nodiscard]] CW_FN status release(const G& g) noexcept;

 private:
  CW_FN receiver(const link& l, const progress& at) noexcept
      : link_(l), position_(at.position), ended_(at.ended != 0) {}
  [[nodiscard]] CW_FN std::uint64_t slot() const noexcept { return position_ % link_.buffers; }
  template <group G>
  CW_FN void keep(const G& g) const noexcept;

  link link_;
  std::uint64_t position_;
  bool ended_;
};

}  // namespace crosswarp::device::flow

#include "crosswarp/device/impl/flow_impl.hpp"
