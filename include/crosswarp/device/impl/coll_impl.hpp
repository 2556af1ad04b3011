// Bodies of coll.hpp.
#pragma once

#include "crosswarp/device/coll.hpp"
#include "crosswarp/device/impl/coll_call.hpp"
#include "crosswarp/device/impl/coll_ops.hpp"

namespace crosswarp::device {

CW_FN inline coll::coll(const parts& p) noexcept : p_(p) {}
CW_FN inline int coll::rank() const noexcept {
  return p_.rank;
}
CW_FN inline int coll::size() const noexcept {
  return p_.size;
}
CW_FN inline int coll::channels() const noexcept {
  return p_.channels;
}
CW_FN inline coll coll::channel(int which, std::uint64_t whole) const noexcept {
  coll other = *this;
  other.p_.channel = which;
  other.p_.whole = whole;
  return other;
}

namespace impl {

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

/// `piece(at, n)` for pieces of `count` elements that a shelf has room for, until one fails; at
/// least once, so that ranks which have nothing to say are heard.
template <class T, class F>
CW_FN inline void in_pieces(std::size_t count, std::size_t room, const F& piece) noexcept {
  std::size_t at = 0;
  do {
    const std::size_t n = count - at < room ? count - at : room;
    if (!piece(at, n)) return;
    at += n;
  } while (at < count);
}

template <group G, class T, class Op>
CW_FN inline void pull(coll_call<G>& call, T* out, const T* in, std::size_t count,
                       const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  in_pieces<T>(count, p.shelf_bytes / sizeof(T), [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    copy(g, call.shelf(p.rank), in + at, n * sizeof(T));
    if (call.meet() != status::ok) return false;
    fold<T>(
        g, p.size, n, op, [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)); }, true,
        into<T>(out + at));
    return true;
  });
}

