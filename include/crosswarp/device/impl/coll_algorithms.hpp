// What collectives are made of: folding, packets to everybody, and shelves in pieces.
#pragma once

#include "crosswarp/device/coll.hpp"
#include "crosswarp/device/impl/coll_call.hpp"
#include "crosswarp/device/impl/coll_ops.hpp"

namespace crosswarp::device {

template <class T>
CW_FN inline sharing<T>::sharing(std::size_t count, int parts) noexcept : count_(count) {
  constexpr std::size_t grain = sizeof(T) < 16 ? 16 / sizeof(T) : 1;
  const auto n = static_cast<std::uint32_t>(parts);
  const std::size_t grains = (count + grain - 1) / grain + n - 1;
  // A GPU divides 64 bits by a long loop.
  const auto few = static_cast<std::uint32_t>(grains);
  each_ = (few == grains ? few / n : grains / n) * grain;
}
template <class T>
CW_FN inline std::size_t sharing<T>::begin(int which) const noexcept {
  const std::size_t at = each_ * static_cast<std::size_t>(which);
  return at < count_ ? at : count_;
}
template <class T>
CW_FN inline std::size_t sharing<T>::size(int which) const noexcept {
  const std::size_t left = count_ - begin(which);
  return left < each_ ? left : each_;
}

}  // namespace crosswarp::device

namespace crosswarp::device::impl {

/// What is asked for, or the best by size, as far as there is room for it.
CW_FN inline coll_algorithm choose(const coll::parts& p, std::size_t bytes,
                                   coll_algorithm asked) noexcept {
  const bool fits = p.packets != 0 && bytes <= p.packets * 8;
  if (asked == coll_algorithm::automatic) {
    if (bytes <= p.push_bytes && fits) return coll_algorithm::push;
    if (bytes <= p.pull_bytes) return coll_algorithm::pull;
    return bytes <= p.two_shot_bytes ? coll_algorithm::two_shot : coll_algorithm::ring;
  }
  return asked == coll_algorithm::push && !fits ? coll_algorithm::pull : asked;
}

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
  all_gather_v,
  gather_v,
  scatter_v,
  reduce_scatter_v,
  message,
};

template <class T>
CW_FN constexpr std::uint64_t type_code() noexcept {
  return sizeof(T) * 8 + (std::is_same_v<T, bfloat16> || std::is_same_v<T, fp8_e4m3> ? 1 : 0) +
         (std::is_integral_v<T> ? 2 : 0) + (std::is_signed_v<T> ? 4 : 0);
}

// ---- folding: all ranks' elements into one, rank 0's first

/// Which tiles of some elements a thread takes: the first, and how many further the next one is.
struct every {
  std::size_t first;
  std::size_t step;
  /// Each thread of a group in turn.
  template <group G>
  CW_FN static every thread_of(const G& g) noexcept {
    return {static_cast<std::size_t>(g.rank()), static_cast<std::size_t>(g.size())};
  }
};

/// `source(pe)` has rank pe's elements. `sink(i, values, count)` takes results from element i on:
/// a tile of them, or one.
template <class Op, class Source, class Sink>
struct folding {
  int ranks;
  const Op& op;
  const Source& source;
  bool in_tiles;  ///< all sources and the sink take tiles
  const Sink& sink;

  /// With two ranks two tiles at a time, so that more reads are under way.
  template <class T>
  CW_FN void run(std::size_t count, every mine) const noexcept {
    const std::size_t tiles = in_tiles ? count / tile_size<T>() : 0;
    std::size_t t = mine.first;
    if constexpr (tiles_in_flight() > 1) {
      if (ranks == 2) t = run_at_once<T, 2>(t, tiles, mine.step);
    }
    (void)run_at_once<T, 1>(t, tiles, mine.step);
    CW_IN_TURN
    for (std::size_t i = tiles * tile_size<T>() + mine.first; i < count; i += mine.step) {
      fold_one<T>(i);
    }
  }

 private:
  /// From tile t on, as long as there are so many for this thread; the tile it came to.
  template <class T, int AtOnce>
  CW_FN std::size_t run_at_once(std::size_t t, std::size_t tiles, std::size_t step) const noexcept {
    CW_IN_TURN
    for (; t + (AtOnce - 1) * step < tiles; t += AtOnce * step) fold_tiles<T, AtOnce>(t, step);
    return t;
  }

