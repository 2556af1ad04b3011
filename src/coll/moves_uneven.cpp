// Kernels of the collectives that move uneven parts. Blocks share each part.
#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {
namespace {

CW_FN inline device::share share_of(const device::kernel_context& k) noexcept {
  return {k.block_index(), k.block_count()};
}

struct uneven_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, const uneven& parts) const {
    const device::coll with = channel_of<reach::any>(k, c);
    const auto g = k.block();
    status s = status::invalid;
    switch (c.what) {
      case collective::all_gather_v:
        s = with.all_gather_v(g, c.out, c.in, parts.counts, parts.places, share_of(k));
        break;
      case collective::gather_v:
        s = with.gather_v(g, c.out, c.in, parts.counts, parts.places, c.root, share_of(k));
        break;
      case collective::scatter_v:
        s = with.scatter_v(g, c.out, c.in, parts.counts, parts.places, c.root, share_of(k));
        break;
      default:
        break;
    }
    note(k, c, s);
  }
};

struct all_to_all_v_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, const uneven& sent,
                        const uneven& received) const {
    note(k, c,
         channel_of<reach::any>(k, c).all_to_all_v(
             k.block(), c.out, c.in, {sent.counts, sent.places, received.counts, received.places},
             share_of(k)));
  }
};

static_assert(sizeof(call) + 2 * sizeof(uneven) <= 4096 - 256, "and a launch's own");

}  // namespace

void queue_uneven(stream& on, const launch_shape& shape, const call& c) {
  launch(on, shape, uneven_kernel{}, c, *c.parts);
}

void queue_all_to_all_v(stream& on, const launch_shape& shape, const uneven& sent, const call& c) {
  launch(on, shape, all_to_all_v_kernel{}, c, sent, *c.parts);
}

}  // namespace crosswarp::coll_impl
