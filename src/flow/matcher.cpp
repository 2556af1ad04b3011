#include "flow/matcher.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {
namespace {

error wrong(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

bool contains(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

// ---- making it

matcher::matcher(const fan& f, policy p) : fan_(f), policy_(std::move(p)) {
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

int matcher::add_input() {
  const int index = static_cast<int>(open_.size());
  if (index == fan_.inputs) {
    throw wrong("link", "all " + std::to_string(fan_.inputs) +
                            " inputs of the router are taken: make it with more");
  }
  open_.push_back(true);
  return index;
}

int matcher::add_output(std::size_t packet_bytes, int buffers) {
  const int index = static_cast<int>(outputs_.size());
  if (index == fan_.outputs) {
    throw wrong("link", "all " + std::to_string(fan_.outputs) +
                            " outputs of the router are taken: make it with more");
  }
  output& made = outputs_.emplace_back(output{packet_bytes, {}, {}});
  for (int i = 0; i < buffers; ++i) made.posted.push_back(i);
  return index;
}

bool matcher::is_complete() const noexcept {
  return static_cast<int>(open_.size()) == fan_.inputs &&
         static_cast<int>(outputs_.size()) == fan_.outputs;
}

void matcher::check_complete() const {
  if (is_complete()) return;
  throw wrong("send", "the router has links at " + std::to_string(open_.size()) + " of " +
                          std::to_string(fan_.inputs) + " inputs and " +
                          std::to_string(outputs_.size()) + " of " + std::to_string(fan_.outputs) +
                          " outputs: make all links before the first send");
}

// ---- what comes in

route matcher::checked_route(const segment& s, int source) const {
  route way = policy_.choose(s, source, fan_);
  if (way.outputs.empty()) {
    throw wrong("send",
                "policy " + policy_.name + " has no output for input " + std::to_string(source));
  }
  for (const int o : way.outputs) {
    if (!contains(reach(source), o)) {
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

void matcher::send(const send_order& what, const route& way) {
  const auto left = std::make_shared<std::size_t>(0);
  const auto add = [&](std::size_t begin, std::size_t end, std::vector<int> to) {
    if (begin == end) return;
    *left += end - begin;
    const auto p = std::make_shared<part>(part{what, begin, end, way.how, std::move(to), left});
    for (const int o : p->candidates) outputs_[static_cast<std::size_t>(o)].sends.push_back(p);
  };
  switch (way.how) {
    case spread::any:
    case spread::priority:
      add(0, what.bytes, way.outputs);
      break;
    case spread::every:
      for (const int o : way.outputs) add(0, what.bytes, {o});
      break;
    case spread::split: {
      const std::size_t units = (what.bytes + way.unit - 1) / way.unit;
      const std::size_t n = way.outputs.size();
      const auto cut = [&](std::size_t k) {
        const std::size_t before = units / n * k + std::min(k, units % n);
        return std::min(what.bytes, before * way.unit);
      };
      for (std::size_t k = 0; k < n; ++k) add(cut(k), cut(k + 1), {way.outputs[k]});
      break;
    }
  }
}

void matcher::withdraw(int source, std::uint64_t id) {
  for (output& o : outputs_) {
    for (const auto& p : o.sends) {
      if (p->of.source == source && p->of.id == id) p->next = p->end;  // match_one() drops it
    }
  }
}

void matcher::shutdown(int input) {
  const auto index = static_cast<std::size_t>(input);
  if (!open_[index]) return;
  open_[index] = false;
  for (const int o : reach_[index]) --senders_[static_cast<std::size_t>(o)];
}

void matcher::post(int index, int slot) {
  outputs_[static_cast<std::size_t>(index)].posted.push_back(slot);
}

// ---- matching

void matcher::match(const std::function<void(const grant&)>& give) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int o = 0; o < static_cast<int>(outputs_.size()); ++o) moved = match_one(o, give) || moved;
  }
}

bool matcher::match_one(int index, const std::function<void(const grant&)>& give) {
  output& to = outputs_[static_cast<std::size_t>(index)];
  while (!to.sends.empty() && to.sends.front()->done()) to.sends.pop_front();
  if (to.sends.empty() || to.posted.empty()) return false;
  const std::shared_ptr<part> p = to.sends.front();
  if (!may_take(index, *p)) return false;
  const std::size_t bytes = std::min(p->end - p->next, to.packet_bytes);
  const int slot = to.posted.front();
  to.posted.pop_front();
  const std::size_t offset = p->next;
  p->next += bytes;
  *p->left -= bytes;
  if (p->done()) to.sends.pop_front();
  give({p->of, index, slot, offset, bytes, *p->left == 0});
  return true;
}

bool matcher::may_take(int index, const part& p) const {
  if (p.how != spread::priority) return true;
  for (const int better : p.candidates) {
    if (better == index) break;
    if (!outputs_[static_cast<std::size_t>(better)].posted.empty()) return false;
  }
  return true;
}

bool matcher::ended(int index) const {
  const auto i = static_cast<std::size_t>(index);
  if (senders_[i] != 0) return false;
  return std::all_of(outputs_[i].sends.begin(), outputs_[i].sends.end(),
                     [](const auto& p) { return p->done(); });
}

}  // namespace crosswarp::flow::impl