template <group G, class T, class Op>
CW_FN inline void two_shot(coll_call<G>& call, T* out, const T* in, std::size_t count,
                           const Op& op) noexcept {
  const coll::parts& p = call.parts_of();
  const G& g = call.caller();
  in_pieces<T>(count, p.shelf_bytes / sizeof(T), [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    copy(g, call.shelf(p.rank), in + at, n * sizeof(T));
    if (call.meet() != status::ok || !call.step()) return false;
    const part mine = part::of<T>(n, p.size, p.rank);
    fold<T>(
        g, p.size, mine.size, op,
        [&](int pe) { return reinterpret_cast<const T*>(call.last_shelf(pe)) + mine.begin; }, true,
        into<T>(reinterpret_cast<T*>(call.shelf(p.rank))));
    if (call.meet() != status::ok) return false;
    for (int pe = 0; pe < p.size; ++pe) {
      const part theirs = part::of<T>(n, p.size, pe);
      copy(g, out + at + theirs.begin, call.shelf(pe), theirs.size * sizeof(T));
    }
    return true;
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

}  // namespace impl

// ---- reductions

template <group G>
CW_FN inline status coll::barrier(const G& g) const noexcept {
  coll_call<G> call(p_, g, impl::digest<char>(impl::coll_kind::barrier, 0, 0).value());
  if (call.step()) (void)call.meet();
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::all_reduce(const G& g, T* out, const T* in, std::size_t count,
                                     const Op& op, coll_algorithm how) const noexcept {
  const std::size_t bytes = count * sizeof(T);
  const bool fits = bytes <= p_.packets * 8;
  if (how == coll_algorithm::automatic) {
    how = bytes <= p_.push_bytes && fits ? coll_algorithm::push
          : bytes <= p_.pull_bytes       ? coll_algorithm::pull
                                         : coll_algorithm::two_shot;
  }
  if (how == coll_algorithm::push && !fits) how = coll_algorithm::pull;
  const auto what = impl::digest<T>(impl::coll_kind::all_reduce, count, 0)
                        .add(static_cast<std::uint64_t>(op.what))
                        .add(static_cast<std::uint64_t>(how));
  coll_call<G> call(p_, g, what.value());
  switch (how) {
    case coll_algorithm::push:
      if (call.step_of_packets()) (void)impl::pushing<G, T, Op>(call, op).run(out, in, count);
      break;
    case coll_algorithm::two_shot:
      impl::two_shot(call, out, in, count, op);
      break;
    default:
      impl::pull(call, out, in, count, op);
  }
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::all_reduce(const G& g, const symmetric<T>& out, const symmetric<T>& in,
                                     std::size_t count, const Op& op) const noexcept {
  const auto what = impl::digest<T>(impl::coll_kind::all_reduce_symmetric, count, 0)
                        .add(static_cast<std::uint64_t>(op.what))
                        .add(out.remote().offset)
                        .add(in.remote().offset);
  coll_call<G> call(p_, g, what.value());
  impl::two_shot(call, out, in, count, op);
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::reduce(const G& g, T* out, const T* in, std::size_t count, int root,
                                 const Op& op) const noexcept {
  const auto what =
      impl::digest<T>(impl::coll_kind::reduce, count, static_cast<std::uint64_t>(root))
          .add(static_cast<std::uint64_t>(op.what));
  coll_call<G> call(p_, g, what.value());
  if (root < 0 || root >= p_.size) return call.refuse();
  impl::in_pieces<T>(count, p_.shelf_bytes / sizeof(T), [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    copy(g, call.shelf(p_.rank), in + at, n * sizeof(T));
    if (call.meet() != status::ok) return false;
    if (p_.rank != root) return true;
    impl::fold<T>(
        g, p_.size, n, op, [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)); }, true,
        impl::into<T>(out + at));
    return true;
  });
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::reduce_scatter(const G& g, T* out, const T* in, std::size_t count,
                                         const Op& op, std::size_t stride) const noexcept {
  if (stride == 0) stride = count;
  const auto what = impl::digest<T>(impl::coll_kind::reduce_scatter, count, 0)
                        .add(static_cast<std::uint64_t>(op.what));
  coll_call<G> call(p_, g, what.value());
  const std::size_t room = impl::share<T>(p_);
  const auto mine = static_cast<std::size_t>(p_.rank);
  impl::in_pieces<T>(count, room, [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    auto* const shelf = reinterpret_cast<T*>(call.shelf(p_.rank));
    for (std::size_t pe = 0; pe < static_cast<std::size_t>(p_.size); ++pe) {
      copy(g, shelf + pe * room, in + pe * stride + at, n * sizeof(T));
    }
    if (call.meet() != status::ok) return false;
    impl::fold<T>(
        g, p_.size, n, op,
        [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)) + mine * room; }, true,
        impl::into<T>(out + at));
    return true;
  });
  return call.end();
}

// ---- exchanges

template <group G, class T>
CW_FN inline status coll::all_gather(const G& g, T* out, const T* in, std::size_t count,
                                     std::size_t stride) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (!std::is_same_v<T, std::byte>) {
    return all_gather(g, impl::bytes(out), impl::bytes(in), count * sizeof(T), stride * sizeof(T));
  }
  if (stride == 0) stride = count;
  coll_call<G> call(p_, g, impl::digest<T>(impl::coll_kind::all_gather, count, 0).value());
  impl::in_pieces<T>(count, p_.shelf_bytes / sizeof(T), [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    copy(g, call.shelf(p_.rank), in + at, n * sizeof(T));
    if (call.meet() != status::ok) return false;
    for (int pe = 0; pe < p_.size; ++pe) {
      copy(g, out + static_cast<std::size_t>(pe) * stride + at, call.shelf(pe), n * sizeof(T));
    }
    return true;
  });
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::all_gather_v(const G& g, T* out, const T* in, const std::size_t* counts,
                                       const std::size_t* places) const noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "what a shelf has room for");
  auto what = impl::digest<T>(impl::coll_kind::all_gather, 0, 1);
  std::size_t longest = 0;
  for (int pe = 0; pe < p_.size; ++pe) {
    what.add(counts[pe]);
    if (counts[pe] > longest) longest = counts[pe];
  }
  coll_call<G> call(p_, g, what.value());
  const std::size_t room = p_.shelf_bytes / sizeof(T);
  const auto left = [&](int pe, std::size_t at) {
    const std::size_t n = counts[pe] > at ? counts[pe] - at : 0;
    return n < room ? n : room;
  };
  impl::in_pieces<T>(longest, room, [&](std::size_t at, std::size_t /*n*/) {
    if (!call.step()) return false;
    copy(g, call.shelf(p_.rank), in + at, left(p_.rank, at) * sizeof(T));
    if (call.meet() != status::ok) return false;
    for (int pe = 0; pe < p_.size; ++pe) {
      copy(g, out + places[pe] + at, call.shelf(pe), left(pe, at) * sizeof(T));
    }
    return true;
  });
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::broadcast(const G& g, T* data, std::size_t count,
                                    int root) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (!std::is_same_v<T, std::byte>) {
    return broadcast(g, impl::bytes(data), count * sizeof(T), root);
  }
  coll_call<G> call(
      p_, g,
      impl::digest<T>(impl::coll_kind::broadcast, count, static_cast<std::uint64_t>(root)).value());
  if (root < 0 || root >= p_.size) return call.refuse();
  impl::in_pieces<T>(count, p_.shelf_bytes / sizeof(T), [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    if (p_.rank == root) copy(g, call.shelf(root), data + at, n * sizeof(T));
    if (call.meet() != status::ok) return false;
    if (p_.rank != root) copy(g, data + at, call.shelf(root), n * sizeof(T));
    return true;
  });
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::gather(const G& g, T* out, const T* in, std::size_t count, int root,
                                 std::size_t stride) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (!std::is_same_v<T, std::byte>) {
    return gather(g, impl::bytes(out), impl::bytes(in), count * sizeof(T), root,
                  stride * sizeof(T));
  }
  if (stride == 0) stride = count;
  coll_call<G> call(
      p_, g,
      impl::digest<T>(impl::coll_kind::gather, count, static_cast<std::uint64_t>(root)).value());
  if (root < 0 || root >= p_.size) return call.refuse();
  impl::in_pieces<T>(count, p_.shelf_bytes / sizeof(T), [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    copy(g, call.shelf(p_.rank), in + at, n * sizeof(T));
    if (call.meet() != status::ok) return false;
    for (int pe = 0; pe < p_.size && p_.rank == root; ++pe) {
      copy(g, out + static_cast<std::size_t>(pe) * stride + at, call.shelf(pe), n * sizeof(T));
    }
    return true;
  });
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::scatter(const G& g, T* out, const T* in, std::size_t count, int root,
                                  std::size_t stride) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (!std::is_same_v<T, std::byte>) {
    return scatter(g, impl::bytes(out), impl::bytes(in), count * sizeof(T), root,
                   stride * sizeof(T));
  }
  if (stride == 0) stride = count;
  coll_call<G> call(
      p_, g,
      impl::digest<T>(impl::coll_kind::scatter, count, static_cast<std::uint64_t>(root)).value());
  if (root < 0 || root >= p_.size) return call.refuse();
  const std::size_t room = impl::share<T>(p_);
  impl::in_pieces<T>(count, room, [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    auto* const shelf = reinterpret_cast<T*>(call.shelf(root));
    for (std::size_t pe = 0; pe < static_cast<std::size_t>(p_.size) && p_.rank == root; ++pe) {
      copy(g, shelf + pe * room, in + pe * stride + at, n * sizeof(T));
    }
    if (call.meet() != status::ok) return false;
    copy(g, out + at, shelf + static_cast<std::size_t>(p_.rank) * room, n * sizeof(T));
    return true;
  });
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::all_to_all(const G& g, T* out, const T* in, std::size_t count,
                                     std::size_t stride) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (!std::is_same_v<T, std::byte>) {
    return all_to_all(g, impl::bytes(out), impl::bytes(in), count * sizeof(T), stride * sizeof(T));
  }
  if (stride == 0) stride = count;
  coll_call<G> call(p_, g, impl::digest<T>(impl::coll_kind::all_to_all, count, 0).value());
  const std::size_t room = impl::share<T>(p_);
  const auto mine = static_cast<std::size_t>(p_.rank);
  const auto ranks = static_cast<std::size_t>(p_.size);
  impl::in_pieces<T>(count, room, [&](std::size_t at, std::size_t n) {
    if (!call.step()) return false;
    auto* const shelf = reinterpret_cast<T*>(call.shelf(p_.rank));
    for (std::size_t pe = 0; pe < ranks; ++pe) {
      copy(g, shelf + pe * room, in + pe * stride + at, n * sizeof(T));
    }
    if (call.meet() != status::ok) return false;
    for (std::size_t pe = 0; pe < ranks; ++pe) {
      const auto* const theirs = reinterpret_cast<const T*>(call.shelf(static_cast<int>(pe)));
      copy(g, out + pe * stride + at, theirs + mine * room, n * sizeof(T));
    }
    return true;
  });
  return call.end();
}

