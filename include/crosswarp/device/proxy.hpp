// Reverse offload: what a kernel cannot reach by loads and stores, it asks its host to reach.
//
// A kernel writes commands into a queue; the host's proxy carries them out with an engine (UCX,
// MPI, copies) and answers those that asked for it. Queues are shared freely: any thread may use
// any queue at any time. Operations of one queue are started in their order.
//
//   auto q = w.proxy.queue(ctx.block_index());
//   status s = q.put(ctx.block(), pe, box.remote(), values, bytes);   // source is free again
//   s = q.quiet(ctx.block());                                         // and visible at pe
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/device/group.hpp"
#include "crosswarp/device/rdma_path.hpp"
#include "crosswarp/device/signal.hpp"

namespace crosswarp {
class proxy;
}

namespace crosswarp::device {

/// A place in symmetric memory, the same on every rank: see symmetric<T>::remote().
struct remote_address {
  std::uint64_t offset = 0;
  std::uint16_t region = 0;  ///< 0: the world's heap; else a registration
};

/// What an atomic operation does to its word. All but `set` can give back the value before it.
enum class amo : std::uint8_t { fetch, set, add, bit_and, bit_or, bit_xor, swap, compare_swap };

/// What a put's signal does to its word.
enum class signal_op : std::uint8_t { none, set, add };

enum class reduction : std::uint8_t { sum, prod, min, max, bit_and, bit_or, bit_xor };
enum class element : std::uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, f32, f64 };

/// What a command asks for.
enum class proxy_op : std::uint8_t {
  none,
  put,          ///< `bytes` from memory
  put_inline,   ///< up to 16 bytes that are in the command
  get,          ///< `bytes` into memory
  put_strided,  ///< `count` blocks of `bytes`
  get_strided,
  atomic,
  fence,
  quiet,
  barrier,
  broadcast,
  reduce,
};

/// What a kernel called, as counters and traces name it.
enum class proxy_call : std::uint8_t {
  none,
  put,
  put_signal,
  put_value,
  get,
  put_strided,
  get_strided,
  atomic,  ///< and as many as there are kinds of them: see amo
  fence = atomic + static_cast<std::uint8_t>(amo::compare_swap) + 1,
  quiet,
  barrier,
  broadcast,
  reduce,
  collect,  ///< this and those that follow are never commands
  alltoall,
  scan,
};
inline constexpr std::size_t proxy_calls = static_cast<std::size_t>(proxy_call::scan) + 1;

/// A command as a kernel writes it and the host reads it: 64 bytes.
struct proxy_command {
  static constexpr std::uint8_t wants_reply = 1;
  static constexpr std::uint8_t is_value = 2;  ///< an inline put's data had no address

  proxy_op op = proxy_op::none;
  std::uint8_t flags = 0;
  std::uint8_t what = 0;  ///< signal_op of a put; amo; reduction
  std::uint8_t width =
      0;                ///< bytes of an atomic's word or of an inline put; element of a reduction
  std::int32_t pe = 0;  ///< target; root of a broadcast
  std::uint16_t region = 0;
  std::uint16_t signal_region = 0;
  std::uint32_t waited_ns = 0;  ///< for its slot
  std::uint64_t remote = 0;     ///< offset in `region` of rank `pe`
  std::uint64_t local = 0;      ///< address here; inline data; where an atomic's result goes
  std::uint64_t bytes = 0;      ///< inline data, second word; count of a reduction
  std::uint64_t a = 0;          ///< signal's offset; operand; stride at the target
  std::uint64_t b = 0;          ///< signal's value; comparand; stride here
  std::uint64_t c = 0;  ///< blocks of a strided operation; local offset of a collective's source
};
static_assert(sizeof(proxy_command) == 64);

