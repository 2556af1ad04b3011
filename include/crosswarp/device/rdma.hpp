// RDMA inside kernels: a kernel writes work queue entries, rings the doorbell and reads
// completions.
//
//   status s = ep.write(ctx.block(), mine.local(), theirs.remote(), bytes).outcome;  // in one
//
//   // step by step
//   const posted p = ep.post_write(me, mine.local(), theirs.remote(), bytes);
//   s = ep.update_send_dbr_record(me);
//   s = ep.ring_doorbell(me);
//   completion c;
//   s = poll_until([&] { return ep.poll_cq(me, c); }, ep.limits());  // ends, whatever happens
//   ep.update_cq_dbr_record(me);
//
// An endpoint is a queue pair with its completion queues; crosswarp::rdma::endpoint makes one.
// Several threads, warps and blocks may use one endpoint at a time. Entries of an endpoint are
// carried out in the order in which they were posted.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "crosswarp/device/group.hpp"
#include "crosswarp/device/impl/rdma_hooks.hpp"
#include "crosswarp/device/mlx5.hpp"
#include "crosswarp/device/signal.hpp"

namespace crosswarp::device::rdma {

using mlx5::syndrome;

/// Registered memory of this side, and of the other side.
struct local_memory {
  std::uint64_t address = 0;
  std::uint32_t lkey = 0;
};
struct remote_memory {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

/// A registered range as its owner describes it; plain bytes that may be sent anywhere.
struct region {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;

  [[nodiscard]] CW_FN local_memory local(std::uint64_t offset = 0) const noexcept {
    return {address + offset, lkey};
  }
  [[nodiscard]] CW_FN remote_memory remote(std::uint64_t offset = 0) const noexcept {
    return {address + offset, rkey};
  }
};

enum class operation : std::uint8_t {
  nop,
  write,
  write_imm,
  send,
  send_imm,
  read,
  fetch_add,
  compare_swap,
};

/// A piece of this side's memory.
struct segment {
  local_memory at = {};
  std::uint32_t bytes = 0;
};
/// Pieces that are one message, in this order: up to endpoint_options::sge, none of them empty, and
/// none of 2 GiB or more.
/// Read while it is posted, not afterwards.
struct segment_list {
  const segment* all = nullptr;
  std::uint32_t count = 0;
};

/// One entry to be posted.
struct request {
  operation op = operation::nop;
  std::uint8_t width = 8;  ///< bytes of an atomic's word: 4 or 8
  bool masked = false;     ///< an atomic uses its masks
  bool signalled = true;   ///< it has a completion also when it succeeds
  bool fenced = false;     ///< begins after the reads and atomics before it have ended
  std::uint32_t bytes = 0;
  std::uint32_t imm = 0;
  local_memory local = {};  ///< the source, or where results go
  /// Several of them, in the place of `local` and `bytes`; not of atomics.
  segment_list list = {};
  const void* inline_data = nullptr;  ///< the source when the data travels in the entry
  remote_memory remote = {};
  std::uint64_t operand = 0;  ///< what to add; what to swap in
  std::uint64_t comparand = 0;
  /// Of a fetch_add: a set bit ends a field, carries do not leave it. Of a compare_swap: the bits
  /// that are swapped in.
  std::uint64_t mask = 0;
  std::uint64_t compare_mask = 0;
};

/// What became of a post: how it went, and where the entry is.
struct posted {
  status outcome = status::ok;
  std::uint64_t index = 0;  ///< of its first block; of a batch, of its first entry
  std::uint64_t end = 0;    ///< behind its last block
};

/// The end of an entry. `outcome` is ok, or what status_of() says about the syndrome, or how the
/// wait ended.
struct completion {
  status outcome = status::ok;
  syndrome why = syndrome::none;
  std::uint8_t vendor = 0;  ///< the adapter's own code
  bool has_imm = false;
  std::uint32_t bytes = 0;  ///< received
  std::uint32_t imm = 0;
  std::uint64_t index = 0;  ///< of the entry, see posted
};

/// invalid: a key, an address, a length or an entry is wrong at one of the ends. unreachable: the
/// other end did not answer. timeout: it had no receive posted in time. aborted: an entry before it
/// failed, so that this one was not carried out.
[[nodiscard]] CW_FN constexpr status status_of(syndrome s) noexcept {
  switch (s) {
    case syndrome::none:
      return status::ok;
    case syndrome::flushed:
      return status::aborted;
    case syndrome::retries_exceeded:
      return status::unreachable;
    case syndrome::receiver_not_ready:
      return status::timeout;
    default:
      return status::invalid;
  }
}

/// A thread that alone posts to an endpoint; in the place of a group, for posts that take no locks
/// and no atomic operations. As long as one does, nobody else posts to that endpoint, rings or
/// calls quiet(); who does before or afterwards is ordered with it, by a barrier or by a kernel's
/// end. Completions are anybody's to read. submit() of a `posted` is for its own; what others
/// posted and did not ring for, submit() of its end tells, too.
///   ep.write(sole_producer{}, mine.local(), theirs.remote(), bytes);
class sole_producer : public thread_group {};

// ---- what an endpoint is made of

/// What the threads that post to one work queue share, in the device's memory. Indices count blocks
/// of a send queue, entries of a receive queue, and never wrap.
struct queue_state {
  alignas(line_bytes) std::uint64_t reserved;  ///< given out
  /// Posted without a gap, and in the doorbell record; with `held` it is a lock for itself and
  /// `told`.
  alignas(line_bytes) std::uint64_t ready;
  std::uint64_t told;                      ///< rung for; read without the lock, too
  alignas(line_bytes) std::uint64_t done;  ///< completed, their places are free
  std::uint64_t fault;                     ///< see latch(); 0: none
  std::uint64_t fault_index;

