// Bodies of coll_fused.hpp.
//
// A row is looked at once as a whole (its sum of squares, its largest), and then written. So that
// the bits of a sum do not depend on who makes it, it is always that of 512 lanes. Lane l takes
// tiles l, l + 512, ... of 8 elements, lanes are added by halves in segments of 32, and these by
// halves again. On a GPU a segment is a warp's, and added by shuffles; else a thread makes all of
// them.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "crosswarp/device/coll_fused.hpp"

namespace crosswarp::device::impl {

inline constexpr int row_tile = 8;
inline constexpr int row_segments = 16;
inline constexpr int row_lanes = row_segments * warp_group::width;

// ---- tiles

/// A thread's own copy of a tile, in registers.
template <class T>
struct alignas(16) tile_of {
  T values[row_tile];
};

/// `n` elements; those that are missing are zeros. `Whole`: all are there, and lie so that they can
/// be moved at once. Without a branch then, so that several loads are under way.
template <bool Whole, class T>
CW_FN inline void load_row_tile(tile_of<T>& held, const T* from, int n) noexcept {
  constexpr std::size_t bytes = sizeof(held.values);
  if constexpr (Whole) {
    copy_whole<bytes>(held.values, from);
  } else if (n == row_tile && takes_whole<bytes>(from)) {
    copy_whole<bytes>(held.values, from);
  } else {
    held = {};
    for (int i = 0; i < row_tile; ++i) {
      if (i < n) held.values[i] = from[i];
    }
  }
}

template <bool Whole, class T>
CW_FN inline void store_row_tile(T* to, const tile_of<T>& held, int n) noexcept {
  constexpr std::size_t bytes = sizeof(held.values);
  if constexpr (Whole) {
    copy_whole<bytes>(to, held.values);
  } else if (n == row_tile && takes_whole<bytes>(to)) {
    copy_whole<bytes>(to, held.values);
  } else {
    for (int i = 0; i < row_tile; ++i) {
      if (i < n) to[i] = held.values[i];
    }
  }
}

template <bool Whole, class T>
CW_FN inline void store_narrow(T* to, const float (&wide)[row_tile], int n) noexcept {
  tile_of<T> held;
  for (int i = 0; i < row_tile; ++i) held.values[i] = narrow<T>(wide[i]);
  store_row_tile<Whole>(to, held, n);
}

/// Not takes_whole(): a host asks, too, for a GPU, and may not answer for itself.
template <class T>
CW_FN inline bool takes_row_tiles(const T* p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(whole_word<sizeof(T) * row_tile>) == 0;
}

// ---- rows, tile by tile. fetch() reads what a tile needs beside the sum, take() joins that with
//      the sum. look() says what the tile adds to the whole, join() puts two of these together,
//      settle() makes of the whole what put() needs to write the tile. keep() writes the sum where
//      it is to be in memory. `Whole`: of tiles that is_whole().

template <class T, bool Whole = false>
struct norm_row {
  using element = T;
  static constexpr bool is_in_whole_tiles = Whole;
  rms_norm_rows<T> all;
  std::size_t begin;

  struct held {
    tile_of<T> residual;
    tile_of<T> weight;
    float x[row_tile];
  };

  [[nodiscard]] CW_FN norm_row<T, true> whole() const noexcept { return {all, begin}; }
  /// Of all rows.
  [[nodiscard]] CW_FN bool is_whole() const noexcept {
    return all.hidden % row_tile == 0 && takes_row_tiles(all.out) && takes_row_tiles(all.in) &&
           takes_row_tiles(all.residual_out) && takes_row_tiles(all.residual) &&
           takes_row_tiles(all.weight);
  }
  [[nodiscard]] CW_FN static constexpr bool looks_first() noexcept { return true; }
  [[nodiscard]] CW_FN const T* in() const noexcept { return all.in + begin; }
  [[nodiscard]] CW_FN const T* sum() const noexcept { return all.out + begin; }
  CW_FN void keep(const tile_of<T>& /*sum*/, std::size_t /*at*/, int /*n*/) const noexcept {}

