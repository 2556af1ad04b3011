// Kernels of the collectives that only move bytes.
#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {
namespace {

template <reach Reach>
struct move_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, move_kind kind) const {
    const block_part mine(k, c);
    std::byte* const out = c.out + mine.begin;
    const std::byte* const in = c.in + mine.begin;
    const device::coll with = channel_of<Reach>(k, c);
    const auto g = k.block();
    status s = status::invalid;
    switch (kind) {
      case move_kind::barrier:
        s = with.barrier(g);
        break;
      case move_kind::all_gather:
        s = with.all_gather(g, out, in, mine.size, c.count);
        break;
      case move_kind::broadcast:
        s = with.broadcast(g, out, mine.size, c.root);
        break;
      case move_kind::gather:
        s = with.gather(g, out, in, mine.size, c.root, c.count);
        break;
      case move_kind::scatter:
        s = with.scatter(g, out, in, mine.size, c.root, c.count);
        break;
      case move_kind::all_to_all:
        s = with.all_to_all(g, out, in, mine.size, c.count);
        break;
    }
    note(k, c.outcome, s);
  }
};

}  // namespace

void queue_move(stream& on, const launch_shape& shape, move_kind kind, const call& c) {
  if (c.with.all_mapped()) {
    launch(on, shape, move_kernel<reach::mapped>{}, c, kind);
  } else {
    launch(on, shape, move_kernel<reach::any>{}, c, kind);
  }
}

}  // namespace crosswarp::coll_impl
