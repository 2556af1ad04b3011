#include "crosswarp/rdma.hpp"

#include <atomic>
#include <bit>
#include <limits>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "exec/backends.hpp"
#include "transports/verbs/backend.hpp"

namespace crosswarp::rdma {

namespace mlx5 = device::mlx5;

const char* to_string(endpoint_state s) noexcept {
  switch (s) {
    case endpoint_state::made:
      return "made";
    case endpoint_state::ready:
      return "ready";
    case endpoint_state::failed:
      return "failed";
  }
  return "unknown";
}

// ---- devices

namespace {

std::shared_ptr<verbs::fabric> fabric_of(backend b, const soft_options& soft) {
  switch (b) {
    case backend::soft:
      return verbs::soft_fabric(soft);
    case backend::verbs:
      return verbs::verbs_fabric();
    case backend::mlx5:
      return verbs::mlx5_fabric();
  }
  throw error(errc::invalid_argument, "rdma context", "there is no such backend");
}

}  // namespace

context::context(backend b, const soft_options& soft) : fabric_(fabric_of(b, soft)) {}

device_list context::devices() const {
  device_list all;
  for (auto& a : fabric_->adapters()) all.push_back(adapter(a, fabric_));
  return all;
}

const std::string& adapter::name() const noexcept {
  return adapter_->name();
}
int adapter::ports() const noexcept {
  return adapter_->ports();
}
bool adapter::is_active(int port) const {
  return adapter_->is_active(port);
}
device_context adapter::open(device_ref kernels) const {
  return {adapter_, fabric_, kernels};
}
void adapter::set_link(bool up) const {
  adapter_->set_link(up);
}

std::vector<active_port> active_ports(const device_list& devices) {
  std::vector<active_port> all;
  for (const adapter& a : devices) {
    for (int port = 1; port <= a.ports(); ++port) {
      if (a.is_active(port)) all.push_back({a, port});
    }
  }
  return all;
}

// ---- options, and memory of queues

namespace {

constexpr int least_depth = 4;

void check_depth(const char* what, int depth) {
  if (depth < least_depth || depth > static_cast<int>(mlx5::most_blocks) ||
      !std::has_single_bit(static_cast<unsigned>(depth))) {
    throw error(errc::invalid_argument, "rdma endpoint",
                std::string(what) + " " + std::to_string(depth) + ": a power of two from " +
                    std::to_string(least_depth) + " to " + std::to_string(mlx5::most_blocks));
  }
}

void check_sge(int sge) {
  if (sge < 1 || sge > 16) {
    throw error(errc::invalid_argument, "rdma endpoint",
                "sge " + std::to_string(sge) + ": from 1 to 16");
  }
}

endpoint_options checked(endpoint_options o, verbs::adapter& a) {
  check_depth("send_depth", o.send_depth);
  if (o.receives == nullptr) check_depth("receive_depth", o.receive_depth);
  // Twice as many as can be under way: some were read whose places are not given back yet.
  if (o.completions == 0) o.completions = 2 * o.send_depth;
  if (o.completions < 2 || !std::has_single_bit(static_cast<unsigned>(o.completions)) ||
      o.completions > 2 * static_cast<int>(mlx5::most_blocks)) {
    throw error(
        errc::invalid_argument, "rdma endpoint",
        "completions " + std::to_string(o.completions) + ": a power of two from 2 to 65536");
  }
  if (o.inline_bytes < 0 || o.inline_bytes > 512) {
    throw error(errc::invalid_argument, "rdma endpoint",
                "inline_bytes " + std::to_string(o.inline_bytes) + ": from 0 to 512");
  }
  check_sge(o.sge);
  if (o.retries < 0 || o.not_ready_retries < 0 || o.retry_after.count() < 0 ||
      o.not_ready_after.count() < 0) {
    throw error(errc::invalid_argument, "rdma endpoint", "a number of retries is negative");
  }
  if (o.retry_after.count() == 0) o.retry_after = a.retry_after();
  if (o.port < 1 || o.port > a.ports()) {
    throw error(errc::invalid_argument, "rdma endpoint",
                "port " + std::to_string(o.port) + ": " + a.name() + " has 1 to " +
                    std::to_string(a.ports()));
  }
  return o;
}

std::size_t count(int n) {
  return static_cast<std::size_t>(n);
}

/// Adapters want entries of a power of two.
std::uint32_t receive_pieces(int sge) {
  return std::bit_ceil(static_cast<std::uint32_t>(sge));
}
std::uint32_t shared_pieces(int sge) {
  return std::bit_ceil(static_cast<std::uint32_t>(sge) + 1) - 1;  // one is the link
}

std::size_t receive_bytes(const endpoint_options& o) {
  static_assert(least_depth * sizeof(mlx5::data_segment) % mlx5::block_bytes == 0);
  if (o.receives != nullptr) return 0;
  return count(o.receive_depth) * receive_pieces(o.sge) * sizeof(mlx5::data_segment);
}

/// A completion queue shows that nothing is in it yet.
void clear(buffer<mlx5::cqe64>& b) {
  std::vector<mlx5::cqe64> unused(b.size());
  for (auto& e : unused) {
    for (auto& w : e.words) w = ~std::uint64_t{0};
  }
  static_assert(mlx5::cqe_unused == 0xff);
  b.write(unused);
}
template <class T>
void clear(buffer<T>& b) {
  b.write(std::vector<T>(b.size()));
}

}  // namespace

// ---- shared receives

struct shared_receive_queue::state_type {
  state_type(std::shared_ptr<verbs::adapter> a, std::shared_ptr<verbs::fabric> f, device_ref d,
             const shared_receive_queue_options& o)
      : fabric(std::move(f)),
        adapter(std::move(a)),
        entries(d, count(o.depth) * (shared_pieces(o.sge) + 1), memory_kind::pinned),
        record(d, 1, memory_kind::pinned),
        taken(d, count(o.depth), memory_kind::pinned),
        posts(d, 1),
        ends(d, count(o.depth)) {
    clear(record);
    clear(taken);
    clear(posts);
    clear(ends);
    view.queue = {entries.data(), record.data(), shared_pieces(o.sge)};
    clear(entries);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      view.queue.link_at(i).next =
          mlx5::swapped(static_cast<std::uint16_t>((i + 1) & (taken.size() - 1)));
    }
    view.sge = static_cast<std::uint32_t>(o.sge);
    view.posts = {posts.data(), ends.data(), static_cast<std::uint32_t>(o.depth)};
    view.taken = taken.data();
    made = adapter->make_shared_receives({d, view.queue, view.posts.depth, o.sge});
  }

