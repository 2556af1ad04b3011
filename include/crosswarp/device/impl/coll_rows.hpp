// Rows in registers: each thread holds tiles of a row from when it has their sums until it writes
// what comes of them, so that nothing is read twice.
//
// Lanes and segments are those of coll_fused_impl.hpp, so the bits are, too. A row has so many
// warps, a power of two; each makes segments which are that far apart, so that what is added by
// halves is within a warp as long as it can be, and one number of each warp is left. Those are
// joined in the block's memory, or, where several blocks of a rank share a row, by words in the
// memory of the first one's channel: a number and a tag in one access, as packets have it. Such
// blocks get the sums from packets that each rank keeps at home: no meeting, and less is written
// than where everybody sends to everybody.
#pragma once

#include "crosswarp/device/impl/coll_algorithms.hpp"
#include "crosswarp/device/impl/coll_fused_impl.hpp"

// Objects whose members are not in line are not in registers.
#define CW_ROWS_INLINE __attribute__((always_inline))

namespace crosswarp::device::impl {

/// Which part of a row a warp makes.
struct warp_part {
  int warp;    ///< of the row's
  int warps;   ///< a power of two, row_segments at most
  int rounds;  ///< units of a segment: 32 tiles, one for each lane

  [[nodiscard]] CW_FN int units() const noexcept { return row_segments / warps * rounds; }
  CW_FN static int rounds_of(std::size_t hidden) noexcept {
    return static_cast<int>((hidden + row_tile * row_lanes - 1) / (row_tile * row_lanes));
  }
  /// Of a row of so many elements, by warp `warp` of the `warps` that each block which shares it
  /// has. Blocks take segments in turn, so that each has something of a row with few of them.
  CW_FN static warp_part of_share(const device::share& mine, int warp, int warps,
                                  std::size_t hidden) noexcept {
    return {warp * mine.of + mine.which, mine.of * warps, rounds_of(hidden)};
  }
};

/// A warp's units in registers, Held at most: a power of two.
template <class Row, int Held>
class held_units {
 public:
  CW_ROWS_INLINE CW_FN held_units(const Row& row, std::size_t hidden, const warp_part& part,
                                  int lane) noexcept
      : row_(row), hidden_(hidden), part_(part), units_(part.units()) {
    int segment = part.warp;
    int round = 0;
    CW_UNROLLED
    for (int k = 0; k < Held; ++k) {
      tile_[k] = (round * row_segments + segment) * warp_group::width + lane;
      if (++round == part.rounds) {
        round = 0;
        segment += part.warps;
      }
    }
  }

  /// Whether unit k is there, and for this lane.
  [[nodiscard]] CW_ROWS_INLINE CW_FN bool has(int k) const noexcept {
    return k < units_ && static_cast<std::size_t>(tile_[k]) * row_tile < hidden_;
  }
  [[nodiscard]] CW_ROWS_INLINE CW_FN int units() const noexcept { return units_; }
  [[nodiscard]] CW_ROWS_INLINE CW_FN std::size_t at(int k) const noexcept {
    return static_cast<std::size_t>(tile_[k]) * row_tile;
  }
  [[nodiscard]] CW_ROWS_INLINE CW_FN int length(int k) const noexcept {
    return length_of_tile(static_cast<std::size_t>(tile_[k]), hidden_);
  }

