// What collectives are made of: folding, packets to everybody, and shelves in pieces.
#pragma once

#include "crosswarp/device/coll.hpp"
#include "crosswarp/device/impl/coll_call.hpp"
#include "crosswarp/device/impl/coll_ops.hpp"

namespace crosswarp::device::impl {

enum class coll_kind : std::uint8_t {
  barrier,
  all_reduce,
  all_reduce_symmetric,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,
};

template <class T>
CW_FN constexpr std::uint64_t type_code() noexcept {
  return sizeof(T) * 8 + (std::is_same_v<T, bfloat16> || std::is_same_v<T, fp8_e4m3> ? 1 : 0) +
         (std::is_integral_v<T> ? 2 : 0) + (std::is_signed_v<T> ? 4 : 0);
}

CW_FN inline bool is_wide(const void* p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// ---- folding: all ranks' elements into one, rank 0's first

/// `source(pe)` has rank pe's elements. `sink(i, values, count)` takes results from element i on:
/// a tile of them, or one.
template <group G, class Op, class Source, class Sink>
struct folding {
  const G& g;
  int ranks;
  const Op& op;
  const Source& source;
  bool wide;  ///< all sources are multiples of 16 bytes
  const Sink& sink;

  template <class T>
  CW_FN void run(std::size_t count) const noexcept {
    constexpr int tile = tile_size<T>();
    const std::size_t tiles = count / tile;
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    for (std::size_t t = first; t < tiles; t += step) fold_tile<T>(t * tile);
    for (std::size_t i = tiles * tile + first; i < count; i += step) fold_one<T>(i);
  }

 private:
  template <class T>
  CW_FN void fold_tile(std::size_t at) const noexcept {
    constexpr int tile = tile_size<T>();
    constexpr int batch = tiles_in_flight();
    accumulator_t<T> sum[tile] = {};
    T held[batch][tile];
    for (int pe = 0; pe < ranks; pe += batch) {
      for (int k = 0; k < batch; ++k) {
        if (pe + k < ranks) load_tile(held[k], source(pe + k) + at, wide);
      }
      for (int k = 0; k < batch; ++k) {
        if (pe + k < ranks) include(sum, held[k], tile, pe + k == 0);
      }
    }
    for (int j = 0; j < tile; ++j) held[0][j] = narrow<T>(op.finish(sum[j], ranks));
    sink(at, held[0], tile);
  }

  template <class T>
  CW_FN void fold_one(std::size_t at) const noexcept {
    accumulator_t<T> sum = {};
    for (int pe = 0; pe < ranks; ++pe) include(&sum, source(pe) + at, 1, pe == 0);
    const T value = narrow<T>(op.finish(sum, ranks));
    sink(at, &value, 1);
  }

  template <class A, class T>
  CW_FN void include(A* sum, const T* values, int count, bool first) const noexcept {
    if (first) {
      for (int j = 0; j < count; ++j) sum[j] = widen(values[j]);
    } else {
      for (int j = 0; j < count; ++j) sum[j] = op(sum[j], widen(values[j]));
    }
  }
};

template <class T, group G, class Op, class Source, class Sink>
CW_FN inline void fold(const G& g, int ranks, std::size_t count, const Op& op, const Source& source,
                       bool wide, const Sink& sink) noexcept {
  folding<G, Op, Source, Sink>{g, ranks, op, source, wide, sink}.template run<T>(count);
}

/// Where results go that one place is enough for.
template <class T>
struct into {
  T* to;
  bool wide;
  CW_FN explicit into(T* where) noexcept : to(where), wide(is_wide(where)) {}
  CW_FN void operator()(std::size_t at, const T* values, int count) const noexcept {
    if (count == 1) {
      to[at] = *values;
    } else {
      store_tile(to + at, values, wide);
    }
  }
};

/// Part `which` of `count` elements in `parts` equal parts, whole tiles of a GPU's each.
struct part {
  std::size_t begin;
  std::size_t size;
  template <class T>
  CW_FN static part of(std::size_t count, int parts, int which) noexcept {
    constexpr std::size_t grain = 16 / sizeof(T);
    const std::size_t grains = (count + grain - 1) / grain;
    const auto n = static_cast<std::size_t>(parts);
    const std::size_t each = (grains + n - 1) / n * grain;
    const std::size_t begin = each * static_cast<std::size_t>(which);
    if (begin >= count) return {count, 0};
    return {begin, count - begin < each ? count - begin : each};
  }
};

// ---- push: packets to everybody

template <class T>
struct eight_bytes {
  T values[8 / sizeof(T)];
};

/// The elements from `at` on that fit, those that are missing as zeros.
template <class T>
CW_FN inline std::uint64_t take_eight(const T* from, std::size_t at, std::size_t count) noexcept {
  constexpr std::size_t per = 8 / sizeof(T);
  eight_bytes<T> all = {};
  for (std::size_t i = 0; i < per; ++i) {
    if (at + i < count) all.values[i] = from[at + i];
  }
  return bits_as<std::uint64_t>(all);
}

template <group G, class T, class Op>
class pushing {
 public:
  CW_FN pushing(coll_call<G>& call, const Op& op) noexcept
      : call_(call), p_(call.parts_of()), op_(op), by_(p_.limits) {}

  CW_FN status run(T* out, const T* in, std::size_t count) noexcept {
    const G& g = call_.caller();
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    const std::size_t packets = (count + per - 1) / per;
    for (std::size_t i = first; i < packets; i += step) send(i, take_eight(in, i * per, count));
    status s = call_.heard_by_thread();
    for (std::size_t i = first; i < packets && s == status::ok; i += step) {
      s = receive(i, out, take_eight(in, i * per, count), count);
    }
    return call_.settle(s);
  }

 private:
  static constexpr std::size_t per = 8 / sizeof(T);
  static constexpr int batch = 8;

  /// To the next rank first, so that not all write to the same one at once.
  CW_FN void send(std::size_t i, std::uint64_t data) noexcept {
    for (int k = 1; k < p_.size; ++k) {
      const int pe = p_.rank + k < p_.size ? p_.rank + k : p_.rank + k - p_.size;
      store(call_.inbox(pe, p_.rank)[i], data, call_.tag());
    }
  }

  CW_FN status receive(std::size_t i, T* out, std::uint64_t mine, std::size_t count) noexcept {
    accumulator_t<T> sum[per] = {};
    for (int pe = 0; pe < p_.size; pe += batch) {
      std::uint64_t data[batch];
      const status s = call_.wait([&] { return all_there(pe, i, mine, data); }, by_);
      if (s != status::ok) return s;
      for (int k = 0; k < batch; ++k) {
        if (pe + k < p_.size) include(sum, data[k], pe + k == 0);
      }
    }
    for (std::size_t j = 0; j < per; ++j) {
      if (i * per + j < count) out[i * per + j] = narrow<T>(op_.finish(sum[j], p_.size));
    }
    return status::ok;
  }

  /// All of them are asked for before the first is looked at.
  CW_FN bool all_there(int first, std::size_t i, std::uint64_t mine, std::uint64_t* data) noexcept {
    bool there = true;
    for (int k = 0; k < batch; ++k) {
      const int pe = first + k;
      if (pe >= p_.size) continue;
      if (pe == p_.rank) {
        data[k] = mine;
      } else if (!load(call_.inbox(p_.rank, pe)[i], call_.tag(), data[k])) {
        there = false;
        by_.blame(pe);
      }
    }
    return there;
  }

  CW_FN void include(accumulator_t<T>* sum, std::uint64_t data, bool first) const noexcept {
    const auto all = bits_as<eight_bytes<T>>(data);
    for (std::size_t j = 0; j < per; ++j) {
      sum[j] = first ? widen(all.values[j]) : op_(sum[j], widen(all.values[j]));
    }
  }

  coll_call<G>& call_;
  const coll::parts& p_;
  const Op& op_;
  deadline by_;
};

// ---- pull and two shots, by the shelves

/// A call in pieces of `room` elements: `show(at, n)` puts this rank's n on its shelf, all meet,
/// and `take(at, n)` reads the others'. At least one piece, so that ranks with nothing to say are
/// heard.
template <group G, class Show, class Take>
CW_FN inline void exchange(coll_call<G>& call, std::size_t count, std::size_t room,
                           const Show& show, const Take& take) noexcept {
  std::size_t at = 0;
  do {
    const std::size_t n = count - at < room ? count - at : room;
    if (!call.step()) return;
    show(at, n);
    if (call.meet() != status::ok) return;
    take(at, n);
    at += n;
  } while (at < count);
}

template <group G, class T, class Op>
CW_FN inline void pull(coll_call<G>& call, T* out, const T* in, std::size_t count,
                       const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  exchange(
      call, count, p.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) { copy(g, call.shelf(p.rank), in + at, n * sizeof(T)); },
      [&](std::size_t at, std::size_t n) {
        fold<T>(
            g, p.size, n, op, [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)); },
            true, into<T>(out + at));
      });
}