  /// What nobody read of an endpoint's completions, which is gone: those places are free again, as
  /// if they had been.
  void give_back(const device::rdma::mlx5_provider::completion_queue& unread) const {
    using provider = device::rdma::mlx5_provider;
    provider::found f;
    std::uint64_t index = mlx5::swapped(unread.record->counter[mlx5::cq_record::consumer_index]);
    for (; provider::look(unread, index, 0, f); ++index) {
      const auto place = mlx5::cqe_field<std::uint16_t>(f.last_word, mlx5::cqe_offset::wqe_counter);
      std::atomic_ref(view.taken[place & (view.posts.depth - 1)])
          .store(1, std::memory_order_release);  // pairs with collect_taken()
    }
  }

  std::shared_ptr<verbs::fabric> fabric;
  std::shared_ptr<verbs::adapter> adapter;
  buffer<mlx5::next_segment> entries;
  buffer<mlx5::qp_record> record;
  buffer<std::uint64_t> taken;
  buffer<device::rdma::queue_state> posts;
  buffer<std::uint64_t> ends;
  device::rdma::shared_receive_queue::parts view;
  std::unique_ptr<verbs::shared_receives> made;  // last: ends before the queue does
};

shared_receive_queue::shared_receive_queue(std::shared_ptr<state_type> s) noexcept
    : state_(std::move(s)) {}
shared_receive_queue::~shared_receive_queue() = default;
shared_receive_queue::shared_receive_queue(shared_receive_queue&&) noexcept = default;

device::rdma::shared_receive_queue shared_receive_queue::device(
    const device::wait_limits& limits) const noexcept {
  auto parts = state_->view;
  parts.limits = limits;
  return device::rdma::shared_receive_queue(parts);
}

