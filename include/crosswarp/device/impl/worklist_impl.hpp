// Bodies of worklist.hpp.
#pragma once

#include "crosswarp/device/impl/far_ranks.hpp"
#include "crosswarp/device/worklist.hpp"

namespace crosswarp::device {

/// First in, first out, of one worker: all its threads hold equal copies.
template <class Item>
class kept_items {
 public:
  CW_FN kept_items(Item* places, std::uint64_t capacity) noexcept
      : places_(places), capacity_(capacity) {}

  [[nodiscard]] CW_FN std::uint64_t size() const noexcept { return count_; }
  [[nodiscard]] CW_FN std::uint64_t room() const noexcept { return capacity_ - count_; }
  [[nodiscard]] CW_FN const Item& front() const noexcept { return places_[first_]; }

  /// At most as many as there is room for.
  template <class G>
  CW_FN void put(const G& g, const Item* items, int count) noexcept {
    for (int i = g.rank(); i < count; i += g.size()) {
      places_[wrapped(first_ + count_ + static_cast<std::uint64_t>(i))] = items[i];
    }
    count_ += static_cast<std::uint64_t>(count);
    g.sync();
  }
  /// At most as many as there are.
  template <class G>
  CW_FN void take(const G& g, Item* items, int count) noexcept {
    for (int i = g.rank(); i < count; i += g.size()) {
      items[i] = places_[wrapped(first_ + static_cast<std::uint64_t>(i))];
    }
    first_ = wrapped(first_ + static_cast<std::uint64_t>(count));
    count_ -= static_cast<std::uint64_t>(count);
    g.sync();
  }

 private:
  [[nodiscard]] CW_FN std::uint64_t wrapped(std::uint64_t i) const noexcept {
    return i >= capacity_ ? i - capacity_ : i;
  }
  Item* places_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t count_ = 0;
};

/// One worker in a run: what program calls make goes through push(). What is called once for many
/// items is not in line: a kernel would consist of it.
template <class Item, class Program, class Route, class G>
class worklist_worker {
  using list = worklist<Item>;
  using counter = std::uint64_t;

 public:
  CW_FN worklist_worker(const list& of, const Program& program, const Route& route, const G& g,
                        int index) noexcept
      : list_(of),
        program_(program),
        route_(route),
        g_(g),
        index_(index),
        words_(*of.memory_.words.local()),
        batch_(of.memory_.kept +
               static_cast<std::uint64_t>(index) * list::items_of(of.shape_, of.world_.size)),
        aside_(batch_ + static_cast<std::ptrdiff_t>(1 + of.world_.size) * list::batch),
        staged_(batch_ + list::batch, ints(of, index), of.world_.size),
        own_(aside_ + of.shape_.queue, list::own_of(of.shape_)),
        spilled_(aside_ + of.shape_.queue + list::own_of(of.shape_), of.shape_.spill),
        parked_(aside_ + of.shape_.queue + list::own_of(of.shape_) + of.shape_.spill,
                ints(of, index) + of.world_.size, of.shape_.park, of.shape_.step + 1),
        far_(of.memory_.far, of.memory_.words, of.shape_, of.world_, index),
        threshold_(of.shape_.threshold) {}

  /// Makes an item, for each thread that has one.
  /// Callers: all threads of the worker's group, inside seed() or work().
  CW_FN void push(const G& g, bool have, const Item& item) noexcept {
    if (g.ballot(have) == 0) return;  // most edges are no news
    // One thread parks what it has made itself; several send it to the queue first.
    if (g.size() == 1 && parked_.has_room() && program_.priority(item) > threshold_ &&
        program_.owner(item) == list_.world_.rank) {
      ++total_.made;
      park(item);
      return;
    }
    const int n = stage(g, have, item);
    fresh_ += static_cast<counter>(n);
    total_.made += static_cast<counter>(n);
  }

  /// Items with priorities beyond it wait.
  [[nodiscard]] CW_FN std::uint64_t threshold() const noexcept { return threshold_; }