template <group G, class T, class Op>
CW_FN inline void two_shot(coll_call<G>& call, T* out, const T* in, std::size_t count,
                           const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  exchange(
      call, count, p.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) { copy(g, call.shelf(p.rank), in + at, n * sizeof(T)); },
      [&](std::size_t at, std::size_t n) {
        if (!call.step()) return;
        const part mine = part::of<T>(n, p.size, p.rank);
        fold<T>(
            g, p.size, mine.size, op,
            [&](int pe) { return reinterpret_cast<const T*>(call.last_shelf(pe)) + mine.begin; },
            true, into<T>(reinterpret_cast<T*>(call.shelf(p.rank))));
        if (call.meet() != status::ok) return;
        for (int pe = 0; pe < p.size; ++pe) {
          const part theirs = part::of<T>(n, p.size, pe);
          copy(g, out + at + theirs.begin, call.shelf(pe), theirs.size * sizeof(T));
        }
      });
}

/// Two shots without a shelf: only the owner of a part reads it, and it has read an element
/// everywhere before it writes it anywhere.
template <group G, class T, class Op>
CW_FN inline void two_shot(coll_call<G>& call, const symmetric<T>& out, const symmetric<T>& in,
                           std::size_t count, const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  if (!call.step() || call.meet() != status::ok || !call.step()) return;
  const part mine = part::of<T>(count, p.size, p.rank);
  bool wide = true;
  for (int pe = 0; pe < p.size; ++pe) wide = wide && is_wide(in.at(pe)) && is_wide(out.at(pe));
  const auto everywhere = [&](std::size_t at, const T* values, int n) {
    for (int pe = 0; pe < p.size; ++pe) {
      T* const to = out.at(pe) + mine.begin + at;
      if (n == 1) {
        *to = *values;
      } else {
        store_tile(to, values, wide);
      }
    }
  };
  fold<T>(
      call.caller(), p.size, mine.size, op, [&](int pe) { return in.at(pe) + mine.begin; }, wide,
      everywhere);
  (void)call.meet();
}

template <class T>
CW_FN inline coll_digest digest(coll_kind kind, std::uint64_t count, std::uint64_t detail) {
  coll_digest d;
  d.add(static_cast<std::uint64_t>(kind)).add(type_code<T>()).add(count).add(detail);
  return d;
}

template <class T>
CW_FN inline auto bytes(T* p) noexcept {
  using byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return reinterpret_cast<byte*>(p);
}

/// Elements of T in each rank's part of a shelf, whole tiles of a GPU's.
template <class T>
CW_FN inline std::size_t share(const coll::parts& p) noexcept {
  return p.shelf_bytes / static_cast<std::size_t>(p.size) / 16 * 16 / sizeof(T);
}

}  // namespace crosswarp::device::impl
