// Dataflow: endpoints send each other segments over links and through routers.
//
//   flow::context ctx({gpu0, gpu1});
//   flow::router spread = ctx.router(1, 2, flow::any_available());
//   flow::link in = ctx.link(flow::host, spread, packet, 1);
//   flow::link out = ctx.link(spread, ctx.devices()[0], packet, 2);       // double buffered
//   ...
//   in.send(values);                       // a thread of the host
//   in.shutdown();
//   while (true) {                         // another
//     flow::pending_segment s = out.receive().get();
//     if (s.empty()) break;                // all senders have shut down
//     s.wait(stream);                      // the stream waits for the data, the host does not
//     launch(stream, {}, work{}, s.as<int>().data(), s.as<int>().size());
//     out.release(s, stream);              // the buffer is free when the kernel is done
//   }
//
// First the graph is made, then it is used: all links of a router are made before the first send.
// Nothing moves before the receiver has a buffer for it, and no queue is ever too full: a send that
// nobody has a buffer for waits. Every wait ends: at the context's deadline, when it is aborted,
// when the world breaks. Links for kernels that send and receive themselves: flow_link.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "crosswarp/device_ref.hpp"
#include "crosswarp/flow_policy.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp {
class world;
}

namespace crosswarp::flow {

namespace impl {
class core;
class port_pair;
class router_base;

/// What ends a context's waits, besides what they wait for.
class patience {
 public:
  using sleep = std::function<void(std::chrono::nanoseconds)>;
  virtual ~patience() = default;
  /// Returns when ready(); else throws error(timeout, aborted or peer_lost) that names `call`.
  /// `nap`: sleeps as long as it is told, or until it may be ready. `missing`: what a timeout says
  /// was waited for.
  virtual void await(const char* call, const std::function<bool()>& ready, const sleep& nap,
                     const std::function<std::string()>& missing) const = 0;
};

/// Something that is there from a moment on, and that others wait for.
class awaited {
 public:
  std::shared_ptr<const patience> limits;
  const char* call = "";
  /// Called when a wait for it has ended in vain; may be empty.
  std::function<void()> give_up;
  /// What an error says: whose input the bytes go into, of a send; else whose output they come out
  /// of. `end`: the number of that, -1 of a link without a router.
  std::shared_ptr<const std::string> where;
  int end = -1;
  std::size_t bytes = 0;

  [[nodiscard]] bool ready() const noexcept {
    return there_.load(std::memory_order_acquire);  // pairs with tell()
  }
  /// Throws what patience does; and the same at once when it was given up before.
  void await();

 protected:
  void tell();

 private:
  [[nodiscard]] std::string missing() const;
  std::atomic<bool> there_{false};
  std::mutex mutex_;  // who sleeps misses no tell()
  std::condition_variable told_;
  std::exception_ptr given_up_;
};

/// Where one side puts a value and others wait for it.
template <class T>
struct shared_value : awaited {
  std::optional<T> value;

  void set(T v) {
    value.emplace(std::move(v));
    tell();
  }
};
}  // namespace impl

/// Who is at an end of a link: the host, a device of the context, or a router.
class endpoint {
 public:
  enum class kind : std::uint8_t { host, device, router };
  constexpr endpoint(kind k, int index) noexcept : kind_(k), index_(index) {}
  [[nodiscard]] constexpr kind what() const noexcept { return kind_; }
  /// Among those of its kind in its context.
  [[nodiscard]] constexpr int index() const noexcept { return index_; }
  friend bool operator==(const endpoint&, const endpoint&) = default;

 private:
  kind kind_;
  int index_;
};
/// In a world: of rank 0.
inline constexpr endpoint host{endpoint::kind::host, 0};
/// Of any rank of a world.
constexpr endpoint host_of(int rank) noexcept {
  return {endpoint::kind::host, rank};
}

/// What will be there later. Copies wait for the same.
template <class T>
class future {
 public:
  explicit future(std::shared_ptr<impl::shared_value<T>> s) noexcept : state_(std::move(s)) {}
  [[nodiscard]] bool ready() const { return state_->ready(); }
  /// Waits for it. Throws error(timeout), error(aborted), error(peer_lost). A send is withdrawn
  /// then, see link::send().
  [[nodiscard]] T get() const {
    if (!ready()) state_->await();
    return *state_->value;
  }