  /// What is needed beside the sum.
  CW_ROWS_INLINE CW_FN void fetch() noexcept {
    CW_UNROLLED
    for (int k = 0; k < Held; ++k) {
      if (has(k)) row_.fetch(held_[k], at(k), length(k));
    }
  }
  /// Unit k's sum.
  CW_ROWS_INLINE CW_FN void take(int k, const tile_of<typename Row::element>& sum) noexcept {
    row_.take(held_[k], sum);
  }
  /// What the warp's part of the row comes to, for each of its threads.
  [[nodiscard]] CW_ROWS_INLINE CW_FN float look(const warp_group& g) const noexcept {
    float v[Held];
    CW_UNROLLED
    for (int k = 0; k < Held; ++k) {
      v[k] = has(k) ? Row::join(0, row_.look(held_[k])) : 0;
      if (k != 0 && is_later_round(k)) v[k] = Row::join(v[k - 1], v[k]);
    }
    for (int half = warp_group::width / 2; half > 0; half /= 2) {
      CW_UNROLLED
      for (int k = 0; k < Held; ++k) v[k] = Row::join(v[k], g.swap(v[k], half));
    }
    return join_segments(v);
  }
  CW_ROWS_INLINE CW_FN void put(float factor) const noexcept {
    CW_UNROLLED
    for (int k = 0; k < Held; ++k) {
      if (has(k)) row_.put(held_[k], at(k), length(k), factor);
    }
  }

 private:
  /// Rounds are 1, 2, 3 or 4: unit k is then of the segment of unit k - 1.
  [[nodiscard]] CW_ROWS_INLINE CW_FN bool is_later_round(int k) const noexcept {
    return k < units_ && (part_.rounds == 1 ? false : part_.rounds == 2 ? k % 2 == 1 : true);
  }
  /// By halves; a segment's number is its last round's.
  [[nodiscard]] CW_ROWS_INLINE CW_FN float join_segments(const float (&v)[Held]) const noexcept {
    if constexpr (Held == 1) {
      return v[0];
    } else if constexpr (Held == 2) {
      if (units_ == 1) return v[0];
      return part_.rounds == 1 ? Row::join(v[0], v[1]) : v[1];
    } else {
      static_assert(Held == 4);
      if (part_.rounds == 1) {
        if (units_ == 4) return Row::join(Row::join(v[0], v[2]), Row::join(v[1], v[3]));
        return units_ == 2 ? Row::join(v[0], v[1]) : v[0];
      }
      if (part_.rounds == 2) return units_ == 4 ? Row::join(v[1], v[3]) : v[1];
      return part_.rounds == 3 ? v[2] : v[3];
    }
  }

