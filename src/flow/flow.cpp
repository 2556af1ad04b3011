#include "crosswarp/flow.hpp"

#include <thread>

#include "crosswarp/error.hpp"
#include "crosswarp/world.hpp"
#include "flow/core.hpp"
#include "flow/world_core.hpp"

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
    case transport::lent:
      return "lent, in the sender's memory";
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
  // Events tell nobody.
  constexpr int patient = 200;
  const auto nap = [looks = 0](std::chrono::nanoseconds) mutable {
    if (++looks < patient) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  const auto missing = [] {
    return std::string("what was queued on a stream has not passed: does that stream wait for ") +
           "something that nobody does?";
  };
  if (limits_) {
    limits_->await("sync", is_ready, nap, missing);
  } else {
    waits(device::wait_limits{}, nullptr, kind_ == device_kind::cpu)
        .await("sync", is_ready, nap, missing);
  }
}

void completion::wait(stream& s) const {
  for (const auto& e : events_) s.wait(*e);
}

// ---- links and routers

namespace {

error wrong_end(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

const impl::port_pair::port& at_home(const impl::port_pair& p, const impl::port_pair::port& end,
                                     const char* call) {
  if (end.rank == p.here) return end;
  throw wrong_end(call, "this end of the link is rank " + std::to_string(end.rank) +
                            "'s to use, and this is rank " + std::to_string(p.here));
}

const impl::port_pair::port& sending(const impl::port_pair& p, const char* call) {
  if (!p.sender.of) throw wrong_end(call, "this link comes from a router, which is who sends");
  return at_home(p, p.sender, call);
}

const impl::port_pair::port& receiving(const impl::port_pair& p, const char* call) {
  if (!p.receiver.of) {
    throw wrong_end(call, "this link leads to a router: receive on a link that comes from it");
  }
  return at_home(p, p.receiver, call);
}

}  // namespace

future<completion> link::send(const segment& s, const completion& ready) {
  (void)sending(*ports_, "send");
  return ports_->send(s, ready);
}
void link::shutdown() {
  const auto& from = sending(*ports_, "shutdown");
  from.of->shutdown(from.index);
}
std::span<std::byte> link::send_buffer(stream& s) {
  (void)sending(*ports_, "send_buffer");
  return ports_->send_buffer(s);
}
future<pending_segment> link::receive() {
  const auto& at = receiving(*ports_, "receive");
  return at.of->receive(at.index);
}
void link::release(const pending_segment& s, const completion& used) {
  const auto& at = receiving(*ports_, "release");
  at.of->release(at.index, s, used);
}
std::size_t link::packet_bytes() const noexcept {
  return ports_->packet_bytes;
}
std::uint64_t link::bytes_moved() const {
  return ports_->bytes_moved();
}
std::string link::explain(int source) const {
  const auto& at = receiving(*ports_, "explain");
  return at.of->explain_way(source, at.index);
}

std::string router::explain() const {
  return core_->rules().explain();
}

// ---- contexts

context::context(const std::vector<device_ref>& devices, const context_options& options)
    : core_(std::make_shared<core>(
          devices, std::vector{spot_here()},
          std::make_shared<waits>(
              device::wait_limits{.timeout_ns =
                                      static_cast<std::uint64_t>(options.timeout.count())},
              nullptr, !devices.empty() && devices[0].kind() == device_kind::cpu))) {}
context::context(world& w)
    : core_(impl::make_world_core(w)),
      abort_world_([&w](const std::string& why) { w.abort(why); }) {}
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

const std::vector<machine_spot>& context::host_spots() const {
  return core_->spots();
}

router context::router(int inputs, int outputs, policy p) {
  auto [at, made] = core_->router(inputs, outputs, std::move(p));
  return {at, std::move(made)};
}

link context::link(endpoint from, endpoint to, std::size_t packet_bytes, int buffers,
                   const link_options& options) {
  auto ports = core_->link(from, to, packet_bytes, buffers, options);
  return flow::link(std::move(ports));
}

void context::abort(const std::string& why) {
  core_->abort(why);
  if (abort_world_) abort_world_(why);
}

std::string context::to_dot() const {
  return impl::to_dot(core_->drawn());
}

std::string context::to_svg() const {
  return impl::to_svg(core_->drawn());
}

}  // namespace crosswarp::flow