  CW_FN status run() noexcept {
    staged_.clear(g_);
    parked_.clear(g_);
    program_.seed(g_, index_, *this);
    send_all();
    announce();
    while (outcome_ == status::ok && !ended()) {
      const int n = find_work();
      if (n > 0) {
        work_off(n);
      } else if (!sweep_if_told()) {
        outcome_ = wait_for_work();
      }
    }
    return finish();
  }

 private:
  [[nodiscard]] CW_FN static int* ints(const list& of, int index) noexcept {
    return of.memory_.ints +
           static_cast<std::uint64_t>(index) * list::ints_of(of.shape_, of.world_.size);
  }

  // ---- words that ranks share

  template <class O>
  [[nodiscard]] CW_FN counter load(counter& word, O o) const noexcept {
    counter value = 0;
    within(list_.memory_.words.reach(), word, [&](auto w) { value = w.load(o); });
    return value;
  }
  template <class O>
  CW_FN void add(counter& word, counter n, O o) const noexcept {
    if (g_.rank() != 0 || n == 0) return;
    within(list_.memory_.words.reach(), word, [&](auto w) { w.fetch_add(n, o); });
  }

  // ---- sending

  /// Returns how many threads had an item.
  CW_FN int stage(const G& g, bool have, const Item& item) noexcept {
    const int me = list_.world_.rank;
    int to = -1;
    if (have) {
      to = program_.owner(item);
      if (to != me) to = route_.next(me, to, list_.world_.size);
    }
    return staged_.put(g, have, to, item,
                       [this](int r, const Item* items, int n) { send(r, items, n); });
  }

  CW_FN void send_all() noexcept {
    staged_.send_all(g_, [this](int r, const Item* items, int n) { send(r, items, n); });
  }

  /// To rank `r`'s queues, or it is kept.
  CW_COLD CW_FN void send(int r, const Item* items, int count) noexcept {
    // Counted before anybody can see it. Relaxed: the queue's release puts it before the item, and
    // settle()'s before the end of what made it.
    add(words_.own.active, fresh_, order::relaxed);
    fresh_ = 0;
    int sent = r == list_.world_.rank ? keep(own_, items, count) : 0;
    sent += offer(r, items + sent, count - sent);
    while (sent < count && outcome_ == status::ok) {
      const int kept = keep(spilled_, items + sent, count - sent);
      total_.spilled += static_cast<counter>(kept);
      sent += kept;
      if (sent == count) break;
      outcome_ = poll_until(
          g_, [&] { return has_room(r) || can_set_aside() || has_ended(); },
          list_.world_.limits.for_peer(r));
      // With this unsent it cannot have ended well.
      if (outcome_ == status::ok && ended()) outcome_ = told_outcome();
      // Also when another one's deadline passed first: this one was in want all the while.
      if (outcome_ == status::timeout) ++total_.no_room;
      set_aside();
      sent += offer(r, items + sent, count - sent);
    }
  }
  /// As many as there is room for.
  CW_FN int keep(kept_items<Item>& in, const Item* items, int count) noexcept {
    const int n = in.room() < static_cast<counter>(count) ? static_cast<int>(in.room()) : count;
    if (n > 0) in.put(g_, items, n);
    return n;
  }

  // Who waits for room empties its own queue meanwhile: perhaps those whose queues are full wait
  // for just that.