  CW_FN void fetch(held& h, std::size_t at, int n) const noexcept {
    load_row_tile<Whole>(h.residual, all.residual + begin + at, n);
    load_row_tile<Whole>(h.weight, all.weight + at, n);
  }
  CW_FN static void take(held& h, const tile_of<T>& sum) noexcept {
    for (int i = 0; i < row_tile; ++i) h.x[i] = widen(sum.values[i]) + widen(h.residual.values[i]);
  }

  CW_FN static float join(float a, float b) noexcept { return a + b; }
  CW_FN static float look(const held& h) noexcept {
    float x[row_tile];
    for (int i = 0; i < row_tile; ++i) x[i] = rounded_product(h.x[i], h.x[i]);
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  }
  CW_FN float settle(float squares) const noexcept {
    const float mean = rounded_quotient(squares, static_cast<float>(all.hidden));
    return rounded_quotient(1.0F, rounded_root(mean + all.epsilon));
  }
  CW_FN void note(float /*factor*/) const noexcept {}
  CW_FN void put(const held& h, std::size_t at, int n, float factor) const noexcept {
    store_narrow<Whole>(all.residual_out + begin + at, h.x, n);
    float x[row_tile];
    for (int i = 0; i < row_tile; ++i) x[i] = h.x[i] * factor * widen(h.weight.values[i]);
    store_narrow<Whole>(all.out + begin + at, x, n);
  }
};

template <fp8 F>
inline constexpr float largest_of = std::is_same_v<F, fp8_e4m3> ? 448.0F : 57344.0F;

/// With each row's own scale, or with one for all.
template <class T, class F, bool Whole = false>
struct quantised_row {
  using element = T;
  static constexpr bool is_in_whole_tiles = Whole;
  quantise_rows<T, F> all;
  std::size_t row;

  struct held {
    tile_of<T> x;
  };

  [[nodiscard]] CW_FN quantised_row<T, F, true> whole() const noexcept { return {all, row}; }
  /// Of all rows.
  [[nodiscard]] CW_FN bool is_whole() const noexcept {
    return all.hidden % row_tile == 0 && takes_row_tiles(all.out) && takes_row_tiles(all.in) &&
           takes_row_tiles(all.sum);
  }
  [[nodiscard]] CW_FN bool looks_first() const noexcept { return all.scales != nullptr; }
  [[nodiscard]] CW_FN const T* in() const noexcept { return all.in + row * all.hidden; }
  [[nodiscard]] CW_FN const T* sum() const noexcept { return all.sum + row * all.hidden; }
  CW_FN void keep(const tile_of<T>& sum, std::size_t at, int n) const noexcept {
    store_row_tile<Whole>(all.sum + row * all.hidden + at, sum, n);
  }

  CW_FN void fetch(held& /*h*/, std::size_t /*at*/, int /*n*/) const noexcept {}
  CW_FN static void take(held& h, const tile_of<T>& sum) noexcept { h.x = sum; }

  CW_FN static float join(float a, float b) noexcept { return a > b ? a : b; }
  CW_FN static float look(const held& h) noexcept {
    float most = 0;
    for (int i = 0; i < row_tile; ++i) {
      const std::uint32_t bits = bits_as<std::uint32_t>(widen(h.x.values[i])) & ~float_sign;
      if (bits < float_infinity) most = join(most, bits_as<float>(bits));
    }
    return most;
  }
  /// Not so small that it could become zero.
  CW_FN float settle(float most) const noexcept {
    return looks_first() ? join(rounded_quotient(most, largest_of<F>), FLT_MIN) : all.scale;
  }
  CW_FN void note(float scale) const noexcept {
    if (looks_first()) all.scales[row] = scale;
  }
  CW_FN void put(const held& h, std::size_t at, int n, float scale) const noexcept {
    float x[row_tile];
    for (int i = 0; i < row_tile; ++i) {
      x[i] = clamped(rounded_quotient(widen(h.x.values[i]), scale));
    }
    store_narrow<Whole>(all.out + row * all.hidden + at, x, n);
  }