  template <class T, int AtOnce>
  CW_FN void fold_tiles(std::size_t t, std::size_t step) const noexcept {
    constexpr int tile = tile_size<T>();
    constexpr int batch = AtOnce == 1 ? tiles_in_flight() : 2;
    accumulator_t<T> sum[AtOnce][tile] = {};
    T held[batch][AtOnce][tile];
    CW_IN_TURN
    for (int pe = 0; pe < ranks; pe += batch) {
      for (int k = 0; k < batch; ++k) {
        if (pe + k >= ranks) continue;
        const T* const from = source(pe + k);
        for (int j = 0; j < AtOnce; ++j) {
          load_tile(held[k][j], from + (t + static_cast<std::size_t>(j) * step) * tile);
        }
      }
      for (int k = 0; k < batch; ++k) {
        if (pe + k >= ranks) continue;
        for (int j = 0; j < AtOnce; ++j) include(sum[j], held[k][j], tile, pe + k == 0);
      }
    }
    for (int j = 0; j < AtOnce; ++j) {
      for (int i = 0; i < tile; ++i) held[0][j][i] = narrow<T>(op.finish(sum[j][i], ranks));
      sink((t + static_cast<std::size_t>(j) * step) * tile, held[0][j], tile);
    }
  }

  template <class T>
  CW_FN void fold_one(std::size_t at) const noexcept {
    accumulator_t<T> sum = {};
    CW_IN_TURN
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

template <class T, class Op, class Source, class Sink>
CW_FN inline void fold(const every& mine, int ranks, std::size_t count, const Op& op,
                       const Source& source, bool in_tiles, const Sink& sink) noexcept {
  folding<Op, Source, Sink>{ranks, op, source, in_tiles, sink}.template run<T>(count, mine);
}

/// Puts elements on a shelf: as copy(), which is long, but short where all is in order.
template <class T, group G>
CW_FN inline void put_on_shelf(const G& g, std::byte* shelf, const T* from,
                               std::size_t count) noexcept {
  if (tiles_in_flight() == 1 || !takes_tiles(from) || count % tile_size<T>() != 0) {
    copy(g, shelf, from, count * sizeof(T));
    return;
  }
  const every mine = every::thread_of(g);
  CW_IN_TURN
  for (std::size_t t = mine.first * tile_size<T>(); t < count; t += mine.step * tile_size<T>()) {
    T held[tile_size<T>()];
    load_tile(held, from + t);
    store_tile(reinterpret_cast<T*>(shelf) + t, held);
  }
}

/// Folds what lies on shelves, from each rank's `source(pe)`, into `out`.
template <class T, group G, class Op, class Source>
CW_FN inline void fold_shelves(const G& g, int ranks, std::size_t count, const Op& op,
                               const Source& source, T* out) noexcept {
  fold<T>(every::thread_of(g), ranks, count, op, source, takes_tiles(out),
          [&](std::size_t at, const T* values, int n) {
            if (n == 1) {
              out[at] = *values;
            } else {
              store_tile(out + at, values);
            }
          });
}

// ---- push: packets to everybody

/// Eight bytes of elements, moved at once where they lie so.
template <class T>
struct eight_bytes {
  static constexpr std::size_t per = 8 / sizeof(T);
  T values[per];
};

/// Elements [0, count) in packets' data.
template <class T>
class in_eights {
 public:
  static constexpr std::size_t per = eight_bytes<T>::per;
  CW_FN in_eights(T* data, std::size_t count) noexcept
      : data_(data), count_(count), whole_(reinterpret_cast<std::uintptr_t>(data) % 8 == 0) {}

  [[nodiscard]] CW_FN std::size_t packets() const noexcept { return (count_ + per - 1) / per; }
  /// The elements of packet i, those that are missing as zeros.
  [[nodiscard]] CW_FN std::uint64_t get(std::size_t i) const noexcept {
    if (whole_ && (i + 1) * per <= count_) {
      return reinterpret_cast<const std::uint64_t*>(data_)[i];
    }
    return gathered(data_, count_, i * per);
  }
  CW_FN void put(std::size_t i, std::uint64_t data) const noexcept {
    if (whole_ && (i + 1) * per <= count_) {
      reinterpret_cast<std::uint64_t*>(data_)[i] = data;
      return;
    }
    scatter(data_, count_, i * per, data);
  }

 private:
  // For what is short or lies oddly; not in line, there are many places.
  CW_COLD CW_FN static std::uint64_t gathered(T* data, std::size_t count, std::size_t at) noexcept {
    eight_bytes<std::remove_const_t<T>> all = {};
    for (std::size_t j = 0; j < per; ++j) {
      if (at + j < count) all.values[j] = data[at + j];
    }
    return bits_as<std::uint64_t>(all);
  }
  CW_COLD CW_FN static void scatter(T* data, std::size_t count, std::size_t at,
                                    std::uint64_t eight) noexcept {
    const auto all = bits_as<eight_bytes<T>>(eight);
    for (std::size_t j = 0; j < per; ++j) {
      if (at + j < count) data[at + j] = all.values[j];
    }
  }

  T* data_;
  std::size_t count_;
  bool whole_;
};

/// Everything to everybody, packets of `Batch` ranks under way at a time. Who pushes sends to
/// itself as well, so that all packets are found in one way.
template <int Batch, group G, class T, class Op>
class pushing {
 public:
  CW_FN pushing(coll_call<G>& call, const Op& op) noexcept
      : call_(call), p_(call.parts_of()), op_(op), by_(p_.limits) {}

  CW_FN void run(T* out, const T* in, std::size_t count) noexcept {
    const G& g = call_.caller();
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    const in_eights<const T> from(in, count);
    const in_eights<T> to(out, count);
    const std::size_t packets = from.packets();
    // Asked for before the step's number has come.
    const std::uint64_t first_data = first < packets ? from.get(first) : 0;
    if (!call_.step_of_packets()) return;
    CW_IN_TURN
    for (std::size_t i = first; i < packets; i += step) {
      send_to_all(i, i == first ? first_data : from.get(i));
    }
    status s = call_.hear_all(by_);
    CW_IN_TURN
    for (std::size_t i = first; i < packets && s == status::ok; i += step) {
      std::uint64_t sum = 0;
      s = fold_packets(i, sum);
      if (s == status::ok) to.put(i, sum);
    }
    (void)call_.settle(s);
  }

 private:
  static constexpr std::size_t per = eight_bytes<T>::per;

  /// This rank last, the next one first, so that not all write to the same one at once.
  [[nodiscard]] CW_FN int after(int k) const noexcept {
    const int pe = p_.rank + 1 + k;
    return pe < p_.size ? pe : pe - p_.size;
  }

  CW_FN void send_to_all(std::size_t i, std::uint64_t data) const noexcept {
    const std::size_t place = call_.inbox_place(p_.rank) + i * sizeof(packet);
    CW_IN_TURN
    for (int begin = 0; begin < p_.size; begin += Batch) {
      for (int k = begin; k < begin + Batch; ++k) {
        if (k < p_.size) store(call_.packet_at(after(k), place), data, call_.tag());
      }
    }
  }

  CW_FN status fold_packets(std::size_t i, std::uint64_t& result) noexcept {
    accumulator_t<T> sum[per] = {};
    CW_IN_TURN
    for (int pe = 0; pe < p_.size; pe += Batch) {
      std::uint64_t data[Batch];
      const status s = receive(i, pe, data);
      if (s != status::ok) return s;
      for (int k = 0; k < Batch; ++k) {
        if (pe + k < p_.size) include(sum, data[k], pe + k == 0);
      }
    }
    eight_bytes<T> all;
    for (std::size_t j = 0; j < per; ++j) all.values[j] = narrow<T>(op_.finish(sum[j], p_.size));
    result = bits_as<std::uint64_t>(all);
    return status::ok;
  }

  /// Packet i of the ranks from `pe` on; beyond the last one, of rank 0 again. All of them are
  /// asked for before the first is looked at.
  CW_FN status receive(std::size_t i, int pe, std::uint64_t* data) noexcept {
    packet* const first = &call_.packet_at(p_.rank, call_.inbox_place(0)) + i;
    const auto from = [&](int k) { return pe + k < p_.size ? pe + k : 0; };
    return call_.wait(
        [&] {
          bool came[Batch];
          for (int k = 0; k < Batch; ++k) {
            came[k] =
                load(first[static_cast<std::size_t>(from(k)) * p_.packets], call_.tag(), data[k]);
          }
          bool there = true;
          for (int k = 0; k < Batch; ++k) there = there && came[k];
          if (there) return true;
          for (int k = 0; k < Batch; ++k) {
            if (!came[k]) by_.blame(from(k));
          }
          return false;
        },
        by_);
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

template <group G, class T, class Op>
CW_FN inline void push(coll_call<G>& call, T* out, const T* in, std::size_t count,
                       const Op& op) noexcept {
  if (call.parts_of().size <= 2) {
    pushing<2, G, T, Op>(call, op).run(out, in, count);
  } else {
    pushing<8, G, T, Op>(call, op).run(out, in, count);
  }
}

// ---- pull and two shots, by the shelves

/// Elements of T from the shelf's element `first` on.
template <class T>
CW_FN inline on_shelf elements(std::size_t first, std::size_t count) noexcept {
  return {first * sizeof(T), count * sizeof(T)};
}

/// A call in pieces of `room` elements: `show(at, n)` puts this rank's n on its shelf, all meet,
/// and `take(at, n)` reads the others'. `shown(at, n, pe)`: what rank pe will read. At least one
/// piece, so that ranks with nothing to say are heard.
template <group G, class Show, class Shown, class Take>
CW_FN inline void exchange(coll_call<G>& call, std::size_t count, std::size_t room,
                           const Show& show, const Shown& shown, const Take& take) noexcept {
  std::size_t at = 0;
  do {
    const std::size_t n = count - at < room ? count - at : room;
    if (!call.step()) return;
    show(at, n);
    if (call.meet([&](int pe) { return shown(at, n, pe); }) != status::ok) return;
    take(at, n);
    at += n;
  } while (at < count);
}

/// False for a root that is none. Then the call goes on with nothing to move, so that others, who
/// may have another root, are not waiting, and fails.
CW_FN inline bool take_root(int& root, std::size_t& count, int ranks) noexcept {
  if (root >= 0 && root < ranks) return true;
  root = 0;
  count = 0;
  return false;
}

template <group G, class T, class Op>
CW_FN inline void pull(coll_call<G>& call, T* out, const T* in, std::size_t count,
                       const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  exchange(
      call, count, p.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) { put_on_shelf(g, call.shelf(p.rank), in + at, n); },
      [](std::size_t /*at*/, std::size_t n, int /*pe*/) { return elements<T>(0, n); },
      [&](std::size_t at, std::size_t n) {
        fold_shelves<T>(
            g, p.size, n, op, [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)); },
            out + at);
      });
}

template <group G, class T, class Op>
CW_FN inline void two_shot(coll_call<G>& call, T* out, const T* in, std::size_t count,
                           const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  exchange(
      call, count, p.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) { put_on_shelf(g, call.shelf(p.rank), in + at, n); },
      [&](std::size_t /*at*/, std::size_t n, int pe) {
        const sharing<T> shared(n, p.size);
        return elements<T>(shared.begin(pe), shared.size(pe));
      },
      [&](std::size_t at, std::size_t n) {
        if (!call.step()) return;
        const sharing<T> shared(n, p.size);
        const std::size_t mine = shared.begin(p.rank);
        fold_shelves<T>(
            g, p.size, shared.size(p.rank), op,
            [&](int pe) { return reinterpret_cast<const T*>(call.last_shelf(pe)) + mine; },
            reinterpret_cast<T*>(call.shelf(p.rank)));
        const auto mine_to_all = [&](int /*pe*/) { return elements<T>(0, shared.size(p.rank)); };
        if (call.meet(mine_to_all) != status::ok) return;
        for (int pe = 0; pe < p.size; ++pe) {
          copy(g, out + at + shared.begin(pe), call.shelf(pe), shared.size(pe) * sizeof(T));
        }
      });
}

