// One collective call of one group: how it meets the other ranks, and what it may write when.
//
// A call consists of steps, numbered by the channel's epoch. In each step every rank tells every
// other the step's number and what it is doing, and waits until it has heard it of all.
//
// In a meeting, that orders memory. What a rank shows to others it puts on a shelf before it meets
// them, and they read it after. There are two shelves, in turns: whoever has met everybody once
// more knows that they have finished reading what it showed the time before. In a step of packets
// it orders nothing, since packets need no order. They go into the inboxes of the step's parity:
// whoever has heard of everybody's step e knows that they have got all packets of step e - 1, and
// with them of step e - 2, whose place those of step e take.
//
// A rank that is not mapped has an image of its memory here, where it puts what it shows; whoever
// reads it does not notice. There are no packets then.
#pragma once

#include <cstddef>

#include "crosswarp/device/coll.hpp"

namespace crosswarp::device {

/// A channel's memory at each rank.
struct coll::state {
  std::uint32_t epoch;   ///< steps so far; written by its owner's group alone, as is the next
  std::uint32_t turn;    ///< meetings so far
  std::uint32_t failed;  ///< a fault word, of the rank that disagrees; then calls return its status
  std::uint32_t over;    ///< what a step here has failed with; written as the epoch, see settle()
  std::uint64_t pieces;  ///< of rings so far
  std::uint32_t busy;    ///< checked builds: a group makes a call here
  std::uint32_t rows;    ///< that blocks shared with this channel's so far, see end_row()
};

struct coll::layout {
  // Two lines for each rank, by parity, written by that rank; one with the state; one with the
  // words of rows that blocks share; then packets, by parity and sender; then the shelves. A line
  // of a rank has a hello and, behind it, a ring's words.
  CW_FN static std::size_t hello(int ranks, int parity, int sender) noexcept {
    return (static_cast<std::size_t>(parity) * static_cast<std::size_t>(ranks) +
            static_cast<std::size_t>(sender)) *
           line_bytes;
  }
  CW_FN static std::size_t own(int ranks) noexcept { return hello(ranks, 2, 0); }
  CW_FN static std::size_t row_words(int ranks) noexcept { return own(ranks) + line_bytes; }
  CW_FN static std::size_t inbox(int ranks, std::size_t packets, int parity, int sender) noexcept {
    return row_words(ranks) + line_bytes +
           (static_cast<std::size_t>(parity) * static_cast<std::size_t>(ranks) +
            static_cast<std::size_t>(sender)) *
               packets * sizeof(packet);
  }
  CW_FN static std::size_t shelf(int ranks, std::size_t packets, std::size_t bytes,
                                 int parity) noexcept {
    const std::size_t end = inbox(ranks, packets, 2, 0);
    return (end + line_bytes - 1) / line_bytes * line_bytes +
           static_cast<std::size_t>(parity) * bytes;
  }
};

CW_FN inline std::size_t coll::bytes_of_channel(int ranks, std::size_t shelf_bytes,
                                                std::size_t packets) noexcept {
  return layout::shelf(ranks, packets, shelf_bytes, 2);
}
CW_FN inline std::size_t coll::epoch_offset(int ranks) noexcept {
  return layout::own(ranks);
}
CW_FN inline std::size_t coll::failed_offset(int ranks) noexcept {
  return layout::own(ranks) + offsetof(state, failed);
}

namespace impl {

/// What a rank says that it is doing, in 32 bits: a polynomial, of which what is known when the
/// kernel is compiled takes no time.
class coll_digest {
 public:
  CW_FN constexpr coll_digest& add(std::uint64_t value) noexcept {
    constexpr std::uint32_t base = 0x9e3779b1U;
    hash_ = (hash_ * base + static_cast<std::uint32_t>(value)) * base +
            static_cast<std::uint32_t>(value >> 32U);
    return *this;
  }
  [[nodiscard]] CW_FN constexpr std::uint32_t value() const noexcept { return hash_; }

