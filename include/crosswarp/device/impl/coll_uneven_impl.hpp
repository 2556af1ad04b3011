// Bodies of coll.hpp: uneven parts.
#pragma once

#include "crosswarp/device/coll.hpp"
#include "crosswarp/device/impl/coll_algorithms.hpp"

namespace crosswarp::device::impl {

/// Of each rank's part, what this block moves of it: its elements, and where they begin in the part
/// and in the longer memory.
template <class T>
class uneven_parts {
 public:
  CW_FN uneven_parts(const std::size_t* counts, const std::size_t* places,
                     const device::share& mine) noexcept
      : counts_(counts), places_(places), mine_(mine) {}

  [[nodiscard]] CW_FN std::size_t size(int pe) const noexcept {
    return mine_.of == 1 ? counts_[pe] : sharing<T>(counts_[pe], mine_.of).size(mine_.which);
  }
  [[nodiscard]] CW_FN std::size_t begin(int pe) const noexcept {
    return mine_.of == 1 ? 0 : sharing<T>(counts_[pe], mine_.of).begin(mine_.which);
  }
  [[nodiscard]] CW_FN std::size_t place(int pe) const noexcept { return places_[pe] + begin(pe); }
  /// Elements from `at` on, `room` at most.
  [[nodiscard]] CW_FN std::size_t piece(int pe, std::size_t at, std::size_t room) const noexcept {
    const std::size_t all = size(pe);
    const std::size_t left = all > at ? all - at : 0;
    return left < room ? left : room;
  }
  [[nodiscard]] CW_FN std::size_t longest(int ranks) const noexcept {
    std::size_t most = 0;
    CW_IN_TURN
    for (int pe = 0; pe < ranks; ++pe) most = size(pe) > most ? size(pe) : most;
    return most;
  }

 private:
  const std::size_t* counts_;
  const std::size_t* places_;
  device::share mine_;
};

/// What ranks have to agree on.
template <class T>
CW_FN inline coll_digest uneven_digest(coll_kind kind, int ranks, const std::size_t* counts,
                                       int root, const device::share& mine) noexcept {
  auto what =
      digest<T>(kind, static_cast<std::uint64_t>(mine.of), static_cast<std::uint64_t>(root));
  CW_IN_TURN
  for (int pe = 0; pe < ranks; ++pe) what.add(counts[pe]);
  return what;
}

/// Elements between places of memory that a rank need not have when there are none.
template <group G, class T>
CW_FN inline void copy_some(const G& g, T* to, std::size_t to_place, const T* from,
                            std::size_t from_place, std::size_t count) noexcept {
  if (count != 0) copy(g, to + to_place, from + from_place, count * sizeof(T));
}

/// Everybody's part into `out`, at `root` or, if that is negative, everywhere.
template <group G, class T>
CW_FN inline void gather_uneven(coll_call<G>& call, T* out, const T* in,
                                const uneven_parts<T>& parts, int root) noexcept {
  const coll::parts& p = call.parts_of();
  const auto wants = [&](int pe) { return root < 0 || pe == root; };
  const G& g = call.caller();
  const std::size_t room = p.shelf_bytes / sizeof(T);
  exchange(
      call, parts.longest(p.size), room,
      [&](std::size_t at, std::size_t /*n*/) {
        copy_some(g, reinterpret_cast<T*>(call.shelf(p.rank)), 0, in, parts.begin(p.rank) + at,
                  parts.piece(p.rank, at, room));
      },
      [&](std::size_t at, std::size_t /*n*/, int pe) {
        return elements<T>(0, wants(pe) ? parts.piece(p.rank, at, room) : 0);
      },
      [&](std::size_t at, std::size_t /*n*/) {
        CW_IN_TURN
        for (int pe = 0; pe < p.size && wants(p.rank); ++pe) {
          copy_some(g, out, parts.place(pe) + at, reinterpret_cast<const T*>(call.shelf(pe)), 0,
                    parts.piece(pe, at, room));
        }
      });
}

/// Puts a piece of what goes to each rank into that rank's part of this one's shelf.
template <group G, class T>
CW_FN inline void show_parts(const coll_call<G>& call, const T* in, const uneven_parts<T>& parts,
                             std::size_t at, std::size_t room) noexcept {
  const coll::parts& p = call.parts_of();
  auto* const shelf = reinterpret_cast<T*>(call.shelf(p.rank));
  CW_IN_TURN
  for (int pe = 0; pe < p.size; ++pe) {
    copy_some(call.caller(), shelf, static_cast<std::size_t>(pe) * room, in, parts.place(pe) + at,
              parts.piece(pe, at, room));
  }
}
/// What of it is for rank pe.
template <class T>
CW_FN inline on_shelf shown_part(const uneven_parts<T>& parts, std::size_t at, std::size_t room,
                                 int pe) noexcept {
  return elements<T>(static_cast<std::size_t>(pe) * room, parts.piece(pe, at, room));
}

}  // namespace crosswarp::device::impl