/// 0 when there is no such type.
CW_FN constexpr std::size_t size_of(element e) noexcept {
  switch (e) {
    case element::i8:
    case element::u8:
      return 1;
    case element::i16:
    case element::u16:
      return 2;
    case element::i32:
    case element::u32:
    case element::f32:
      return 4;
    case element::i64:
    case element::u64:
    case element::f64:
      return 8;
  }
  return 0;
}

/// What it moves.
CW_FN constexpr std::uint64_t bytes_of(const proxy_command& c) noexcept {
  switch (c.op) {
    case proxy_op::put:
    case proxy_op::get:
    case proxy_op::broadcast:
      return c.bytes;
    case proxy_op::put_inline:
    case proxy_op::atomic:
      return c.width;
    case proxy_op::put_strided:
    case proxy_op::get_strided:
      return c.bytes * c.c;
    case proxy_op::reduce:
      return c.bytes * size_of(static_cast<element>(c.width));
    default:
      return 0;
  }
}

CW_FN constexpr proxy_call call_of(amo op) noexcept {
  return static_cast<proxy_call>(static_cast<std::uint8_t>(proxy_call::atomic) +
                                 static_cast<std::uint8_t>(op));
}
/// Which call made it; none when none did.
CW_FN constexpr proxy_call call_of(const proxy_command& c) noexcept {
  switch (c.op) {
    case proxy_op::put:
    case proxy_op::put_inline:
      if (c.what != static_cast<std::uint8_t>(signal_op::none)) return proxy_call::put_signal;
      return (c.flags & proxy_command::is_value) != 0 ? proxy_call::put_value : proxy_call::put;
    case proxy_op::get:
      return proxy_call::get;
    case proxy_op::put_strided:
      return proxy_call::put_strided;
    case proxy_op::get_strided:
      return proxy_call::get_strided;
    case proxy_op::atomic:
      if (c.what > static_cast<std::uint8_t>(amo::compare_swap)) return proxy_call::none;
      return call_of(static_cast<amo>(c.what));
    case proxy_op::fence:
      return proxy_call::fence;
    case proxy_op::quiet:
      return proxy_call::quiet;
    case proxy_op::barrier:
      return proxy_call::barrier;
    case proxy_op::broadcast:
      return proxy_call::broadcast;
    case proxy_op::reduce:
      return proxy_call::reduce;
    case proxy_op::none:
      break;
  }
  return proxy_call::none;
}

/// One entry of a queue: each 8-byte word has 4 bytes of the command and the lap as a tag, so that
/// a whole command needs no fence to be known as whole. All words are written in each lap, so a
/// tag that comes again after 2^32 laps meets no older one.
struct alignas(line_bytes) proxy_entry {
  std::uint64_t words[16];
};
static_assert(sizeof(proxy_entry) == 128);

/// The answer to a command, in the same slot as the command.
struct proxy_reply {
  std::uint64_t value;
  std::uint64_t stamp;  ///< (lap + 1) << 8 | status
};

/// What producers of one queue share, in the device's memory.
struct alignas(line_bytes) proxy_tail {
  std::uint64_t next;      ///< commands issued
  std::uint64_t consumed;  ///< as last read from the host
};

/// The host's count of the commands it has read from one queue.
struct alignas(line_bytes) proxy_head {
  std::uint64_t consumed;
};

/// Where the queues are. By value in device::world.
struct proxy_memory {
  proxy_entry* entries = nullptr;  ///< queues x depth, in host or device memory
  proxy_reply* replies = nullptr;  ///< queues x depth, host memory
  proxy_head* heads = nullptr;     ///< queues, host memory
  proxy_tail* tails = nullptr;     ///< queues, device memory
  std::uint64_t* seats = nullptr;  ///< queues x depth, device memory: the lap that may use the slot
  std::uint32_t queues = 0;
  std::uint32_t depth = 0;           ///< a power of two
  crosswarp::proxy* host = nullptr;  ///< CPU kernels lend it their waiting threads
  /// Not null: commands become entries, and nothing of the above is there but `queues`.
  const rdma_path* rdma = nullptr;
};

