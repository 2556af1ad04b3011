// The memory by which kernels and the host's thread share sockets: who writes which word, and what
// it says. docs/design/socket.md argues why it is right.
//
// Each word has one writer. Positions in streams count bytes, from one life of a socket to the
// next, and never wrap: they have 56 bits; the low 8 bits of a word beside them say what holds at
// that position.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/impl/socket_hooks.hpp"
#include "crosswarp/device/platform.hpp"
#include "crosswarp/device/world.hpp"

namespace crosswarp::device::socket {

/// A position and what holds there.
class mark {
 public:
  constexpr mark() noexcept = default;
  CW_FN constexpr mark(std::uint64_t position, unsigned flags) noexcept
      : word_(position << 8U | flags) {}
  CW_FN static constexpr mark of(std::uint64_t word) noexcept {
    mark m;
    m.word_ = word;
    return m;
  }
  [[nodiscard]] CW_FN constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] CW_FN constexpr std::uint64_t position() const noexcept { return word_ >> 8U; }
  [[nodiscard]] CW_FN constexpr unsigned flags() const noexcept { return word_ & 0xffU; }
  [[nodiscard]] CW_FN constexpr bool has(unsigned any_of) const noexcept {
    return (word_ & any_of) != 0;
  }

 private:
  std::uint64_t word_ = 0;
};

/// Of news::received: the stream ends at this position, in order or with an error.
inline constexpr unsigned ended = 1;
inline constexpr unsigned failed = 2;
/// Of news::sent: the connection is there; nothing more will be sent, see news::error.
inline constexpr unsigned connected = 1;
inline constexpr unsigned broken = 2;
/// Of both: the other end is of this world, and there is a lane to it, see news::lane.
inline constexpr unsigned around = 4;
/// Of both, too: some bits of a count of the stream's rings. Who knows the ring of that number need
/// not look at the words that say where it is: they lie across a bus from a GPU.
CW_FN constexpr unsigned ring_bits(unsigned count) noexcept {
  return (count & 15U) << 4U;
}
inline constexpr unsigned all_ring_bits = ring_bits(~0U);
/// Of a bell: a kernel has the socket; no byte follows (FIN); the socket is closed at this
/// position; it is closed at once, and the peer is told so (RST).
inline constexpr unsigned taken = 1;
inline constexpr unsigned finished = 2;
inline constexpr unsigned closed = 4;
inline constexpr unsigned reset = 8;
/// Of a bell, too: some bits of the generation. A socket that is taken and closed at the same
/// position as the one before it would ring with the same word, and not be heard.
CW_FN constexpr unsigned life_bits(std::uint32_t generation) noexcept {
  return (generation & 15U) << 4U;
}

/// Where a ring lies: offset in the service's rings, and its bytes, a power of two.
class ring_place {
 public:
  constexpr ring_place() noexcept = default;
  CW_FN constexpr ring_place(std::uint64_t offset, unsigned log2_bytes, unsigned epoch) noexcept
      : word_(offset << 16U | log2_bytes << 8U | epoch) {}
  CW_FN static constexpr ring_place of(std::uint64_t word) noexcept {
    ring_place r;
    r.word_ = word;
    return r;
  }
  [[nodiscard]] CW_FN constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] CW_FN constexpr std::uint64_t offset() const noexcept { return word_ >> 16U; }
  [[nodiscard]] CW_FN constexpr std::uint64_t bytes() const noexcept {
    return std::uint64_t{1} << (word_ >> 8U & 63U);
  }
  /// Counts a socket's rings, modulo 256.
  [[nodiscard]] CW_FN constexpr unsigned epoch() const noexcept { return word_ & 0xffU; }

 private:
  std::uint64_t word_ = 0;
};

/// Of lane::head: its sender has left TCP; and `finished`. Of lane::tail: `closed`.
inline constexpr unsigned begun = 1;