shared_receive_queue device_context::make_shared_receive_queue(
    const shared_receive_queue_options& options) const {
  check_depth("depth of a shared receive queue", options.depth);
  check_sge(options.sge);
  return shared_receive_queue(
      std::make_shared<shared_receive_queue::state_type>(adapter_, fabric_, kernels_, options));
}

// ---- endpoints

/// The queues are in host memory that kernels reach, what kernels share among themselves is in the
/// device's own.
struct endpoint::state_type {
  state_type(std::shared_ptr<verbs::adapter> a, std::shared_ptr<verbs::fabric> f, device_ref d,
             const endpoint_options& o)
      : fabric(std::move(f)),
        adapter(std::move(a)),
        options(o),
        shared(o.receives != nullptr ? o.receives->state_ : nullptr),
        work(d, receive_bytes(o) + count(o.send_depth) * mlx5::block_bytes, memory_kind::pinned),
        sent(d, count(o.completions), memory_kind::pinned),
        received(d, 2 * receives(), memory_kind::pinned),
        record(d, 1, memory_kind::pinned),
        cq_records(d, 2, memory_kind::pinned),
        events(d, 1, memory_kind::pinned),
        queues(d, 2),
        readers(d, 2),
        send_ends(d, count(o.send_depth)),
        receive_ends(d, receives()) {
    if (shared != nullptr && (shared->adapter != adapter || shared->entries.device() != d)) {
      throw error(errc::invalid_argument, "rdma endpoint",
                  "`receives` is of another device; make it by the same device_context");
    }
    start(d);
  }
  ~state_type() { end(); }
  state_type(const state_type&) = delete;
  state_type& operator=(const state_type&) = delete;

  /// Those that may be under way.
  [[nodiscard]] std::size_t receives() const noexcept {
    return shared != nullptr ? shared->taken.size() : count(options.receive_depth);
  }

  /// Who posts hears that it has failed.
  void refuse_posts() {
    device::rdma::queue_state failed{};
    failed.fault = static_cast<std::uint64_t>(mlx5::syndrome::flushed);
    queues.write(std::vector<device::rdma::queue_state>(queues.size(), failed));
  }

  void end() noexcept {
    const bool was_there = pair != nullptr;
    pair.reset();
    // The doorbell may be another's by now: who rings all the same writes into a queue that nobody
    // reads. It is cleared before the next pair.
    view.queues.doorbell = reinterpret_cast<std::uint64_t*>(view.queues.send);
    view.nic = nullptr;
    if (was_there && shared != nullptr) shared->give_back(view.queues.received);
  }

  /// Also again: nothing is left of what was.
  void start(device_ref d) {
    end();
    refuse_posts();
    clear(work);
    clear(sent);
    clear(received);
    clear(record);
    clear(cq_records);
    clear(events);
    clear(readers);
    clear(send_ends);
    clear(receive_ends);
    const endpoint_options& o = options;
    verbs::qp_setup s;
    s.kernels = d;
    s.send_depth = static_cast<std::uint32_t>(o.send_depth);
    s.receive_depth = shared != nullptr ? 0 : static_cast<std::uint32_t>(o.receive_depth);
    s.shared = shared != nullptr ? shared->made.get() : nullptr;
    s.events = events.data();
    s.options = o;
    s.queues.send = work.data() + receive_bytes(o);
    s.queues.receive = reinterpret_cast<mlx5::data_segment*>(work.data());
    s.queues.receive_pieces = receive_pieces(o.sge);
    s.queues.record = record.data();
    s.queues.sent = {sent.data(), cq_records.data(), static_cast<std::uint32_t>(sent.size()),
                     o.collapsed};
    s.queues.received = {received.data(), cq_records.data() + 1,
                         static_cast<std::uint32_t>(received.size()), false};
    auto made = adapter->make_queue_pair(s);
    clear(queues);
    pair = std::move(made);
    self = pair->address();
    view.queues = s.queues;
    view.queues.qpn = pair->qpn();
    view.queues.doorbell = pair->doorbell();
    view.nic = pair->nic();
    view.send = {queues.data(), send_ends.data(), s.send_depth};
    view.receive = {queues.data() + 1, receive_ends.data(), s.receive_depth};
    view.sent = readers.data();
    view.received = readers.data() + 1;
    if (shared != nullptr) {
      view.shared = {shared->posts.data(), shared->taken.data(), shared->view.posts.depth};
    }
    view.events = events.data();
    view.sge = static_cast<std::uint32_t>(o.sge);
    view.inline_bytes = static_cast<std::uint32_t>(o.inline_bytes);
  }