  static constexpr std::uint64_t held = std::uint64_t{1} << 63U;  ///< a bit of `ready`
};

/// What the threads that read one completion queue share, in the device's memory.
struct cq_state {
  alignas(line_bytes) std::uint64_t lock;
  std::uint64_t index;  ///< of the next to be read; of the send queue's read without the lock, too
  /// Of the send queue's: as far as `done` was raised with the lock. Who holds it has this; `done`
  /// itself may come later.
  std::uint64_t done;
  std::uint64_t idle;   ///< looks in a row that found none
  std::uint64_t ended;  ///< 1: none comes any more; of the receives' queue
};

/// The threads' side of a work queue.
struct work_queue {
  queue_state* state = nullptr;
  /// For each place: behind which index the entry ends that begins there; older than the place's
  /// own index until it is posted. So nobody waits for others to post.
  std::uint64_t* ends = nullptr;
  std::uint32_t depth = 0;  ///< a power of two

  [[nodiscard]] CW_FN std::uint64_t& end_of(std::uint64_t index) const noexcept {
    return ends[index & (depth - 1)];
  }
};

/// A receive queue that several endpoints take from, as they see it; see rdma_shared.hpp.
struct shared_places {
  const queue_state* state = nullptr;  ///< null: none
  /// For each place: 1 once its completion was read, until it is given out again. In memory that
  /// the host writes, too: it gives back what nobody read of an endpoint that is gone.
  std::uint64_t* taken = nullptr;
  std::uint32_t depth = 0;
};

/// What the host tells where there is no completion to tell it by; in memory that the device reads.
struct endpoint_events {
  /// A syndrome: nothing completes any more. Stored after the last completion.
  std::uint64_t failed;
  std::uint64_t no_receives;  ///< 1: no receive completes here any more
};

/// mlx5's queues. Another family of adapters has a provider of its own, see queue_provider below.
struct mlx5_provider {
  struct completion_queue {
    mlx5::cqe64* entries = nullptr;
    mlx5::cq_record* record = nullptr;
    std::uint32_t depth = 0;
    bool collapsed = false;  ///< one place for all: the last to end
  };
  struct queues {
    std::byte* send = nullptr;
    mlx5::data_segment* receive = nullptr;
    mlx5::qp_record* record = nullptr;
    std::uint64_t* doorbell = nullptr;
    completion_queue sent;
    completion_queue received;
    std::uint32_t qpn = 0;
    std::uint32_t receive_pieces = 1;  ///< that a receive has room for: a power of two