  /// One thread.
  [[nodiscard]] CW_FN bool can_set_aside() const noexcept {
    if (room_aside() > 0 && !list_.queue(list_.world_.rank, index_).looks_empty()) return true;
    return room_aside() >= far_.packet_items(list_.shape_) && far_.has_some();
  }
  CW_FN void set_aside() noexcept {
    if (room_aside() >= far_.packet_items(list_.shape_)) {
      aside_count_ += static_cast<counter>(far_.take(g_, aside_ + aside_count_, outcome_));
    }
    if (room_aside() == 0) return;
    const int n =
        list_.queue(list_.world_.rank, index_).pop(g_, aside_ + aside_count_, room_aside());
    aside_count_ += static_cast<counter>(n);
  }
  /// At most a batch.
  [[nodiscard]] CW_FN int room_aside() const noexcept {
    const counter room = list_.shape_.queue - aside_count_;
    return room < list::batch ? static_cast<int>(room) : list::batch;
  }
  CW_FN int take_aside() noexcept {
    const int n = aside_count_ < list::batch ? static_cast<int>(aside_count_) : list::batch;
    aside_count_ -= static_cast<counter>(n);
    for (int i = g_.rank(); i < n; i += g_.size())
      batch_[i] = aside_[aside_count_ + static_cast<counter>(i)];
    g_.sync();
    return n;
  }

  /// To the queue of rank `r`'s worker that has this one's number, then to all others' of it.
  CW_FN int offer(int r, const Item* items, int count) noexcept {
    if (far_.is_far(r)) return far_.send(g_, r, items, count, outcome_);
    int sent = 0;
    for (int k = 0; k < list_.shape_.workers && sent < count; ++k) {
      sent += list_.queue(r, other(k)).push(g_, items + sent, count - sent);
    }
    return sent;
  }
  /// One thread.
  [[nodiscard]] CW_FN bool has_room(int r) const noexcept {
    if (far_.is_far(r)) return far_.has_room(r);
    for (int k = 0; k < list_.shape_.workers; ++k) {
      if (!list_.queue(r, other(k)).looks_full()) return true;
    }
    return false;
  }
  /// The worker that comes so many after this one.
  [[nodiscard]] CW_FN int other(int k) const noexcept {
    const int w = index_ + k;
    return w < list_.shape_.workers ? w : w - list_.shape_.workers;
  }

  // ---- working

  /// A batch of items, from wherever there are some; 0 when there are none.
  CW_COLD CW_FN int find_work() noexcept {
    const int me = list_.world_.rank;
    int n = aside_count_ > 0 ? take_aside() : far_.take(g_, batch_, outcome_);
    if (n == 0) n = list_.queue(me, index_).pop(g_, batch_, list::batch);
    if (n == 0 && own_.size() > 0) n = take(own_);
    if (n == 0 && spilled_.size() > 0) n = send_spilled();
    for (int k = 1; n == 0 && k < list_.shape_.workers; ++k) {
      n = list_.queue(me, other(k)).pop(g_, batch_, list::batch);
      total_.stolen += static_cast<counter>(n);
    }
    return n;
  }

  CW_FN int take(kept_items<Item>& from) noexcept {
    const int n = from.size() < list::batch ? static_cast<int>(from.size()) : list::batch;
    from.take(g_, batch_, n);
    return n;
  }

  /// Some of what is spilled: others' goes to them if they have room now, this rank's own is work
  /// for the caller. Returns how many of those there are.
  CW_COLD CW_FN int send_spilled() noexcept {
    const int most = take(spilled_);
    int mine = 0;
    for (int i = 0; i < most; ++i) {
      const Item item = batch_[i];
      const int to = program_.owner(item);
      if (to == list_.world_.rank) {
        g_.sync();
        if (g_.rank() == 0) batch_[mine] = item;
        ++mine;
      } else {
        stage(g_, g_.rank() == 0, item);
      }
    }
    g_.sync();
    send_all();
    return mine;
  }

  CW_FN void work_off(int n) noexcept {
    int passed_on = 0;
    for (int i = 0; i < n; ++i) {
      const Item item = batch_[i];
      if (program_.owner(item) != list_.world_.rank) {
        stage(g_, g_.rank() == 0, item);
        ++passed_on;
      } else if (program_.priority(item) > threshold_ && parked_.has_room()) {
        park(item);
      } else {
        program_.work(g_, item, *this);
        ++total_.done;
      }
    }
    send_all();
    total_.forwarded += static_cast<counter>(passed_on);
    settle(n - passed_on);
  }

