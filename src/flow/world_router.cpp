#include "flow/world_router.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"
#include "flow/world_kernels.hpp"

namespace crosswarp::flow::impl {

// ---- making it

std::shared_ptr<world_router> world_router::make(std::shared_ptr<station> at,
                                                 std::shared_ptr<waits> limits, int home,
                                                 const fan& f, policy p) {
  if (f.outputs > message::max_outputs) {
    throw error(errc::not_supported, "router",
                std::to_string(f.outputs) + " outputs: in a world a router has at most " +
                    std::to_string(message::max_outputs));
  }
  std::shared_ptr<world_router> made(
      new world_router(std::move(at), std::move(limits), home, f, std::move(p)));
  made->number_ = made->station_->add(made);
  return made;
}

world_router::world_router(std::shared_ptr<station> at, std::shared_ptr<waits> limits, int home,
                           const fan& f, policy p)
    : router_base(std::move(limits), at->of().options().device, f, std::move(p)),
      station_(std::move(at)),
      home_(home) {}

int world_router::add_input(const place& /*at*/, int rank) {
  const std::scoped_lock lock(mutex());
  const int index = matcher_.add_input();
  senders_.emplace_back();
  inputs_.push_back(rank);
  for (const int o : matcher_.reach(index)) make_lane(index, o);
  if (is_complete()) tell_ends();
  return index;
}

int world_router::add_output(const receiver& r) {
  if (r.how != transport::automatic) {
    throw error(errc::invalid_argument, "link",
                "in a world the way follows from the ranks: leave the transport automatic");
  }
  constexpr std::size_t alignment = 16;
  const std::size_t stride = (r.packet_bytes + alignment - 1) / alignment * alignment;
  (void)bytes_of(r.packet_bytes, r.buffers);  // judges what rounding may wrap
  const auto& memory = station_->allocate(bytes_of(stride, r.buffers));
  // Not by loads and stores where another path was chosen, though it could be.
  std::byte* const theirs = station_->of().is_mapped(r.rank) ? memory.data(r.rank) : nullptr;
  auto made =
      std::make_unique<output>(output{r, stride, memory.data(), theirs, memory.device().remote()});
  if (r.rank == here()) {
    const world_options& o = station_->of().options();
    if (!r.at && near_.kind() != device_kind::cpu && o.heap_kind == memory_kind::device) {
      made->landing.emplace(near_, bytes_of(stride, r.buffers), memory_kind::pinned);
      made->land.emplace(near_);
    }
    made->in.emplace(made->landing ? made->landing->data() : made->mine, stride, r.buffers);
  } else if (made->theirs == nullptr && !station_->of().has_proxy()) {
    throw error(errc::not_supported, "link",
                "no path leads to rank " + std::to_string(r.rank) + "; `crosswarp info` shows them",
                r.rank);
  }
  const std::scoped_lock lock(mutex());
  const int index = matcher_.add_output(r.packet_bytes, r.buffers);
  outputs_.push_back(std::move(made));
  for (int i = 0; i < static_cast<int>(inputs_.size()); ++i) {
    const auto& to = matcher_.reach(i);
    if (std::find(to.begin(), to.end(), index) != to.end()) make_lane(i, index);
  }
  if (is_complete()) tell_ends();
  return index;
}

void world_router::make_lane(int in, int to) {
  if (to >= static_cast<int>(outputs_.size()) || rank_of(in) != here()) return;
  out(to).lanes.try_emplace(in, near_);
}

// ---- what users call

void world_router::start(const send_order& o, const route& way) {
  station_->post(home_, send_letter(o, way));
}

void world_router::take_back(int input, std::uint64_t id) {
  message m = letter(message::kind::withdraw);
  m.source = input;
  m.id = id;
  station_->post(home_, m);
}

void world_router::shutdown(int index) {
  const std::scoped_lock lock(mutex());
  check_running("shutdown");
  if (!from(index).open) return;
  from(index).open = false;
  message m = letter(message::kind::shutdown);
  m.source = index;
  station_->post(home_, m);
}

future<pending_segment> world_router::receive(int index) {
  limits_->check("receive");
  const std::scoped_lock lock(mutex());
  check_running("receive");
  output& at = out(index);
  return receive_from(*at.in, index, has_ended(at));
}

void world_router::release(int index, const pending_segment& s, const completion& used) {
  check_kind(used, "release");
  const std::scoped_lock lock(mutex());
  check_running("release");
  message m = letter(message::kind::release);
  m.output = index;
  m.slot = out(index).in->give_back(s);
  station_->post_after(used, nullptr, home_, m);
}

// ---- letters

message world_router::letter(message::kind what) const {
  message m;
  m.what = what;
  m.router = number_;
  return m;
}

message world_router::send_letter(const send_order& o, const route& way) const {
  message m = letter(message::kind::send);
  m.source = o.source;
  m.id = o.id;
  m.bytes = o.bytes;
  m.tag = o.tag;
  m.how = static_cast<std::uint8_t>(way.how);
  m.unit = way.unit;
  m.reached = static_cast<std::uint32_t>(way.outputs.size());
  std::transform(way.outputs.begin(), way.outputs.end(), m.outputs.begin(),
                 [](int to) { return static_cast<std::uint16_t>(to); });
  return m;
}

void world_router::handle(const message& m) {
  switch (m.what) {
    case message::kind::send: {
      const auto* first = m.outputs.data();
      matcher_.send({m.id, m.source, m.bytes, m.tag},
                    {static_cast<spread>(m.how), {first, first + m.reached}, m.unit});
      return match();
    }
    case message::kind::shutdown:
      matcher_.shutdown(m.source);
      return tell_ends();
    case message::kind::withdraw:
      matcher_.withdraw(m.source, m.id);
      return match();  // others may have waited behind it
    case message::kind::release:
      matcher_.post(m.output, m.slot);
      return match();
    case message::kind::give:
      return copy(m);
    case message::kind::arrived:
      out(m.output).early.emplace(m.number, m);
      return deliver(out(m.output));
    case message::kind::ended:
      out(m.output).end = m.number;
      return deliver(out(m.output));
  }
}

// ---- at home

void world_router::match() {
  matcher_.match([this](const grant& g) {
    message m = letter(message::kind::give);
    m.source = g.of.source;
    m.id = g.of.id;
    m.tag = g.of.tag;
    m.output = g.output;
    m.slot = g.slot;
    m.offset = g.offset;
    m.bytes = g.bytes;
    m.last = g.last ? 1 : 0;
    m.number = out(g.output).given++;
    station_->post(rank_of(g.of.source), m);
  });
  tell_ends();
}

void world_router::tell_ends() {
  if (here() != home_) return;
  for (int o = 0; o < static_cast<int>(outputs_.size()); ++o) {
    output& to = out(o);
    if (to.told || !matcher_.ended(o)) continue;
    to.told = true;
    message m = letter(message::kind::ended);
    m.output = o;
    m.number = to.given;
    station_->post(to.of.rank, m);
  }
}

// ---- at a sender

void world_router::copy(const message& give) {
  // Senders that heard why have left, and taken their memory along.
  if (!station_->copies()) return;
  const auto it = sends_.find(give.id);
  message m = give;
  m.what = message::kind::arrived;
  output& to = out(give.output);
  if (it == sends_.end()) {  // withdrawn: the packet that its receiver counts on is empty
    m.bytes = 0;
    return station_->post(to.of.rank, m);
  }
  sending& s = it->second;
  const auto done = queue_copy_of(give, s);
  s.copies[give.output] = done;
  station_->post_after(after({done}), to.lanes.at(give.source).failed.data(), to.of.rank, m);
  s.given = give.last != 0;
  complete_if_done(give.id);
}

std::shared_ptr<event> world_router::queue_copy_of(const message& give, const sending& s) {
  output& to = out(give.output);
  lane_out& lane = to.lanes.at(give.source);
  const std::size_t at = static_cast<std::size_t>(give.slot) * to.stride;
  std::byte* const into = (to.theirs != nullptr ? to.theirs : to.mine) + at;
  s.ready.wait(lane.by);
  lane.by.copy(into, static_cast<const std::byte*>(s.what.data) + give.offset, give.bytes);
  if (to.theirs == nullptr) {
    // The image is free again when the packet is visible at the receiver, so before the slot is.
    queue_put(lane.by, station_->of().device().proxy, to.of.rank,
              {to.remote.offset + at, to.remote.region}, into, give.bytes, lane.failed.data());
  }
  auto done = std::make_shared<event>(near_);
  lane.by.record(*done);
  return done;
}

// ---- at a receiver

void world_router::deliver(output& to) {
  for (auto it = to.early.find(to.next); it != to.early.end(); it = to.early.find(to.next)) {
    const message& m = it->second;
    completion arrived;
    if (m.bytes == 0) {
      give_back_unused(m);
      to.early.erase(it);
      ++to.next;
      continue;
    }
    if (to.landing) {
      const std::size_t at = static_cast<std::size_t>(m.slot) * to.stride;
      to.land->copy(to.landing->data() + at, to.mine + at, m.bytes);
      auto done = std::make_shared<event>(near_);
      to.land->record(*done);
      arrived = after({done});
    }
    const send_order of{m.id, m.source, m.bytes, m.tag};
    to.in->deliver({of, m.output, m.slot, m.offset, m.bytes, m.last != 0}, std::move(arrived));
    to.early.erase(it);
    ++to.next;
  }
  if (has_ended(to)) to.in->end();
}

/// Its sender has withdrawn what was to come in this buffer.
void world_router::give_back_unused(const message& arrived) {
  message m = letter(message::kind::release);
  m.output = arrived.output;
  m.slot = arrived.slot;
  station_->post(home_, m);
}

// ---- the end, and looking at it

void world_router::finish() {
  for (const auto& o : outputs_) {
    for (auto& [source, lane] : o->lanes) lane.by.sync();
    if (o->land) o->land->sync();
  }
}

std::uint64_t world_router::received_bytes(int index) const {
  const std::scoped_lock lock(mutex());
  const auto& at = outputs_[static_cast<std::size_t>(index)]->in;
  return at ? at->bytes() : 0;
}

std::string world_router::explain_way(int source, int index) const {
  const std::scoped_lock lock(mutex());
  const int from = inputs_.at(static_cast<std::size_t>(source));
  const int to = outputs_[static_cast<std::size_t>(index)]->of.rank;
  return "rank " + std::to_string(from) + " copies to rank " + std::to_string(to) + " by " +
         station_->of().path_to(from) + ", as rank " + std::to_string(home_) + " says";
}

}  // namespace crosswarp::flow::impl
