#include "transports/verbs/far_wire.hpp"

#include <algorithm>

#include "core/log.hpp"
#include "transports/verbs/frames.hpp"

namespace crosswarp::verbs {
namespace {

/// Requests to one NIC without an answer. So nobody has more to keep for another than so many
/// frames.
constexpr std::size_t most_open = 256;

}  // namespace

far_wire::far_wire(soft_nic& self, const station& own, carrier& by, std::unique_ptr<wire> near)
    : self_(self), own_(own), carrier_(by), near_(std::move(near)) {}

void far_wire::learn(const endpoint_address& peer) {
  const station there{peer.fabric, peer.device, 0};
  if (is_near(there)) return;
  const auto bytes = std::min<std::size_t>(peer.route_bytes, peer.route.size());
  ways_[there].route.assign(peer.route.begin(),
                            peer.route.begin() + static_cast<std::ptrdiff_t>(bytes));
}

std::uint32_t far_wire::most_bytes(const station& to) const noexcept {
  return is_near(to) ? near_->most_bytes(to) : most_frame_data;
}

bool far_wire::send(const request& r) {
  if (is_near(r.to)) return near_->send(r);
  way& w = ways_[r.to.nic()];
  if (w.line == 0) {
    w.line = carrier_.open(w.route);
    if (w.line == 0) {
      self_.deliver({.to = r.from, .psn = r.psn});
      return true;
    }
    opened_[w.line] = r.to.nic();
    carrier_.send(w.line, hello_frame(own_));
  }
  if (w.open == most_open) return false;
  auto frame = request_frame(r);
  if (!frame) {
    self_.deliver({.to = r.from,
                   .psn = r.psn,
                   .what = answer::kind::refused,
                   .why = mlx5::syndrome::local_protection});
    return true;
  }
  ++w.open;
  carrier_.send(w.line, std::move(*frame));
  return true;
}

bool far_wire::progress() {
  const bool moved = near_ != nullptr && near_->progress();
  return carrier_.progress(*this) || moved;
}

bool far_wire::take(carrier::line from, bool opened_here, std::span<const std::byte> bytes) {
  frame f;
  const bool sound = f.read(bytes) && (opened_here ? take_answer(from, f) : take_request(from, f));
  if (!sound) log::warn(-1, "soft nic: a connection is closed on which came what makes no sense");
  return sound;
}

/// On a line that another NIC opened: says who it is, once, and then asks.
bool far_wire::take_request(carrier::line from, frame& f) {
  if (f.what == frame::kind::hello) return accepted_.try_emplace(from, f.who).second;
  const auto who = accepted_.find(from);
  if (f.what != frame::kind::request || who == accepted_.end()) return false;
  request& r = f.asked;
  r.from = {who->second.fabric, who->second.device, r.from.qpn};
  r.to = {own_.fabric, own_.device, r.to.qpn};
  answer a = self_.respond(r);
  auto reply = answer_frame(a);
  if (!reply) {  // what was to be read could not be
    a.what = answer::kind::refused;
    a.why = mlx5::syndrome::remote_operation;
    a.payload = {};
    reply = answer_frame(a);
  }
  carrier_.send(from, std::move(*reply));
  return true;
}

bool far_wire::take_answer(carrier::line from, frame& f) {
  const auto where = opened_.find(from);
  if (f.what != frame::kind::answer || where == opened_.end()) return false;
  way& w = ways_[where->second];
  if (w.open == 0) return false;  // to nothing that was asked
  --w.open;
  f.said.from = where->second;
  self_.deliver(f.said);
  return true;
}

void far_wire::lost(carrier::line which) {
  accepted_.erase(which);
  const auto where = opened_.find(which);
  if (where == opened_.end()) return;
  const station there = where->second;
  opened_.erase(where);
  ways_[there].line = 0;
  ways_[there].open = 0;
  self_.lose(there);
}

}  // namespace crosswarp::verbs
