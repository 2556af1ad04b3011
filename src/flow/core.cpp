#include "flow/core.hpp"

#include <algorithm>
#include <functional>

#include "crosswarp/error.hpp"
#include "flow/router_core.hpp"

namespace crosswarp::flow::impl {

// ---- a link's ends

port_pair::port_pair(port from, port to, std::size_t packet, int buffers, const place& source,
                     device_ref near, int rank)
    : sender(std::move(from)),
      receiver(std::move(to)),
      packet_bytes(packet),
      here(rank),
      source_(source),
      near_(near),
      own_(static_cast<std::size_t>(buffers)) {}

std::span<port_pair::own_buffer> port_pair::find(const segment& s) {
  if (!memory_) return {};
  const auto* at = static_cast<const std::byte*>(s.data);
  const std::less<> before;
  if (before(at, memory_->data()) || !before(at, memory_->data() + memory_->size())) return {};
  const auto first = static_cast<std::size_t>(at - memory_->data());
  const std::size_t last = std::min(first + s.bytes, memory_->size()) - 1;
  return std::span(own_).subspan(first / packet_bytes,
                                 last / packet_bytes - first / packet_bytes + 1);
}

future<completion> port_pair::send(const segment& s, const completion& ready) {
  const std::scoped_lock lock(mutex_);
  auto sent = sender.of->send(sender.index, s, ready);
  // Of no bytes it gives the buffer back as well.
  const segment at(s.data, std::max<std::size_t>(s.bytes, 1), s.tag);
  for (own_buffer& mine : find(at)) {
    mine.out = false;
    std::erase_if(mine.sent, [](const auto& f) { return f.ready() && f.get().ready(); });
    mine.sent.push_back(sent);
  }
  return sent;
}

std::span<std::byte> port_pair::send_buffer(stream& s) {
  std::vector<future<completion>> sent;
  std::size_t index = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (!memory_) {
      memory_ = std::make_shared<buffer<std::byte>>(
          source_ ? *source_ : near_, own_.size() * packet_bytes,
          source_ ? memory_kind::device : memory_kind::pinned);
      sender.of->keep(memory_);
    }
    index = next_;
    if (own_[index].out) {
      throw error(errc::invalid_argument, "send_buffer",
                  "all " + std::to_string(own_.size()) +
                      " buffers of the link are out: send one first, of no bytes if need be");
    }
    sent = own_[index].sent;
  }
  // Without the lock: others may send meanwhile.
  for (const auto& f : sent) f.get().wait(s);
  const std::scoped_lock lock(mutex_);
  own_[index] = {true, {}};
  next_ = (index + 1) % own_.size();
  return {memory_->data() + index * packet_bytes, packet_bytes};
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
      return "host" + (e.index() == 0 ? std::string() : std::to_string(e.index()));
    case endpoint::kind::device:
      return "device" + std::to_string(e.index());
    case endpoint::kind::router:
      break;
  }
  return "router" + std::to_string(e.index());
}

}  // namespace