 private:
  std::uint32_t hash_ = 0x6a09e667U;
};

}  // namespace impl

namespace impl {

/// Checked builds: `busy` is a group's for a while, and a mistake when it is another one's already.
/// Relaxed, so that the check orders nothing which the program has forgotten to.
/// Fails: invalid, for all threads of g.
template <group G>
CW_FN inline status begin_turn(const G& g, std::uint32_t& busy) noexcept {
  status mine = status::ok;
  if (g.rank() == 0 && device_atomic<std::uint32_t>(busy).exchange(1, order::relaxed) != 0) {
    note_mistake("coll", "two groups of a rank made calls in one channel at the same time");
    mine = status::invalid;
  }
  return agree(g, mine);
}
/// Of who has begun it.
template <group G>
CW_FN inline void end_turn(const G& g, std::uint32_t& busy) noexcept {
  if (g.rank() == 0) device_atomic<std::uint32_t>(busy).store(0, order::relaxed);
}

}  // namespace impl

/// Some bytes of a shelf.
struct on_shelf {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

template <group G>
class coll_call {
 public:
  using parts = coll::parts;

  /// `what`: of the whole call; ranks that say something else are an error. `alone`: other groups
  /// are not in the channel meanwhile.
  CW_FN coll_call(const parts& p, const G& g, std::uint32_t what, bool alone = true) noexcept
      : p_(p),
        g_(g),
        what_(impl::coll_digest().add(what).add(p.whole).value()),
        channel_(offset_of(p)),
        own_(reinterpret_cast<coll::state*>(p.work.at(p.rank) + channel_ +
                                            coll::layout::own(p.size))) {
    if (p.channel < 0 || p.channel >= p.channels) {
      outcome_ = status::invalid;
      return;
    }
    g.sync();  // what each thread of the group has written is there for all of them
    if constexpr (CROSSWARP_CHECKED != 0) {
      if (alone) outcome_ = impl::begin_turn(g, own_->busy);
      if (outcome_ != status::ok) {
        if (g.rank() == 0) (void)fail(outcome_, -1);
        return;
      }
      has_turn_ = alone;
    }
    // Each thread's own view, as another group may be failing now: they agree when they have met.
    mine_ = fault_status(failed().load(order::relaxed));
    if (mine_ != status::ok) outcome_ = static_cast<status>(own_->over);
    epoch_ = own_->epoch;
    turn_ = own_->turn;
  }

  /// Begins a step that ends with meet(). False: the call has failed.
  CW_FN bool step() noexcept {
    if (outcome_ != status::ok) return false;
    ++turn_;
    ++epoch_;
    if (is_clean(epoch_)) {
      clean(reinterpret_cast<packet*>(at(p_.rank) +
                                      coll::layout::inbox(p_.size, p_.packets, parity(epoch_), 0)),
            static_cast<std::size_t>(p_.size) * p_.packets);
    }
    return true;
  }
  /// All ranks are here. `shown(pe)`: what of this rank's shelf is for rank pe.
  /// Visibility: what any thread of any rank's group wrote before is visible after it: on its shelf
  ///             as far as it was shown, elsewhere for those who have it mapped.
  template <class Shown>
  CW_FN status meet(const Shown& shown) noexcept {
    g_.sync();
    const std::uint64_t word = hello();
    CW_IN_TURN
    for (int pe = g_.rank(); pe < p_.size; pe += g_.size()) {
      if (pe == p_.rank || is_image(pe)) continue;
      // pairs with hear(), at rank pe
      within(p_.work.reach(), line(pe, p_.rank), [&](auto w) { w.store(word, order::release); });
    }
    status s = mine_;
    if (p_.image_bytes != 0) {
      s = agree(g_, s);  // all threads put, or none
      for (int k = 1; k < p_.size && s == status::ok; ++k) {
        const int pe = p_.rank + k < p_.size ? p_.rank + k : p_.rank + k - p_.size;
        if (is_image(pe)) s = put_in_image(pe, shown(pe), word);
      }
    }
    deadline by(p_.limits);
    CW_IN_TURN
    for (int pe = g_.rank(); pe < p_.size && s == status::ok; pe += g_.size()) {
      if (pe == p_.rank) continue;
      s = hear(pe, by, [&](std::uint64_t& from) {
        std::uint64_t seen = 0;
        // pairs with the release above, at rank pe
        within(p_.work.reach(), from, [&](auto w) { seen = w.load(order::acquire); });
        return seen;
      });
    }
    return settle(s);
  }
  /// With nothing on the shelf.
  CW_FN status meet() noexcept {
    return meet([](int /*pe*/) { return on_shelf{}; });
  }

