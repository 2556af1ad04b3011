// Bodies of graph_rounds.hpp: shortest paths.
#pragma once

#include "crosswarp/device/graph_rounds.hpp"
#include "crosswarp/device/impl/graph_edges_impl.hpp"

namespace crosswarp::device::graph {

namespace impl {

/// A run of sssp_rounds in one thread. All threads know the same of it.
///
/// A vertex's word is the shortest distance so far and, in its low bits, whether the vertex is in a
/// queue or on the pile: one compare-and-swap finds a shorter way, and who is to put the vertex
/// there. So a queue and a pile have room when they have a place for each vertex.
template <class G>
class sssp_search {
  static constexpr std::uint64_t far_away = ~std::uint64_t{0};
  static constexpr std::uint64_t is_queued = 1;
  static constexpr std::uint64_t is_waiting = 2;
  static constexpr unsigned state_bits = sssp_rounds::state_bits;
  static constexpr std::uint64_t states = is_queued | is_waiting;
  static constexpr std::uint64_t unreached = far_away & ~states;

 public:
  CW_FN sssp_search(const sssp_rounds& program, rounds& all, const G& g) noexcept
      : s_(program),
        all_(all),
        g_(g),
        near_(staged(2 * all.warp())),
        far_(staged(2 * all.warp() + 1)),
        followers_(all, g_, s_.graph, s_.pieces),
        limit_(s_.delta) {}

  CW_FN status run() noexcept {
    near_.clear(g_);
    far_.clear(g_);
    status s = begin();
    if (s == status::ok) look_around();
    while (s == status::ok && (queued_ > 0 || piled_ > 0)) {
      // Read in the last round, and filled in the next one.
      if (is_first()) own_words().arrived[(round_ + 2) % 3].count = 0;
      const bool follows = queued_ > 0;
      if (follows) {
        s = follow();
      } else {
        move_on();
      }
      if (s == status::ok) s = all_.meet();
      ++round_;
      if (s == status::ok) look_around();
      // Nobody was within the step: it goes to where the nearest is.
      if (!follows && queued_ == 0 && piled_ > 0) limit_ = least() - least() % s_.delta;
    }
    if (s == status::ok) conclude();
    all_.tell(round_, followers_.followed());
    return s;
  }

 private:
  [[nodiscard]] CW_FN staged_items<vertex> staged(int number) const noexcept {
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(number) * s_.graph.ranks;
    return {s_.staged + first * staged_items<vertex>::batch, s_.staged_counts + first,
            s_.graph.ranks};
  }
  [[nodiscard]] CW_FN bool is_first() const noexcept { return all_.thread() == 0; }
  [[nodiscard]] CW_FN round_words& own_words() const noexcept { return *all_.words().local(); }
  /// One of two arrays, each with a place for each vertex of that rank.
  [[nodiscard]] CW_FN vertex* half(const symmetric<vertex>& both, int rank,
                                   unsigned which) const noexcept {
    const vertex* const first = s_.graph.first;
    return both.at(rank) + (which % 2) * (first[rank + 1] - first[rank]);
  }
  /// What is in all queues of this round and, when that is nothing, on all piles, behind the
  /// meeting that ended the round before. Nobody clears or fills these before all have met again: a
  /// pile gets more in rounds that have a queue.
  CW_FN void look_around() noexcept {
    queued_ = 0;
    piled_ = 0;
    for (int r = 0; r < s_.graph.ranks; ++r) {
      queued_ += all_.words().at(r)->arrived[round_ % 3].count;
    }
    if (queued_ > 0) return;
    for (int r = 0; r < s_.graph.ranks; ++r) {
      piled_ += all_.words().at(r)->piled[pile_ % 3].count;
    }
  }
  /// The least distance on all piles.
  [[nodiscard]] CW_FN std::uint64_t least() const noexcept {
    std::uint64_t all = far_away;
    for (int r = 0; r < s_.graph.ranks; ++r) {
      const std::uint64_t theirs = all_.words().at(r)->piled[pile_ % 3].least;
      all = theirs < all ? theirs : all;
    }
    return all;
  }