  std::shared_ptr<verbs::fabric> fabric;
  std::shared_ptr<verbs::adapter> adapter;
  endpoint_options options;
  std::shared_ptr<shared_receive_queue::state_type> shared;  ///< null: none
  buffer<std::byte> work;  ///< the receive queue, then the send queue
  buffer<mlx5::cqe64> sent;
  buffer<mlx5::cqe64> received;
  buffer<mlx5::qp_record> record;
  buffer<mlx5::cq_record> cq_records;
  buffer<device::rdma::endpoint_events> events;
  buffer<device::rdma::queue_state> queues;
  buffer<device::rdma::cq_state> readers;
  buffer<std::uint64_t> send_ends;
  buffer<std::uint64_t> receive_ends;
  device::rdma::endpoint::parts view;
  endpoint_address self;
  /// Null after a reset() that failed. Last: ends before the queues do.
  std::unique_ptr<verbs::queue_pair> pair;
};

endpoint::endpoint(std::unique_ptr<state_type> s) noexcept : state_(std::move(s)) {}
endpoint::~endpoint() = default;
endpoint::endpoint(endpoint&&) noexcept = default;

std::uint32_t endpoint::qpn() const noexcept {
  return state_->view.queues.qpn;
}
endpoint_address endpoint::address() const noexcept {
  return state_->self;
}
void endpoint::connect(const endpoint_address& peer) {
  if (state_->pair == nullptr) {
    throw error(errc::invalid_argument, "connect", "its reset() failed; try that again");
  }
  state_->pair->connect(peer);
}
void endpoint::reset() {
  state_->start(state_->work.device());
}
endpoint_state endpoint::state() const {
  return state_->pair != nullptr ? state_->pair->state() : endpoint_state::failed;
}
device::rdma::endpoint endpoint::device(const device::wait_limits& limits) const noexcept {
  auto parts = state_->view;
  parts.limits = limits;
  return device::rdma::endpoint(parts);
}

endpoint device_context::make_endpoint(const endpoint_options& options) const {
  return endpoint(std::make_unique<endpoint::state_type>(adapter_, fabric_, kernels_,
                                                         checked(options, *adapter_)));
}

// ---- memory

struct memory_region::state_type {
  std::shared_ptr<verbs::fabric> fabric;
  std::unique_ptr<verbs::registered> registered;
};

memory_region::memory_region(std::unique_ptr<state_type> s, const device::rdma::region& as) noexcept
    : state_(std::move(s)), region_(as) {}
memory_region::~memory_region() = default;
memory_region::memory_region(memory_region&&) noexcept = default;

memory_region device_context::register_everything() const {
  verbs::memory_range m;
  m.bytes = std::numeric_limits<std::size_t>::max();
  m.device = kernels_;
  m.on_host = kernels_.kind() == device_kind::cpu;
  auto s = std::make_unique<memory_region::state_type>();
  s->fabric = fabric_;
  s->registered = adapter_->register_memory(m, access::local_write);
  const device::rdma::region as{0, m.bytes, s->registered->lkey(), s->registered->rkey()};
  return {std::move(s), as};
}

memory_region device_context::register_memory(void* p, std::size_t bytes, access allowed) const {
  if (p == nullptr || bytes == 0) {
    throw error(errc::invalid_argument, "register_memory", "there is no memory to register");
  }
  verbs::memory_range m;
  m.base = static_cast<std::byte*>(p);
  m.bytes = bytes;
  m.device = kernels_;
  m.on_host = exec::on_host(kernels_, p, bytes);
  auto s = std::make_unique<memory_region::state_type>();
  s->fabric = fabric_;
  s->registered = adapter_->register_memory(m, allowed);
  const device::rdma::region as{reinterpret_cast<std::uintptr_t>(p), bytes, s->registered->lkey(),
                                s->registered->rkey()};
  return {std::move(s), as};
}

}  // namespace crosswarp::rdma

crosswarp::rdma::context crosswarp::verbs::context_over(std::shared_ptr<fabric> f) {
  return rdma::context(std::move(f));
}
