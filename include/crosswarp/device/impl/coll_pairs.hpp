// Messages from one rank to another.
//
// A message goes in pieces, at least one, through a box at the receiver which only this sender
// writes: two slots in turn. Pieces are numbered for each pair and channel. The sender tells the
// receiver of each piece, with the digest of the message, and the receiver tells the sender that it
// has taken it: so a slot is written again when what was in it has been taken, and the source is
// free, however it was sent, when the last piece has been.
#pragma once

#include "crosswarp/device/impl/coll_algorithms.hpp"
#include "crosswarp/device/impl/coll_call.hpp"

namespace crosswarp::device {

namespace impl {

/// What a rank has for one other in a channel; the slots follow it.
struct coll_box {
  // Written by the other rank, in both: a piece's number, and above it the digest or a status.
  alignas(line_bytes) std::uint64_t came[2];  ///< by slot
  std::uint64_t taken;                        ///< of what this rank sent
  // Its owner's own.
  alignas(line_bytes) std::uint32_t sent;
  std::uint32_t received;
  std::uint32_t sending;  ///< checked builds: a group does; and the next
  std::uint32_t receiving;
};

template <group G>
class pair_call {
 public:
  /// `what`: the digest of the message.
  CW_FN pair_call(const coll::parts& p, const G& g, int other, std::uint32_t what) noexcept
      : p_(p),
        g_(g),
        call_(p, g, what, false),
        other_(other),
        valid_(other >= 0 && other < p.size && other != p.rank),
        mail_(p.rare->mail),
        own_(*reinterpret_cast<coll_box*>(mail_.local() + box_of(valid_ ? other : 0))) {}

  CW_FN status send(const std::byte* data, std::size_t bytes) noexcept {
    return each_piece(own_.sent, own_.sending, bytes,
                      [&](std::uint32_t number, std::size_t at, std::size_t n, bool last) {
                        // Two pieces before this one lay in the same slot.
                        if (const status s = await_taken(number - 2); s != status::ok) return s;
                        if (const status s = put(data + at, n, number); s != status::ok) return s;
                        return last ? await_taken(number) : status::ok;
                      });
  }

  CW_FN status receive(std::byte* data, std::size_t bytes) noexcept {
    return each_piece(own_.received, own_.receiving, bytes,
                      [&](std::uint32_t number, std::size_t at, std::size_t n, bool /*last*/) {
                        const status s = await_piece(number);
                        if (s != status::ok && s != status::invalid) return s;
                        if (s == status::ok) copy(g_, data + at, slot(p_.rank, other_, number), n);
                        const status told = tell(offsetof(coll_box, taken),
                                                 word(number, static_cast<std::uint32_t>(s)));
                        return s == status::ok ? told : s;
                      });
  }

 private:
  CW_FN static std::uint64_t word(std::uint32_t number, std::uint32_t with) noexcept {
    return (static_cast<std::uint64_t>(with) << 32U) | number;
  }
  [[nodiscard]] CW_FN std::size_t box_bytes() const noexcept {
    return sizeof(coll_box) + 2 * p_.rare->mail_bytes;
  }
  /// Where a rank has its box for rank pe.
  [[nodiscard]] CW_FN std::size_t box_of(int pe) const noexcept {
    return (static_cast<std::size_t>(p_.channel) * static_cast<std::size_t>(p_.size) +
            static_cast<std::size_t>(pe)) *
           box_bytes();
  }
  [[nodiscard]] CW_FN std::size_t slot_of(int pe, std::uint32_t number) const noexcept {
    return box_of(pe) + sizeof(coll_box) + (number % 2) * p_.rare->mail_bytes;
  }
  /// At rank `at`, of its box for rank pe.
  [[nodiscard]] CW_FN std::byte* slot(int at, int pe, std::uint32_t number) const noexcept {
    return mail_.at(at) + slot_of(pe, number);
  }
  [[nodiscard]] CW_FN bool is_mapped() const noexcept { return mail_.find(other_) != nullptr; }

