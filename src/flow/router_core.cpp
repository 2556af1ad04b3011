#include "flow/router_core.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"
#include "exec/backends.hpp"

namespace crosswarp::flow::impl {

// ---- making it

router_core::output::output(const receiver& made_of, device_ref near)
    : of(made_of),
      memory(lends() ? std::nullopt
                     : std::make_optional<buffer<std::byte>>(
                           made_of.at ? *made_of.at : near,
                           bytes_of(made_of.packet_bytes, made_of.buffers),
                           made_of.at ? memory_kind::device : memory_kind::pinned)),
      in(memory ? memory->data() : nullptr, made_of.packet_bytes, made_of.buffers),
      free(static_cast<std::size_t>(made_of.buffers)),
      lent_of(static_cast<std::size_t>(made_of.buffers)) {}

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

void router_core::take_back(int input, std::uint64_t id) {
  matcher_.withdraw(input, id);
  match();  // others may have waited behind it
  end_receives();
}

void router_core::check_way(int input, const segment& s, const route& way) const {
  for (const int o : way.outputs) {
    const place& to = at(o).of.at;
    if (!at(o).lends() || !to || to->kind() == device_kind::cpu) continue;
    if (exec::owns(*to, s.data, s.bytes)) continue;
    throw error(errc::invalid_argument, "send",
                "packets of input " + std::to_string(input) + " are lent to " + to->name() +
                    ", which does not know this memory");
  }
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
  return receive_from(at(index).in, index, matcher_.ended(index));
}

void router_core::release(int index, const pending_segment& s, const completion& used) {
  check_kind(used, "release");
  const std::scoped_lock lock(mutex_);
  output& to = at(index);
  const int slot = to.in.give_back(s);
  if (to.lends()) {
    return_lent(to.lent_of[static_cast<std::size_t>(slot)], used);
  } else {
    to.free[static_cast<std::size_t>(slot)] = used;
  }
  matcher_.post(index, slot);
  match();
}

void router_core::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
}

// ---- matching, with the lock held

void router_core::match() {
  // Senders that heard of an abort have left, and taken their memory along.
  if (stopped_ || limits_->is_aborted()) return;
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
  const auto slot = static_cast<std::size_t>(g.slot);
  const std::byte* const from = static_cast<const std::byte*>(s.what.data) + g.offset;
  s.given = g.last;
  if (to.lends()) {
    ++s.lent;
    to.lent_of[slot] = g.of.id;
    to.in.deliver(g, after(events_of(s.ready)), const_cast<std::byte*>(from));
    return;
  }
  lane& by = *to.lanes.at(g.of.source);
  const auto done = by.copy(to.in.at(g.slot), from, g.bytes, s.ready, to.free[slot]);
  s.copies[g.output] = done;
  complete_if_done(g.of.id);
  to.in.deliver(g, after({done}));
}

void router_core::return_lent(std::uint64_t id, const completion& used) {
  const auto it = sends_.find(id);
  if (it == sends_.end()) return;  // withdrawn
  sending& s = it->second;
  --s.lent;
  // Of a long send there are many; most have passed when the last comes.
  constexpr std::size_t many = 64;
  if (s.used.size() >= many) {
    std::erase_if(s.used, [](const auto& e) { return e->ready(); });
  }
  const events& more = events_of(used);
  s.used.insert(s.used.end(), more.begin(), more.end());
  complete_if_done(id);
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
