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
#pragma once

#include "crosswarp/device/coll.hpp"

namespace crosswarp::device {

/// A channel's memory at each rank.
struct coll::state {
  std::uint32_t epoch;   ///< steps so far; written by its owner's group alone, as is the next
  std::uint32_t turn;    ///< meetings so far
  std::uint32_t failed;  ///< a status; from then on all calls return it
};

struct coll::layout {
  // Two lines for each rank, by parity, written by that rank; one with the state; then packets, by
  // parity and sender; then the shelves.
  CW_FN static std::size_t hello(int ranks, int parity, int sender) noexcept {
    return (static_cast<std::size_t>(parity) * static_cast<std::size_t>(ranks) +
            static_cast<std::size_t>(sender)) *
           line_bytes;
  }
  CW_FN static std::size_t own(int ranks) noexcept { return hello(ranks, 2, 0); }
  CW_FN static std::size_t inbox(int ranks, std::size_t packets, int parity, int sender) noexcept {
    return own(ranks) + line_bytes +
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

CW_FN inline std::size_t coll::channel_bytes(int ranks, std::size_t shelf_bytes,
                                             std::size_t packets) noexcept {
  return layout::shelf(ranks, packets, shelf_bytes, 2);
}
CW_FN inline std::size_t coll::epoch_offset(int ranks) noexcept {
  return layout::own(ranks);
}

namespace impl {

/// What a rank says that it is doing, in 32 bits.
class coll_digest {
 public:
  CW_FN coll_digest& add(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15U;
    hash_ ^= hash_ >> 29U;
    return *this;
  }
  [[nodiscard]] CW_FN std::uint32_t value() const noexcept {
    return static_cast<std::uint32_t>(hash_ >> 32U);
  }

 private:
  std::uint64_t hash_ = 0x6a09e667f3bcc909U;
};

}  // namespace impl

template <group G>
class coll_call {
 public:
  using parts = coll::parts;

  /// `what`: of the whole call; ranks that say something else are an error.
  CW_FN coll_call(const parts& p, const G& g, std::uint32_t what) noexcept
      : p_(p),
        g_(g),
        what_(impl::coll_digest().add(what).add(p.whole).value()),
        channel_(offset_of(p)) {
    if (p.channel < 0 || p.channel >= p.channels) return;
    // One outcome for all threads, as another group may be failing now. Also, all threads have left
    // the call before, and its epoch is written.
    outcome_ = agree(g, static_cast<status>(failed().load(order::relaxed)));
    epoch_ = own().epoch;
    turn_ = own().turn;
  }

  /// Begins a step that ends with meet(). False: the channel has failed.
  CW_FN bool step() noexcept {
    ++turn_;
    return begin();
  }
  /// All ranks are here.
  /// Visibility: what any thread of any rank's group wrote before is visible after it.
  CW_FN status meet() noexcept {
    g_.sync();
    hello(true);
    return settle(heard(true));
  }

  /// Begins a step of packets, which ends with all threads' heard_by_thread() and settle().
  CW_FN bool step_of_packets() noexcept {
    if (!begin()) return false;
    if (clean_) g_.sync();
    hello(clean_);
    return true;
  }
  CW_FN status heard_by_thread() noexcept { return heard(clean_); }
  /// Makes one outcome of the threads' own.
  CW_FN status settle(status mine) noexcept {
    outcome_ = agree(g_, mine);
    if (outcome_ != status::ok && g_.rank() == 0) (void)fail(outcome_);
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
      own().epoch = epoch_;
      own().turn = turn_;
    }
    g_.sync();
    return outcome_;
  }

  /// What a rank shows in this meeting, and what it showed in the one before.
  [[nodiscard]] CW_FN std::byte* shelf(int pe) const noexcept { return shelf_of(pe, turn_); }
  [[nodiscard]] CW_FN std::byte* last_shelf(int pe) const noexcept {
    return shelf_of(pe, turn_ - 1);
  }
  /// Where `sender`'s packets of this step lie at `pe`.
  [[nodiscard]] CW_FN packet* inbox(int pe, int sender) const noexcept {
    return reinterpret_cast<packet*>(
        at(pe) + coll::layout::inbox(p_.size, p_.packets, parity(epoch_), sender));
  }
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
    return why != 0 ? static_cast<status>(why) : s;
  }

  [[nodiscard]] CW_FN const parts& parts_of() const noexcept { return p_; }
  [[nodiscard]] CW_FN const G& caller() const noexcept { return g_; }