  /// True when the next step may be of packets; the same on all ranks.
  [[nodiscard]] CW_FN bool takes_packets() const noexcept { return !is_clean(epoch_ + 1); }
  /// Begins a step of packets, which ends with all threads' hear_all() and settle().
  /// False: the call has failed.
  CW_FN bool step_of_packets() noexcept {
    if (outcome_ != status::ok) return false;
    ++epoch_;
    const std::uint64_t word = hello();
    CW_IN_TURN
    for (int pe = told_by_thread(); pe < p_.size; pe += g_.size()) {
      // Relaxed: the data are packets, which order themselves.
      if (pe != p_.rank) {
        system_atomic<std::uint64_t>(line(pe, p_.rank)).store(word, order::relaxed);
      }
    }
    return true;
  }
  CW_FN status hear_all(deadline& by) noexcept {
    status s = mine_;
    CW_IN_TURN
    for (int pe = told_by_thread(); pe < p_.size && s == status::ok; pe += g_.size()) {
      if (pe == p_.rank) continue;
      // Relaxed, as above.
      s = hear(pe, by, [](std::uint64_t& from) {
        return system_atomic<std::uint64_t>(from).load(order::relaxed);
      });
    }
    return s;
  }
  /// Makes one outcome of the threads' own, of a step. When it is a failure, later calls in this
  /// channel say and show nothing: those that are late hear and read what this one has left.
  CW_FN status settle(status mine) noexcept {
    if (outcome_ != status::ok) return outcome_;
    if (mine != status::ok) mine = in_vain(mine);
    if (conclude(mine) != status::ok && g_.rank() == 0) {
      own_->over = static_cast<std::uint32_t>(outcome_);
    }
    return outcome_;
  }
  /// The same of a call without steps, with rank pe.
  CW_FN status conclude(status mine, int pe = -1) noexcept {
    outcome_ = agree(g_, mine);
    if (outcome_ != status::ok && g_.rank() == 0) (void)fail(outcome_, pe);
    return outcome_;
  }

  /// Says hello, so that the others do not wait, and fails: for an argument that cannot be.
  CW_COLD CW_FN status refuse() noexcept {
    if (step() && meet() == status::ok) (void)settle(status::invalid);
    return end();
  }

  /// Ends the call: every thread's result is there for all.
  CW_FN status end() noexcept {
    if (g_.rank() == 0 && outcome_ == status::ok) {
      own_->epoch = epoch_;
      own_->turn = turn_;
    }
    if constexpr (CROSSWARP_CHECKED != 0) {
      if (has_turn_) impl::end_turn(g_, own_->busy);
    }
    return leave();
  }
  /// The same for one that made no steps: other groups may be in the channel.
  CW_FN status leave() noexcept {
    g_.sync();
    return outcome_;
  }

  [[nodiscard]] CW_FN status outcome() const noexcept { return outcome_; }
  /// Why no call can be made any more, as this thread saw it at the begin.
  [[nodiscard]] CW_FN status failed_before() const noexcept { return mine_; }
  /// The digest of the call.
  [[nodiscard]] CW_FN std::uint32_t what() const noexcept { return what_; }

  /// What a rank shows in this meeting, and what it showed in the one before.
  [[nodiscard]] CW_FN std::byte* shelf(int pe) const noexcept { return shelf_of(pe, turn_); }
  [[nodiscard]] CW_FN std::byte* last_shelf(int pe) const noexcept {
    return shelf_of(pe, turn_ - 1);
  }
  /// Where `sender`'s packets of this step lie, the same at all ranks; see packet_at().
  [[nodiscard]] CW_FN std::size_t inbox_place(int sender) const noexcept {
    return channel_ + coll::layout::inbox(p_.size, p_.packets, parity(epoch_), sender);
  }
  [[nodiscard]] CW_FN packet& packet_at(int pe, std::size_t place) const noexcept {
    return *reinterpret_cast<packet*>(p_.work.at(pe) + place);
  }
  /// Of this step's packets.
  [[nodiscard]] CW_FN std::uint32_t tag() const noexcept { return tag_of(epoch_); }