/// A queue in use by one thread or group. Copies are free; each remembers where it was.
class proxy_queue {
 public:
  proxy_queue() = default;
  CW_FN proxy_queue(const proxy_memory& m, std::uint32_t index, const wait_limits& limits) noexcept;

  // Common to all below.
  // Callers: all threads of `g`, same arguments; they sync first.
  // Order:   an operation sees what threads of `g` wrote into its source before. All else that
  //          they wrote is ordered by fence() and quiet() alone.
  // Fails:   invalid (a bad argument: nothing was touched); peer_lost, aborted, unreachable. An
  //          operation that does not wait reports its failure at the next quiet() of its queue.
  //          timeout: the host may still touch source and target, until a quiet() returned ok.

  /// Copies to rank `pe`. On return the source may be reused; visible remotely after quiet().
  /// Up to 16 bytes travel in the command: then nothing is waited for, and quiet() reports
  /// failures.
  template <group G>
  [[nodiscard]] CW_FN status put(const G& g, int pe, remote_address to, const void* from,
                                 std::size_t bytes) noexcept;
  /// The same; the source may be reused only after quiet().
  template <group G>
  [[nodiscard]] CW_FN status put_nbi(const G& g, int pe, remote_address to, const void* from,
                                     std::size_t bytes) noexcept;
  /// Puts, then changes a signal at `pe`: who sees the signal sees the data.
  template <group G>
  [[nodiscard]] CW_FN status put_signal(const G& g, int pe, remote_address to, const void* from,
                                        std::size_t bytes, remote_address signal_at,
                                        std::uint64_t value, signal_op how) noexcept;
  template <group G>
  [[nodiscard]] CW_FN status put_signal_nbi(const G& g, int pe, remote_address to, const void* from,
                                            std::size_t bytes, remote_address signal_at,
                                            std::uint64_t value, signal_op how) noexcept;
  /// Puts the low `width` bytes (1 to 8) of `value`; no source to wait for.
  template <group G>
  [[nodiscard]] CW_FN status put_value(const G& g, int pe, remote_address to, std::uint64_t value,
                                       int width) noexcept;

  /// Copies from rank `pe`; the data is there on return.
  template <group G>
  [[nodiscard]] CW_FN status get(const G& g, int pe, remote_address from, void* to,
                                 std::size_t bytes) noexcept;
  /// The data is there after quiet().
  template <group G>
  [[nodiscard]] CW_FN status get_nbi(const G& g, int pe, remote_address from, void* to,
                                     std::size_t bytes) noexcept;

  /// `count` blocks of `block` bytes, their starts `remote_stride` and `local_stride` bytes apart.
  struct strides {
    std::size_t block = 0;
    std::size_t count = 0;
    std::ptrdiff_t remote_stride = 0;
    std::ptrdiff_t local_stride = 0;
  };
  template <group G>
  [[nodiscard]] CW_FN status put_strided(const G& g, int pe, remote_address to, const void* from,
                                         const strides& s) noexcept;
  template <group G>
  [[nodiscard]] CW_FN status get_strided(const G& g, int pe, remote_address from, void* to,
                                         const strides& s) noexcept;

  /// An atomic operation on a word of 4 or 8 bytes; `old` gets the value before it.
  template <group G>
  [[nodiscard]] CW_FN status atomic(const G& g, amo op, int width, int pe, remote_address at,
                                    std::uint64_t operand, std::uint64_t comparand,
                                    std::uint64_t& old) noexcept;
  /// Gives nothing back and does not wait.
  template <group G>
  [[nodiscard]] CW_FN status atomic_nbi(const G& g, amo op, int width, int pe, remote_address at,
                                        std::uint64_t operand,
                                        std::uint64_t comparand = 0) noexcept;
  /// The value before it is in `*old`, `width` bytes, after quiet().
  template <group G>
  [[nodiscard]] CW_FN status atomic_fetch_nbi(const G& g, amo op, int width, int pe,
                                              remote_address at, std::uint64_t operand,
                                              std::uint64_t comparand, void* old) noexcept;

