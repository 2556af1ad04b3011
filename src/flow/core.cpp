#include "flow/core.hpp"

#include <functional>

#include "crosswarp/error.hpp"

namespace crosswarp::flow::impl {

// ---- a link's ends

port_pair::port_pair(port from, port to, std::size_t packet, int buffers, const place& source,
                     device_ref near)
    : sender(std::move(from)),
      receiver(std::move(to)),
      packet_bytes(packet),
      source_(source),
      near_(near),
      own_(static_cast<std::size_t>(buffers)) {}

port_pair::own_buffer* port_pair::find(const void* p) {
  if (!memory_) return nullptr;
  const auto* at = static_cast<const std::byte*>(p);
  const std::less<> before;
  if (before(at, memory_->data()) || !before(at, memory_->data() + memory_->size())) return nullptr;
  return &own_[static_cast<std::size_t>(at - memory_->data()) / packet_bytes];
}

future<completion> port_pair::send(const segment& s, const completion& ready) {
  const std::scoped_lock lock(mutex_);
  auto sent = sender.of->send(sender.index, s, ready);
  if (own_buffer* mine = find(s.data)) *mine = {false, sent};
  return sent;
}

std::span<std::byte> port_pair::send_buffer(stream& s) {
  const std::scoped_lock lock(mutex_);
  if (!memory_) {
    memory_.emplace(source_ ? *source_ : near_, own_.size() * packet_bytes,
                    source_ ? memory_kind::device : memory_kind::pinned);
  }
  own_buffer& mine = own_[next_];
  if (mine.out) {
    throw error(errc::invalid_argument, "send_buffer",
                "all " + std::to_string(own_.size()) +
                    " buffers of the link are out: send one first, of no bytes if need be");
  }
  if (mine.sent) mine.sent->get().wait(s);
  mine = {true, std::nullopt};
  std::byte* const at = memory_->data() + next_ * packet_bytes;
  next_ = (next_ + 1) % own_.size();
  return {at, packet_bytes};
}

std::uint64_t port_pair::bytes_moved() const {
  return receiver.of ? receiver.of->received_bytes(receiver.index)
                     : sender.of->sent_bytes(sender.index);
}

// ---- the graph

namespace {

std::string name_of(endpoint e) {
  switch (e.what()) {
    case endpoint::kind::host:
      return "host";
    case endpoint::kind::device:
      return "device" + std::to_string(e.index());
    case endpoint::kind::router:
      break;
  }
  return "router" + std::to_string(e.index());
}

}  // namespace

core::core(std::vector<device_ref> devices, std::shared_ptr<waits> limits)
    : devices_(std::move(devices)), limits_(std::move(limits)) {
  if (devices_.empty()) {
    throw error(errc::invalid_argument, "flow::context", "it needs at least one device");
  }
  for (const device_ref d : devices_) {
    if (d.kind() != devices_.front().kind()) {
      throw error(errc::invalid_argument, "flow::context",
                  d.name() + " and " + devices_.front().name() +
                      ": streams of one kind of device cannot wait for those of another");
    }
  }
}

const core::made* core::find(std::size_t n, const std::string& what) const {
  if (n >= made_.size()) return nullptr;
  if (what_[n] != what) {
    throw error(errc::asymmetric, "flow::context",
                "as number " + std::to_string(n) + " of the graph this rank makes " + what +
                    ", another made " + what_[n]);
  }
  return &made_[n];
}

std::pair<endpoint, std::shared_ptr<router_core>> core::router(std::size_t n, int inputs,
                                                               int outputs, policy p) {
  const std::scoped_lock lock(mutex_);
  const std::string what = "a router of " + std::to_string(inputs) + " inputs, " +
                           std::to_string(outputs) + " outputs, " + p.name;
  if (const made* there = find(n, what)) {
    const auto& r = std::get<made_router>(*there);
    return {r.at, r.core};
  }
  auto made_now =
      std::make_shared<router_core>(limits_, devices_.front(), fan{inputs, outputs}, std::move(p));
  const endpoint at(endpoint::kind::router, static_cast<int>(routers_.size()));
  routers_.push_back(made_now);
  made_.emplace_back(made_router{at, made_now});
  what_.push_back(what);
  return {at, made_now};
}

place core::place_of(endpoint e, const char* call) const {
  if (e.what() == endpoint::kind::host) return std::nullopt;
  if (e.what() != endpoint::kind::device || e.index() < 0 ||
      e.index() >= static_cast<int>(devices_.size())) {
    throw error(errc::invalid_argument, call, name_of(e) + " is none of this context");
  }
  return devices_[static_cast<std::size_t>(e.index())];
}

std::shared_ptr<port_pair> core::link(std::size_t n, endpoint from, endpoint to,
                                      std::size_t packet_bytes, int buffers,
                                      const link_options& options) {
  const std::scoped_lock lock(mutex_);
  const std::string what = "a link from " + name_of(from) + " to " + name_of(to) + ", " +
                           std::to_string(buffers) + " x " + std::to_string(packet_bytes) +
                           " bytes";
  if (const made* there = find(n, what)) return std::get<edge>(*there).ports;
  auto ports = make_link(from, to, packet_bytes, buffers, options.how);
  made_.emplace_back(edge{from, to, options.name, ports});
  what_.push_back(what);
  return ports;
}

std::shared_ptr<port_pair> core::make_link(endpoint from, endpoint to, std::size_t packet_bytes,
                                           int buffers, transport how) const {
  const auto is_router = [](endpoint e) { return e.what() == endpoint::kind::router; };
  const auto refuse = [](const std::string& why) {
    throw error(errc::invalid_argument, "link", why);
  };
  if (packet_bytes == 0 || buffers < 1) refuse("at least 1 buffer of at least 1 byte");
  if (is_router(from) && is_router(to)) {
    refuse("a router has no memory to hold packets in: put a device between two of them");
  }
  const auto find_router = [&](endpoint e) {
    if (e.index() < 0 || e.index() >= static_cast<int>(routers_.size())) {
      refuse(name_of(e) + " is none of this context");
    }
    return routers_[static_cast<std::size_t>(e.index())];
  };
  port_pair::port sender;
  port_pair::port receiver;
  place source;
  if (is_router(to)) {
    if (how != transport::automatic) refuse("the way is chosen by the link that receives");
    source = place_of(from, "link");
    sender.of = find_router(to);
  } else {
    receiver.of = is_router(from) ? find_router(from)
                                  : std::make_shared<router_core>(limits_, devices_.front(),
                                                                  fan{1, 1}, any_available());
    if (!is_router(from)) {
      source = place_of(from, "link");
      sender.of = receiver.of;
    }
    receiver.index = receiver.of->add_output({packet_bytes, buffers, place_of(to, "link"), how});
  }
  if (sender.of) sender.index = sender.of->add_input(source);
  return std::make_shared<port_pair>(sender, receiver, packet_bytes, buffers, source,
                                     devices_.front());
}

picture core::drawn() const {
  const std::scoped_lock lock(mutex_);
  picture p;
  p.nodes.push_back({shape::host, "host"});
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    p.nodes.push_back({shape::device, "device " + std::to_string(i) + "\n" + devices_[i].name()});
  }
  for (const auto& r : routers_) p.nodes.push_back({shape::router, r->rules().name});
  const auto node_of = [&](endpoint e) {
    const auto index = static_cast<std::size_t>(e.index());
    if (e.what() == endpoint::kind::host) return std::size_t{0};
    return 1 + index + (e.what() == endpoint::kind::router ? devices_.size() : 0);
  };
  for (const made& m : made_) {
    const edge* e = std::get_if<edge>(&m);
    if (e == nullptr) continue;
    const std::string bytes = std::to_string(e->ports->bytes_moved()) + " bytes";
    p.arrows.push_back(
        {node_of(e->from), node_of(e->to), e->name.empty() ? bytes : e->name + "\n" + bytes});
  }
  return p;
}

}  // namespace crosswarp::flow::impl
