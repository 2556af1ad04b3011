// Bodies of coll.hpp.
#pragma once

#include "crosswarp/device/coll.hpp"
#include "crosswarp/device/impl/coll_algorithms.hpp"
#include "crosswarp/device/impl/coll_pairs.hpp"
#include "crosswarp/device/impl/coll_ring.hpp"

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

CW_FN inline bool coll::all_mapped() const noexcept {
  return p_.image_bytes == 0;
}
CW_FN inline coll coll::mapped() const noexcept {
  coll known = *this;
  known.p_.image_bytes = 0;  // a constant for the compiler
  return known;
}

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
  how = impl::choose(p_, count * sizeof(T), how);
  const auto what = impl::digest<T>(impl::coll_kind::all_reduce, count, 0)
                        .add(static_cast<std::uint64_t>(op.what))
                        .add(static_cast<std::uint64_t>(how));
  coll_call<G> call(p_, g, what.value());
  if (how == coll_algorithm::push && call.takes_packets()) {
    impl::push(call, out, in, count, op);
  } else if (how == coll_algorithm::two_shot) {
    impl::two_shot(call, out, in, count, op);
  } else if (how == coll_algorithm::ring) {
    impl::ring_call<G, T, Op>(call, op).run(out, in, count);
  } else {
    impl::pull(call, out, in, count, op);
  }
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::all_reduce(const G& g, const symmetric<T>& out, const symmetric<T>& in,
                                     std::size_t count, const Op& op,
                                     const share& mine) const noexcept {
  const auto what = impl::digest<T>(impl::coll_kind::all_reduce_symmetric, count,
                                    static_cast<std::uint64_t>(mine.of))
                        .add(static_cast<std::uint64_t>(op.what))
                        .add(out.remote().offset)
                        .add(in.remote().offset);
  coll_call<G> call(p_, g, what.value());
  impl::two_shot(call, out, in, count, op, mine);
  return call.end();
}

template <group G, number T, class Op>
CW_FN inline status coll::reduce(const G& g, T* out, const T* in, std::size_t count, int root,
                                 const Op& op) const noexcept {
  const auto what =
      impl::digest<T>(impl::coll_kind::reduce, count, static_cast<std::uint64_t>(root))
          .add(static_cast<std::uint64_t>(op.what));
  coll_call<G> call(p_, g, what.value());
  const bool valid = impl::take_root(root, count, p_.size);
  impl::exchange(
      call, count, p_.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) {
        impl::put_on_shelf(g, call.shelf(p_.rank), in + at, n);
      },
      [&](std::size_t /*at*/, std::size_t n, int pe) {
        return impl::elements<T>(0, pe == root ? n : 0);
      },
      [&](std::size_t at, std::size_t n) {
        if (p_.rank != root) return;
        impl::fold_shelves<T>(
            g, p_.size, n, op, [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)); },
            out + at);
      });
  if (!valid) (void)call.settle(status::invalid);
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
  impl::exchange(
      call, count, room,
      [&](std::size_t at, std::size_t n) {
        auto* const shelf = reinterpret_cast<T*>(call.shelf(p_.rank));
        for (std::size_t pe = 0; pe < static_cast<std::size_t>(p_.size); ++pe) {
          copy(g, shelf + pe * room, in + pe * stride + at, n * sizeof(T));
        }
      },
      [&](std::size_t /*at*/, std::size_t n, int pe) {
        return impl::elements<T>(static_cast<std::size_t>(pe) * room, n);
      },
      [&](std::size_t at, std::size_t n) {
        impl::fold_shelves<T>(
            g, p_.size, n, op,
            [&](int pe) { return reinterpret_cast<const T*>(call.shelf(pe)) + mine * room; },
            out + at);
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
  impl::exchange(
      call, count, p_.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) { copy(g, call.shelf(p_.rank), in + at, n * sizeof(T)); },
      [](std::size_t /*at*/, std::size_t n, int /*pe*/) { return impl::elements<T>(0, n); },
      [&](std::size_t at, std::size_t n) {
        for (int pe = 0; pe < p_.size; ++pe) {
          copy(g, out + static_cast<std::size_t>(pe) * stride + at, call.shelf(pe), n * sizeof(T));
        }
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
  const bool valid = impl::take_root(root, count, p_.size);
  impl::exchange(
      call, count, p_.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) {
        if (p_.rank == root) copy(g, call.shelf(root), data + at, n * sizeof(T));
      },
      [&](std::size_t /*at*/, std::size_t n, int /*pe*/) {
        return impl::elements<T>(0, p_.rank == root ? n : 0);
      },
      [&](std::size_t at, std::size_t n) {
        if (p_.rank != root) copy(g, data + at, call.shelf(root), n * sizeof(T));
      });
  if (!valid) (void)call.settle(status::invalid);
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
  const bool valid = impl::take_root(root, count, p_.size);
  impl::exchange(
      call, count, p_.shelf_bytes / sizeof(T),
      [&](std::size_t at, std::size_t n) { copy(g, call.shelf(p_.rank), in + at, n * sizeof(T)); },
      [&](std::size_t /*at*/, std::size_t n, int pe) {
        return impl::elements<T>(0, pe == root ? n : 0);
      },
      [&](std::size_t at, std::size_t n) {
        for (int pe = 0; pe < p_.size && p_.rank == root; ++pe) {
          copy(g, out + static_cast<std::size_t>(pe) * stride + at, call.shelf(pe), n * sizeof(T));
        }
      });
  if (!valid) (void)call.settle(status::invalid);
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
  const bool valid = impl::take_root(root, count, p_.size);
  const std::size_t room = impl::share<T>(p_);
  const auto of_root = [&] { return reinterpret_cast<T*>(call.shelf(root)); };
  impl::exchange(
      call, count, room,
      [&](std::size_t at, std::size_t n) {
        for (std::size_t pe = 0; pe < static_cast<std::size_t>(p_.size) && p_.rank == root; ++pe) {
          copy(g, of_root() + pe * room, in + pe * stride + at, n * sizeof(T));
        }
      },
      [&](std::size_t /*at*/, std::size_t n, int pe) {
        return impl::elements<T>(static_cast<std::size_t>(pe) * room, p_.rank == root ? n : 0);
      },
      [&](std::size_t at, std::size_t n) {
        copy(g, out + at, of_root() + static_cast<std::size_t>(p_.rank) * room, n * sizeof(T));
      });
  if (!valid) (void)call.settle(status::invalid);
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
  impl::exchange(
      call, count, room,
      [&](std::size_t at, std::size_t n) {
        auto* const shelf = reinterpret_cast<T*>(call.shelf(p_.rank));
        for (std::size_t pe = 0; pe < ranks; ++pe) {
          copy(g, shelf + pe * room, in + pe * stride + at, n * sizeof(T));
        }
      },
      [&](std::size_t /*at*/, std::size_t n, int pe) {
        return impl::elements<T>(static_cast<std::size_t>(pe) * room, n);
      },
      [&](std::size_t at, std::size_t n) {
        for (std::size_t pe = 0; pe < ranks; ++pe) {
          const auto* const theirs = reinterpret_cast<const T*>(call.shelf(static_cast<int>(pe)));
          copy(g, out + pe * stride + at, theirs + mine * room, n * sizeof(T));
        }
      });
  return call.end();
}

}  // namespace crosswarp::device
