// Kernels of reductions for one type; each source file that includes this makes those of its own.
#pragma once

#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {

/// `How`: the algorithm, where a kernel has one alone, so that it is shorter and has more registers
/// for it; `automatic`: what the call says.
template <class T, class Op, coll_algorithm How, reach Reach = reach::mapped>
struct all_reduce_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, const Op& op) const {
    const device::coll with = channel_of<Reach>(k, c);
    const auto block = k.block();
    if constexpr (How == coll_algorithm::automatic || How == coll_algorithm::two_shot) {
      if (c.shared_in.size() != 0) {
        note(k, c,
             with.all_reduce(block, c.shared_out.part<T>(0), c.shared_in.part<T>(0), c.count, op,
                             {k.block_index(), k.block_count()}));
        return;
      }
    }
    const block_part mine(k, c);
    note(k, c,
         with.all_reduce(block, reinterpret_cast<T*>(c.out) + mine.begin,
                         reinterpret_cast<const T*>(c.in) + mine.begin, mine.size, op,
                         How == coll_algorithm::automatic ? c.how : How));
  }
};

/// Two shots that were recorded: on the caller's memory once it is registered, until then by the
/// shelves.
template <class T, class Op>
struct recorded_all_reduce_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, const Op& op) const {
    const device::coll with = channel_of<reach::mapped>(k, c);
    const late_memory there = *c.late;
    if (there.in.size() != 0) {
      note(k, c,
           with.all_reduce(k.block(), there.out.part<T>(0), there.in.part<T>(0), c.count, op,
                           {k.block_index(), k.block_count()}));
      return;
    }
    const block_part mine(k, c);
    note(k, c,
         with.all_reduce(k.block(), reinterpret_cast<T*>(c.out) + mine.begin,
                         reinterpret_cast<const T*>(c.in) + mine.begin, mine.size, op,
                         coll_algorithm::two_shot));
  }
};

template <class T, reach Reach>
struct reduce_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c,
                        const device::coll_ops::any& op) const {
    const block_part mine(k, c);
    note(k, c,
         channel_of<Reach>(k, c).reduce(k.block(), reinterpret_cast<T*>(c.out) + mine.begin,
                                        reinterpret_cast<const T*>(c.in) + mine.begin, mine.size,
                                        c.root, op));
  }
};

template <class T, reach Reach>
struct reduce_scatter_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c,
                        const device::coll_ops::any& op) const {
    const block_part mine(k, c);
    note(k, c,
         channel_of<Reach>(k, c).reduce_scatter(k.block(), reinterpret_cast<T*>(c.out) + mine.begin,
                                                reinterpret_cast<const T*>(c.in) + mine.begin,
                                                mine.size, op, c.count));
  }
};

template <class T>
struct reduce_scatter_v_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const call& c, const uneven& parts,
                        const device::coll_ops::any& op) const {
    note(k, c,
         channel_of<reach::any>(k, c).reduce_scatter_v(
             k.block(), reinterpret_cast<T*>(c.out), reinterpret_cast<const T*>(c.in), parts.counts,
             parts.places, op, {k.block_index(), k.block_count()}));
  }
};

/// Sums of what models are made of have a kernel for each algorithm; other sums one, and other
/// operations are found element by element.
template <class T>
constexpr bool is_short = sizeof(T) == 2 || std::is_same_v<T, float>;

template <class T>
void queue_sum(stream& on, const launch_shape& shape, const call& c) {
  using device::coll_ops::sum;
  if constexpr (is_short<T>) {
    switch (c.how) {
      case coll_algorithm::push:
        return launch(on, shape, all_reduce_kernel<T, sum, coll_algorithm::push>{}, c, sum{});
      case coll_algorithm::pull:
        return launch(on, shape, all_reduce_kernel<T, sum, coll_algorithm::pull>{}, c, sum{});
      default:
        return launch(on, shape, all_reduce_kernel<T, sum, coll_algorithm::two_shot>{}, c, sum{});
    }
  } else {
    launch(on, shape, all_reduce_kernel<T, sum, coll_algorithm::automatic>{}, c, sum{});
  }
}

template <class T>
void queue_recorded(stream& on, const launch_shape& shape, const call& c) {
  using namespace device::coll_ops;
  if constexpr (is_short<T>) {
    if (c.op == coll_op::sum) {
      return launch(on, shape, recorded_all_reduce_kernel<T, sum>{}, c, sum{});
    }
  }
  launch(on, shape, recorded_all_reduce_kernel<T, any>{}, c, any{c.op});
}

template <class T>
void queue_all_reduce(stream& on, const launch_shape& shape, const call& c) {
  using device::coll_ops::any;
  if (!c.with.all_mapped() || c.how == coll_algorithm::ring) {
    return launch(on, shape, all_reduce_kernel<T, any, coll_algorithm::automatic, reach::any>{}, c,
                  any{c.op});
  }
  if (c.late != nullptr) return queue_recorded<T>(on, shape, c);
  if (c.op == coll_op::sum) return queue_sum<T>(on, shape, c);
  launch(on, shape, all_reduce_kernel<T, any, coll_algorithm::automatic>{}, c, any{c.op});
}

template <class T, reach Reach>
void queue_scattered(stream& on, const launch_shape& shape, const call& c) {
  const device::coll_ops::any op{c.op};
  if (c.what == collective::reduce) return launch(on, shape, reduce_kernel<T, Reach>{}, c, op);
  launch(on, shape, reduce_scatter_kernel<T, Reach>{}, c, op);
}

template <class T>
void queue_reduction(stream& on, const launch_shape& shape, const call& c) {
  switch (c.what) {
    case collective::all_reduce:
      return queue_all_reduce<T>(on, shape, c);
    case collective::reduce_scatter_v:
      return launch(on, shape, reduce_scatter_v_kernel<T>{}, c, *c.parts,
                    device::coll_ops::any{c.op});
    default:
      return c.with.all_mapped() ? queue_scattered<T, reach::mapped>(on, shape, c)
                                 : queue_scattered<T, reach::any>(on, shape, c);
  }
}

}  // namespace crosswarp::coll_impl