  /// `move(number, at, n, last)` for each piece.
  template <class Move>
  CW_FN status each_piece(std::uint32_t& count, [[maybe_unused]] std::uint32_t& busy,
                          std::size_t bytes, const Move& move) noexcept {
    status s = valid_ ? call_.outcome() : status::invalid;
    int blamed = valid_ ? other_ : -1;
    [[maybe_unused]] bool has_turn = false;
    if constexpr (CROSSWARP_CHECKED != 0) {
      if (s == status::ok) {
        s = begin_turn(g_, busy);
        has_turn = s == status::ok;
        if (!has_turn) blamed = -1;
      }
    }
    std::uint32_t number = s == status::ok ? count : 0;
    std::size_t at = 0;
    while (s == status::ok) {
      const std::size_t n = bytes - at < p_.rare->mail_bytes ? bytes - at : p_.rare->mail_bytes;
      const bool last = at + n == bytes;
      s = move(++number, at, n, last);
      at += n;
      if (last) break;
    }
    if (call_.conclude(s, blamed) == status::ok && g_.rank() == 0) count = number;
    if constexpr (CROSSWARP_CHECKED != 0) {
      if (has_turn) end_turn(g_, busy);
    }
    return call_.leave();
  }

  /// One thread. Each piece has its deadline: a message may take long. After a failure nothing is
  /// looked at: what lies in the box may be of a message that failed, and what a rank says of it
  /// would take the place of what it has said.
  template <class Ready>
  CW_FN status wait(const Ready& ready) noexcept {
    if (const status s = call_.failed_before(); s != status::ok) return s;
    deadline by(p_.limits);
    by.blame(other_);
    return call_.wait(ready, by);
  }
  CW_FN status await_taken(std::uint32_t number) noexcept {
    return leader_of(g_, [&] {
      std::uint64_t seen = 0;
      const status s = wait([&] {
        // pairs with tell() in receive(), at the other
        seen = system_atomic<std::uint64_t>(own_.taken).load(order::acquire);
        return reached(static_cast<std::uint32_t>(seen), number);
      });
      return s == status::ok ? static_cast<status>(seen >> 32U) : s;
    });
  }
  CW_FN status await_piece(std::uint32_t number) noexcept {
    return leader_of(g_, [&] {
      std::uint64_t seen = 0;
      const status s = wait([&] {
        // pairs with put(), at the other
        seen = system_atomic<std::uint64_t>(own_.came[number % 2]).load(order::acquire);
        return static_cast<std::uint32_t>(seen) == number;
      });
      if (s != status::ok) return s;
      return static_cast<std::uint32_t>(seen >> 32U) == call_.what() ? status::ok : status::invalid;
    });
  }

  CW_FN status put(const std::byte* from, std::size_t bytes, std::uint32_t number) noexcept {
    const std::uint64_t value = word(number, call_.what());
    if (is_mapped()) {
      copy(g_, slot(other_, p_.rank, number), from, bytes);
      return tell(came_at(number), value);
    }
    return call_.put_afar(other_, mail_.remote(slot_of(p_.rank, number)).offset, from, bytes,
                          mail_.remote(box_of(p_.rank) + came_at(number)).offset, value);
  }
  [[nodiscard]] CW_FN static std::size_t came_at(std::uint32_t number) noexcept {
    return offsetof(coll_box, came) + (number % 2) * sizeof(std::uint64_t);
  }
  /// Writes a word of the other's box for this rank, after what all threads did before.
  CW_FN status tell(std::size_t word, std::uint64_t value) noexcept {
    const std::size_t place = box_of(p_.rank) + word;
    if (!is_mapped()) {
      return call_.put_afar(other_, 0, nullptr, 0, mail_.remote(place).offset, value);
    }
    g_.sync();
    if (g_.rank() == 0) {
      // pairs with await_taken() and await_piece(), there
      within(mail_.reach(), *reinterpret_cast<std::uint64_t*>(mail_.at(other_) + place),
             [&](auto w) { w.store(value, order::release); });
    }
    return status::ok;
  }

  const coll::parts& p_;
  const G& g_;
  coll_call<G> call_;
  int other_;
  bool valid_;
  const symmetric<std::byte>& mail_;
  coll_box& own_;
};

}  // namespace impl

CW_FN inline std::size_t coll::mail_of_channel(int ranks, std::size_t piece_bytes) noexcept {
  return static_cast<std::size_t>(ranks) * (sizeof(impl::coll_box) + 2 * piece_bytes);
}

template <group G, class T>
CW_FN inline status coll::send(const G& g, const T* data, std::size_t count,
                               int to) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto what = impl::digest<T>(impl::coll_kind::message, count, 0).value();
  return impl::pair_call<G>(p_, g, to, what).send(impl::bytes(data), count * sizeof(T));
}

template <group G, class T>
CW_FN inline status coll::receive(const G& g, T* data, std::size_t count, int from) const noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto what = impl::digest<T>(impl::coll_kind::message, count, 0).value();
  return impl::pair_call<G>(p_, g, from, what).receive(impl::bytes(data), count * sizeof(T));
}

}  // namespace crosswarp::device