  /// So many items rest. Everything that they made has been counted before.
  CW_FN void settle(int n) noexcept {
    tell_parked();
    g_.sync();
    add(words_.own.settled, static_cast<counter>(n), order::release);  // pairs with is_quiet()
  }

  // ---- priorities

  CW_FN void park(const Item& item) noexcept {
    const std::uint64_t priority = program_.priority(item);
    parked_.put(g_, item, priority);
    ++total_.parked;
    ++parked_more_;
    if (parked_.first_of(priority) < least_) least_ = parked_.first_of(priority);
  }

  /// How many are parked, and their least priority, kept inverted, so that memory of zeros says
  /// "none". Relaxed: settle() and announce() put both before what tells of them.
  CW_FN void tell_parked() noexcept {
    add(words_.own.parked, parked_more_, order::relaxed);
    parked_more_ = 0;
    if (g_.rank() != 0 || least_ >= told_least_) return;
    told_least_ = least_;
    within(list_.memory_.words.reach(), words_.own.lowest[epoch_ % 3], [&](auto w) {
      counter seen = w.load(order::relaxed);
      while (seen < ~least_ && !w.compare_exchange(seen, ~least_, order::relaxed)) {
      }
    });
  }

  /// Follows a threshold that has moved: what is no more behind it becomes work.
  CW_COLD CW_FN bool sweep_if_told() noexcept {
    const counter epoch = leader_of(g_, [&] {
      return load(words_.told.epoch, order::acquire);
    });  // pairs with move_threshold()
    if (epoch == epoch_) return false;
    epoch_ = epoch;
    threshold_ = leader_of(g_, [&] { return words_.told.threshold; });  // before the epoch
    parked_.take(
        g_, threshold_, [&](const Item& item) { return program_.priority(item); },
        [&](const Item& item) {
          stage(g_, g_.rank() == 0, item);
          ++fresh_;
          --parked_more_;  // all together may be less than zero: it is added with wrap-around
        });
    send_all();
    least_ = parked_.least();
    told_least_ = parked_items<Item>::none;
    if (index_ == 0 && g_.rank() == 0) clear_lowest();
    announce();
    return true;
  }

  /// That of the next epoch. It was last written by workers that had not come to the epoch before
  /// this one yet, and last read before that. Relaxed: announce() puts it before the next epoch.
  CW_FN void clear_lowest() const noexcept {
    within(list_.memory_.words.reach(), words_.own.lowest[(epoch_ + 1) % 3],
           [&](auto w) { w.store(0, order::relaxed); });
  }

  /// This worker has come to the epoch, and what it brought to life there is counted.
  CW_FN void announce() noexcept {
    tell_parked();
    g_.sync();
    add(words_.own.swept, 1, order::release);  // pairs with is_quiet()
  }

  // ---- the end

  [[nodiscard]] CW_FN bool ended() noexcept {
    // Acquire: what all ranks did is visible when it has ended. pairs with tell_end()
    return leader_of(g_, [&] { return load(words_.told.ended, order::acquire); }) != 0;
  }
  /// One thread. Relaxed: who hears of it looks again, or has failed.
  [[nodiscard]] CW_FN bool has_ended() const noexcept {
    return load(words_.told.ended, order::relaxed) != 0;
  }
  /// When it has ended. What another rank failed of, this one's host is to hear, too: perhaps it
  /// has not yet.
  [[nodiscard]] CW_FN status told_outcome() noexcept {
    return leader_of(g_, [&] {
      const fault_word why = load(words_.told.ended, order::relaxed) - 1;
      return noted(fault_status(why), fault_rank(why));
    });
  }