  const Row row_;
  std::size_t hidden_;
  warp_part part_;
  int units_;
  int tile_[Held];
  typename Row::held held_[Held];
};

/// The numbers of a row's warps: of each lane's the one that it has, in turn.
template <class Row>
CW_FN inline float join_warps(const warp_group& g, float mine, int warps) noexcept {
  for (int half = warps / 2; half > 0; half /= 2) mine = Row::join(mine, g.swap(mine, half));
  return mine;
}

/// The same, of warps of this block: those from `first` on have the row.
template <class Row>
CW_FN inline float join_in_block(const block_group& g, float mine, int first, int warps,
                                 std::size_t turn) noexcept {
  const warp_group warp = g.warp();
  float told[row_segments];
  g.make_together(told, turn, [&](float* all) {
    if (warp.rank() == 0 && warp.index() < row_segments) all[warp.index()] = mine;
  });
  const int wanted = first + (warp.rank() & (warps - 1));
  float seen = told[0];
  CW_UNROLLED
  for (int i = 1; i < row_segments; ++i) seen = i == wanted ? told[i] : seen;
  return join_warps<Row>(warp, seen, warps);
}

// ---- rows whose sums are in memory

inline constexpr int most_held = 4;
inline constexpr int most_in_packets = 2;

/// Warps for each row: as few as hold it, so that many rows are under way; more when there are few
/// rows. 0: it does not fit.
CW_FN inline int warps_for_row(int warps, std::size_t rows, std::size_t hidden) noexcept {
  if (hidden > static_cast<std::size_t>(row_tile * row_lanes) * most_held) return 0;
  const int most = warps < row_segments ? warps : row_segments;
  int each = 1;
  while (row_segments / each * warp_part::rounds_of(hidden) > most_held) each *= 2;
  while (2 * each <= most &&
         static_cast<std::size_t>(2 * each) * rows <= static_cast<std::size_t>(most)) {
    each *= 2;
  }
  return each <= most ? each : 0;
}

/// One row by `part` of it; its sum is in memory. `join(mine)`: what the row's warps have,
/// together.
template <class Row, class Join>
CW_FN inline void hold_row(const warp_group& g, const Row& r, std::size_t hidden,
                           const warp_part& part, const Join& join) noexcept {
  held_units<Row, most_held> held(r, hidden, part, g.rank());
  tile_of<typename Row::element> sums[most_held];
  CW_UNROLLED
  for (int k = 0; k < most_held; ++k) {
    if (held.has(k)) load_row_tile<true>(sums[k], r.sum() + held.at(k), row_tile);
  }
  held.fetch();
  CW_UNROLLED
  for (int k = 0; k < most_held; ++k) {
    if (held.has(k)) held.take(k, sums[k]);
  }
  const float whole = r.looks_first() ? join(held.look(g)) : 0;
  const float factor = r.settle(whole);
  if (hidden != 0 && part.warp == 0 && g.rank() == 0) r.note(factor);
  held.put(factor);
}

template <class RowOf>
CW_FN inline bool hold_rows(const block_group& g, std::size_t rows, std::size_t hidden,
                            const RowOf& row_of) noexcept {
  using row = decltype(row_of(0).whole());
  const warp_group warp = g.warp();
  const int warps = g.size() / warp_group::width;
  if (g.size() % warp_group::width != 0 || warps > row_segments) return false;
  const int each = warps_for_row(warps, rows, hidden);
  if (each == 0 || !row_of(0).is_whole()) return false;
  const int at_once = warps / each;
  const int which = warp.index() / each;
  const warp_part part{warp.index() & (each - 1), each, warp_part::rounds_of(hidden)};
  std::size_t turn = 0;
  CW_IN_TURN
  for (std::size_t first = 0; first < rows; first += static_cast<std::size_t>(at_once)) {
    const std::size_t i = first + static_cast<std::size_t>(which);
    // All warps meet, also those that have no row.
    const bool mine = which < at_once && i < rows;
    hold_row(warp, row_of(mine ? i : first).whole(), mine ? hidden : 0, part,
             [&](float told) { return join_in_block<row>(g, told, which * each, each, turn++); });
  }
  return true;
}

// ---- rows that blocks share, from the sum on

/// A block's part of one row. All of it is in line, as otherwise it would be in memory.
template <class Row, int Held>
class shared_row {
 public:
  /// `warps` of the block have a part in the row: a power of two. Others may be there.
  CW_ROWS_INLINE CW_FN shared_row(const block_group& g, const coll& with, const Row& row,
                                  std::size_t hidden, const device::share& mine, int warps,
                                  std::uint32_t what) noexcept
      : p_(coll_call<block_group>::parts_of(with)),
        row_(row),
        warp_(g.warp()),
        share_(mine),
        here_(warp_.index() < warps),
        part_(warp_part::of_share(mine, warp_.index(), warps, hidden)),
        ahead_(g, row, here_ ? hidden : 0, part_, warp_.rank()),
        tag_(mine.of > 1 ? coll_call<block_group>::row_tag(p_, p_.channel - mine.which) : 0),
        call_(p_, g, what),
        by_(p_.limits) {}

  CW_ROWS_INLINE CW_FN status run() noexcept {
    // Steps that take no packets are met in.
    while (!call_.takes_packets() && call_.step() && call_.meet() == status::ok) {
    }
    if (call_.step_of_packets()) {
      show();
      status s = call_.hear_all(by_);
      CW_UNROLLED
      for (int k = 0; k < Held; ++k) {
        if (held().has(k) && s == status::ok) s = receive(k);
      }
      (void)call_.settle(finish(s));
    }
    return call_.end();
  }

 private:
  using T = typename Row::element;
  static constexpr int per_tile = row_tile * static_cast<int>(sizeof(T)) / 8;  // packets
  static constexpr int at_once = 2;                                            // of a tile
  static constexpr int batch = 8;                                              // ranks