  /// Waits until `ready()`, or until another group of this rank has found out that it is in vain.
  template <class Ready>
  CW_FN status wait(const Ready& ready, deadline& by) noexcept {
    std::uint32_t looks = 0;
    std::uint32_t why = 0;
    const status s = poll_until(
        [&] {
          if (ready()) return true;
          if (++looks % 64 == 0) why = failed().load(order::relaxed);
          return why != 0;
        },
        by);
    return why != 0 ? fault_status(why) : s;
  }

  /// Puts at rank pe, and then `value` into a word there; both are places in the heap. The source
  /// stays as it is until pe is known to have it.
  CW_FN status put_afar(int pe, std::size_t to, const std::byte* from, std::size_t bytes,
                        std::size_t word, std::uint64_t value) const noexcept {
    return put_afar(p_.rare, p_.channel, g_, pe, to, from, bytes, word, value);
  }

  // ---- for rows that blocks of this rank share, in launches that follow each other: words in the
  //      channel of the first of them

  /// What the words of the next such row are marked with. Whoever writes one has read this before,
  /// and end_row() comes when all have been written.
  [[nodiscard]] CW_FN static std::uint32_t row_tag(const parts& p, int first) noexcept {
    const device_atomic<std::uint32_t> rows(
        reinterpret_cast<coll::state*>(channel_at(p, first) + coll::layout::own(p.size))->rows);
    return rows.load(order::relaxed) + 1;
  }
  [[nodiscard]] CW_FN device_atomic<std::uint64_t> row_word(int first, int which) const noexcept {
    auto* const all =
        reinterpret_cast<std::uint64_t*>(channel_at(p_, first) + coll::layout::row_words(p_.size));
    return device_atomic<std::uint64_t>(all[which]);
  }
  /// One thread of the first block, when it has seen all words.
  CW_FN void end_row(std::uint32_t tag) const noexcept {
    device_atomic<std::uint32_t>(own_->rows).store(tag, order::relaxed);
  }

  // ---- for rings: both shelves together, and words that tell of slots in them

  /// Pieces that are under way at a time, at most.
  static constexpr std::size_t slots = 8;
  /// A word for each slot, as what is sent afar may arrive in another order; inputs, which are not,
  /// have one.
  enum class words : std::uint8_t { sums, inputs, results };

  [[nodiscard]] CW_FN std::uint64_t pieces() const noexcept { return own_->pieces; }
  CW_FN void add_pieces(std::size_t count) const noexcept {
    if (g_.rank() == 0) own_->pieces += count;
  }
  /// Rank pe's shelves, or their image; `here`: the rank, mapped, that has the image.
  [[nodiscard]] CW_FN std::byte* shelves(int pe) const noexcept { return shelf_of(pe, 0); }
  [[nodiscard]] CW_FN std::byte* shelves(int pe, int here) const noexcept {
    if (!is_image(pe)) return shelf_of(pe, 0);
    return shelf_of(here, 0) + static_cast<std::ptrdiff_t>(p_.image_bytes) * (pe - here);
  }
  /// Tells rank pe, which is mapped.
  CW_FN void tell(int pe, words which, std::size_t slot, std::uint64_t value) const noexcept {
    // pairs with await(), at rank pe
    within(p_.work.reach(), *reinterpret_cast<std::uint64_t*>(at(pe) + word(which, slot, p_.rank)),
           [&](auto w) { w.store(value, order::release); });
  }
  /// Sends what all threads have put on the shelves to rank pe, unless that has them mapped, and
  /// tells it. The source stays as it is until it is known to have arrived.
  CW_FN status send(int pe, on_shelf what, words which, std::size_t slot,
                    std::uint64_t value) const noexcept {
    if (!is_image(pe)) {
      if (g_.rank() == 0) tell(pe, which, slot, value);
      return status::ok;
    }
    const std::size_t from =
        coll::layout::shelf(p_.size, p_.packets, p_.shelf_bytes, 0) + what.offset;
    return put_afar(pe, place_at(p_.rank, from), at(p_.rank) + from, what.bytes,
                    place_at(pe, word(which, slot, p_.rank)), value);
  }
  /// Waits until rank `from` has told rank `at_rank`, which is mapped. One thread.
  CW_FN status await(int at_rank, int from, words which, std::size_t slot, std::uint64_t value,
                     deadline& by) noexcept {
    by.blame(from);
    auto& w = *reinterpret_cast<std::uint64_t*>(at(at_rank) + word(which, slot, from));
    return wait(
        [&] {
          // pairs with tell() and send(), at rank `from`
          return reached(system_atomic<std::uint64_t>(w).load(order::acquire), value);
        },
        by);
  }

