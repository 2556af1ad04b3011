// all_reduce from machine to machine: sums pass along the ranks in their order, and each machine
// sends and gets each element once, however many ranks it has.
//
// Ranks that follow each other and are mapped to each other are a run. The call is made in pieces,
// and in each run one rank has the care of a piece: it folds the inputs of its run's ranks into the
// sum that the run before sent, and sends it on. The last run's sends the result to the one in each
// other run, where all of that run read it. Several pieces are under way at once.
//
// All of it lies in both shelves: inputs, sums and results, a slot each for the pieces that are
// under way. A rank shows its input of piece i after it has taken the result of piece i - slots.
// Who has the care of piece i waits for all its run's inputs of it, and its sum goes through all
// runs: so when a result of piece i is made, everybody has taken that of piece i - slots, and with
// it is done with the inputs and the sums there.
#pragma once

#include "crosswarp/device/impl/coll_algorithms.hpp"
#include "crosswarp/device/impl/coll_call.hpp"

namespace crosswarp::device::impl {

template <group G, class T, class Op>
class ring_call {
 public:
  CW_FN ring_call(coll_call<G>& call, const Op& op) noexcept
      : call_(call),
        p_(call.parts_of()),
        rare_(*p_.rare),
        g_(call.caller()),
        op_(op),
        before_(call.pieces()) {}

  CW_FN void run(T* out, const T* in, std::size_t count) noexcept {
    // Both shelves are free when all have met; when they have met again, others may use them.
    if (!call_.step() || call_.meet() != status::ok) return;
    const std::size_t room = slot_bytes() / sizeof(sum_t);
    const std::size_t pieces = (count + room - 1) / room;
    const auto size_of_piece = [&](std::size_t i) {
      return count - i * room < room ? count - i * room : room;
    };
    const auto take_piece = [&](std::size_t i) {
      return take(i, out + i * room, size_of_piece(i) * sizeof(T));
    };
    status s = status::ok;
    for (std::size_t i = 0; i < pieces && s == status::ok; ++i) {
      if (i >= slots) s = take_piece(i - slots);
      if (s != status::ok) break;
      show(i, in + i * room, size_of_piece(i) * sizeof(T));
      if (in_care(rare_.run, i) == p_.rank) s = fold_piece(i, size_of_piece(i));
    }
    for (std::size_t i = pieces > slots ? pieces - slots : 0; i < pieces && s == status::ok; ++i) {
      s = take_piece(i);
    }
    if (s != status::ok) {
      (void)call_.settle(s);
      return;
    }
    call_.add_pieces(pieces);
    if (call_.step()) (void)call_.meet();
  }

 private:
  using sum_t = accumulator_t<T>;
  using words = typename coll_call<G>::words;
  static constexpr std::size_t slots = coll_call<G>::slots;
  enum class part : std::uint8_t { inputs, sums, results };

  [[nodiscard]] CW_FN std::size_t slot_bytes() const noexcept {
    return 2 * p_.shelf_bytes / (3 * slots) / line_bytes * line_bytes;
  }
  [[nodiscard]] CW_FN std::size_t slot(std::size_t i) const noexcept {
    return static_cast<std::size_t>((before_ + i) % slots);
  }
  /// From the begin of the first shelf on.
  [[nodiscard]] CW_FN std::size_t offset(part which, std::size_t i) const noexcept {
    return (static_cast<std::size_t>(which) * slots + slot(i)) * slot_bytes();
  }
  /// What is told of piece i.
  [[nodiscard]] CW_FN std::uint64_t number(std::size_t i) const noexcept { return before_ + i + 1; }

  [[nodiscard]] CW_FN int first(int run) const noexcept { return rare_.runs[run]; }
  [[nodiscard]] CW_FN int last_run() const noexcept { return rare_.run_count - 1; }
  /// The rank of that run that has the care of piece i.
  [[nodiscard]] CW_FN int in_care(int run, std::size_t i) const noexcept {
    const auto size = static_cast<std::uint64_t>(first(run + 1) - first(run));
    return first(run) + static_cast<int>((before_ + i) % size);
  }

  /// Puts a piece of this rank's input where its run's ranks read it.
  CW_FN void show(std::size_t i, const T* from, std::size_t bytes) const noexcept {
    copy(g_, call_.shelves(p_.rank) + offset(part::inputs, i), from, bytes);
    g_.sync();
    for (int pe = first(rare_.run) + g_.rank(); pe < first(rare_.run + 1); pe += g_.size()) {
      // pairs with fold_piece()
      if (pe != p_.rank) call_.tell(pe, words::inputs, 0, number(i));
    }
  }