  CW_FN status begin() noexcept {
    std::uint64_t* const words = s_.words.local();
    const place at = place_of(s_.graph, s_.source);
    const std::uint64_t mine = at.rank == s_.graph.rank ? at.index : far_away;
    all_.for_each(s_.graph.count,
                  [&](std::uint64_t v) { words[v] = v == mine ? is_queued : unreached; });
    all_.for_each(s_.graph.other_count, [&](std::uint64_t v) { s_.told[v] = far_away; });
    if (is_first()) {
      for (auto& p : own_words().piled) p.least = far_away;
    }
    if (is_first() && at.rank == s_.graph.rank) {
      half(s_.queues, at.rank, 0)[0] = at.index;
      own_words().arrived[0].count = 1;
    }
    return all_.meet();
  }
  /// From words to distances, when all ranks have ended.
  CW_FN void conclude() const noexcept {
    std::uint64_t* const words = s_.words.local();
    all_.for_each(s_.graph.count, [&](std::uint64_t v) {
      words[v] = words[v] >= unreached ? far_away : words[v] >> state_bits;
    });
  }

  // ---- queues and piles

  CW_FN void queue_up(int r, const vertex* items, int n) const noexcept {
    append(all_.words().at(r)->arrived[(round_ + 1) % 3].count, half(s_.queues, r, round_ + 1),
           items, n);
  }
  CW_FN void pile_up(int r, const vertex* items, int n) const noexcept {
    append(all_.words().at(r)->piled[pile_ % 3].count, half(s_.piles, r, pile_), items, n);
  }
  CW_FN void append(std::uint64_t& count, vertex* to, const vertex* items, int n) const noexcept {
    const std::uint64_t at = leader_of(g_, [&] {
      std::uint64_t first = 0;
      // Relaxed: read behind the meeting.
      within(all_.words().reach(), count,
             [&](auto w) { first = w.fetch_add(static_cast<std::uint64_t>(n), order::relaxed); });
      return first;
    });
    for (int i = g_.rank(); i < n; i += g_.size())
      to[at + static_cast<std::uint64_t>(i)] = items[i];
  }
  /// Puts vertices that have news to where they belong, each once.
  CW_FN void put(const place& at, bool near, bool far) noexcept {
    (void)near_.put(g_, near, at.rank, at.index,
                    [&](int r, const vertex* v, int n) { queue_up(r, v, n); });
    (void)far_.put(g_, far, at.rank, at.index,
                   [&](int r, const vertex* v, int n) { pile_up(r, v, n); });
  }
  CW_FN void put_rest() noexcept {
    near_.send_all(g_, [&](int r, const vertex* v, int n) { queue_up(r, v, n); });
    far_.send_all(g_, [&](int r, const vertex* v, int n) { pile_up(r, v, n); });
  }

  // ---- what a round does