  /// What is asked for before the step's number has come.
  struct asked_ahead {
    held_units<Row, Held> held;
    tile_of<T> in[Held];
    CW_ROWS_INLINE CW_FN asked_ahead(const block_group& g, const Row& row, std::size_t hidden,
                                     const warp_part& part, int lane) noexcept
        : held(row, hidden, part, lane) {
      g.sync();  // what each thread of the group has written is there for all of them
      CW_UNROLLED
      for (int k = 0; k < Held; ++k) {
        if (held.has(k)) {
          load_row_tile<Row::is_in_whole_tiles>(in[k], row.in() + held.at(k), held.length(k));
        }
      }
      held.fetch();
    }
  };

  [[nodiscard]] CW_ROWS_INLINE CW_FN held_units<Row, Held>& held() noexcept { return ahead_.held; }
  [[nodiscard]] CW_ROWS_INLINE CW_FN const held_units<Row, Held>& held() const noexcept {
    return ahead_.held;
  }
  /// The channel of the row's first block.
  [[nodiscard]] CW_ROWS_INLINE CW_FN int first() const noexcept {
    return p_.channel - share_.which;
  }
  /// Packet j of this thread's tile of unit k: threads' packets lie side by side.
  [[nodiscard]] CW_ROWS_INLINE CW_FN std::size_t packet_place(int k, int j) const noexcept {
    const int tiles = warp_.index() * held().units() + k;
    return static_cast<std::size_t>(tiles * per_tile + j) * warp_group::width +
           static_cast<std::size_t>(warp_.rank());
  }

  /// This rank's tiles, as packets at home: every rank looks there.
  CW_ROWS_INLINE CW_FN void show() const noexcept {
    packet* const to = &call_.packet_at(p_.rank, call_.inbox_place(p_.rank));
    CW_UNROLLED
    for (int k = 0; k < Held; ++k) {
      if (!held().has(k)) continue;
      std::uint64_t eights[per_tile];
      memcpy(eights, &ahead_.in[k], sizeof(eights));
      for (int j = 0; j < per_tile; ++j) store(to[packet_place(k, j)], eights[j], call_.tag());
    }
  }

  CW_ROWS_INLINE CW_FN status receive(int k) noexcept {
    tile_of<T> sum;
    eight_bytes<T> eights[per_tile];
    CW_UNROLLED
    for (int j = 0; j < per_tile; j += at_once) {
      accumulator_t<T> wide[at_once][eight_bytes<T>::per] = {};
      CW_IN_TURN
      for (int pe = 0; pe < p_.size; pe += batch) {
        std::uint64_t data[batch][at_once];
        const status s = receive(k, j, pe, data);
        if (s != status::ok) return s;
        for (int i = 0; i < batch; ++i) {
          if (pe + i >= p_.size) continue;
          for (int h = 0; h < at_once; ++h) include(wide[h], data[i][h], pe + i == 0);
        }
      }
      for (int h = 0; h < at_once; ++h) {
        for (std::size_t i = 0; i < eight_bytes<T>::per; ++i) {
          eights[j + h].values[i] = narrow<T>(wide[h][i]);
        }
      }
    }
    memcpy(&sum, eights, sizeof(sum));
    take(k, sum);
    return status::ok;
  }
  CW_ROWS_INLINE CW_FN void include(accumulator_t<T>* wide, std::uint64_t data,
                                    bool is_first) const noexcept {
    const auto all = bits_as<eight_bytes<T>>(data);
    for (std::size_t i = 0; i < eight_bytes<T>::per; ++i) {
      wide[i] = is_first ? widen(all.values[i]) : coll_ops::sum{}(wide[i], widen(all.values[i]));
    }
  }