  CW_FN status fold_piece(std::size_t i, std::size_t count) const noexcept {
    const int before = rare_.run == 0 ? -1 : in_care(rare_.run - 1, i);
    const status s = leader_of(g_, [&] {
      deadline by(p_.limits);
      status heard = status::ok;
      for (int pe = first(rare_.run); pe < first(rare_.run + 1) && heard == status::ok; ++pe) {
        // pairs with show(), at rank pe
        if (pe != p_.rank) heard = call_.await(p_.rank, pe, words::inputs, 0, number(i), by);
      }
      if (before < 0 || heard != status::ok) return heard;
      // pairs with send(), there
      return call_.await(p_.rank, before, words::sums, slot(i), number(i), by);
    });
    if (s != status::ok) return s;
    const auto* const so_far =
        before < 0 ? nullptr
                   : reinterpret_cast<const sum_t*>(call_.shelves(before) + offset(part::sums, i));
    std::byte* const own = call_.shelves(p_.rank);
    if (rare_.run != last_run()) {
      auto* const sums = reinterpret_cast<sum_t*>(own + offset(part::sums, i));
      fold_run(i, count, so_far, [&](std::size_t at, sum_t sum) { sums[at] = sum; });
      return send(in_care(rare_.run + 1, i), words::sums, part::sums, i, count * sizeof(sum_t));
    }
    auto* const results = reinterpret_cast<T*>(own + offset(part::results, i));
    fold_run(i, count, so_far,
             [&](std::size_t at, sum_t sum) { results[at] = narrow<T>(op_.finish(sum, p_.size)); });
    status sent = status::ok;
    for (int run = 0; run < last_run() && sent == status::ok; ++run) {
      sent = send(in_care(run, i), words::results, part::results, i, count * sizeof(T));
    }
    for (int pe = first(rare_.run); pe < p_.size && sent == status::ok; ++pe) {
      if (pe != p_.rank) sent = send(pe, words::results, part::results, i, 0);
    }
    return sent;
  }

  /// The run's inputs of piece i, after the sums so far if there are any. A few elements at a time,
  /// rank by rank.
  template <class Sink>
  CW_FN void fold_run(std::size_t i, std::size_t count, const sum_t* so_far,
                      const Sink& sink) const noexcept {
    constexpr std::size_t few = 16;
    const auto step = few * static_cast<std::size_t>(g_.size());
    for (std::size_t at = few * static_cast<std::size_t>(g_.rank()); at < count; at += step) {
      const std::size_t n = count - at < few ? count - at : few;
      sum_t sum[few] = {};
      int pe = first(rare_.run);
      if (so_far != nullptr) {
        for (std::size_t j = 0; j < n; ++j) sum[j] = so_far[at + j];
      } else {
        const T* const from = input(pe++, i) + at;
        for (std::size_t j = 0; j < n; ++j) sum[j] = widen(from[j]);
      }
      for (; pe < first(rare_.run + 1); ++pe) {
        const T* const from = input(pe, i) + at;
        for (std::size_t j = 0; j < n; ++j) sum[j] = op_(sum[j], widen(from[j]));
      }
      for (std::size_t j = 0; j < n; ++j) sink(at + j, sum[j]);
    }
    g_.sync();
  }
  [[nodiscard]] CW_FN const T* input(int pe, std::size_t i) const noexcept {
    return reinterpret_cast<const T*>(call_.shelves(pe) + offset(part::inputs, i));
  }

  /// What all threads have made, and word of it.
  CW_FN status send(int pe, words which, part what, std::size_t i,
                    std::size_t bytes) const noexcept {
    // pairs with fold_piece() and take(), there
    return call_.send(pe, {offset(what, i), bytes}, which, slot(i), number(i));
  }

  /// The result of piece i, where this run's has it.
  CW_FN status take(std::size_t i, T* out, std::size_t bytes) const noexcept {
    const int here = in_care(rare_.run, i);
    const int maker = in_care(last_run(), i);
    if (maker != p_.rank) {
      const status s = leader_of(g_, [&] {
        deadline by(p_.limits);
        // pairs with send(), at the maker
        return call_.await(rare_.run == last_run() ? p_.rank : here, maker, words::results, slot(i),
                           number(i), by);
      });
      if (s != status::ok) return s;
    }
    copy(g_, out, call_.shelves(maker, here) + offset(part::results, i), bytes);
    g_.sync();  // done with it, when this rank's next input says so
    return status::ok;
  }

  coll_call<G>& call_;
  const coll::parts& p_;
  const coll::rare_parts& rare_;
  const G& g_;
  const Op& op_;
  std::uint64_t before_;  // pieces of this channel's calls before
};

}  // namespace crosswarp::device::impl