  /// Vertices of the queue follow their edges.
  CW_FN status follow() noexcept {
    // Here, and not looked up for each edge.
    const std::uint32_t* const lengths = s_.graph.lengths;
    std::uint64_t* const words = s_.words.local();
    std::uint64_t* const told = s_.told;
    const vertex own = s_.graph.count;
    const auto through_edge = [&](bool have, std::uint64_t distance, vertex t, std::uint64_t edge) {
      place at{-1, 0};
      std::uint64_t to = 0;
      if (have) {
        const std::uint64_t through = distance + lengths[edge];
        std::uint64_t best = 0;
        if (t < own) {
          within(s_.words.reach(), words[t], [&](auto w) { best = w.load(order::relaxed); });
          best >>= state_bits;
        } else {
          best = device_atomic<std::uint64_t>(told[t - own]).load(order::relaxed);
        }
        if (through < best) to = shorten(t, through, at);
      }
      if (g_.ballot(to != 0) == 0) return;  // most edges are no news
      put(at, to == is_queued, to == is_waiting);
    };
    const status s = followers_.follow(
        half(s_.queues, s_.graph.rank, round_), own_words().arrived[round_ % 3].count, lengths,
        edge_rules{[&](vertex v) { take(v); }, [&](vertex v) { return distance_of(v); },
                   through_edge});
    put_rest();
    return s;
  }
  /// Moves the limit: of the pile, some are near now, and some were before and are done with.
  CW_FN void move_on() noexcept {
    const std::uint64_t was = limit_;
    limit_ += s_.delta;
    const vertex* const pile = half(s_.piles, s_.graph.rank, pile_);
    const std::uint64_t count = own_words().piled[pile_ % 3].count;
    ++pile_;
    // Read the last time that it moved, and filled the next time.
    if (is_first()) own_words().piled[(pile_ + 1) % 3] = {0, far_away};
    const auto width = static_cast<std::uint64_t>(g_.size());
    all_.for_each(g_, (count + width - 1) / width, [&](std::uint64_t i) {
      const std::uint64_t mine_at = i * width + static_cast<std::uint64_t>(g_.rank());
      place at{s_.graph.rank, 0};
      bool near = false;
      bool far = false;
      if (mine_at < count) {
        at.index = pile[mine_at];
        const std::uint64_t distance = distance_of(at.index);
        far = distance >= limit_;
        near = !far && distance >= was;
        if (far) {
          lower(own_words().piled[pile_ % 3].least, distance);
        } else {  // nobody else changes it: no queue has anything
          const std::uint64_t word = distance << state_bits | (near ? is_queued : 0);
          change(at, [&](auto w) { w.store(word, order::relaxed); });
        }
      }
      put(at, near, far);
    });
    put_rest();
  }

  // ---- words of vertices. Relaxed, all of them: what they say is true whenever it is read, and
  // ---- who has news of a vertex puts it where it is looked at again, behind a meeting.

  template <class F>
  CW_FN void change(const place& at, const F& f) const noexcept {
    within(s_.words.reach(), s_.words.at(at.rank)[at.index], f);
  }
  [[nodiscard]] CW_FN std::uint64_t distance_of(vertex own) const noexcept {
    std::uint64_t word = 0;
    change({s_.graph.rank, own}, [&](auto w) { word = w.load(order::relaxed); });
    return word >> state_bits;
  }
  /// Taken from a queue: before its distance is read, or news could be missed.
  CW_FN void take(vertex own) const noexcept {
    change({s_.graph.rank, own}, [](auto w) { w.fetch_and(~is_queued, order::relaxed); });
  }
  /// When this way is shorter than all before: where the caller is to put the vertex.
  CW_FN std::uint64_t shorten(vertex here, std::uint64_t through, place& at) const noexcept {
    at = place_here(s_.graph, here);
    // What is no better than this will be no news there.
    if (!s_.graph.is_own(here)) {
      device_atomic<std::uint64_t>(s_.told[here - s_.graph.count]).store(through, order::relaxed);
    }
    const std::uint64_t to = through < limit_ ? std::uint64_t{is_queued} : is_waiting;
    std::uint64_t put = 0;
    change(at, [&](auto w) {
      std::uint64_t seen = w.load(order::relaxed);
      while (through < seen >> state_bits) {
        const std::uint64_t next = through << state_bits | (seen & states) | to;
        if (!w.compare_exchange(seen, next, order::relaxed)) continue;
        put = to & ~seen;
        return;
      }
    });
    return put;
  }

  const sssp_rounds& s_;
  rounds& all_;
  const G& g_;
  staged_items<vertex> near_;
  staged_items<vertex> far_;
  edge_followers<G> followers_;
  std::uint64_t limit_;
  std::uint64_t queued_ = 0;  ///< in all queues
  std::uint64_t piled_ = 0;   ///< on all piles, when nothing is queued
  unsigned round_ = 0;
  unsigned pile_ = 0;  ///< how often the limit has moved
};

}  // namespace impl

CW_FN inline status sssp_rounds::run(rounds& all) const noexcept {
  return with_warp(all.context(), [&](const auto& g) {
    return impl::sssp_search<std::remove_cvref_t<decltype(g)>>(*this, all, g).run();
  });
}

}  // namespace crosswarp::device::graph