    [[nodiscard]] CW_FN mlx5::data_segment* receive_at(std::uint64_t place) const noexcept {
      return receive + place * receive_pieces;
    }
  };
  struct shared_queue {
    mlx5::next_segment* entries = nullptr;
    mlx5::qp_record* record = nullptr;
    std::uint32_t pieces = 1;  ///< that a receive has room for: with its link a power of two

    [[nodiscard]] CW_FN mlx5::next_segment& link_at(std::uint64_t place) const noexcept {
      return entries[place * (pieces + 1)];
    }
    [[nodiscard]] CW_FN mlx5::data_segment* receive_at(std::uint64_t place) const noexcept {
      return reinterpret_cast<mlx5::data_segment*>(&link_at(place) + 1);
    }
  };
  /// A completion as it was found.
  struct found {
    std::uint64_t last_word = 0;
    std::uint64_t error_word = 0;
    std::uint64_t imm_word = 0;
    std::uint64_t count_word = 0;
  };

  /// Whether a piece can be so long: adapters take 0 for 2 GiB, and what is more for a flag.
  [[nodiscard]] CW_FN static constexpr bool is_piece(std::uint32_t bytes) noexcept {
    return bytes - 1 < mlx5::longest_piece - 1;
  }
  /// Units, or 0 when there is no such entry. The length of one piece is for is_piece() to judge:
  /// so that the number is often known when it is compiled.
  [[nodiscard]] CW_FN static std::uint32_t units(const request& r) noexcept;
  /// Places of the queue that so many units take.
  [[nodiscard]] CW_FN static constexpr std::uint32_t blocks_of(std::uint32_t units) noexcept {
    return mlx5::blocks_of(units);
  }
  CW_FN static void write_entry(const queues& q, std::uint32_t depth, std::uint64_t index,
                                const request& r, bool signalled) noexcept;
  CW_FN static void write_receive(const queues& q, std::uint32_t depth, std::uint64_t index,
                                  const segment_list& to) noexcept;
  CW_FN static void write_send_record(const queues& q, std::uint64_t index) noexcept;
  CW_FN static void write_receive_record(const queues& q, std::uint64_t index) noexcept;
  CW_FN static void write_shared_receive(const shared_queue& q, std::uint32_t depth,
                                         std::uint64_t index, const segment_list& to) noexcept;
  CW_FN static void write_shared_record(const shared_queue& q, std::uint64_t index) noexcept;
  CW_FN static void ring(const queues& q, std::uint64_t index) noexcept;
  /// The completion at `index`; false when there is none yet. `done`: of the work queue.
  [[nodiscard]] CW_FN static bool look(const completion_queue& q, std::uint64_t index,
                                       std::uint64_t done, found& f) noexcept;
  [[nodiscard]] CW_FN static completion decode(const found& f, std::uint64_t done) noexcept;
  CW_FN static void write_cq_record(const completion_queue& q, std::uint64_t index) noexcept;
  /// The value that a fetching atomic left in memory.
  [[nodiscard]] CW_FN static std::uint64_t fetched(std::uint64_t raw) noexcept { return raw; }
  [[nodiscard]] CW_FN static std::uint32_t fetched(std::uint32_t raw) noexcept {
    return mlx5::swapped(raw);  // adapters write the 4-byte ones in network order
  }
};

/// How a family of adapters wants its entries, records and doorbells, and how it tells of ends.
/// What its calls need besides is in `queues`, and nobody else's to know.
template <class P>
concept queue_provider = requires(const typename P::queues q, const typename P::found f,
                                  typename P::found& into, const request& r,
                                  const segment_list& list, std::uint32_t n, std::uint64_t index) {
  { q.qpn } -> std::convertible_to<std::uint32_t>;
  { q.sent.collapsed } -> std::convertible_to<bool>;
  { P::is_piece(n) } -> std::same_as<bool>;
  { P::units(r) } -> std::same_as<std::uint32_t>;
  { P::blocks_of(n) } -> std::same_as<std::uint32_t>;
  P::write_entry(q, n, index, r, true);
  P::write_receive(q, n, index, list);
  P::write_send_record(q, index);
  P::write_receive_record(q, index);
  P::ring(q, index);
  { P::look(q.sent, index, index, into) } -> std::same_as<bool>;
  { P::look(q.received, index, index, into) } -> std::same_as<bool>;
  { P::decode(f, index) } -> std::same_as<completion>;
  P::write_cq_record(q.sent, index);
  { P::fetched(index) } -> std::same_as<std::uint64_t>;
  { P::fetched(n) } -> std::same_as<std::uint32_t>;
};
static_assert(queue_provider<mlx5_provider>);

namespace impl {
struct place;
}

// ---- the endpoint

/// Got from crosswarp::rdma::endpoint::device(), passed to kernels by value, valid while that
/// lives.
template <class Provider>
class basic_endpoint {
  static_assert(queue_provider<Provider>);