 private:
  /// A NaN is neither above nor below.
  CW_FN static float clamped(float x) noexcept {
    constexpr float most = largest_of<F>;
    return x > most ? most : x < -most ? -most : x;
  }
};

/// A tile whose sum is in memory.
template <class Row>
CW_FN inline void load_held(const Row& r, typename Row::held& h, std::size_t at, int n) noexcept {
  tile_of<typename Row::element> sum;
  r.fetch(h, at, n);
  load_row_tile<false>(sum, r.sum() + at, n);
  r.take(h, sum);
}

// ---- who makes which part of a row

CW_FN inline int length_of_tile(std::size_t t, std::size_t hidden) noexcept {
  const std::size_t left = hidden - t * row_tile;
  return left < row_tile ? static_cast<int>(left) : row_tile;
}

template <class Row>
CW_FN inline float look_as_lane(const Row& r, std::size_t hidden, int lane) noexcept {
  float whole = 0;
  for (auto t = static_cast<std::size_t>(lane); t * row_tile < hidden; t += row_lanes) {
    typename Row::held h;
    load_held(r, h, t * row_tile, length_of_tile(t, hidden));
    whole = Row::join(whole, r.look(h));
  }
  return whole;
}

/// Tiles first, first + step, ... of the row.
template <class Row>
CW_FN inline void put_tiles(const Row& r, std::size_t hidden, float factor, int first,
                            int step) noexcept {
  for (auto t = static_cast<std::size_t>(first); t * row_tile < hidden;
       t += static_cast<std::size_t>(step)) {
    typename Row::held h;
    load_held(r, h, t * row_tile, length_of_tile(t, hidden));
    r.put(h, t * row_tile, length_of_tile(t, hidden), factor);
  }
}

/// The first half with the second, until one is left: what shuffles do.
template <class Row, int N>
CW_FN inline float by_halves(float (&v)[N]) noexcept {
  for (int half = N / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] = Row::join(v[i], v[i + half]);
  }
  return v[0];
}

template <class Row>
CW_FN inline float look_alone(const Row& r, std::size_t hidden) noexcept {
  float segments[row_segments];
  for (int s = 0; s < row_segments; ++s) {
    float lanes[warp_group::width];
    for (int l = 0; l < warp_group::width; ++l) {
      lanes[l] = look_as_lane(r, hidden, s * warp_group::width + l);
    }
    segments[s] = by_halves<Row>(lanes);
  }
  return by_halves<Row>(segments);
}

/// Each thread has rows of its own. Not in line: on a GPU it is for groups that have no warp. By
/// value: what is called by its address would not stay in registers elsewhere.
template <group G, class RowOf>
CW_COLD CW_FN void rows_apart(const G g, std::size_t rows, std::size_t hidden,
                              const RowOf row_of) noexcept {
  for (auto i = static_cast<std::size_t>(g.rank()); i < rows;
       i += static_cast<std::size_t>(g.size())) {
    const auto r = row_of(i);
    float whole = 0;
    if (r.looks_first()) whole = look_alone(r, hidden);
    const float factor = r.settle(whole);
    r.note(factor);
    put_tiles(r, hidden, factor, 0, 1);
  }
}

/// Segment `s`, by a warp.
template <class Row>
CW_FN inline float look_as_warp(const warp_group& g, const Row& r, std::size_t hidden,
                                int s) noexcept {
  float whole = look_as_lane(r, hidden, s * warp_group::width + g.rank());
  for (int half = warp_group::width / 2; half > 0; half /= 2) {
    whole = Row::join(whole, g.swap(whole, half));
  }
  return whole;
}

template <class Row>
CW_FN inline float look_together(const warp_group& g, const Row& r, std::size_t hidden,
                                 std::size_t /*turn*/) noexcept {
  float segments[row_segments];
  CW_UNROLLED
  for (int s = 0; s < row_segments; ++s) segments[s] = look_as_warp(g, r, hidden, s);
  g.sync();  // others may write now what this thread has read
  return by_halves<Row>(segments);
}

