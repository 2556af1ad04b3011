#include "flow/router_core.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {

// ---- making it

router_core::output::output(const receiver& made_of, device_ref near)
    : of(made_of),
      memory(made_of.at ? *made_of.at : near, bytes_of(made_of.packet_bytes, made_of.buffers),
             made_of.at ? memory_kind::device : memory_kind::pinned),
      in(memory.data(), made_of.packet_bytes, made_of.buffers),
      free(static_cast<std::size_t>(made_of.buffers)) {}

int router_core::add_input(const place& at, int /*rank*/) {
  const std::scoped_lock lock(mutex_);
  const int index = matcher_.add_input();
  senders_.emplace_back();
  inputs_.push_back(at);
  for (const int o : matcher_.reach(index)) make_lane(index, o);
  return index;
}

int router_core::add_output(const receiver& r) {
  const std::scoped_lock lock(mutex_);
  auto made = std::make_unique<output>(r, near_);
  const int index = matcher_.add_output(r.packet_bytes, r.buffers);
  outputs_.push_back(std::move(made));
  for (int i = 0; i < static_cast<int>(inputs_.size()); ++i) {
    const auto& to = matcher_.reach(i);
    if (std::find(to.begin(), to.end(), index) != to.end()) make_lane(i, index);
  }
  return index;
}

void router_core::make_lane(int in, int out) {
  if (out >= static_cast<int>(outputs_.size())) return;
  output& o = at(out);
  o.lanes.emplace(in, std::make_unique<lane>(inputs_[static_cast<std::size_t>(in)], o.of.at, near_,
                                             o.of.how, o.of.packet_bytes));
}

// ---- sending

void router_core::start(const send_order& o, const route& way) {
  matcher_.send(o, way);
  match();
}

void router_core::shutdown(int index) {
  const std::scoped_lock lock(mutex_);
  from(index).open = false;
  matcher_.shutdown(index);
  end_receives();
}

// ---- receiving

future<pending_segment> router_core::receive(int index) {
  limits_->check("receive");
  const std::scoped_lock lock(mutex_);
  return at(index).in.receive(limits_, matcher_.ended(index));
}

void router_core::release(int index, const pending_segment& s, const completion& used) {
  check_kind(used, "release");
  const std::scoped_lock lock(mutex_);
  output& to = at(index);
  const int slot = to.in.give_back(s);
  to.free[static_cast<std::size_t>(slot)] = used;
  matcher_.post(index, slot);
  match();
}

// ---- matching, with the lock held

void router_core::match() {
  try {
    matcher_.match([this](const grant& g) { give(g); });
  } catch (const std::exception& e) {
    // Half of something is queued: nobody can go on, so all hear of it.
    limits_->abort(std::string("a copy could not be queued: ") + e.what());
    throw;
  }
  end_receives();
}

void router_core::give(const grant& g) {
  output& to = at(g.output);
  sending& s = sends_.find(g.of.id)->second;
  lane& by = *to.lanes.at(g.of.source);
  const auto done = by.copy(to.in.at(g.slot), static_cast<const std::byte*>(s.what.data) + g.offset,
                            g.bytes, s.ready, to.free[static_cast<std::size_t>(g.slot)]);
  s.copies[g.output] = done;
  if (g.last) complete(g.of.id);
  to.in.deliver(g, after({done}));
}

void router_core::end_receives() {
  for (int o = 0; o < static_cast<int>(outputs_.size()); ++o) {
    if (matcher_.ended(o)) at(o).in.end();
  }
}

// ---- looking at it

std::uint64_t router_core::received_bytes(int index) const {
  const std::scoped_lock lock(mutex_);
  return at(index).in.bytes();
}

std::string router_core::explain_way(int in, int out) const {
  const std::scoped_lock lock(mutex_);
  const auto& lanes = at(out).lanes;
  const auto it = lanes.find(in);
  if (it == lanes.end()) return "no way from input " + std::to_string(in);
  return it->second->explain();
}

}  // namespace crosswarp::flow::impl