 public:
  using provider = Provider;

  struct parts {
    typename Provider::queues queues;
    work_queue send;
    work_queue receive;
    cq_state* sent = nullptr;
    cq_state* received = nullptr;
    shared_places shared;  ///< where receives are posted, if not to `receive`
    const endpoint_events* events = nullptr;
    verbs::nic_call* nic = nullptr;  ///< for kernels on CPU threads; null: nobody who naps
    std::uint32_t inline_bytes = 0;
    std::uint32_t sge = 1;
    wait_limits limits;
  };

  basic_endpoint() = default;
  CW_FN explicit basic_endpoint(const parts& p) noexcept : p_(p) {}
  [[nodiscard]] CW_FN const wait_limits& limits() const noexcept { return p_.limits; }
  /// The same with other limits.
  [[nodiscard]] CW_FN basic_endpoint within(const wait_limits& limits) const noexcept {
    basic_endpoint other = *this;
    other.p_.limits = limits;
    return other;
  }
  [[nodiscard]] CW_FN const parts& made_of() const noexcept { return p_; }
  /// Its number, by which entries and completions name it.
  [[nodiscard]] CW_FN std::uint32_t qpn() const noexcept { return p_.queues.qpn; }

  // Common to all below.
  // Callers: all threads of `g`, same arguments; they sync first where something is posted.
  // Fails:   invalid (can never be posted: nothing was), timeout, peer_lost, aborted; after a
  //          failed completion what status_of() says, for everything that was not complete.

  // ---- in one call: posts, rings, waits. A write is visible remotely on return, what was read is
  //      here, and sources are free again. (Into a GPU's memory, by an mlx5 adapter: not assured
  //      yet, see docs/design/rdma.md.)

  template <group G>
  [[nodiscard]] CW_FN completion write(const G& g, local_memory from, remote_memory to,
                                       std::uint32_t bytes) const noexcept;
  /// Takes a receive at the other end, which completes with `imm`.
  template <group G>
  [[nodiscard]] CW_FN completion write_imm(const G& g, local_memory from, remote_memory to,
                                           std::uint32_t bytes, std::uint32_t imm) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN completion read(const G& g, local_memory to, remote_memory from,
                                      std::uint32_t bytes) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN completion send(const G& g, local_memory from,
                                      std::uint32_t bytes) const noexcept;
  /// Atomics on a word of 8 bytes, or of 4: `old` gets the value before, to be read by fetched().
  template <group G>
  [[nodiscard]] CW_FN completion fetch_add(const G& g, local_memory old, remote_memory at,
                                           std::uint64_t add, int width = 8) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN completion compare_swap(const G& g, local_memory old, remote_memory at,
                                              std::uint64_t expected, std::uint64_t desired,
                                              int width = 8) const noexcept;
  /// Any request.
  template <group G>
  [[nodiscard]] CW_FN completion perform(const G& g, const request& r) const noexcept;

  /// The value before an atomic, from where it was asked to be put.
  [[nodiscard]] CW_FN static std::uint64_t fetched(const std::uint64_t* old) noexcept {
    return Provider::fetched(*old);
  }
  [[nodiscard]] CW_FN static std::uint32_t fetched(const std::uint32_t* old) noexcept {
    return Provider::fetched(*old);
  }

  // ---- step by step: posts

  // A post writes an entry; nothing happens before the doorbell is rung. When the queue is full it
  // waits, and reads completions meanwhile: at least every fourth part of a queue one entry is
  // signalled, asked for or not, so that there are some.
  // Source: reusable when the entry is complete; of inline data on return.

