#include "flow/router_core.hpp"

#include <algorithm>
#include <limits>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {
namespace {

template <class T>
std::shared_ptr<shared_value<T>> promise_of(const std::shared_ptr<const patience>& limits,
                                            const char* call) {
  auto p = std::make_shared<shared_value<T>>();
  p->limits = limits;
  p->call = call;
  return p;
}

error wrong(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

/// Of all buffers; wraps nowhere.
std::size_t bytes_of(std::size_t packet_bytes, int buffers) {
  const auto n = static_cast<std::size_t>(buffers);
  if (packet_bytes > std::numeric_limits<std::ptrdiff_t>::max() / n) {
    throw error(errc::out_of_memory, "link",
                std::to_string(n) + " buffers of " + std::to_string(packet_bytes) + " bytes");
  }
  return packet_bytes * n;
}

bool contains(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

// ---- making it

router_core::output::output(const receiver& made_of, device_ref near)
    : of(made_of),
      memory(made_of.at ? *made_of.at : near, bytes_of(made_of.packet_bytes, made_of.buffers),
             made_of.at ? memory_kind::device : memory_kind::pinned),
      slots(static_cast<std::size_t>(made_of.buffers)) {
  for (int i = 0; i < made_of.buffers; ++i) posted.push_back(i);
}

router_core::router_core(std::shared_ptr<waits> limits, device_ref near, const fan& f, policy p)
    : limits_(std::move(limits)), near_(near), fan_(f), policy_(std::move(p)) {
  if (f.inputs < 1 || f.outputs < 1) {
    throw wrong("router", "it needs at least one input and one output");
  }
  if (!policy_.choose || !policy_.reachable) {
    throw wrong("router", "the policy says not where to: give it choose and reachable");
  }
  senders_.assign(static_cast<std::size_t>(f.outputs), 0);
  for (int i = 0; i < f.inputs; ++i) {
    auto to = policy_.reachable(i, f);
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    for (const int o : to) {
      if (o < 0 || o >= f.outputs) {
        throw wrong("router", "policy " + policy_.name + " reaches output " + std::to_string(o) +
                                  " from input " + std::to_string(i) + ", but there are " +
                                  std::to_string(f.outputs));
      }
      ++senders_[static_cast<std::size_t>(o)];
    }
    reach_.push_back(std::move(to));
  }
}

int router_core::add_input(const place& at) {
  const std::scoped_lock lock(mutex_);
  const int index = static_cast<int>(inputs_.size());
  if (index == fan_.inputs) {
    throw wrong("link", "all " + std::to_string(fan_.inputs) +
                            " inputs of the router are taken: make it with more");
  }
  inputs_.push_back({at});
  for (const int o : reach_[static_cast<std::size_t>(index)]) make_lanes(index, o);
  return index;
}

int router_core::add_output(const receiver& r) {
  const std::scoped_lock lock(mutex_);
  const int index = static_cast<int>(outputs_.size());
  if (index == fan_.outputs) {
    throw wrong("link", "all " + std::to_string(fan_.outputs) +
                            " outputs of the router are taken: make it with more");
  }
  outputs_.push_back(std::make_unique<output>(r, near_));
  for (int i = 0; i < static_cast<int>(inputs_.size()); ++i) {
    if (contains(reach_[static_cast<std::size_t>(i)], index)) make_lanes(i, index);
  }
  return index;
}

void router_core::make_lanes(int in, int out) {
  if (in >= static_cast<int>(inputs_.size()) || out >= static_cast<int>(outputs_.size())) return;
  output& o = *outputs_[static_cast<std::size_t>(out)];
  o.lanes.emplace(in, std::make_unique<lane>(inputs_[static_cast<std::size_t>(in)].at, o.of.at,
                                             near_, o.of.how, o.of.packet_bytes));
}

// ---- sending

router_core::input& router_core::open_input(int index) {
  if (static_cast<int>(inputs_.size()) < fan_.inputs ||
      static_cast<int>(outputs_.size()) < fan_.outputs) {
    throw wrong("send", "the router has links at " + std::to_string(inputs_.size()) + " of " +
                            std::to_string(fan_.inputs) + " inputs and " +
                            std::to_string(outputs_.size()) + " of " +
                            std::to_string(fan_.outputs) +
                            " outputs: make all links before the first send");
  }
  input& in = inputs_[static_cast<std::size_t>(index)];
  if (!in.open) throw wrong("send", "this sender has shut down; shut down after the last send");
  return in;
}

route router_core::checked_route(const segment& s, int source) const {
  route way = policy_.choose(s, source, fan_);
  if (way.outputs.empty()) {
    throw wrong("send",
                "policy " + policy_.name + " has no output for input " + std::to_string(source));
  }
  for (const int o : way.outputs) {
    if (!contains(reach_[static_cast<std::size_t>(source)], o)) {
      throw wrong("send", "policy " + policy_.name + " chose output " + std::to_string(o) +
                              ", which is none that it said input " + std::to_string(source) +
                              " reaches");
    }
    if (std::count(way.outputs.begin(), way.outputs.end(), o) != 1) {
      throw wrong("send", "policy " + policy_.name + " chose output " + std::to_string(o) +
                              " more than once");
    }
  }
  if (way.unit == 0) throw wrong("send", "policy " + policy_.name + " splits in units of 0 bytes");
  return way;
}

void router_core::check_kind(const completion& c, const char* call) const {
  if (!c.events_.empty() && c.kind_ != near_.kind()) {
    throw wrong(call, "the stream is of another kind of device than those of the context");
  }
}

future<completion> router_core::send(int index, const segment& s, const completion& ready) {
  limits_->check("send");
  check_kind(ready, "send");
  if (s.bytes != 0 && s.data == nullptr) {
    throw wrong("send", std::to_string(s.bytes) + " bytes without an address");
  }
  auto all = std::make_shared<whole>();
  all->promise = promise_of<completion>(limits_, "send");
  future<completion> result(all->promise);
  // The user's function is called without the lock, so that it may use other links.
  const route way = s.bytes == 0 ? route{} : checked_route(s, index);
  const std::scoped_lock lock(mutex_);
  input& in = open_input(index);
  if (s.bytes == 0) {
    all->promise->set({});
    return result;
  }
  in.bytes += s.bytes;
  queue(s, index, ready, way, all);
  match();
  return result;
}

void router_core::queue(const segment& s, int source, const completion& ready, const route& way,
                        const std::shared_ptr<whole>& all) {
  const auto add = [&](std::size_t begin, std::size_t end, std::vector<int> to) {
    if (begin == end) return;
    all->left += end - begin;
    queue_part(
        std::make_shared<part>(part{s, source, ready, begin, end, way.how, std::move(to), all}));
  };
  switch (way.how) {
    case spread::any:
    case spread::priority:
      add(0, s.bytes, way.outputs);
      break;
    case spread::every:
      for (const int o : way.outputs) add(0, s.bytes, {o});
      break;
    case spread::split: {
      const std::size_t units = (s.bytes + way.unit - 1) / way.unit;
      const std::size_t n = way.outputs.size();
      const auto cut = [&](std::size_t k) {
        const std::size_t before = units / n * k + std::min(k, units % n);
        return std::min(s.bytes, before * way.unit);
      };
      for (std::size_t k = 0; k < n; ++k) add(cut(k), cut(k + 1), {way.outputs[k]});
      break;
    }
  }
}

void router_core::queue_part(const std::shared_ptr<part>& p) {
  for (const int o : p->candidates) outputs_[static_cast<std::size_t>(o)]->sends.push_back(p);
}

void router_core::shutdown(int index) {
  const std::scoped_lock lock(mutex_);
  input& in = inputs_[static_cast<std::size_t>(index)];
  if (!in.open) return;
  in.open = false;
  for (const int o : reach_[static_cast<std::size_t>(index)]) {
    --senders_[static_cast<std::size_t>(o)];
  }
  end_receives();
}

// ---- receiving

future<pending_segment> router_core::receive(int index) {
  limits_->check("receive");
  const std::scoped_lock lock(mutex_);
  output& from = *outputs_[static_cast<std::size_t>(index)];
  auto promise = promise_of<pending_segment>(limits_, "receive");
  if (!from.arrived.empty()) {
    promise->set(std::move(from.arrived.front()));
    from.arrived.pop_front();
  } else if (ended(index)) {
    promise->set({});
  } else {
    from.wanted.push_back(promise);
  }
  return future<pending_segment>(std::move(promise));
}

void router_core::release(int index, const pending_segment& s, const completion& used) {
  if (s.empty()) throw wrong("release", "an empty segment has no buffer to give back");
  check_kind(used, "release");
  const std::scoped_lock lock(mutex_);
  output& to = *outputs_[static_cast<std::size_t>(index)];
  const bool ours =
      s.slot_ >= 0 && s.slot_ < to.of.buffers &&
      s.data_ == to.memory.data() + static_cast<std::size_t>(s.slot_) * to.of.packet_bytes;
  if (!ours) throw wrong("release", "the segment came by another link: release it there");
  slot& back = to.slots[static_cast<std::size_t>(s.slot_)];
  if (!back.held || back.lap != s.lap_) {
    throw wrong("release", "the segment was given back before: release each once");
  }
  back.held = false;
  back.free = used;
  to.posted.push_back(s.slot_);
  match();
}

// ---- matching, with the lock held

void router_core::match() {
  try {
    for (bool moved = true; moved;) {
      moved = false;
      for (int o = 0; o < static_cast<int>(outputs_.size()); ++o) moved = match_one(o) || moved;
    }
  } catch (const std::exception& e) {
    // Half of something is queued: nobody can go on, so all hear of it.
    limits_->abort(std::string("a copy could not be queued: ") + e.what());
    throw;
  }
  end_receives();
}

bool router_core::match_one(int index) {
  output& to = *outputs_[static_cast<std::size_t>(index)];
  while (!to.sends.empty() && to.sends.front()->done()) to.sends.pop_front();
  if (to.sends.empty() || to.posted.empty()) return false;
  const std::shared_ptr<part> p = to.sends.front();
  if (!may_take(index, *p)) return false;
  give(to, *p);
  if (p->done()) to.sends.pop_front();
  return true;
}

bool router_core::may_take(int index, const part& p) const {
  if (p.how != spread::priority) return true;
  for (const int better : p.candidates) {
    if (better == index) break;
    if (!outputs_[static_cast<std::size_t>(better)]->posted.empty()) return false;
  }
  return true;
}

void router_core::give(output& to, part& p) {
  const int index = to.posted.front();
  to.posted.pop_front();
  slot& into = to.slots[static_cast<std::size_t>(index)];
  const std::size_t bytes = std::min(p.end - p.next, to.of.packet_bytes);
  pending_segment s;
  s.data_ = to.memory.data() + static_cast<std::size_t>(index) * to.of.packet_bytes;
  s.bytes_ = bytes;
  s.offset_ = p.next;
  s.source_ = p.source;
  s.tag_ = p.what.tag;
  s.slot_ = index;
  s.lap_ = ++into.lap;
  into.held = true;
  lane& by = *to.lanes.at(p.source);
  const auto done = by.copy(s.data_, static_cast<const std::byte*>(p.what.data) + p.next, bytes,
                            p.ready, into.free);
  s.arrived_ = after({done});
  p.next += bytes;
  to.bytes += bytes;
  p.of->copies[&by] = done;
  p.of->left -= bytes;
  if (p.of->left == 0) finish(*p.of);
  deliver(to, std::move(s));
}

completion router_core::after(std::vector<std::shared_ptr<event>> events) const {
  completion c;
  c.events_ = std::move(events);
  c.kind_ = near_.kind();
  c.limits_ = limits_;
  return c;
}

void router_core::finish(whole& w) const {
  std::vector<std::shared_ptr<event>> last;
  for (const auto& [by, done] : w.copies) last.push_back(done);
  w.promise->set(after(std::move(last)));
}

void router_core::deliver(output& to, pending_segment s) {
  if (to.wanted.empty()) {
    to.arrived.push_back(std::move(s));
  } else {
    to.wanted.front()->set(std::move(s));
    to.wanted.pop_front();
  }
}

bool router_core::ended(int index) const {
  const output& o = *outputs_[static_cast<std::size_t>(index)];
  return senders_[static_cast<std::size_t>(index)] == 0 &&
         std::all_of(o.sends.begin(), o.sends.end(), [](const auto& p) { return p->done(); });
}

void router_core::end_receives() {
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o]->wanted.empty() || !ended(static_cast<int>(o))) continue;
    for (const auto& promise : outputs_[o]->wanted) promise->set({});
    outputs_[o]->wanted.clear();
  }
}

// ---- looking at it

std::uint64_t router_core::sent_bytes(int index) const {
  const std::scoped_lock lock(mutex_);
  return inputs_[static_cast<std::size_t>(index)].bytes;
}

std::uint64_t router_core::received_bytes(int index) const {
  const std::scoped_lock lock(mutex_);
  return outputs_[static_cast<std::size_t>(index)]->bytes;
}

std::string router_core::explain_way(int in, int out) const {
  const std::scoped_lock lock(mutex_);
  const auto& lanes = outputs_[static_cast<std::size_t>(out)]->lanes;
  const auto it = lanes.find(in);
  if (it == lanes.end()) return "no way from input " + std::to_string(in);
  return it->second->explain();
}

}  // namespace crosswarp::flow::impl