core::core(std::vector<device_ref> devices, std::vector<machine_spot> spots,
           std::shared_ptr<waits> limits)
    : devices_(std::move(devices)), spots_(std::move(spots)), limits_(std::move(limits)) {
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

std::shared_ptr<router_base> core::make_router(const fan& f, policy p, int /*near*/) {
  return std::make_shared<router_core>(limits_, devices_.front(), f, std::move(p));
}

std::pair<endpoint, std::shared_ptr<router_base>> core::router(int inputs, int outputs, policy p) {
  const std::scoped_lock lock(mutex_);
  agree(edges_.size() + routers_.size(), "a router of " + std::to_string(inputs) + " inputs, " +
                                             std::to_string(outputs) + " outputs, " + p.name);
  const endpoint at(endpoint::kind::router, static_cast<int>(routers_.size()));
  const std::string name = name_of(at) + " (" + p.name + ")";
  routers_.push_back(make_router({inputs, outputs}, std::move(p), -1));
  routers_.back()->set_name(name, false);
  return {at, routers_.back()};
}

core::spot core::spot_of(endpoint e) const {
  const bool is_host = e.what() == endpoint::kind::host;
  const int count = is_host                              ? hosts()
                    : e.what() == endpoint::kind::device ? static_cast<int>(devices_.size())
                                                         : 0;
  if (e.index() < 0 || e.index() >= count) {
    throw error(errc::invalid_argument, "link", name_of(e) + " is none of this context");
  }
  // A world has as many devices as hosts: one of each for a rank.
  const int rank = hosts() == 1 ? 0 : e.index();
  if (is_host) return {std::nullopt, rank};
  return {devices_[static_cast<std::size_t>(e.index())], rank};
}

std::shared_ptr<port_pair> core::link(endpoint from, endpoint to, std::size_t packet_bytes,
                                      int buffers, const link_options& options) {
  const std::scoped_lock lock(mutex_);
  agree(edges_.size() + routers_.size(), "a link from " + name_of(from) + " to " + name_of(to) +
                                             ", " + std::to_string(buffers) + " x " +
                                             std::to_string(packet_bytes) + " bytes");
  auto ports = make_link(from, to, packet_bytes, buffers, options.how);
  edges_.push_back({from, to, options.name, ports});
  return ports;
}

std::shared_ptr<port_pair> core::make_link(endpoint from, endpoint to, std::size_t packet_bytes,
                                           int buffers, transport how) {
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
  spot source{};
  if (is_router(to)) {
    if (how != transport::automatic) refuse("the way is chosen by the link that receives");
    source = spot_of(from);
    sender.of = find_router(to);
  } else {
    const spot target = spot_of(to);
    if (!is_router(from)) source = spot_of(from);
    receiver.rank = target.rank;
    receiver.of =
        is_router(from) ? find_router(from) : make_router(fan{1, 1}, any_available(), target.rank);
    if (!is_router(from)) {
      receiver.of->set_name("the link from " + name_of(from) + " to " + name_of(to), true);
      sender.of = receiver.of;
    }
    receiver.index = receiver.of->add_output({packet_bytes, buffers, target.at, target.rank, how});
  }
  sender.rank = source.rank;
  if (sender.of) sender.index = sender.of->add_input(source.at, source.rank);
  return std::make_shared<port_pair>(sender, receiver, packet_bytes, buffers, source.at,
                                     devices_[static_cast<std::size_t>(here())], here());
}

void core::stop_routers() {
  const std::scoped_lock lock(mutex_);
  for (const edge& e : edges_) {
    for (const port_pair::port& p : {e.ports->sender, e.ports->receiver}) {
      if (p.of) p.of->stop();
    }
  }
}

void core::abort(const std::string& why) {
  stop_routers();
  limits_->abort(why);
}

picture core::drawn() const {
  const std::scoped_lock lock(mutex_);
  picture p;
  for (int i = 0; i < hosts(); ++i) {
    p.nodes.push_back({shape::host, name_of({endpoint::kind::host, i})});
  }
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    p.nodes.push_back({shape::device, "device " + std::to_string(i) + "\n" + devices_[i].name()});
  }
  for (const auto& r : routers_) p.nodes.push_back({shape::router, r->rules().name});
  const auto node_of = [&](endpoint e) {
    const auto index = static_cast<std::size_t>(e.index());
    if (e.what() == endpoint::kind::host) return index;
    const auto before = static_cast<std::size_t>(hosts()) + index;
    return before + (e.what() == endpoint::kind::router ? devices_.size() : 0);
  };
  for (const edge& e : edges_) {
    const std::string bytes = std::to_string(e.ports->bytes_moved()) + " bytes";
    p.arrows.push_back(
        {node_of(e.from), node_of(e.to), e.name.empty() ? bytes : e.name + "\n" + bytes});
  }
  return p;
}

}  // namespace crosswarp::flow::impl
