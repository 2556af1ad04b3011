#include "flow/lane.hpp"

#include "crosswarp/error.hpp"
#include "exec/backends.hpp"
#include "flow/copy_kernel.hpp"

namespace crosswarp::flow::impl {
namespace {

std::string name_of(const place& p) {
  return p ? p->name() : "the host";
}

bool share_memory(const place& a, const place& b) {
  const auto is_hosts = [](const place& p) { return !p || p->kind() == device_kind::cpu; };
  return (is_hosts(a) && is_hosts(b)) || (a && b && *a == *b);
}

}  // namespace

way_chosen choose_way(const place& from, const place& to, transport asked,
                      const std::function<bool()>& reaches) {
  const bool two_devices = from && to;
  if (asked == transport::indirect && !two_devices) {
    throw error(errc::invalid_argument, "link",
                "an indirect way leads from device to device; one end is the host");
  }
  if (asked == transport::direct && !to) {
    throw error(errc::invalid_argument, "link",
                "a direct way ends at a device, whose kernel copies; this one ends at the host");
  }
  if (asked == transport::lent) {
    if (!share_memory(from, to)) {
      throw error(errc::invalid_argument, "link",
                  "packets are lent between ends that share memory; " + name_of(from) + " and " +
                      name_of(to) + " do not");
    }
    return {asked, "the ends share memory"};
  }
  if (asked != transport::automatic) return {asked, "asked for"};
  if (!two_devices) return {transport::peer, "one end is the host"};
  if (*from == *to) return {transport::peer, "one device"};
  if (reaches()) return {transport::peer, "the devices reach each other"};
  return {transport::indirect, from->name() + " and " + to->name() + " do not reach each other"};
}

lane::lane(const place& from, const place& to, device_ref near, transport asked,
           std::size_t packet_bytes) {
  auto [how, why] = choose_way(from, to, asked, [&] { return exec::reaches(*to, *from); });
  how_ = how;
  why_ = std::move(why);
  if (lends()) return;
  pull_.emplace(to ? *to : from ? *from : near);
  if (how_ != transport::indirect) return;
  push_.emplace(*from);
  constexpr std::size_t stages = 2;  // one is pulled while the other is pushed
  host_.emplace(*from, stages * packet_bytes, memory_kind::pinned);
  for (std::size_t i = 0; i < stages; ++i) stages_.push_back({i * packet_bytes, nullptr});
}

std::shared_ptr<event> lane::copy(void* dst, const void* src, std::size_t bytes,
                                  const completion& src_ready, const completion& dst_ready) {
  auto done = std::make_shared<event>(pull_->device());
  // What lies in host memory has gone half of the way; to stage it, CUDA would have this thread
  // wait.
  const bool halfway =
      pull_->device().kind() != device_kind::cpu && exec::on_host(pull_->device(), src, bytes);
  if (how_ == transport::indirect && !halfway) {
    stage s = stages_.front();
    stages_.pop_front();
    std::byte* const staged = host_->data() + s.at;
    if (s.pulled) push_->wait(*s.pulled);
    push(staged, src, bytes, src_ready);
    dst_ready.wait(*pull_);
    pull_->copy(dst, staged, bytes);
    pull_->record(*done);
    stages_.push_back({s.at, done});
    return done;
  }
  src_ready.wait(*pull_);
  dst_ready.wait(*pull_);
  // A kernel follows only addresses that are known to its device.
  const bool reachable =
      pull_->device().kind() == device_kind::cpu || exec::owns(pull_->device(), src, bytes);
  if (how_ == transport::direct && reachable) {
    queue_copy(*pull_, dst, src, bytes);
  } else {
    pull_->copy(dst, src, bytes);
  }
  pull_->record(*done);
  return done;
}

void lane::push(void* staged, const void* src, std::size_t bytes, const completion& src_ready) {
  src_ready.wait(*push_);
  push_->copy(staged, src, bytes);
  event pushed(push_->device());
  push_->record(pushed);
  pull_->wait(pushed);
}

std::string lane::explain() const {
  return std::string(to_string(how_)) + ": " + why_;
}

}  // namespace crosswarp::flow::impl
