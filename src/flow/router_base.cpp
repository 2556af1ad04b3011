#include "flow/router_base.hpp"

#include <limits>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {
namespace {

error wrong(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

}  // namespace

std::size_t bytes_of(std::size_t packet_bytes, int buffers) {
  const auto n = static_cast<std::size_t>(buffers);
  if (packet_bytes > std::numeric_limits<std::ptrdiff_t>::max() / n) {
    throw error(errc::out_of_memory, "link",
                std::to_string(n) + " buffers of " + std::to_string(packet_bytes) + " bytes");
  }
  return packet_bytes * n;
}

// ---- the receiver's side of an output

void router_base::inbox::deliver(const grant& g, completion arrived, std::byte* lent) {
  slot& into = slots_[static_cast<std::size_t>(g.slot)];
  into.held = true;
  into.data = lent != nullptr ? lent : at(g.slot);
  pending_segment s;
  s.data_ = into.data;
  s.bytes_ = g.bytes;
  s.offset_ = g.offset;
  s.source_ = g.of.source;
  s.tag_ = g.of.tag;
  s.from_ = this;
  s.slot_ = g.slot;
  s.lap_ = ++into.lap;
  s.arrived_ = std::move(arrived);
  bytes_ += g.bytes;
  if (wanted_.empty()) {
    arrived_.push_back(std::move(s));
  } else {
    wanted_.front()->set(std::move(s));
    wanted_.pop_front();
  }
}

void router_base::inbox::receive(const std::shared_ptr<shared_value<pending_segment>>& promise,
                                 bool ended) {
  if (!arrived_.empty()) {
    promise->set(std::move(arrived_.front()));
    arrived_.pop_front();
  } else if (ended) {
    promise->set({});
  } else {
    wanted_.push_back(promise);
  }
}

int router_base::inbox::give_back(const pending_segment& s) {
  if (s.empty()) throw wrong("release", "an empty segment has no buffer to give back");
  const auto index = static_cast<std::size_t>(s.slot_);
  if (s.from_ != this || index >= slots_.size()) {
    throw wrong("release", "the segment came by another link: release it there");
  }
  slot& back = slots_[index];
  if (!back.held || back.lap != s.lap_) {
    throw wrong("release", "the segment was given back before: release each once");
  }
  back.held = false;
  return s.slot_;
}

void router_base::inbox::end() {
  for (const auto& promise : wanted_) promise->set({});
  wanted_.clear();
}

/// One for which somebody waits in `call`.
template <class T>
std::shared_ptr<shared_value<T>> router_base::promise_of(const char* call, int end,
                                                         std::size_t bytes) const {
  auto p = std::make_shared<shared_value<T>>();
  p->limits = limits_;
  p->call = call;
  p->where = name_;
  p->end = is_link_ ? -1 : end;
  p->bytes = bytes;
  return p;
}

future<pending_segment> router_base::receive_from(inbox& in, int output, bool ended) {
  auto promise = promise_of<pending_segment>("receive", output, 0);
  in.receive(promise, ended);
  return future<pending_segment>(std::move(promise));
}

// ---- sending

future<completion> router_base::send(int index, const segment& s, const completion& ready) {
  limits_->check("send");
  check_segment(s, ready);
  auto promise = promise_of<completion>("send", index, s.bytes);
  future<completion> result(promise);
  // The user's function is called without the lock, so that it may use other links.
  const route way = s.bytes == 0 ? route{} : matcher_.checked_route(s, index);
  const std::scoped_lock lock(mutex());
  check_running("send");
  check_open(from(index));
  if (s.bytes == 0) {
    promise->set({});
    return result;
  }
  check_way(index, s, way);
  from(index).bytes += s.bytes;
  const std::uint64_t id = next_send_++;
  promise->give_up = [id, of = weak_from_this()] {
    if (const auto still = of.lock()) still->withdraw(id);
  };
  sends_.emplace(id, sending{index, s, ready, std::move(promise)});
  start({id, index, s.bytes, s.tag}, way);
  return result;
}

void router_base::complete_if_done(std::uint64_t id) {
  const auto it = sends_.find(id);
  sending& s = it->second;
  if (!s.given || s.lent != 0) return;
  events last = std::move(s.used);
  for (const auto& [output, copied] : s.copies) last.push_back(copied);
  s.promise->set(after(std::move(last)));
  sends_.erase(it);
}

void router_base::withdraw(std::uint64_t id) {
  completion queued;
  {
    const std::scoped_lock lock(mutex());
    const auto it = sends_.find(id);
    if (it == sends_.end()) return;
    events of;
    for (const auto& [output, copied] : it->second.copies) of.push_back(copied);
    queued = after(std::move(of));
    const int source = it->second.source;
    sends_.erase(it);
    take_back(source, id);
  }
  // Whatever ended the wait for the send is no reason for these not to end. Where they wait for
  // something that does not come, the sender goes on nevertheless.
  constexpr std::uint64_t most_ns = 1'000'000'000;
  (void)device::poll_until([&] { return queued.ready(); },
                           device::wait_limits{.timeout_ns = most_ns});
}

void router_base::keep(std::shared_ptr<const void> memory) {
  const std::scoped_lock lock(mutex());
  kept_.push_back(std::move(memory));
}

std::uint64_t router_base::sent_bytes(int index) const {
  const std::scoped_lock lock(mutex());
  return senders_.at(static_cast<std::size_t>(index)).bytes;
}

// ---- what users give

completion router_base::after(events of) const {
  completion c;
  c.events_ = std::move(of);
  c.kind_ = near_.kind();
  c.limits_ = limits_;
  return c;
}

void router_base::check_segment(const segment& s, const completion& ready) const {
  check_kind(ready, "send");
  if (s.bytes != 0 && s.data == nullptr) {
    throw wrong("send", std::to_string(s.bytes) + " bytes without an address");
  }
}

void router_base::check_open(const sender& s) const {
  matcher_.check_complete();
  if (!s.open) throw wrong("send", "this sender has shut down; shut down after the last send");
}

void router_base::check_kind(const completion& c, const char* call) const {
  if (!c.events_.empty() && c.kind_ != near_.kind()) {
    throw wrong(call, "the stream is of another kind of device than those of the context");
  }
}

}  // namespace crosswarp::flow::impl
