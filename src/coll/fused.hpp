// Kernels of reductions that go on with their sum; each source file that includes this makes those
// of one type. One kernel for all that follows a sum: the sum is what takes long to compile.
#pragma once

#include "coll/kernels.hpp"
#include "crosswarp/device/coll_fused.hpp"

namespace crosswarp::coll_impl {

template <class T, reach Reach>
struct fused_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const fused_call<T>& c) const {
    // Whole rows, in the block's own channel.
    auto mine = c.rows;
    const std::size_t first = c.each * static_cast<std::size_t>(k.block_index());
    const std::size_t begin = first * mine.hidden;
    mine.rows = mine.rows - first < c.each ? mine.rows - first : c.each;
    mine.out += begin;
    mine.in += begin;
    const status s = sum(k, c, mine, begin * sizeof(T));
    note(k, c, s);
    if (s == status::ok) go_on(k, c, mine, first);
  }

 private:
  CW_FN static status sum(const device::kernel_context& k, const fused_call<T>& c,
                          const device::rms_norm_rows<T>& mine, std::size_t begin) {
    const device::coll own = c.with.channel(k.block_index(), c.whole);
    const device::coll with = Reach == reach::mapped ? own.mapped() : own;
    const std::size_t count = mine.rows * mine.hidden;
    if (c.shared_in.size() == 0) {
      return with.all_reduce(k.block(), mine.out, mine.in, count, device::coll_ops::sum{}, c.how);
    }
    return with.all_reduce(k.block(), c.shared_out.template part<T>(begin),
                           c.shared_in.template part<T>(begin), count);
  }

  CW_FN static void go_on(const device::kernel_context& k, const fused_call<T>& c,
                          device::rms_norm_rows<T> mine, std::size_t first) {
    if (c.what == collective::rms_norm) {
      mine.residual_out += first * mine.hidden;
      mine.residual += first * mine.hidden;
      device::rms_norm(k.block(), mine);
    } else if (c.what == collective::quantise_e4m3) {
      quantise<device::fp8_e4m3>(k, c, mine, first);
    } else {
      quantise<device::fp8_e5m2>(k, c, mine, first);
    }
  }

  template <class F>
  CW_FN static void quantise(const device::kernel_context& k, const fused_call<T>& c,
                             const device::rms_norm_rows<T>& mine, std::size_t first) {
    device::quantise_rows<T, F> rows;
    rows.out = static_cast<F*>(c.quantised) + first * mine.hidden;
    rows.sum = mine.out;
    rows.scales = c.scales != nullptr ? c.scales + first : nullptr;
    rows.scale = c.scale;
    rows.rows = mine.rows;
    rows.hidden = mine.hidden;
    device::quantise(k.block(), rows);
  }
};

/// Rows that each are one block's or several blocks', from the sum on. `F`: what they are rounded
/// to; T: they are normalised. `Whole`: this rank's memory takes whole tiles; others' kernels may
/// be of the other kind. Ranks are all mapped.
template <class T, class F, bool Whole>
struct shared_row_kernel : kernel_rules {
  CW_FN void operator()(const device::kernel_context& k, const fused_call<T>& c) const {
    const device::coll with = c.with.channel(k.block_index(), c.whole).mapped();
    const device::share mine{k.block_index() % c.share, c.share};
    const auto which = static_cast<std::size_t>(k.block_index() / c.share);
    note(k, c,
         device::impl::make_row<device::impl::most_in_packets>(k.block(), with, row_of(c, which),
                                                               c.rows.hidden, mine, c.warps));
  }

  CW_FN static auto row_of(const fused_call<T>& c, std::size_t which) {
    if constexpr (std::is_same_v<T, F>) {
      return device::impl::norm_row<T, Whole>{c.rows, which * c.rows.hidden};
    } else {
      device::quantise_rows<T, F> rows;
      rows.out = static_cast<F*>(c.quantised);
      rows.sum = c.rows.out;
      rows.in = c.rows.in;
      rows.scales = c.scales;
      rows.scale = c.scale;
      rows.rows = c.rows.rows;
      rows.hidden = c.rows.hidden;
      return device::impl::quantised_row<T, F, Whole>{rows, which};
    }
  }
};

template <class T, class F>
void queue_shared(stream& on, const launch_shape& shape, const fused_call<T>& c) {
  if (shared_row_kernel<T, F, true>::row_of(c, 0).is_whole()) {
    launch(on, shape, shared_row_kernel<T, F, true>{}, c);
  } else {
    launch(on, shape, shared_row_kernel<T, F, false>{}, c);
  }
}

template <class T>
void queue_fused(stream& on, const launch_shape& shape, const fused_call<T>& c) {
  if (c.share != 0) {
    switch (c.what) {
      case collective::quantise_e4m3:
        return queue_shared<T, device::fp8_e4m3>(on, shape, c);
      case collective::quantise_e5m2:
        return queue_shared<T, device::fp8_e5m2>(on, shape, c);
      default:
        return queue_shared<T, T>(on, shape, c);
    }
  }
  if (c.with.all_mapped()) {
    launch(on, shape, fused_kernel<T, reach::mapped>{}, c);
  } else {
    launch(on, shape, fused_kernel<T, reach::any>{}, c);
  }
}

}  // namespace crosswarp::coll_impl
