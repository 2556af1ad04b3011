#include "transports/verbs/mlx5_qp.hpp"

#include <bit>

#include "crosswarp/error.hpp"
#include "transports/verbs/patience.hpp"

namespace crosswarp::verbs {

using mlx5_command::bits;

namespace {

/// The adapter's own words for a command that it did not take.
void check(const bits& answer, const char* what) {
  if (mlx5_command::status(answer) == 0) return;
  throw error(errc::system, what,
              "the adapter says status " + std::to_string(mlx5_command::status(answer)) +
                  ", syndrome " + std::to_string(mlx5_command::syndrome(answer)));
}

std::uint8_t log_of_reads(int most) noexcept {
  return static_cast<std::uint8_t>(std::bit_width(static_cast<unsigned>(reads_at_once(most))) - 1);
}

}  // namespace

// ---- what was made

/// The last to be made goes first; memory when nothing uses it any more.
mlx5_objects::~mlx5_objects() {
  while (!objects_.empty()) {
    control_->destroy(objects_.back());
    objects_.pop_back();
  }
  while (!memory_.empty()) {
    control_->remove_memory(memory_.back());
    memory_.pop_back();
  }
}

mlx5_command::place mlx5_objects::add_memory(void* p, std::size_t bytes) {
  const mlx5_control::memory m = control_->add_memory(p, bytes);
  memory_.push_back(m.it);
  return {m.number, 0};
}

std::uint32_t mlx5_objects::make(const bits& command) {
  bits answer = mlx5_command::answer_of_create();
  objects_.push_back(control_->create(command, answer));
  check(answer, "rdma endpoint");
  return mlx5_command::number(answer);
}

mlx5_shared::mlx5_shared(std::shared_ptr<mlx5_control> c, const shared_setup& s)
    : made_(std::move(c)) {
  mlx5_command::shared_receives q;
  q.domain = made_.control().domain();
  q.depth = s.depth;
  q.entry_bytes = (s.queue.pieces + 1) * device::mlx5::unit_bytes;
  q.entries = made_.add_memory(s.queue.entries, std::size_t{s.depth} * q.entry_bytes);
  q.record = made_.add_memory(s.queue.record, sizeof(*s.queue.record));
  number_ = made_.make(mlx5_command::create(q));
}

// ---- queue pairs

mlx5_pair::mlx5_pair(std::shared_ptr<mlx5_control> c, const qp_setup& s)
    : made_(std::move(c)), setup_(s) {
  mlx5_control& control = made_.control();
  auto& o = setup_.options;
  o.gid_index = control.gid_index(o.port, o.gid_index);
  mlx5_command::queue_pair q;
  q.domain = control.domain();
  q.doorbell_page = control.doorbells().number;
  q.send_depth = s.send_depth;
  q.receive_depth = s.receive_depth;
  if (s.shared != nullptr) q.shared = static_cast<const mlx5_shared*>(s.shared)->number();
  q.sent = make_completions(s.queues.sent);
  q.received = make_completions(s.queues.received);
  q.receive_bytes = s.queues.receive_pieces * device::mlx5::unit_bytes;
  const std::size_t receives = std::size_t{s.receive_depth} * q.receive_bytes;
  q.queues = made_.add_memory(s.queues.receive,
                              receives + s.send_depth * std::size_t{device::mlx5::block_bytes});
  q.record = made_.add_memory(s.queues.record, sizeof(*s.queues.record));
  qpn_ = made_.make(mlx5_command::create(q));
  bits answer = mlx5_command::answer_of_modify();
  control.modify(made_.last(), mlx5_command::to_init(qpn_, o.port), answer);
  check(answer, "rdma endpoint");
  doorbell_ = control.map_doorbell(s.kernels);
  self_ = control.address(qpn_, o);
}

std::uint32_t mlx5_pair::make_completions(const device::rdma::mlx5_provider::completion_queue& q) {
  mlx5_command::completion_queue c;
  c.depth = q.depth;
  c.collapsed = q.collapsed;
  c.doorbell_page = made_.control().doorbells().number;
  c.event_queue = made_.control().event_queue();
  c.entries = made_.add_memory(q.entries, q.depth * sizeof(*q.entries));
  c.record = made_.add_memory(q.record, sizeof(*q.record));
  return made_.make(mlx5_command::create(c));
}

void mlx5_pair::connect(const endpoint_address& peer) {
  check_peer(peer);
  if (state() != endpoint_state::made) {
    throw error(
        errc::invalid_argument, "connect",
        "the endpoint is connected already, or has failed; reset() it, or make another one");
  }
  const auto& o = setup_.options;
  const mlx5_control::port_facts port = made_.control().port(o.port);
  mlx5_command::path p;
  p.port = o.port;
  p.mtu = std::min(self_.mtu, peer.mtu);
  p.remote_qpn = peer.qpn;
  p.first_number = peer.first_number;
  p.not_ready_code = not_ready_code(receiver_patience(o).each);
  p.log_reads = log_of_reads(port.reads_at_once);
  p.ethernet = port.ethernet;
  p.lid = peer.lid;
  p.gid_index = static_cast<std::uint8_t>(o.gid_index);
  p.gid = peer.gid;
  if (p.ethernet) p.mac = made_.control().mac_of(peer, o);
  mlx5_command::sending s;
  s.first_number = self_.first_number;
  s.timeout_code = timeout_code(answer_patience(o).each);
  s.retries = answer_patience(o).count;
  s.not_ready_retries = receiver_patience(o).count;
  s.log_reads = p.log_reads;
  for (const bits& command : {mlx5_command::to_receive(qpn_, p), mlx5_command::to_send(qpn_, s)}) {
    bits answer = mlx5_command::answer_of_modify();
    made_.control().modify(made_.last(), command, answer);
    check(answer, "connect");
  }
}

endpoint_state mlx5_pair::state() {
  bits answer = mlx5_command::answer_of_query();
  made_.control().query(made_.last(), mlx5_command::query(qpn_), answer);
  check(answer, "rdma endpoint");
  switch (mlx5_command::state_of(answer)) {
    case mlx5_command::state::reset:
    case mlx5_command::state::init:
      return endpoint_state::made;
    case mlx5_command::state::sends:
      return endpoint_state::ready;
    default:  // also `receives`: connect() came half way
      return endpoint_state::failed;
  }
}

}  // namespace crosswarp::verbs
