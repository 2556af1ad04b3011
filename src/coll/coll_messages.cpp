// Messages from rank to rank, on streams.
#include <map>
#include <numeric>

#include "coll/state.hpp"

namespace crosswarp {

void coll::state::queue(const char* name, std::span<const message> all, stream* named) const {
  if (all.empty()) return;
  coll_impl::messages m;
  m.with = device::coll(queued.view);
  m.outcome = outcome.data();
  if (all.size() > m.most) {
    throw error(errc::not_supported, name,
                std::to_string(all.size()) + " messages at once; there is room for " +
                    std::to_string(m.most));
  }
  // Both ends must come to the same number of blocks, so it depends on nothing but the bytes.
  const int most_blocks = std::max(1, rules.blocks / (2 * std::max(1, of->size() - 1)));
  std::map<std::pair<bool, int>, int> lanes;
  std::size_t longest = 0;
  for (const message& one : all) {
    if (one.with < 0 || one.with >= of->size() || one.with == of->rank()) {
      throw error(
          errc::invalid_argument, name,
          one.with == of->rank()
              ? "rank " + std::to_string(one.with) + " is this one itself; copy instead"
              : "no rank " + std::to_string(one.with) + " among " + std::to_string(of->size()));
    }
    state::need(name, "data", one.data, one.bytes);
    (void)state::bytes_of(name, one.bytes, 1);
    const bool is_sent = one.way == message::direction::send;
    const auto [lane, is_new] = lanes.try_emplace({is_sent, one.with}, m.lanes);
    if (is_new) m.lane_blocks[m.lanes++] = 0;
    const int mine = std::min(blocks_for(one.bytes), most_blocks);
    int& of_lane = m.lane_blocks[lane->second];
    of_lane = std::max(of_lane, mine);
    m.all[m.count++] = {
        static_cast<std::byte*>(one.data), one.bytes, one.with, is_sent, lane->second, mine};
    longest = std::max(longest, one.bytes);
  }
  const int blocks = std::accumulate(m.lane_blocks, m.lane_blocks + m.lanes, 0);
  // All of them wait for other ranks' blocks; threads of a CPU give way to each other.
  if (of->options().device.kind() != device_kind::cpu && blocks > rules.blocks) {
    throw error(errc::not_supported, name,
                "messages to and from " + std::to_string(m.lanes) +
                    " ranks at once; this device has room for " + std::to_string(rules.blocks));
  }
  const launch_shape shape = shape_for(longest, blocks, false);
  coll_impl::queue_messages(on(named), shape, m);
}

void coll::send(const void* data, std::size_t bytes, int to, stream* on) {
  const message one{message::direction::send, const_cast<void*>(data), bytes, to};
  state_->queue("send", {&one, 1}, on);
}

void coll::receive(void* data, std::size_t bytes, int from, stream* on) {
  const message one{message::direction::receive, data, bytes, from};
  state_->queue("receive", {&one, 1}, on);
}

void coll::exchange(std::span<const message> all, stream* on) {
  state_->queue("exchange", all, on);
}

}  // namespace crosswarp