 private:
  std::shared_ptr<impl::shared_value<T>> state_;
};

/// Points in streams, of all of which somebody may wait. One that is made of nothing has passed.
class completion {
 public:
  completion() = default;
  /// Of what is queued on `s` so far.
  completion(stream& s);  // NOLINT(google-explicit-constructor): a stream says when

  [[nodiscard]] bool ready() const;
  /// Blocks the host until then. Throws error(timeout), error(aborted), error(peer_lost).
  void sync() const;
  /// Work queued on `s` from now on waits; the host does not.
  void wait(stream& s) const;

 private:
  friend class impl::router_base;
  std::vector<std::shared_ptr<event>> events_;
  device_kind kind_ = device_kind::cpu;           // of the streams, where there are events
  std::shared_ptr<const impl::patience> limits_;  // null: the default deadline alone
};

/// A part of what was sent, in a buffer of the receiving link; or the end, which is empty.
/// It is matched when one has it; its bytes are there after wait() or sync(). Of a link that lends,
/// it lies where the sender has it.
class pending_segment {
 public:
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] void* data() const noexcept { return data_; }
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }
  /// Which input of the router it came in by, and what its sender tagged it with.
  [[nodiscard]] int source() const noexcept { return source_; }
  [[nodiscard]] std::uint64_t tag() const noexcept { return tag_; }
  /// Where in the segment that was sent this part begins.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

  /// Work queued on `s` from now on sees the data; the host does not wait.
  void wait(stream& s) const { arrived_.wait(s); }
  /// Blocks the host until the data is there. Throws error(timeout), error(aborted),
  /// error(peer_lost).
  void sync() const { arrived_.sync(); }
  [[nodiscard]] const completion& arrived() const noexcept { return arrived_; }

 private:
  friend class impl::router_base;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;
  int source_ = -1;
  std::uint64_t tag_ = 0;
  const void* from_ = nullptr;  // who gave it
  int slot_ = -1;
  std::uint64_t lap_ = 0;  // of the slot: an old segment is not released twice
  completion arrived_;
};

/// How bytes get from one end to the other.
enum class transport : std::uint8_t {
  automatic,  ///< peer where the devices reach each other, else indirect
  peer,       ///< copies that the host queues
  direct,     ///< a kernel of the receiving device loads and stores
  indirect,   ///< the sender's device pushes into host memory, the receiver's pulls from there
  /// Nobody copies: a packet is the sender's memory, and a buffer only leave to hold one. For ends
  /// that share memory: CPUs and the host, or one GPU. A send's future is then ready when the last
  /// of its packets was released, and its completion passes with what they were released with.
  /// Who writes to a packet writes to the sender's memory, of which others may have packets, too.
  lent,
};
const char* to_string(transport t) noexcept;

struct link_options {
  transport how = transport::automatic;
  std::string name = {};  ///< in drawings
};

/// A way from one end to another. A handle: copies are the same link. Any thread may call, and one
/// at a time is in each call.
class link {
 public:
  /// Sends a segment: in parts, into buffers that receivers have free, as they become free.
  /// The future is ready when all of it has been given out and its copies are queued; the
  /// completion passes when they are done, and only then the source may be written again.
  /// `ready`: when the source may be read; the copies wait for it, the host does not.
  /// An empty segment is done at once, and nobody hears of it.
  /// When the future's get() throws, the rest of the segment is withdrawn: nothing more is given
  /// out, and get() returns to its caller when copies that were queued have ended, or after a
  /// second. Packets that are lent stay with their receivers.
  /// After an abort nothing is given out of any send: from when abort() has returned, or get(),
  /// sync() or send_buffer() has thrown. A call of the world's own, as barrier(), may throw a
  /// moment before that; memory that was made before the context outlives whatever copies from it.
  /// Throws error(invalid_argument) after shutdown(), at the wrong end or rank, and before all
  /// links of the router are made.
  future<completion> send(const segment& s, const completion& ready = {});
  /// Nothing more comes from here. Receivers that no other sender reaches end when what was sent
  /// before has arrived. A second call changes nothing.
  void shutdown();
  /// One of the sender's own `buffers`, of packet_bytes(): filled on `s`, then sent, in one piece
  /// or several. The host waits until all that was sent of it has been given out; `s` until that is
  /// done.
  /// Throws error(invalid_argument) when all of them are out and none was sent.
  std::span<std::byte> send_buffer(stream& s);