/// Two shots without a shelf: only the owner of a tile reads it, and it has read it everywhere
/// before it writes it anywhere. On a GPU owners take turns, so that all of them, in all blocks
/// that share the call, work in one region of memory at a time.
template <group G, class T, class Op>
CW_FN inline void two_shot(coll_call<G>& call, const symmetric<T>& out, const symmetric<T>& in,
                           std::size_t count, const Op& op, const share& mine) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  if (p.image_bytes != 0) {
    // What is not mapped is not written in place.
    const sharing<T> shared(count, mine.of);
    const std::size_t begin = shared.begin(mine.which);
    two_shot(call, out.local() + begin, in.local() + begin, shared.size(mine.which), op);
    return;
  }
  if (!call.step() || call.meet() != status::ok || !call.step()) return;
  const auto everywhere = [&](std::size_t at, const T* values, int n) {
    for (int pe = 0; pe < p.size; ++pe) {
      T* const to = out.at(pe) + at;
      if (n == 1) {
        *to = *values;
      } else {
        store_tile(to, values);
      }
    }
  };
  const bool in_tiles = takes_tiles(in.local()) && takes_tiles(out.local());
  const int owner = mine.which * p.size + p.rank;
  const int owners = mine.of * p.size;
  if constexpr (tiles_in_flight() > 1) {
    const auto threads = static_cast<std::size_t>(g.size());
    const every tiles{
        static_cast<std::size_t>(owner) * threads + static_cast<std::size_t>(g.rank()),
        static_cast<std::size_t>(owners) * threads};
    fold<T>(
        tiles, p.size, count, op, [&](int pe) { return in.at(pe); }, in_tiles, everywhere);
  } else {
    // A CPU wants to read on where it has read.
    const sharing<T> shared(count, owners);
    const std::size_t begin = shared.begin(owner);
    fold<T>(
        every::thread_of(g), p.size, shared.size(owner), op,
        [&](int pe) { return in.at(pe) + begin; }, in_tiles,
        [&](std::size_t at, const T* values, int n) { everywhere(begin + at, values, n); });
  }
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
