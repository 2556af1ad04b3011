// Kernel of messages from rank to rank.
#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {
namespace {

struct message_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const messages& m) const {
    int block = k.block_index();
    int lane = 0;
    while (block >= m.lane_blocks[lane]) block -= m.lane_blocks[lane++];
    for (int i = 0; i < m.count; ++i) {
      const messages::one& next = m.all[i];
      if (next.lane == lane && block < next.blocks) move(k, m, next, block);
    }
  }

 private:
  CW_FN static void move(const device::kernel_context& k, const messages& m,
                         const messages::one& one, int block) {
    const device::sharing<std::byte> shared(one.bytes, one.blocks);
    std::byte* const data = one.data + shared.begin(block);
    const std::size_t bytes = shared.size(block);
    const auto whole =
        (static_cast<std::uint64_t>(one.bytes) << 10U) | static_cast<std::uint64_t>(one.blocks);
    const device::coll with = m.with.channel(block, whole);
    const status s = one.is_sent ? with.send(k.block(), data, bytes, one.with)
                                 : with.receive(k.block(), data, bytes, one.with);
    const auto describe = [&] {
      return description::of(one.is_sent ? collective::send : collective::receive, one.bytes);
    };
    note(k, m.outcome, s, describe, block, one.with);
  }
};

}  // namespace

void queue_messages(stream& on, const launch_shape& shape, const messages& m) {
  launch(on, shape, message_kernel{}, m);
}

}  // namespace crosswarp::coll_impl