  /// The next part, in the order of arrival; the future is ready when it is matched. At the end it
  /// is an empty segment, and so is every later one.
  future<pending_segment> receive();
  /// Gives a part's buffer back: once, for each that is not empty. `used`: when it may be
  /// overwritten; the next copy waits for it, the host does not.
  /// Throws error(invalid_argument) for what this link did not give, or was given back before.
  void release(const pending_segment& s, const completion& used = {});

  [[nodiscard]] std::size_t packet_bytes() const noexcept;
  /// Given out so far, to this link's receiver or from its sender. In a world each rank counts at
  /// its own ends.
  [[nodiscard]] std::uint64_t bytes_moved() const;
  /// How bytes come to this link's receiver from input `source` of its router, and why.
  [[nodiscard]] std::string explain(int source = 0) const;

 private:
  friend class context;
  explicit link(std::shared_ptr<impl::port_pair> p) noexcept : ports_(std::move(p)) {}
  std::shared_ptr<impl::port_pair> ports_;
};

/// Distributes what comes in by its inputs to its outputs, as its policy says. A handle.
class router {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a router is an endpoint
  operator endpoint() const noexcept { return at_; }
  /// Its policy, and why it is as it is.
  [[nodiscard]] std::string explain() const;

 private:
  friend class context;
  router(endpoint at, std::shared_ptr<impl::router_base> core) noexcept
      : at_(at), core_(std::move(core)) {}
  endpoint at_;
  std::shared_ptr<impl::router_base> core_;
};

struct context_options {
  /// After this long a wait gives up.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

/// A dataflow graph and its endpoints.
class context {
 public:
  /// Over devices that this process drives. One that is named several times is several endpoints:
  /// virtual devices. All are of one kind. Throws error(invalid_argument).
  explicit context(const std::vector<device_ref>& devices, const context_options& options = {});
  /// Over a world's ranks: threads, processes, on one machine or several. Each rank has two
  /// endpoints, its device and its host, see host_of(); waits have the world's deadline, and the
  /// world outlives it. Collective, and so are router(), link() and the end: all ranks make the
  /// same graph in the same order, and each uses the ends that are its own. Buffers of links lie in
  /// symmetric memory. Where ranks differ, all are thrown error(asymmetric), with the first
  /// difference. The end waits for the other ranks, at most as long as the world's timeout; then it
  /// aborts the world.
  explicit context(world& w);
  ~context();
  context(context&&) noexcept;
  context& operator=(context&&) noexcept;

  /// All devices; for a world by rank.
  [[nodiscard]] std::vector<endpoint> devices() const;
  [[nodiscard]] device_ref device(endpoint e) const;
  /// Where the hosts are, by rank: for by_topology(). As it was when the context was made.
  [[nodiscard]] const std::vector<machine_spot>& host_spots() const;

  /// Throws error(invalid_argument), for a policy that reaches outputs that there are not; in a
  /// world error(not_supported) for more outputs than a message names.
  flow::router router(int inputs, int outputs, policy p);
  /// `buffers`: packets that the receiver holds, and the sender for send_buffer().
  /// A link from a router takes its next output, a link to it its next input. In a world the
  /// transport follows from the ranks, and is not asked for.
  /// Throws error(invalid_argument), error(out_of_memory).
  flow::link link(endpoint from, endpoint to, std::size_t packet_bytes, int buffers,
                  const link_options& options = {});

  /// Ends all waits, now and from now on, with `aborted`. Any thread. Aborts the world, too.
  void abort(const std::string& why);
  /// The graph in the language of Graphviz, with what went over each link so far.
  [[nodiscard]] std::string to_dot() const;
  /// The same as a picture.
  [[nodiscard]] std::string to_svg() const;

 private:
  std::shared_ptr<impl::core> core_;
  std::function<void(const std::string&)> abort_world_;  // empty: there is none
};

/// From rank to rank, by segments of `bytes` on the path that there is, with what a send costs; see
/// by_topology(). Needs as much symmetric memory for each rank. Collective.
bandwidth_table measure_bandwidth(world& w, std::size_t bytes = 1U << 20U);

}  // namespace crosswarp::flow