/// A way into a socket that goes around TCP, in memory that all ranks of the machine have mapped.
/// Kernels of the other end write it. Positions count from the begin of the connection.
struct lane {
  struct alignas(line_bytes) {
    std::uint64_t head;  ///< a mark: bytes up to here are there; written by who sends
    std::uint64_t from;  ///< bytes from here on are in the lane's ring; those before came by TCP
  } in;
  struct alignas(line_bytes) {
    std::uint64_t tail;  ///< a mark: what this end sent was read up to here; written by who reads
  } out;
  // Of the hosts, see src/socket/lanes.
  struct alignas(line_bytes) {
    std::uint64_t state;
    std::uint64_t left;    ///< the other end's: its kernels write no more
    std::uint64_t key[5];  ///< the names of the two ends
  } host;
};

/// Which lanes two ends have: this end's own, which it reads, and the other one's, which it writes.
class lane_link {
 public:
  constexpr lane_link() noexcept = default;
  CW_FN constexpr lane_link(unsigned own, unsigned peer_rank, unsigned peer) noexcept
      : word_(std::uint64_t{1} << 63U | std::uint64_t{own} << 32U |
              std::uint64_t{peer_rank} << 16U | peer) {}
  CW_FN static constexpr lane_link of(std::uint64_t word) noexcept {
    lane_link l;
    l.word_ = word;
    return l;
  }
  [[nodiscard]] CW_FN constexpr explicit operator bool() const noexcept { return word_ != 0; }
  [[nodiscard]] CW_FN constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] CW_FN constexpr unsigned own() const noexcept { return word_ >> 32U & 0xffffU; }
  [[nodiscard]] CW_FN constexpr int peer_rank() const noexcept { return word_ >> 16U & 0xffffU; }
  [[nodiscard]] CW_FN constexpr unsigned peer() const noexcept { return word_ & 0xffffU; }

 private:
  std::uint64_t word_ = 0;
};

/// What the host tells kernels of a socket.
struct alignas(line_bytes) news {
  std::uint64_t received;      ///< a mark: bytes up to here may be read
  std::uint64_t sent;          ///< a mark: bytes up to here have left the ring
  std::uint64_t error;         ///< an errno, written before `failed` or `broken`
  std::uint64_t start;         ///< where the receive stream of this life begins
  std::uint64_t send_ring;     ///< a ring_place; the sender moves there with its next byte. Written
                               ///< before its ring_bits() in `sent`
  std::uint64_t ring[2];       ///< of the receive stream: ring_places,
  std::uint64_t ring_from[2];  ///< and the position from which on bytes are in them. Both written
                               ///< before their ring_bits() in `received`
  std::uint64_t lane;          ///< a lane_link, written before `around`
};

/// An address of IPv4, IPv6 or a Unix-domain socket; plain bytes.
struct address {
  enum kind : std::uint16_t { none, ipv4, ipv6, local };
  kind family = none;
  std::uint16_t port = 0;      ///< in the machine's order
  std::uint32_t scope = 0;     ///< of IPv6: the interface
  std::uint8_t host[16] = {};  ///< as it travels; IPv4 has 4 bytes
  /// Of a Unix-domain socket, ended by 0; "@name" is an abstract one.
  char path[104] = {};

  CW_FN static constexpr address v4(int a, int b, int c, int d, std::uint16_t port) noexcept {
    address x;
    x.family = ipv4;
    x.port = port;
    x.host[0] = static_cast<std::uint8_t>(a);
    x.host[1] = static_cast<std::uint8_t>(b);
    x.host[2] = static_cast<std::uint8_t>(c);
    x.host[3] = static_cast<std::uint8_t>(d);
    return x;
  }
  CW_FN static constexpr address loopback(std::uint16_t port) noexcept {
    return v4(127, 0, 0, 1, port);
  }
};
static_assert(sizeof(address) == 128);

/// What a socket's ends are called.
struct names {
  address own;
  address peer;
};

/// What a kernel asks of the host. The answer comes as soon as the host's thread looks.
enum class call : std::uint32_t { listen, connect, set_option, get_option };

