// A sum over all ranks, and what a model does with it next, in one kernel: while a group's part of
// the sum is still in its caches. For tensor-parallel inference.
//
// Rows are computed by themselves, in an order that depends on nothing but their length: a row has
// the same bits alone and in any batch, by any number of blocks and threads, on a CPU and on a GPU.
// (A CPU that multiplies and adds in one step is to be told not to: -ffp-contract=off.)
#pragma once

#include <cstddef>

#include "crosswarp/device/coll.hpp"

namespace crosswarp::device {

/// What sums are normalised or quantised from.
template <class T>
concept row_element =
    std::is_same_v<T, half> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float>;
template <class F>
concept fp8 = std::is_same_v<F, fp8_e4m3> || std::is_same_v<F, fp8_e5m2>;

/// Rows of `hidden` elements, one after the other. For each of them
///   sum          = in of all ranks, with the bits of all_reduce
///   x            = sum + residual, in float
///   residual_out = x, rounded to T
///   out          = x / sqrt(mean(x * x) + epsilon) * weight, in float, rounded to T once
template <row_element T>
struct rms_norm_rows {
  T* out = nullptr;           ///< may be `in`; has the sum on the way
  T* residual_out = nullptr;  ///< may be `residual` or `in`, unless that is `out`
  const T* in = nullptr;
  const T* residual = nullptr;
  const T* weight = nullptr;  ///< `hidden` of them
  std::size_t rows = 0;
  std::size_t hidden = 0;
  float epsilon = 1e-6F;
};

/// Rows of `hidden` elements, one after the other. For each of them
///   sum = in of all ranks, with the bits of all_reduce
///   out = sum / scale, in float, rounded to F once
/// What is too large for F becomes its largest number, infinities as well, other than in narrow();
/// a NaN stays one.
template <row_element T, fp8 F>
struct quantise_rows {
  F* out = nullptr;
  T* sum = nullptr;  ///< may be `in`
  const T* in = nullptr;
  /// Where each row's own scale goes: its largest magnitude over that of F, not less than the
  /// smallest normal float; NaNs and infinities do not count. Null: all have `scale`.
  float* scales = nullptr;
  float scale = 1.0F;
  std::size_t rows = 0;
  std::size_t hidden = 0;
};

/// In the channel of `with`; ranks pass the same rows and hidden.
/// Callers:    all threads of `g`, same arguments.
/// Visibility: as in calls of coll; results are there for every thread of `g`.
/// Fails:      as coll::all_reduce; then results are undefined.
template <group G, row_element T>
[[nodiscard]] CW_FN status
all_reduce_rms_norm(const G& g, const coll& with, const rms_norm_rows<T>& what,
                    coll_algorithm how = coll_algorithm::automatic) noexcept;
template <group G, row_element T, fp8 F>
[[nodiscard]] CW_FN status
all_reduce_quantise(const G& g, const coll& with, const quantise_rows<T, F>& what,
                    coll_algorithm how = coll_algorithm::automatic) noexcept;

/// The part after the sum, which is in `out` or in `sum` for every thread of `g`.
template <group G, row_element T>
CW_FN void rms_norm(const G& g, const rms_norm_rows<T>& what) noexcept;
template <group G, row_element T, fp8 F>
CW_FN void quantise(const G& g, const quantise_rows<T, F>& what) noexcept;

}  // namespace crosswarp::device

#include "crosswarp/device/impl/coll_fused_impl.hpp"
#include "crosswarp/device/impl/coll_rows.hpp"
