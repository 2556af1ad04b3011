// Kernels of the collectives that only move bytes.
#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {
namespace {

template <reach Reach>
struct move_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c) const {
    const block_part mine(k, c);
    std::byte* const out = c.out + mine.begin;
    const std::byte* const in = c.in + mine.begin;
    const device::coll with = channel_of<Reach>(k, c);
    const auto g = k.block();
    status s = status::invalid;
    switch (c.what) {
      case collective::barrier:
        s = with.barrier(g);
        break;
      case collective::all_gather:
        s = with.all_gather(g, out, in, mine.size, c.count);
        break;
      case collective::broadcast:
        s = with.broadcast(g, out, mine.size, c.root);
        break;
      case collective::gather:
        s = with.gather(g, out, in, mine.size, c.root, c.count);
        break;
      case collective::scatter:
        s = with.scatter(g, out, in, mine.size, c.root, c.count);
        break;
      case collective::all_to_all:
        s = with.all_to_all(g, out, in, mine.size, c.count);
        break;
      default:
        break;
    }
    note(k, c, s);
  }
};

}  // namespace

void queue_move(stream& on, const launch_shape& shape, const call& c) {
  if (c.with.all_mapped()) {
    launch(on, shape, move_kernel<reach::mapped>{}, c);
  } else {
    launch(on, shape, move_kernel<reach::any>{}, c);
  }
}

}  // namespace crosswarp::coll_impl