  /// Until there may be something to do. As long as work is done anywhere there is no deadline.
  CW_COLD CW_FN status wait_for_work() noexcept {
    return leader_of(g_, [&] {
      const wait_limits& limits = list_.world_.limits;
      status s = status::ok;
      counter seen = 0;
      counter now = sum(&worklist_counters::settled, order::relaxed);
      do {
        seen = now;
        s = poll_until([&] { return may_go_on(); }, limits.within(limits.timeout_ns));
        // Without answers it is as it was.
        if (s == status::timeout) static_cast<void>(far_.ask(words_.own.settled));
        now = sum(&worklist_counters::settled, order::relaxed);
      } while (s == status::timeout && seen != now);
      return s == status::timeout ? noted(s, -1) : s;
    });
  }
  /// What breaks a world is noted for the host. One thread.
  [[nodiscard]] CW_FN status noted(status s, int blamed) const noexcept {
    const bool breaks = s == status::timeout || s == status::peer_lost || s == status::aborted;
    return breaks ? impl::note_vain(list_.world_.limits.for_peer(blamed), s) : s;
  }

  /// One thread.
  [[nodiscard]] CW_COLD CW_FN bool may_go_on() noexcept {
    const int me = list_.world_.rank;
    if (aside_count_ > 0) return true;
    for (int k = 0; k < list_.shape_.workers; ++k) {
      if (!list_.queue(me, other(k)).looks_empty()) return true;
    }
    if (far_.has_some()) return true;
    if (spilled_.size() > 0) {
      const int owner = program_.owner(spilled_.front());
      if (owner == me) return true;
      if (has_room(route_.next(me, owner, list_.world_.size))) return true;
    }
    if (has_ended()) return true;
    // Relaxed: who goes on looks again.
    if (load(words_.told.epoch, order::relaxed) != epoch_) return true;
    if (me == 0 && index_ == 0 && is_quiet()) end_or_move_threshold();
    return false;
  }

  /// Of all ranks; of those that are not mapped as it was when they were asked.
  template <class O>
  [[nodiscard]] CW_FN counter sum(counter worklist_counters::*which, O o) const noexcept {
    counter all = 0;
    for (int r = 0; r < list_.world_.size; ++r) all += load(counters_of(r).*which, o);
    return all;
  }
  [[nodiscard]] CW_FN worklist_counters& counters_of(int r) const noexcept {
    return far_.is_far(r) ? far_.known(r) : words_of(r).own;
  }
  [[nodiscard]] CW_FN worklist_words& words_of(int r) const noexcept {
    return *list_.memory_.words.at(r);
  }

  /// Whether nothing lives: all workers have come to this epoch, and as many items rest as came to
  /// life. What rests is looked at first, so that what came to life before is not missed.
  [[nodiscard]] CW_COLD CW_FN bool is_quiet() const noexcept {
    const worklist_counters& mine = words_.own;
    if (!far_.ask(mine.swept, mine.settled, mine.active)) return false;
    // pairs with announce()
    const counter swept = sum(&worklist_counters::swept, order::acquire);
    const int workers = list_.shape_.workers * list_.world_.size;
    if (swept != (epoch_ + 1) * static_cast<counter>(workers)) return false;
    // pairs with settle()
    const counter settled = sum(&worklist_counters::settled, order::acquire);
    // Relaxed: ordered behind the loads above, which are acquire.
    if (sum(&worklist_counters::active, order::relaxed) != settled) return false;
    // Far ranks told of both at once: again, now that it is known what rests everywhere.
    return !far_.any() ||
           (far_.ask(mine.active) && sum(&worklist_counters::active, order::relaxed) == settled);
  }

  /// Nothing lives: only this thread writes, until it has told the others.
  CW_COLD CW_FN void end_or_move_threshold() noexcept {
    const std::uint64_t turn = epoch_ % 3;
    // Who did not answer is asked again at the next look.
    if (!far_.ask(words_.own.parked, words_.own.lowest[turn])) return;
    // Relaxed: is_quiet() has acquired them.
    if (sum(&worklist_counters::parked, order::relaxed) == 0) return tell_end(status::ok);
    counter lowest = 0;
    for (int r = 0; r < list_.world_.size; ++r) {
      const counter theirs = load(counters_of(r).lowest[turn], order::relaxed);
      lowest = theirs > lowest ? theirs : lowest;
    }
    move_threshold(~lowest);
  }