 private:
  // Tags have 31 bits and one that is always set, so that no tag is 0.
  static constexpr std::uint32_t clean_every = 1U << 29U;
  CW_FN static std::uint32_t tag_of(std::uint32_t epoch) noexcept { return epoch | 0x80000000U; }
  CW_FN static int parity(std::uint32_t count) noexcept { return static_cast<int>(count & 1U); }
  CW_FN static std::size_t offset_of(const parts& p) noexcept {
    return static_cast<std::size_t>(p.channel) *
           coll::channel_bytes(p.size, p.shelf_bytes, p.packets);
  }

  [[nodiscard]] CW_FN std::byte* at(int pe) const noexcept { return p_.work.at(pe) + channel_; }
  [[nodiscard]] CW_FN coll::state& own() const noexcept {
    return *reinterpret_cast<coll::state*>(at(p_.rank) + coll::layout::own(p_.size));
  }
  [[nodiscard]] CW_FN device_atomic<std::uint32_t> failed() const noexcept {
    return device_atomic<std::uint32_t>(own().failed);
  }
  [[nodiscard]] CW_FN std::uint64_t& line(int pe, int sender) const noexcept {
    return *reinterpret_cast<std::uint64_t*>(at(pe) +
                                             coll::layout::hello(p_.size, parity(epoch_), sender));
  }
  [[nodiscard]] CW_FN std::byte* shelf_of(int pe, std::uint32_t turn) const noexcept {
    return at(pe) + coll::layout::shelf(p_.size, p_.packets, p_.shelf_bytes, parity(turn));
  }

  CW_FN bool begin() noexcept {
    if (outcome_ != status::ok) return false;
    ++epoch_;
    clean_ = (epoch_ & (clean_every - 1)) < 2;
    if (clean_) clean_other_inbox();
    return true;
  }

  CW_FN void hello(bool ordered) noexcept {
    const std::uint64_t word = (static_cast<std::uint64_t>(what_) << 32U) | tag();
    for (int pe = g_.rank(); pe < p_.size; pe += g_.size()) {
      if (pe == p_.rank) continue;
      if (ordered) {
        // pairs with heard(), at rank pe
        within(p_.work.reach(), line(pe, p_.rank), [&](auto w) { w.store(word, order::release); });
      } else {
        // Relaxed: the data are packets, which order themselves.
        system_atomic<std::uint64_t>(line(pe, p_.rank)).store(word, order::relaxed);
      }
    }
  }

  CW_FN status heard(bool ordered) noexcept {
    deadline by(p_.limits);
    for (int pe = g_.rank(); pe < p_.size; pe += g_.size()) {
      if (pe == p_.rank) continue;
      by.blame(pe);
      std::uint64_t word = 0;
      std::uint64_t& from = line(p_.rank, pe);
      const status s = wait(
          [&] {
            word = system_atomic<std::uint64_t>(from).load(order::relaxed);
            return static_cast<std::uint32_t>(word) == tag();
          },
          by);
      if (s != status::ok) return s;
      if (static_cast<std::uint32_t>(word >> 32U) != what_) return fail(status::invalid);
      // pairs with hello(), at rank pe; once there is what was waited for
      if (ordered) within(p_.work.reach(), from, [&](auto w) { word = w.load(order::acquire); });
    }
    return status::ok;
  }

  /// So that no packet is taken for one of 2^31 steps later. Nobody writes there before this step
  /// is over, and nobody has been reading there since the last one was.
  CW_COLD CW_FN void clean_other_inbox() noexcept {
    auto* const all = reinterpret_cast<packet*>(
        at(p_.rank) + coll::layout::inbox(p_.size, p_.packets, parity(epoch_ + 1), 0));
    const std::size_t count = static_cast<std::size_t>(p_.size) * p_.packets;
    for (auto i = static_cast<std::size_t>(g_.rank()); i < count;
         i += static_cast<std::size_t>(g_.size())) {
      impl::store_two(all[i], 0, 0);
    }
  }

  /// For this rank's groups in all channels: they may be waiting for what will not come.
  CW_COLD CW_FN status fail(status why) noexcept {
    for (int c = 0; c < p_.channels; ++c) {
      parts other = p_;
      other.channel = c;
      auto* const there = reinterpret_cast<coll::state*>(p_.work.at(p_.rank) + offset_of(other) +
                                                         coll::layout::own(p_.size));
      // Relaxed: it orders no data, it only ends waits.
      device_atomic<std::uint32_t>(there->failed)
          .store(static_cast<std::uint32_t>(why), order::relaxed);
    }
    return why;
  }

  const parts& p_;
  const G& g_;
  std::uint32_t what_;
  std::size_t channel_;
  std::uint32_t epoch_ = 0;
  std::uint32_t turn_ = 0;
  bool clean_ = false;
  status outcome_ = status::invalid;
};

}  // namespace crosswarp::device