  template <group G>
  [[nodiscard]] CW_FN posted post_write(const G& g, local_memory from, remote_memory to,
                                        std::uint32_t bytes, bool signalled = true) const noexcept;
  /// The data travels in the entry: up to endpoint_options::inline_bytes.
  template <group G>
  [[nodiscard]] CW_FN posted post_write_inline(const G& g, const void* from, remote_memory to,
                                               std::uint32_t bytes,
                                               bool signalled = true) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted post_write_imm(const G& g, local_memory from, remote_memory to,
                                            std::uint32_t bytes, std::uint32_t imm,
                                            bool signalled = true) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted post_read(const G& g, local_memory to, remote_memory from,
                                       std::uint32_t bytes, bool signalled = true) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted post_send(const G& g, local_memory from, std::uint32_t bytes,
                                       bool signalled = true) const noexcept;
  // The same from several pieces of memory, or into them.

  template <group G>
  [[nodiscard]] CW_FN posted post_write(const G& g, const segment_list& from, remote_memory to,
                                        bool signalled = true) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted post_write_imm(const G& g, const segment_list& from, remote_memory to,
                                            std::uint32_t imm,
                                            bool signalled = true) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted post_read(const G& g, const segment_list& to, remote_memory from,
                                       bool signalled = true) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted post_send(const G& g, const segment_list& from,
                                       bool signalled = true) const noexcept;

  /// Where the next send, or write with immediate data, of the other end goes. Needs no doorbell:
  /// update_recv_dbr_record() tells the adapter. invalid where receives are shared: those are
  /// posted to their queue.
  template <group G>
  [[nodiscard]] CW_FN posted post_recv(const G& g, local_memory to,
                                       std::uint32_t bytes) const noexcept;
  /// The same into several pieces, each filled before the next.
  template <group G>
  [[nodiscard]] CW_FN posted post_recv(const G& g, const segment_list& to) const noexcept;
  /// `r.op` is fetch_add or compare_swap.
  template <group G>
  [[nodiscard]] CW_FN posted post_atomic(const G& g, const request& r) const noexcept;
  /// Any request.
  template <group G>
  [[nodiscard]] CW_FN posted post(const G& g, const request& r) const noexcept;
  /// `count` entries next to each other, written by all threads of `g` at once: `make(i)` is the
  /// i-th, of one block each (inline data up to 28 bytes). At most half of the queue.
  template <group G, class F>
  [[nodiscard]] CW_FN posted post_batch(const G& g, std::uint32_t count, F&& make) const noexcept;

  // ---- step by step: telling the adapter

  /// Everything that was posted before is in the record. Before ring_doorbell().
  template <group G>
  [[nodiscard]] CW_FN status update_send_dbr_record(const G& g) const noexcept;
  /// Everything that is in the record is carried out.
  template <group G>
  [[nodiscard]] CW_FN status ring_doorbell(const G& g) const noexcept;
  /// Both, for what ends at `end`; does nothing when somebody has done it.
  template <group G>
  [[nodiscard]] CW_FN status submit(const G& g, std::uint64_t end) const noexcept;
  /// The same for what was just posted: takes less where all before it was rung for. What the post
  /// said when it failed.
  template <group G>
  [[nodiscard]] CW_FN status submit(const G& g, const posted& p) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN status update_recv_dbr_record(const G& g) const noexcept;

  // ---- step by step: completions

  /// Reads one completion of the send queue; false when there is none now, or another thread is
  /// reading. Everybody's completions come here, to who asks first; it may be of an entry that was
  /// not signalled, see above. wait() and posts read them, too: use one of both ways.
  template <group G>
  [[nodiscard]] CW_FN bool poll_cq(const G& g, completion& c) const noexcept;
  /// The places of the completions that were read may be written again.
  template <group G>
  CW_FN void update_cq_dbr_record(const G& g) const noexcept;