// First everybody shows what it sends to whom and what it expects of whom: so all know how many
// pieces there are, and whether it fits.
template <group G, class T>
CW_FN inline status coll::all_to_all_v(const G& g, T* out, const T* in,
                                       const all_to_all_plan& plan) const noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "what a shelf has room for");
  coll_call<G> call(p_, g, impl::digest<T>(impl::coll_kind::all_to_all_v, 0, 0).value());
  const auto ranks = static_cast<std::size_t>(p_.size);
  const auto mine = static_cast<std::size_t>(p_.rank);
  const std::size_t room = impl::share<T>(p_);
  if (!call.step()) return call.end();
  const auto counts_of = [&](std::size_t pe) {
    return reinterpret_cast<std::size_t*>(call.shelf(static_cast<int>(pe)));
  };
  copy(g, counts_of(mine), plan.send_counts, ranks * sizeof(std::size_t));
  copy(g, counts_of(mine) + ranks, plan.receive_counts, ranks * sizeof(std::size_t));
  if (call.meet() != status::ok) return call.end();
  std::size_t longest = 0;
  bool fits = true;
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::size_t sent = counts_of(from)[to];
      longest = sent > longest ? sent : longest;
      fits = fits && sent == counts_of(to)[ranks + from];
    }
  }
  if (!fits) {
    (void)call.settle(status::invalid);
    return call.end();
  }
  const auto piece_of = [&](std::size_t count, std::size_t at) {
    const std::size_t n = count > at ? count - at : 0;
    return n < room ? n : room;
  };
  impl::in_pieces<T>(longest, room, [&](std::size_t at, std::size_t /*n*/) {
    if (!call.step()) return false;
    auto* const shelf = reinterpret_cast<T*>(call.shelf(p_.rank));
    for (std::size_t pe = 0; pe < ranks; ++pe) {
      copy(g, shelf + pe * room, in + plan.send_places[pe] + at,
           piece_of(plan.send_counts[pe], at) * sizeof(T));
    }
    if (call.meet() != status::ok) return false;
    for (std::size_t pe = 0; pe < ranks; ++pe) {
      const auto* const theirs = reinterpret_cast<const T*>(call.shelf(static_cast<int>(pe)));
      copy(g, out + plan.receive_places[pe] + at, theirs + mine * room,
           piece_of(plan.receive_counts[pe], at) * sizeof(T));
    }
    return true;
  });
  return call.end();
}

}  // namespace crosswarp::device