namespace crosswarp::device {

template <group G, class T>
CW_FN inline status coll::all_gather_v(const G& g, T* out, const T* in, const std::size_t* counts,
                                       const std::size_t* places,
                                       const share& mine) const noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "what a shelf has room for");
  const auto what = impl::uneven_digest<T>(impl::coll_kind::all_gather_v, p_.size, counts, 0, mine);
  coll_call<G> call(p_, g, what.value());
  impl::gather_uneven(call, out, in, impl::uneven_parts<T>(counts, places, mine), -1);
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::gather_v(const G& g, T* out, const T* in, const std::size_t* counts,
                                   const std::size_t* places, int root,
                                   const share& mine) const noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "what a shelf has room for");
  const auto what = impl::uneven_digest<T>(impl::coll_kind::gather_v, p_.size, counts, root, mine);
  coll_call<G> call(p_, g, what.value());
  if (root < 0 || root >= p_.size) return call.refuse();
  impl::gather_uneven(call, out, in, impl::uneven_parts<T>(counts, places, mine), root);
  return call.end();
}

template <group G, class T>
CW_FN inline status coll::scatter_v(const G& g, T* out, const T* in, const std::size_t* counts,
                                    const std::size_t* places, int root,
                                    const share& mine) const noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "what a shelf has room for");
  const auto what = impl::uneven_digest<T>(impl::coll_kind::scatter_v, p_.size, counts, root, mine);
  coll_call<G> call(p_, g, what.value());
  if (root < 0 || root >= p_.size) return call.refuse();
  const impl::uneven_parts<T> all(counts, places, mine);
  const std::size_t room = impl::share<T>(p_);
  impl::exchange(
      call, all.longest(p_.size), room,
      [&](std::size_t at, std::size_t /*n*/) {
        if (p_.rank == root) impl::show_parts(call, in, all, at, room);
      },
      [&](std::size_t at, std::size_t /*n*/, int pe) {
        return p_.rank == root ? impl::shown_part(all, at, room, pe) : on_shelf{};
      },
      [&](std::size_t at, std::size_t /*n*/) {
        const auto* const shown = reinterpret_cast<const T*>(call.shelf(root));
        impl::copy_some(g, out, all.begin(p_.rank) + at, shown,
                        static_cast<std::size_t>(p_.rank) * room, all.piece(p_.rank, at, room));
      });
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::reduce_scatter_v(const G& g, T* out, const T* in,
                                           const std::size_t* counts, const std::size_t* places,
                                           const Op& op, const share& mine) const noexcept {
  const auto what =
      impl::uneven_digest<T>(impl::coll_kind::reduce_scatter_v, p_.size, counts, 0, mine)
          .add(static_cast<std::uint64_t>(op.what));
  coll_call<G> call(p_, g, what.value());
  const impl::uneven_parts<T> all(counts, places, mine);
  const std::size_t room = impl::share<T>(p_);
  const std::size_t own = static_cast<std::size_t>(p_.rank) * room;
  impl::exchange(
      call, all.longest(p_.size), room,
      [&](std::size_t at, std::size_t /*n*/) { impl::show_parts(call, in, all, at, room); },
      [&](std::size_t at, std::size_t /*n*/, int pe) {
        return impl::shown_part(all, at, room, pe);
      },
      [&](std::size_t at, std::size_t /*n*/) {
        const std::size_t n = all.piece(p_.rank, at, room);
        if (n == 0) return;
        impl::fold_shelves<T>(
            g, p_.size, n, op,
            [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)) + own; },
            out + all.begin(p_.rank) + at);
      });
  return call.end();
}

// First everybody shows what it sends to whom and what it expects of whom: so all know how many
// pieces there are, and whether it fits.
template <group G, class T>
CW_FN inline status coll::all_to_all_v(const G& g, T* out, const T* in, const all_to_all_plan& plan,
                                       const share& mine) const noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "what a shelf has room for");
  const auto what =
      impl::digest<T>(impl::coll_kind::all_to_all_v, static_cast<std::uint64_t>(mine.of), 0);
  coll_call<G> call(p_, g, what.value());
  const auto ranks = static_cast<std::size_t>(p_.size);
  const std::size_t room = impl::share<T>(p_);
  if (!call.step()) return call.end();
  const auto counts_of = [&](std::size_t pe) {
    return reinterpret_cast<std::size_t*>(call.shelf(static_cast<int>(pe)));
  };
  const auto me = static_cast<std::size_t>(p_.rank);
  copy(g, counts_of(me), plan.send_counts, ranks * sizeof(std::size_t));
  copy(g, counts_of(me) + ranks, plan.receive_counts, ranks * sizeof(std::size_t));
  const auto both_counts = [&](int /*pe*/) { return impl::elements<std::size_t>(0, 2 * ranks); };
  if (call.meet(both_counts) != status::ok) return call.end();
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
  // The first block's share is the longest: all blocks have as many pieces.
  if (mine.of != 1) longest = sharing<T>(longest, mine.of).size(0);
  const impl::uneven_parts<T> sent(plan.send_counts, plan.send_places, mine);
  const impl::uneven_parts<T> received(plan.receive_counts, plan.receive_places, mine);
  impl::exchange(
      call, longest, room,
      [&](std::size_t at, std::size_t /*n*/) { impl::show_parts(call, in, sent, at, room); },
      [&](std::size_t at, std::size_t /*n*/, int pe) {
        return impl::shown_part(sent, at, room, pe);
      },
      [&](std::size_t at, std::size_t /*n*/) {
        CW_IN_TURN
        for (int pe = 0; pe < p_.size; ++pe) {
          impl::copy_some(g, out, received.place(pe) + at,
                          reinterpret_cast<const T*>(call.shelf(pe)), me * room,
                          received.piece(pe, at, room));
        }
      });
  return call.end();
}

}  // namespace crosswarp::device