  /// Until that entry is complete, or all of a batch. It was signalled, or a later one was, and the
  /// doorbell rung. Of a batch that fails the completion is that of the first entry that did; of a
  /// post that failed it says so at once.
  template <group G>
  [[nodiscard]] CW_FN completion wait(const G& g, const posted& p) const noexcept;
  /// Rings for what was posted before, by anybody, and waits for it. When one of them failed, the
  /// completion is that of the first.
  template <group G>
  [[nodiscard]] CW_FN completion quiet(const G& g) const noexcept;
  /// Whether everything before index `end` is complete, as far as somebody has looked; see posted.
  [[nodiscard]] CW_FN bool is_complete(std::uint64_t end) const noexcept;
  /// What made the send queue fail; ok when nothing has.
  [[nodiscard]] CW_FN completion first_failure() const noexcept;
  /// The next receive that completed, in the order they were posted; of shared ones those that came
  /// here, in the order they completed. Each goes to one caller.
  template <group G>
  [[nodiscard]] CW_FN completion wait_recv(const G& g) const noexcept;
  /// The same without waiting; false when there is none now.
  template <group G>
  [[nodiscard]] CW_FN bool poll_recv(const G& g, completion& c) const noexcept;

 private:
  [[nodiscard]] CW_FN bool fits(const request& r) const noexcept;
  [[nodiscard]] CW_FN static bool has_length(const request& r) noexcept;
  template <group G, class F>
  [[nodiscard]] CW_FN posted write_entries(const G& g, std::uint32_t count, std::uint32_t blocks,
                                           bool sound, F&& make) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN posted write_entry(const G& g, const request& r) const noexcept;
  template <group G>
  CW_FN void publish(const G& g, const posted& p, std::uint64_t end) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN status publish_and_submit(const G& g, const posted& p) const noexcept;
  [[nodiscard]] CW_FN impl::place wait_for_room(std::uint32_t blocks) const noexcept;
  CW_FN void ring_at(const posted& p) const noexcept;
  [[nodiscard]] CW_FN bool is_told(std::uint64_t ready) const noexcept;
  CW_FN void ring(std::uint64_t ready) const noexcept;
  [[nodiscard]] CW_FN status submit_alone() const noexcept;
  [[nodiscard]] CW_FN status submit_behind(std::uint64_t end) const noexcept;
  [[nodiscard]] CW_FN std::uint64_t ring_for_more(std::uint64_t ready) const noexcept;
  [[nodiscard]] CW_FN std::uint64_t failed_event() const noexcept;
  CW_FN void hear_event(std::uint64_t index, std::uint64_t done) const noexcept;
  struct sent_look {
    std::uint64_t index = 0;  ///< of the completion
    std::uint64_t done = 0;
    bool failed = false;
    bool any = false;  ///< there is one
    typename Provider::found raw{};
  };
  /// No index comes to that.
  static constexpr std::uint64_t everything = std::uint64_t{1} << 62U;
  [[nodiscard]] CW_FN sent_look look_at_sent() const noexcept;
  CW_FN bool drain_sent(completion* one, const sent_look* before,
                        std::uint64_t until) const noexcept;
  [[nodiscard]] CW_FN bool take_sent(const sent_look& l, std::uint64_t until) const noexcept;
  [[nodiscard]] CW_FN bool take_received(completion& c) const noexcept;
  [[nodiscard]] CW_FN bool hears_no_receives() const noexcept;
  [[nodiscard]] CW_FN bool no_more_receives(bool looks) const noexcept;
  [[nodiscard]] CW_FN completion await(std::uint64_t first, std::uint64_t end) const noexcept;
  [[nodiscard]] CW_FN static completion first_failure(const work_queue& q) noexcept;
  [[nodiscard]] CW_FN static completion failure(const work_queue& q, std::uint64_t first,
                                                std::uint64_t end) noexcept;
  [[nodiscard]] CW_FN static completion not_posted(const posted& p) noexcept;

  parts p_;
};

using endpoint = basic_endpoint<mlx5_provider>;

}  // namespace crosswarp::device::rdma

#include "crosswarp/device/impl/rdma_call_impl.hpp"
#include "crosswarp/device/impl/rdma_mlx5.hpp"
#include "crosswarp/device/impl/rdma_post_impl.hpp"
#include "crosswarp/device/impl/rdma_receive_impl.hpp"
#include "crosswarp/device/impl/rdma_sent_impl.hpp"
#include "crosswarp/device/impl/rdma_tell_impl.hpp"