  CW_FN void move_threshold(std::uint64_t least) noexcept {
    const std::uint64_t threshold = parked_.last_of(least);
    ++total_.epochs;
    for (int r = 0; r < list_.world_.size; ++r) {
      if (far_.is_far(r)) {
        far_.tell(r, words_.told.threshold, threshold, words_.told.epoch, epoch_ + 1);
        continue;
      }
      worklist_words& theirs = words_of(r);
      theirs.told.threshold = threshold;  // nobody reads it before the epoch
      within(list_.memory_.words.reach(), theirs.told.epoch,
             [&](auto w) { w.store(epoch_ + 1, order::release); });  // pairs with sweep_if_told()
    }
  }

  /// The first to say so is believed, on mapped ranks. One thread.
  CW_COLD CW_FN void tell_end(status s) const noexcept {
    const fault_word blame = impl::read_blame(list_.world_.limits);
    const int blamed = fault_status(blame) == s ? fault_rank(blame) : -1;
    const counter ended = 1 + make_fault(s, blamed);
    for (int r = 0; r < list_.world_.size; ++r) {
      if (far_.is_far(r)) {
        far_.tell(r, words_.told.ended, ended);
        continue;
      }
      within(list_.memory_.words.reach(), words_of(r).told.ended, [&](auto w) {
        counter running = 0;
        w.compare_exchange(running, ended, order::release);  // pairs with ended()
      });
    }
  }

  CW_COLD CW_FN status finish() noexcept {
    if (g_.rank() == 0) {
      if (outcome_ != status::ok) tell_end(outcome_);
      const auto total = [&](counter worklist_counts::*which) {
        // Relaxed: read when the kernel has ended.
        add(words_.counts.*which, total_.*which, order::relaxed);
      };
      total(&worklist_counts::made);
      total(&worklist_counts::done);
      total(&worklist_counts::stolen);
      total(&worklist_counts::spilled);
      total(&worklist_counts::parked);
      total(&worklist_counts::forwarded);
      total(&worklist_counts::epochs);
      total(&worklist_counts::no_room);
    }
    // What is on its way would come into the next run.
    const status arrived = far_.settle(g_);
    if (outcome_ == status::ok) outcome_ = arrived;
    if (outcome_ == status::ok) outcome_ = told_outcome();
    return outcome_;
  }

  const list& list_;
  const Program& program_;
  const Route& route_;
  const G& g_;
  int index_;
  worklist_words& words_;
  Item* batch_;
  Item* aside_;  // taken from the own queue while there was no room elsewhere
  counter aside_count_ = 0;
  staged_items<Item> staged_;
  kept_items<Item> own_;  // for this worker, when nobody could take it from its queue
  kept_items<Item> spilled_;
  parked_items<Item> parked_;
  far_ranks<Item> far_;
  std::uint64_t threshold_;
  counter epoch_ = 0;
  counter fresh_ = 0;                               // made, and not counted yet
  counter parked_more_ = 0;                         // parked, and not told yet
  std::uint64_t least_ = parked_items<Item>::none;  // of what is parked
  std::uint64_t told_least_ = parked_items<Item>::none;
  worklist_counts total_ = {};
  status outcome_ = status::ok;
};

template <class Item>
template <class Program, class Route>
CW_FN inline status worklist<Item>::run(const kernel_context& ctx, const Program& program,
                                        const Route& route) const noexcept {
  const int warps = (ctx.thread_count() + warp_group::width - 1) / warp_group::width;
  if (warps * ctx.block_count() != shape_.workers) return status::invalid;
  const int index = ctx.block_index() * warps + ctx.thread_index() / warp_group::width;
  return with_warp(ctx, [&](const auto& g) {
    using group_type = std::remove_cvref_t<decltype(g)>;
    return worklist_worker<Item, Program, Route, group_type>(*this, program, route, g, index).run();
  });
}

}  // namespace crosswarp::device