  [[nodiscard]] CW_FN const parts& parts_of() const noexcept { return p_; }
  [[nodiscard]] CW_FN static const parts& parts_of(const coll& c) noexcept { return c.p_; }
  [[nodiscard]] CW_FN const G& caller() const noexcept { return g_; }

 private:
  // Tags have 31 bits and one that is always set, so that no tag is 0.
  static constexpr std::uint32_t clean_every = 1U << 29U;
  /// Steps that clear the inboxes of their parity, so that no packet is taken for one of 2^31 steps
  /// later. They are meetings: the last packets there were those of two steps ago, which everybody
  /// had got before the last step, and the next are those of the step after the next.
  CW_FN static bool is_clean(std::uint32_t epoch) noexcept {
    return (epoch & (clean_every - 1)) < 2;
  }
  CW_FN static std::uint32_t tag_of(std::uint32_t epoch) noexcept { return epoch | 0x80000000U; }
  CW_FN static int parity(std::uint32_t count) noexcept { return static_cast<int>(count & 1U); }
  CW_FN static std::size_t offset_of(const parts& p) noexcept {
    return static_cast<std::size_t>(p.channel) * p.channel_bytes;
  }

  [[nodiscard]] CW_FN std::byte* at(int pe) const noexcept { return p_.work.at(pe) + channel_; }
  /// Another channel of this rank's.
  [[nodiscard]] CW_FN static std::byte* channel_at(const parts& p, int which) noexcept {
    return p.work.at(p.rank) + static_cast<std::size_t>(which) * p.channel_bytes;
  }
  [[nodiscard]] CW_FN bool is_image(int pe) const noexcept {
    return p_.image_bytes != 0 && p_.work.path_to(pe) == path::proxy;
  }
  [[nodiscard]] CW_FN device_atomic<std::uint32_t> failed() const noexcept {
    return device_atomic<std::uint32_t>(own_->failed);
  }
  [[nodiscard]] CW_FN std::uint64_t& line(int pe, int sender) const noexcept {
    return *reinterpret_cast<std::uint64_t*>(at(pe) +
                                             coll::layout::hello(p_.size, parity(epoch_), sender));
  }
  [[nodiscard]] CW_FN std::size_t word(words which, std::size_t slot, int sender) const noexcept {
    const std::size_t behind = which == words::inputs ? 1 + slots : 1 + slot;
    return coll::layout::hello(p_.size, which == words::results ? 1 : 0, sender) +
           behind * sizeof(std::uint64_t);
  }
  [[nodiscard]] CW_FN std::byte* shelf_of(int pe, std::uint32_t turn) const noexcept {
    return at(pe) + coll::layout::shelf(p_.size, p_.packets, p_.shelf_bytes, parity(turn));
  }

  /// What this rank says in a step.
  [[nodiscard]] CW_FN std::uint64_t hello() const noexcept {
    return (static_cast<std::uint64_t>(what_) << 32U) | tag();
  }
  /// The first rank that this thread tells and hears in steps of packets. The last threads do it,
  /// which have the fewest packets.
  [[nodiscard]] CW_FN int told_by_thread() const noexcept { return g_.size() - 1 - g_.rank(); }

  /// Waits for rank pe's word of this step, which `look` reads.
  template <class Look>
  CW_FN status hear(int pe, deadline& by, const Look& look) noexcept {
    by.blame(pe);
    std::uint64_t word = 0;
    std::uint64_t& from = line(p_.rank, pe);
    const status s = wait(
        [&] {
          word = look(from);
          return static_cast<std::uint32_t>(word) == tag();
        },
        by);
    if (s != status::ok) return s;
    return static_cast<std::uint32_t>(word >> 32U) == what_ ? status::ok
                                                            : fail(status::invalid, pe);
  }
  /// Why this thread waited in vain. Ranks are heard one after the other, and one that disagrees
  /// may have broken the world for it before it was this thread's turn to hear it.
  CW_FN status in_vain(status why) noexcept {
    if (why == status::invalid) return why;
    const int pe = who_disagrees(&line(p_.rank, 0), p_.size, tag(), what_);
    return pe < 0 ? why : fail(status::invalid, pe);
  }