enum class option : std::uint32_t {
  no_delay,        ///< 0 or 1
  keep_alive,      ///< 0 or 1
  send_buffer,     ///< bytes, the system's own, behind the ring
  receive_buffer,  ///< bytes
};

struct call_request {
  call what = call::listen;
  option which = option::no_delay;
  std::uint64_t socket = 0;  ///< a handle, for options
  std::int64_t value = 0;    ///< of an option; of listen: the backlog
  address where;
};

struct alignas(line_bytes) call_reply {
  std::uint64_t number;  ///< of the request that this answers
  std::int64_t result;   ///< a handle, a value or -errno
};

/// What kernels keep of a socket among themselves, in the device's memory. `sender` and `receiver`
/// belong to the one group that sends, and to the one that receives.
struct own_state {
  struct alignas(line_bytes) {
    std::uint32_t life;        ///< the generation, see listener_life; 0 when no kernel has it
    std::uint32_t error_told;  ///< the error was returned once
  } shared;
  struct alignas(line_bytes) {
    std::uint64_t head;
    std::uint64_t start;  ///< of this life's stream
    std::uint64_t ring;   ///< a ring_place,
    std::uint64_t from;   ///< and the position from which on bytes are in it, or in the lane
    std::uint64_t lane;   ///< a lane_link once it has left TCP
    std::uint64_t sent;   ///< news::sent as it was seen last
    std::uint32_t shut;
    std::uint32_t refused;  ///< the other end is closed, and bytes were sent to it nevertheless
  } sender;
  struct alignas(line_bytes) {
    std::uint64_t tail;          ///< of a listener: connections taken, see listener_closed
    std::uint64_t start;         ///< of this life's stream
    std::uint64_t seen;          ///< the end of the last view,
    std::uint64_t lane;          ///< and the lane_link that it was of; 0: the ring
    std::uint64_t ring[2];       ///< of news, as they were
    std::uint64_t ring_from[2];  ///< when its ring_bits()
    std::uint32_t ring_bits;     ///< were these
    std::uint32_t shut;
  } receiver;
};
/// In a listener's `life`, beside the generation.
inline constexpr std::uint32_t listener_life = std::uint32_t{1} << 31U;
/// No ring_bits(): the rings are not known.
inline constexpr std::uint32_t no_ring_bits = ~std::uint32_t{0};
/// A listener's `tail` once it is closed: nobody takes connections any more.
inline constexpr std::uint64_t listener_closed = std::uint64_t{1} << 63U;

/// A place for calls, in the device's memory.
struct call_place {
  std::uint32_t state;   ///< free, taken, or left: by somebody who did not see the answer
  std::uint64_t number;  ///< of its last request
};

/// Everything, as kernels see it.
struct memory {
  std::uint32_t sockets = 0;
  std::uint32_t calls = 0;
  // Host memory, written by the host.
  news* state = nullptr;
  names* called = nullptr;
  call_reply* replies = nullptr;
  std::uint64_t* activity = nullptr;  ///< changes after any socket's news
  // Host memory, written by kernels. Bells lie next to each other: the host looks at all of them.
  std::uint64_t* bells = nullptr;    ///< marks: bytes up to here are to be sent
  std::uint64_t* drained = nullptr;  ///< positions: bytes up to here were read
  std::uint64_t* moved = nullptr;    ///< position << 8 | epoch: from there on in that send ring
  std::uint64_t* call_bells = nullptr;
  call_request* requests = nullptr;
  /// Receive rings by the host, send rings by kernels; or the device's memory, by option.
  std::byte* rings = nullptr;
  // Ways around TCP, of every rank; none unless the service is a world's.
  symmetric<lane> lanes;
  symmetric<std::byte> lane_rings;
  std::uint64_t lane_bytes = 0;  ///< of one ring, a power of two
  // The device's memory.
  own_state* own = nullptr;
  call_place* places = nullptr;
  /// Who serves them, for kernels on CPU threads; else null.
  socket_impl::workers* host = nullptr;
};

}  // namespace crosswarp::device::socket