  /// Packets j, j + 1 of that tile, of ranks from `pe` on. All are asked for before one is looked
  /// at.
  CW_ROWS_INLINE CW_FN status receive(int k, int j, int pe,
                                      std::uint64_t (&data)[batch][at_once]) noexcept {
    const std::size_t place = packet_place(k, j);
    return call_.wait(
        [&] {
          bool came[batch];
          for (int i = 0; i < batch; ++i) {
            came[i] = true;
            if (pe + i >= p_.size) continue;
            packet* const theirs = &call_.packet_at(pe + i, call_.inbox_place(pe + i)) + place;
            for (int h = 0; h < at_once; ++h) {
              const bool one = load(theirs[h * warp_group::width], call_.tag(), data[i][h]);
              came[i] = came[i] && one;
            }
          }
          bool there = true;
          for (int i = 0; i < batch; ++i) there = there && came[i];
          if (there) return true;
          for (int i = 0; i < batch; ++i) {
            if (!came[i]) by_.blame(pe + i);
          }
          return false;
        },
        by_);
  }

  CW_ROWS_INLINE CW_FN void take(int k, const tile_of<T>& sum) noexcept {
    row_.keep(sum, held().at(k), held().length(k));
    held().take(k, sum);
  }

  CW_ROWS_INLINE CW_FN status finish(status s) noexcept {
    float whole = 0;
    if (row_.looks_first()) {
      if (share_.of == 1) {
        whole = join_in_block<Row>(call_.caller(), held().look(warp_), 0, part_.warps, 0);
      } else if (here_) {
        s = join_in_channel(s, whole);
      }
    }
    if (s != status::ok || !here_) return s;
    const float factor = row_.settle(whole);
    if (part_.warp == 0 && warp_.rank() == 0) row_.note(factor);
    held().put(factor);
    return s;
  }

  /// Tells the row's other warps, and hears them. Who has failed tells nothing, and marks the
  /// channels, which ends the others' waits.
  CW_ROWS_INLINE CW_FN status join_in_channel(status s, float& whole) noexcept {
    const float mine = held().look(warp_);
    if (warp_.any(s != status::ok)) return s;
    // Of the thread that tells: others may have read it too late.
    const std::uint32_t tag = warp_.broadcast(tag_);
    const std::uint64_t told =
        (static_cast<std::uint64_t>(tag) << 32U) | bits_as<std::uint32_t>(mine);
    // All of a row's words in each call, so that no tag is left from 2^32 calls ago.
    for (int w = part_.warp + warp_.rank() * part_.warps; w < row_segments;
         w += warp_group::width * part_.warps) {
      // Relaxed: the word has its data.
      call_.row_word(first(), w).store(told, order::relaxed);
    }
    const auto from = call_.row_word(first(), warp_.rank() & (part_.warps - 1));
    std::uint64_t seen = 0;
    by_.blame(-1);  // blocks of this rank; who of them waits for another rank names it
    s = call_.wait(
        [&] {
          seen = from.load(order::relaxed);  // as above
          return static_cast<std::uint32_t>(seen >> 32U) == tag;
        },
        by_);
    whole = join_warps<Row>(warp_, bits_as<float>(static_cast<std::uint32_t>(seen)), part_.warps);
    if (share_.which == 0 && warp_.index() == 0 && warp_.rank() == 0 && s == status::ok) {
      call_.end_row(tag);
    }
    return s;
  }

  const coll::parts& p_;
  const Row row_;
  const warp_group warp_;
  device::share share_;
  bool here_;
  warp_part part_;
  asked_ahead ahead_;
  std::uint32_t tag_;  ///< of this row's words
  coll_call<block_group> call_;
  deadline by_;
};

/// One row from the sum on: by `warps` warps of each of the blocks that share it, at most Held
/// units each. `warps` times that is row_segments times the rounds of a segment.
template <int Held, class Row>
CW_FN inline status make_row(const block_group& g, const coll& with, const Row& row,
                             std::size_t hidden, const device::share& mine, int warps) noexcept {
  using T = typename Row::element;
  const auto what = digest<T>(coll_kind::all_reduce, hidden, static_cast<std::uint64_t>(mine.of))
                        .add(static_cast<std::uint64_t>(coll_algorithm::pull));
  return shared_row<Row, Held>(g, with, row, hidden, mine, warps, what.value()).run();
}

}  // namespace crosswarp::device::impl

#undef CW_ROWS_INLINE
