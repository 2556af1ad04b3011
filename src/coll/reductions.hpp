// Kernels of reductions for one type; each source file that includes this makes those of its own.
#pragma once

#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {

template <class T, class Op>
struct all_reduce_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, const Op& op) const {
    const block_part mine(k, c);
    const device::coll with = channel_of(k, c);
    auto* const out = reinterpret_cast<T*>(c.out) + mine.begin;
    const auto* const in = reinterpret_cast<const T*>(c.in) + mine.begin;
    const auto block = k.block();
    const status s = c.shared_in.size() != 0
                         ? with.all_reduce(block, c.shared_out.part<T>(0), c.shared_in.part<T>(0),
                                           c.count, op, {k.block_index(), k.block_count()})
                         : with.all_reduce(block, out, in, mine.size, op, c.how);
    note(k, c.outcome, s);
  }
};

template <class T>
struct reduce_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c,
                        const device::coll_ops::any& op) const {
    const block_part mine(k, c);
    note(k, c.outcome,
         channel_of(k, c).reduce(k.block(), reinterpret_cast<T*>(c.out) + mine.begin,
                                 reinterpret_cast<const T*>(c.in) + mine.begin, mine.size, c.root,
                                 op));
  }
};

template <class T>
struct reduce_scatter_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c,
                        const device::coll_ops::any& op) const {
    const block_part mine(k, c);
    note(k, c.outcome,
         channel_of(k, c).reduce_scatter(k.block(), reinterpret_cast<T*>(c.out) + mine.begin,
                                         reinterpret_cast<const T*>(c.in) + mine.begin, mine.size,
                                         op, c.count));
  }
};

/// Sums have kernels of their own; other operations are found element by element.
template <class T>
void queue_reduction(stream& on, const launch_shape& shape, reduction_kind kind, const call& c) {
  const device::coll_ops::any op{c.op};
  switch (kind) {
    case reduction_kind::all_reduce:
      if (c.op == coll_op::sum) {
        return launch(on, shape, all_reduce_kernel<T, device::coll_ops::sum>{}, c,
                      device::coll_ops::sum{});
      }
      return launch(on, shape, all_reduce_kernel<T, device::coll_ops::any>{}, c, op);
    case reduction_kind::reduce:
      return launch(on, shape, reduce_kernel<T>{}, c, op);
    case reduction_kind::reduce_scatter:
      return launch(on, shape, reduce_scatter_kernel<T>{}, c, op);
  }
}

}  // namespace crosswarp::coll_impl