  /// What this queue put at a rank before is visible there before what it puts afterwards.
  template <group G>
  [[nodiscard]] CW_FN status fence(const G& g) noexcept;
  /// Everything this queue was asked before is done: puts visible remotely, gets arrived.
  template <group G>
  [[nodiscard]] CW_FN status quiet(const G& g) noexcept;

  // ---- collectives of all ranks, where the engine has them; else unsupported

  template <group G>
  [[nodiscard]] CW_FN status barrier(const G& g) noexcept;
  /// `bytes` of `root`'s `from` to everybody's `to`.
  template <group G>
  [[nodiscard]] CW_FN status broadcast(const G& g, int root, remote_address to, remote_address from,
                                       std::size_t bytes) noexcept;
  template <group G>
  [[nodiscard]] CW_FN status reduce(const G& g, reduction op, element type, remote_address to,
                                    remote_address from, std::size_t count) noexcept;

 private:
  struct answer {
    status outcome;
    std::uint64_t value;
  };
  struct held_slot {
    std::uint64_t lap = 0;
    std::uint32_t slot = 0;
    std::uint32_t waited_ns = 0;
  };
  /// Whether everything the thread wrote before is visible to who reads the command.
  enum class publish { ordered, unordered };

  template <group G>
  [[nodiscard]] CW_FN answer issue(const G& g, const proxy_command& c, publish how) noexcept;
  [[nodiscard]] CW_FN answer issue_alone(const proxy_command& c, publish how) noexcept;
  /// Takes a slot for it, `mine`.
  [[nodiscard]] CW_FN answer issue_at(held_slot& mine, const proxy_command& c,
                                      publish how) noexcept;
  [[nodiscard]] CW_FN status take_slot(held_slot& mine, deadline& by) noexcept;
  [[nodiscard]] CW_FN bool is_free(std::uint64_t ticket) noexcept;
  CW_FN void write(const proxy_command& c, const held_slot& mine, publish how) noexcept;
  [[nodiscard]] CW_FN answer wait_reply(const held_slot& mine, deadline& by) noexcept;

  proxy_entry* entries_ = nullptr;
  proxy_reply* replies_ = nullptr;
  proxy_head* head_ = nullptr;
  proxy_tail* tail_ = nullptr;
  std::uint64_t* seats_ = nullptr;
  std::uint32_t depth_ = 0;
  std::uint32_t shift_ = 0;
  std::uint32_t index_ = 0;
  crosswarp::proxy* host_ = nullptr;
  const rdma_path* rdma_ = nullptr;
  wait_limits limits_;
  // What this object remembers, so that a queue used by one thread costs one look at it.
  std::uint64_t next_ = 0;      // ticket to try: right as long as nobody else uses the queue
  std::uint64_t consumed_ = 0;  // as last seen
  std::uint32_t own_ = 0;       // of the last tickets, how many in a row were this object's
};

/// The queues of a rank.
class proxy {
 public:
  proxy() = default;
  CW_FN proxy(const proxy_memory& m, const wait_limits& limits) noexcept
      : memory_(m), limits_(limits) {}
  [[nodiscard]] CW_FN int queues() const noexcept { return static_cast<int>(memory_.queues); }
  /// Blocks take the queue of their index; beyond the number of queues they share. In a world that
  /// has no proxy (see crosswarp::world::has_proxy()) its operations return unreachable.
  [[nodiscard]] CW_FN proxy_queue queue(int index) const noexcept {
    if (memory_.queues == 0) return {};
    return {memory_, static_cast<std::uint32_t>(index) % memory_.queues, limits_};
  }

 private:
  proxy_memory memory_;
  wait_limits limits_;
};

}  // namespace crosswarp::device

#include "crosswarp/device/impl/proxy_impl.hpp"