  /// For this rank's groups in all channels: they may be waiting for what will not come. `pe`: the
  /// rank that says something else.
  CW_FN status fail(status why, int pe) noexcept {
    mark_failed(p_.work.at(p_.rank) + coll::layout::own(p_.size), p_.channels, p_.channel_bytes,
                static_cast<std::uint32_t>(make_fault(why, pe)));
    return why;
  }

  /// Each rank's memory is followed, or preceded, by its images of others, in the order of ranks.
  [[nodiscard]] CW_FN std::size_t place_at(int owner, std::size_t offset) const noexcept {
    return p_.work.remote(static_cast<std::size_t>(owner) * p_.image_bytes + channel_ + offset)
        .offset;
  }
  /// The source is this rank's shelf, which stays as it is until pe has been heard once more.
  CW_FN status put_in_image(int pe, on_shelf what, std::uint64_t word) const noexcept {
    const std::size_t from =
        coll::layout::shelf(p_.size, p_.packets, p_.shelf_bytes, parity(turn_)) + what.offset;
    return put_afar(pe, place_at(p_.rank, from), at(p_.rank) + from, what.bytes,
                    place_at(pe, coll::layout::hello(p_.size, parity(epoch_), p_.rank)), word);
  }

  // What is rare is not in line, and gets no reference to anything: this object stays in registers.
  CW_COLD CW_FN static status put_afar(const coll::rare_parts* by, int queue, G g, int pe,
                                       std::size_t to, const std::byte* from, std::size_t bytes,
                                       std::size_t word, std::uint64_t value) noexcept {
    auto q = by->proxy.queue(queue);
    // pairs with hear(), at rank pe
    if (bytes != 0)
      return q.put_signal_nbi(g, pe, {to}, from, bytes, {word}, value, signal_op::set);
    if (const status s = q.fence(g); s != status::ok) return s;
    return q.put_value(g, pe, {word}, value, sizeof(value));
  }
  CW_COLD CW_FN static void mark_failed(std::byte* first, int channels, std::size_t distance,
                                        std::uint32_t why) noexcept {
    for (int c = 0; c < channels; ++c, first += distance) {
      const device_atomic<std::uint32_t> word(reinterpret_cast<coll::state*>(first)->failed);
      // Relaxed: it orders no data, it only ends waits. Who disagrees stays, as it is found first.
      if (fault_status(word.load(order::relaxed)) == status::invalid) continue;
      word.store(why, order::relaxed);
    }
  }
  /// Of the ranks whose lines these are, one that says something else in this step; or -1.
  CW_COLD CW_FN static int who_disagrees(std::uint64_t* line, int ranks, std::uint32_t tag,
                                         std::uint32_t what) noexcept {
    for (int pe = 0; pe < ranks; ++pe, line += line_bytes / sizeof(*line)) {
      // Relaxed: it says who is to blame, and nothing is read after it.
      const std::uint64_t word = system_atomic<std::uint64_t>(*line).load(order::relaxed);
      if (static_cast<std::uint32_t>(word) != tag) continue;
      if (static_cast<std::uint32_t>(word >> 32U) != what) return pe;
    }
    return -1;
  }
  CW_FN void clean(packet* all, std::size_t count) const noexcept {
    clean(all, count, static_cast<std::size_t>(g_.rank()), static_cast<std::size_t>(g_.size()));
  }
  CW_COLD CW_FN static void clean(packet* all, std::size_t count, std::size_t first,
                                  std::size_t step) noexcept {
    for (std::size_t i = first; i < count; i += step) store_pair(all[i].half, 0, 0);
  }

  const parts& p_;
  const G& g_;
  std::uint32_t what_;
  std::size_t channel_;
  coll::state* own_;
  std::uint32_t epoch_ = 0;
  std::uint32_t turn_ = 0;
  status mine_ = status::ok;     // this thread's, until all agree
  status outcome_ = status::ok;  // the group's
  bool has_turn_ = false;        // checked builds
};

}  // namespace crosswarp::device
