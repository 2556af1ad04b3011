// Sums that go on, on streams: norms and rounding.
#include <cmath>

#include "coll/state.hpp"

namespace crosswarp {

namespace {

/// Bytes of all rows.
std::size_t checked_bytes(const char* name, std::size_t rows, std::size_t hidden,
                          std::size_t size) {
  if (hidden == 0) throw error(errc::invalid_argument, name, "rows of no elements");
  if (rows > coll_impl::most_bytes / size / hidden) {
    throw error(errc::invalid_argument, name,
                std::to_string(rows) + " rows of " + std::to_string(hidden) +
                    " elements are more than memory can have");
  }
  return rows * hidden * size;
}

/// Of segments of a row; 0 if it is too long for registers.
int rounds_of_row(std::size_t hidden) {
  using namespace device::impl;
  if (hidden > static_cast<std::size_t>(row_tile * row_lanes) * most_held) return 0;
  return warp_part::rounds_of(hidden);
}

/// Blocks that share each of so many rows: as many as there are for it, and have something of it;
/// a power of two.
int blocks_for_a_row(std::size_t rows, std::size_t hidden, int blocks) {
  using namespace device::impl;
  const std::size_t segment = static_cast<std::size_t>(row_tile) * device::warp_group::width;
  const std::size_t most = std::min<std::size_t>(row_segments, (hidden + segment - 1) / segment);
  std::size_t each = 1;
  while (2 * each <= most && 2 * each * rows <= static_cast<std::size_t>(blocks)) each *= 2;
  return static_cast<int>(each);
}

/// Few rows are made in registers from the sum on, each by one block or by several that share it.
/// False where they do not fit, or are not few.
template <class T>
bool share_rows(coll_impl::fused_call<T>& c, const coll_impl::shape_rules& rules) {
  using namespace device::impl;
  constexpr int most_warps = static_cast<int>(coll_impl::small_block) / device::warp_group::width;
  const std::size_t rows = c.rows.rows;
  const int rounds = rounds_of_row(c.rows.hidden);
  if (rules.threads == 1 || rounds == 0 || rows == 0 ||
      rows > static_cast<std::size_t>(rules.blocks)) {
    return false;
  }
  const int blocks = blocks_for_a_row(rows, c.rows.hidden, rules.blocks);
  const int warps = std::min(row_segments / blocks, most_warps);
  const int units = row_segments / (blocks * warps) * rounds;
  const std::size_t bytes =
      static_cast<std::size_t>(warps * units) * device::warp_group::width * row_tile * sizeof(T);
  if (units > most_in_packets || bytes > rules.packet_bytes) return false;
  c.share = blocks;
  c.warps = warps;
  return true;
}

}  // namespace

template <class T>
void coll::state::queue(coll_impl::fused_call<T> c, std::size_t bytes, const chosen& how,
                        stream* named) const {
  const std::size_t rows = c.rows.rows;
  // What follows the sum is as long as the sum: no block is too many for it.
  const auto most = static_cast<std::size_t>(
      how.algorithm == coll_algorithm::two_shot ? rules.blocks : how.blocks);
  c.with = device::coll(queued.view);
  c.outcome = outcome.data();
  c.how = how.algorithm;
  const bool is_short =
      how.algorithm == coll_algorithm::push || how.algorithm == coll_algorithm::pull;
  const bool shared = is_short && !queued.images && share_rows(c, rules);
  c.each = std::max<std::size_t>(1, (rows + most - 1) / most);
  const std::size_t blocks = shared ? rows * static_cast<std::size_t>(c.share)
                                    : std::max<std::size_t>(1, (rows + c.each - 1) / c.each);
  const std::uint32_t places = how.direct ? share(c, c.rows.out, c.rows.in, bytes) : 0;
  c.whole = device::impl::coll_digest()
                .add(static_cast<std::uint64_t>(c.what))
                .add(rows)
                .add(c.rows.hidden)
                .add(blocks)
                .add(places)
                .value();
  launch_shape shape = shape_for(bytes, static_cast<int>(blocks), false);
  if (shared) {
    // A warp more for the words of the step, as long as two blocks fit where one was.
    constexpr auto most_threads = static_cast<int>(coll_impl::small_block);
    shape.threads = std::min(device::warp_group::width * (c.warps + 1), most_threads);
    shape.place_early = true;
  }
  coll_impl::queue_fused(on(named), shape, c);
}

template <device::row_element T>
void coll::all_reduce_rms_norm(const device::rms_norm_rows<T>& what, stream* on) {
  constexpr const char* name = "all_reduce_rms_norm";
  const std::size_t bytes = checked_bytes(name, what.rows, what.hidden, sizeof(T));
  state::need(name, "out", what.out, what.rows);
  state::need(name, "residual_out", what.residual_out, what.rows);
  state::need(name, "in", what.in, what.rows);
  state::need(name, "residual", what.residual, what.rows);
  state::need(name, "weight", what.weight, what.rows);
  if (!(what.epsilon >= 0)) throw error(errc::invalid_argument, name, "epsilon is below zero");
  if (what.rows != 0 && (what.out == what.residual || what.out == what.residual_out)) {
    throw error(errc::invalid_argument, name, "out is the residual's memory: the sum goes there");
  }
  coll_impl::fused_call<T> c;
  c.rows = what;
  state_->queue(c, bytes, state_->choose(c.rows.out, c.rows.in, bytes), on);
}

template <device::row_element T, device::fp8 F>
void coll::all_reduce_quantise(const device::quantise_rows<T, F>& what, stream* on) {
  constexpr const char* name = "all_reduce_quantise";
  const std::size_t bytes = checked_bytes(name, what.rows, what.hidden, sizeof(T));
  state::need(name, "out", what.out, what.rows);
  state::need(name, "sum", what.sum, what.rows);
  state::need(name, "in", what.in, what.rows);
  if (what.scales == nullptr && !(what.scale > 0 && std::isfinite(what.scale))) {
    throw error(errc::invalid_argument, name,
                "scale " + std::to_string(what.scale) + ": a finite one above zero is needed");
  }
  coll_impl::fused_call<T> c;
  c.what = std::is_same_v<F, device::fp8_e4m3> ? coll_impl::collective::quantise_e4m3
                                               : coll_impl::collective::quantise_e5m2;
  c.rows.out = what.sum;
  c.rows.in = what.in;
  c.rows.rows = what.rows;
  c.rows.hidden = what.hidden;
  c.quantised = what.out;
  c.scales = what.scales;
  c.scale = what.scale;
  state_->queue(c, bytes, state_->choose(c.rows.out, c.rows.in, bytes), on);
}

template void coll::all_reduce_rms_norm(const device::rms_norm_rows<device::half>&, stream*);
template void coll::all_reduce_rms_norm(const device::rms_norm_rows<device::bfloat16>&, stream*);
template void coll::all_reduce_rms_norm(const device::rms_norm_rows<float>&, stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::half, device::fp8_e4m3>&, stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::bfloat16, device::fp8_e4m3>&, stream*);
template void coll::all_reduce_quantise(const device::quantise_rows<float, device::fp8_e4m3>&,
                                        stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::half, device::fp8_e5m2>&, stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::bfloat16, device::fp8_e5m2>&, stream*);
template void coll::all_reduce_quantise(const device::quantise_rows<float, device::fp8_e5m2>&,
                                        stream*);

}  // namespace crosswarp