template <class Row>
CW_FN inline float look_together(const block_group& g, const Row& r, std::size_t hidden,
                                 std::size_t turn) noexcept {
  const warp_group warp = g.warp();
  const int warps = g.size() / warp_group::width;
  float segments[row_segments];
  g.make_together(segments, turn, [&](float* told) {
    // A warp that is not whole only writes.
    for (int s = warp.index(); s < row_segments && warp.index() < warps; s += warps) {
      const float whole = look_as_warp(warp, r, hidden, s);
      if (warp.rank() == 0) told[s] = whole;
    }
  });
  return by_halves<Row>(segments);
}

/// All threads of the group make one row after the other: first, first + step, ...
template <group G, class RowOf>
CW_FN inline void rows_together(const G& g, std::size_t rows, std::size_t hidden,
                                const RowOf& row_of, std::size_t first = 0,
                                std::size_t step = 1) noexcept {
  std::size_t turn = 0;
  CW_IN_TURN
  for (std::size_t i = first; i < rows; i += step) {
    const auto r = row_of(i);
    float whole = 0;
    if (r.looks_first()) whole = look_together(g, r, hidden, turn++);
    const float factor = r.settle(whole);
    if (g.rank() == 0) r.note(factor);
    put_tiles(r, hidden, factor, g.rank(), g.size());
  }
}

/// In coll_rows.hpp: rows in registers, by a block.
template <class RowOf>
CW_FN inline bool hold_rows(const block_group& g, std::size_t rows, std::size_t hidden,
                            const RowOf& row_of) noexcept;

/// Rows that a whole warp or more make together. False where that does not pay.
template <group G, class RowOf>
CW_FN inline bool share_rows(const G& g, std::size_t rows, std::size_t hidden,
                             const RowOf& row_of) noexcept {
  if constexpr (std::is_same_v<G, block_group>) {
    if (hold_rows(g, rows, hidden, row_of)) return true;
  }
  if constexpr (std::is_same_v<G, block_group> || std::is_same_v<G, warp_group>) {
    if (g.size() >= warp_group::width) {
      rows_together(g, rows, hidden, row_of);
      return true;
    }
  }
  return false;
}

template <group G, class RowOf>
CW_FN inline void for_each_row(const G& g, std::size_t rows, std::size_t hidden,
                               const RowOf& row_of) noexcept {
  bool done = false;
  if constexpr (warps_go_together()) done = share_rows(g, rows, hidden, row_of);
  if (!done) rows_apart(g, rows, hidden, row_of);
  g.sync();
}

}  // namespace crosswarp::device::impl

namespace crosswarp::device {

template <group G, row_element T>
CW_FN inline void rms_norm(const G& g, const rms_norm_rows<T>& what) noexcept {
  impl::for_each_row(g, what.rows, what.hidden, [what](std::size_t i) {
    return impl::norm_row<T>{what, i * what.hidden};
  });
}

template <group G, row_element T, fp8 F>
CW_FN inline void quantise(const G& g, const quantise_rows<T, F>& what) noexcept {
  impl::for_each_row(g, what.rows, what.hidden, [what](std::size_t i) {
    return impl::quantised_row<T, F>{what, i};
  });
}

template <group G, row_element T>
CW_FN inline status all_reduce_rms_norm(const G& g, const coll& with, const rms_norm_rows<T>& what,
                                        coll_algorithm how) noexcept {
  const status s =
      with.all_reduce(g, what.out, what.in, what.rows * what.hidden, coll_ops::sum{}, how);
  if (s == status::ok) rms_norm(g, what);
  return s;
}

template <group G, row_element T, fp8 F>
CW_FN inline status all_reduce_quantise(const G& g, const coll& with,
                                        const quantise_rows<T, F>& what,
                                        coll_algorithm how) noexcept {
  const status s =
      with.all_reduce(g, what.sum, what.in, what.rows * what.hidden, coll_ops::sum{}, how);
  if (s == status::ok) quantise(g, what);
  return s;
}

}  // namespace crosswarp::device
