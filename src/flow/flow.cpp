#include "crosswarp/flow.hpp"

#include <unistd.h>

#include <random>

#include "crosswarp/error.hpp"
#include "crosswarp/world.hpp"
#include "flow/core.hpp"
#include "world/state.hpp"

namespace crosswarp::flow {

using impl::core;
using impl::waits;

const char* to_string(transport t) noexcept {
  switch (t) {
    case transport::automatic:
      return "automatic";
    case transport::peer:
      return "peer transfer";
    case transport::direct:
      return "direct access";
    case transport::indirect:
      return "indirect, through host memory";
  }
  return "unknown";
}

// ---- completions

completion::completion(stream& s) : kind_(s.device().kind()) {
  events_.push_back(std::make_shared<event>(s.device()));
  s.record(*events_.front());
}

bool completion::ready() const {
  for (const auto& e : events_) {
    if (!e->ready()) return false;
  }
  return true;
}

void completion::sync() const {
  if (ready()) return;
  const auto is_ready = [this] { return ready(); };
  if (limits_) {
    limits_->await("sync", is_ready);
  } else {
    waits(device::wait_limits{}, nullptr).await("sync", is_ready);
  }
}

void completion::wait(stream& s) const {
  for (const auto& e : events_) s.wait(*e);
}

// ---- links and routers

namespace {

error wrong_end(const char* call, const char* why) {
  return {errc::invalid_argument, call, why};
}

const impl::port_pair& sending(const impl::port_pair& p, const char* call) {
  if (!p.sender.of) throw wrong_end(call, "this link comes from a router, which is who sends");
  return p;
}

const impl::port_pair& receiving(const impl::port_pair& p, const char* call) {
  if (!p.receiver.of) {
    throw wrong_end(call, "this link leads to a router: receive on a link that comes from it");
  }
  return p;
}

}  // namespace

future<completion> link::send(const segment& s, const completion& ready) {
  (void)sending(*ports_, "send");
  return ports_->send(s, ready);
}
void link::shutdown() {
  const auto& from = sending(*ports_, "shutdown").sender;
  from.of->shutdown(from.index);
}
std::span<std::byte> link::send_buffer(stream& s) {
  (void)sending(*ports_, "send_buffer");
  return ports_->send_buffer(s);
}
future<pending_segment> link::receive() {
  const auto& at = receiving(*ports_, "receive").receiver;
  return at.of->receive(at.index);
}
void link::release(const pending_segment& s, const completion& used) {
  const auto& at = receiving(*ports_, "release").receiver;
  at.of->release(at.index, s, used);
}
std::size_t link::packet_bytes() const noexcept {
  return ports_->packet_bytes;
}
std::uint64_t link::bytes_moved() const {
  return ports_->bytes_moved();
}
std::string link::explain(int source) const {
  const auto& at = receiving(*ports_, "explain").receiver;
  return at.of->explain_way(source, at.index);
}

std::string router::explain() const {
  return core_->rules().explain();
}

// ---- contexts

namespace {

/// Not equal in two processes, whatever they were forked from.
struct process_mark {
  std::uint64_t pid = 0;
  std::uint64_t chance = 0;
  friend bool operator==(const process_mark&, const process_mark&) = default;
};

process_mark this_process() {
  static const std::uint64_t chance = std::random_device{}() * 0x1'0000'0001ULL;
  return {static_cast<std::uint64_t>(getpid()), chance};
}

/// Of rank 0, for all ranks. Collective.
std::shared_ptr<core> shared_core(world& w) {
  struct card {
    process_mark process;
    const std::shared_ptr<core>* graph;
    device_kind kind;
    int ordinal;
  };
  const device_ref mine = w.options().device;
  std::shared_ptr<core> graph;
  const auto cards = w.allgather(card{this_process(), &graph, mine.kind(), mine.ordinal()});
  std::vector<device_ref> devices;
  for (int r = 0; r < w.size(); ++r) {
    const card& c = cards[static_cast<std::size_t>(r)];
    if (!(c.process == this_process())) {
      throw error(errc::not_supported, "flow::context",
                  "rank " + std::to_string(r) +
                      " is another process: between processes kernels have flow::device_link",
                  r);
    }
    devices.push_back(c.kind == device_kind::cpu ? device_ref::cpu() : device_ref::cuda(c.ordinal));
  }
  if (w.rank() == 0) {
    const auto& faults = w.state().faults;
    graph = std::make_shared<core>(std::move(devices),
                                   std::make_shared<waits>(w.device().limits, faults));
  }
  w.barrier();  // it is made
  if (w.rank() != 0) graph = *cards.front().graph;
  w.barrier();  // all have it: rank 0's variable may go
  return graph;
}

}  // namespace

context::context(const std::vector<device_ref>& devices, const context_options& options)
    : core_(std::make_shared<core>(
          devices, std::make_shared<waits>(
                       device::wait_limits{.timeout_ns =
                                               static_cast<std::uint64_t>(options.timeout.count())},
                       nullptr))) {}
context::context(world& w)
    : core_(shared_core(w)), abort_world_([&w](const std::string& why) { w.abort(why); }) {}
context::~context() = default;
context::context(context&&) noexcept = default;
context& context::operator=(context&&) noexcept = default;

std::vector<endpoint> context::devices() const {
  std::vector<endpoint> all;
  for (std::size_t i = 0; i < core_->devices().size(); ++i) {
    all.emplace_back(endpoint::kind::device, static_cast<int>(i));
  }
  return all;
}

device_ref context::device(endpoint e) const {
  if (e.what() != endpoint::kind::device || e.index() < 0 ||
      e.index() >= static_cast<int>(core_->devices().size())) {
    throw error(errc::invalid_argument, "flow::context", "the endpoint is no device of it");
  }
  return core_->devices()[static_cast<std::size_t>(e.index())];
}

router context::router(int inputs, int outputs, policy p) {
  auto [at, made] = core_->router(made_, inputs, outputs, std::move(p));
  ++made_;
  return {at, std::move(made)};
}

link context::link(endpoint from, endpoint to, std::size_t packet_bytes, int buffers,
                   const link_options& options) {
  auto ports = core_->link(made_, from, to, packet_bytes, buffers, options);
  ++made_;
  return flow::link(std::move(ports));
}

void context::abort(const std::string& why) {
  core_->limits().abort(why);
  if (abort_world_) abort_world_(why);
}

std::string context::to_dot() const {
  return impl::to_dot(core_->drawn());
}

std::string context::to_svg() const {
  return impl::to_svg(core_->drawn());
}

}  // namespace crosswarp::flow
