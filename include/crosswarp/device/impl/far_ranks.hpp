// Ranks of a worklist that are not mapped: what one worker sends them and gets from them, what it
// knows of their counts, and what it tells them. By commands to the proxy, or by entries. That is
// long, and a run asks for it in many places: none of it is in line.
#pragma once

#include "crosswarp/device/flow.hpp"
#include "crosswarp/device/worklist.hpp"

namespace crosswarp::device {

/// A worker has a link to the worker of its number on each such rank, and one from it. A packet is
/// sent when there is a free one, so that nobody's memory is overrun; nothing here waits for one.
template <class Item>
class far_ranks {
  static_assert(alignof(Item) <= 16, "packets are aligned to 16 bytes");

 public:
  using counter = std::uint64_t;

  /// Items of a packet, and packets of a link: of each as many as the queue suggests.
  [[nodiscard]] CW_FN static constexpr int packet_items(const worklist_shape& s) noexcept {
    constexpr int most = staged_items<Item>::batch;
    return s.queue < most ? static_cast<int>(s.queue) : most;
  }
  [[nodiscard]] CW_FN static constexpr std::uint64_t packets(const worklist_shape& s) noexcept {
    const std::uint64_t n = s.queue / staged_items<Item>::batch;
    return n < 1 ? 1 : n < 8 ? n : 8;
  }
  /// On each rank: all links of all workers, then their copies of others' counts.
  [[nodiscard]] CW_FN static constexpr std::size_t bytes_of(const worklist_shape& s,
                                                            int ranks) noexcept {
    const auto pairs = static_cast<std::size_t>(s.workers) * static_cast<std::size_t>(ranks);
    return pairs * (2 * link_bytes(s) + sizeof(worklist_counters));
  }

  /// `memory`: bytes_of() on each rank, zero at the start; of no bytes when all ranks are mapped.
  CW_FN far_ranks(const symmetric<std::byte>& memory, const symmetric<worklist_words>& words,
                  const worklist_shape& shape, const world& w, int worker) noexcept
      : memory_(memory), words_(words), shape_(shape), world_(w), worker_(worker) {}

  /// Whether there are any.
  [[nodiscard]] CW_FN bool any() const noexcept { return memory_.size() != 0; }
  [[nodiscard]] CW_FN bool is_far(int r) const noexcept {
    return any() && words_.find(r) == nullptr;
  }

  // ---- items

  /// As many as there are free packets for, and returns how many. `outcome`: what went wrong.
  /// Callers: all threads of `g`.
  template <class G>
  [[nodiscard]] CW_COLD CW_FN int send(const G& g, int r, const Item* items, int count,
                                       status& outcome) const noexcept {
    auto out = flow::sender::open(g, link_to(r));
    int sent = 0;
    while (sent < count) {
      status s = out.reserve(g, one_look(r));
      if (s == status::timeout) break;
      const int left = count - sent;
      const int n = left < packet_items(shape_) ? left : packet_items(shape_);
      if (s == status::ok) {
        copy(g, out.buffer(), items + sent, static_cast<std::size_t>(n) * sizeof(Item));
        s = out.send(g, static_cast<std::size_t>(n) * sizeof(Item));
      }
      if (s != status::ok) {
        outcome = s;
        break;
      }
      sent += n;
    }
    return sent;
  }
  /// One thread.
  [[nodiscard]] CW_COLD CW_FN bool has_room(int r) const noexcept {
    const thread_group me;
    return flow::sender::open(me, link_to(r)).reserve(me, one_look(r)) == status::ok;
  }

  /// Takes a packet of the next rank that has sent one, and returns how many items were in it: at
  /// most packet_items(). 0: none has.
  /// Callers: all threads of `g`, which may read the items when it has returned.
  template <class G>
  [[nodiscard]] CW_FN int take(const G& g, Item* items, status& outcome) noexcept {
    return any() ? take_far(g, items, outcome) : 0;
  }
  /// Whether take() would find something. One thread.
  [[nodiscard]] CW_FN bool has_some() const noexcept { return any() && far_has_some(); }

  // ---- counts and news; one thread

  /// Far rank `r`'s counts, as they were when asked for.
  [[nodiscard]] CW_FN worklist_counters& known(int r) const noexcept {
    const std::size_t links = 2 * pairs(shape_.workers) * link_bytes(shape_);
    auto* const lines = reinterpret_cast<worklist_counters*>(memory_.local() + links);
    return lines[pairs(worker_) + static_cast<std::size_t>(r)];
  }
  /// Asks all far ranks for these of their counters, which are named by this rank's own, and waits
  /// for the answers. False: not all of them have come.
  template <class... Counters>
  [[nodiscard]] CW_FN bool ask(const Counters&... mine) const noexcept {
    return !any() || ask_far(mine...);
  }

  /// Sets a word of rank `r`, named by this rank's own. A failure shows in settle().
  CW_COLD CW_FN void tell(int r, const counter& mine, counter value) const noexcept {
    static_cast<void>(
        world_.proxy.queue(0).put_value(thread_group{}, r, remote(mine), value, sizeof(value)));
  }
  /// The same with two words: who sees the second sees the first.
  CW_COLD CW_FN void tell(int r, const counter& first, counter value, const counter& second,
                          counter then) const noexcept {
    static_cast<void>(world_.proxy.queue(0).put_signal(thread_group{}, r, remote(first), &value,
                                                       sizeof(value), remote(second), then,
                                                       signal_op::set));
  }
  /// All that was sent and told has arrived.
  /// Callers: all threads of `g`.
  template <class G>
  [[nodiscard]] CW_COLD CW_FN status settle(const G& g) const noexcept {
    return any() ? world_.proxy.queue(0).quiet(g) : status::ok;
  }

 private:
  template <class G>
  [[nodiscard]] CW_COLD CW_FN int take_far(const G& g, Item* items, status& outcome) noexcept {
    for (int k = 0; k < world_.size; ++k) {
      next_ = next_ + 1 < world_.size ? next_ + 1 : 0;
      if (!is_far(next_)) continue;
      auto in = flow::receiver::open(g, link_from(next_));
      flow::packet p;
      status s = in.receive(g, p, one_look(next_));
      if (s == status::timeout) continue;
      if (s == status::ok) {
        copy(g, items, p.data, p.bytes);
        s = in.release(g);
      }
      if (s != status::ok) outcome = s;
      return static_cast<int>(p.bytes / sizeof(Item));
    }
    return 0;
  }
  [[nodiscard]] CW_COLD CW_FN bool far_has_some() const noexcept {
    const thread_group me;
    for (int r = 0; r < world_.size; ++r) {
      flow::packet p;
      if (is_far(r) &&
          flow::receiver::open(me, link_from(r)).receive(me, p, one_look(r)) == status::ok) {
        return true;
      }
    }
    return false;
  }
  template <class... Counters>
  [[nodiscard]] CW_COLD CW_FN bool ask_far(const Counters&... mine) const noexcept {
    proxy_queue queue = world_.proxy.queue(0);
    bool asked = true;
    for (int r = 0; r < world_.size; ++r) {
      if (is_far(r)) asked = (ask_one(queue, r, mine) && ...) && asked;
    }
    return queue.quiet(thread_group{}) == status::ok && asked;
  }

  [[nodiscard]] CW_FN static constexpr std::size_t packet_bytes(const worklist_shape& s) noexcept {
    return static_cast<std::size_t>(packet_items(s)) * sizeof(Item);
  }
  [[nodiscard]] CW_FN static constexpr std::size_t link_bytes(const worklist_shape& s) noexcept {
    return flow::link::memory_bytes(packet_bytes(s), packets(s));
  }
  [[nodiscard]] CW_FN std::size_t pairs(int workers) const noexcept {
    return static_cast<std::size_t>(workers) * static_cast<std::size_t>(world_.size);
  }
  [[nodiscard]] CW_FN wait_limits one_look(int r) const noexcept {
    return {world_.limits.fault, 0, nullptr, r, nullptr};
  }

  /// Where a rank keeps this worker's packets to rank `to`, and those from rank `from`.
  [[nodiscard]] CW_FN std::size_t outgoing(int to) const noexcept {
    return 2 * (pairs(worker_) + static_cast<std::size_t>(to)) * link_bytes(shape_);
  }
  [[nodiscard]] CW_FN std::size_t incoming(int from) const noexcept {
    return outgoing(from) + link_bytes(shape_);
  }
  [[nodiscard]] CW_FN flow::link link_to(int r) const noexcept {
    flow::link l = link_with(r, outgoing(r), incoming(world_.rank));
    l.sends = true;
    return l;
  }
  [[nodiscard]] CW_FN flow::link link_from(int r) const noexcept {
    flow::link l = link_with(r, incoming(r), outgoing(world_.rank));
    l.receives = true;
    return l;
  }
  [[nodiscard]] CW_FN flow::link link_with(int r, std::size_t here,
                                           std::size_t there) const noexcept {
    flow::link l;
    l.mine = reinterpret_cast<flow::link_memory*>(memory_.local() + here);
    l.packet_bytes = packet_bytes(shape_);
    l.buffers = packets(shape_);
    l.reach = memory_.reach();
    l.limits = world_.limits.for_peer(r);
    l.peer = r;
    l.memory = memory_.remote(there);
    l.proxy = world_.proxy;
    return l;
  }

  [[nodiscard]] CW_FN std::size_t offset_of(const counter& mine) const noexcept {
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&mine) -
                                    reinterpret_cast<const std::byte*>(words_.local()));
  }
  [[nodiscard]] CW_FN remote_address remote(const counter& mine) const noexcept {
    return words_.part<std::byte>(0).remote(offset_of(mine));
  }
  [[nodiscard]] CW_FN bool ask_one(proxy_queue& queue, int r, const counter& mine) const noexcept {
    const std::size_t at = offset_of(mine) - offset_of(words_.local()->own.swept);
    auto* const here = reinterpret_cast<std::byte*>(&known(r)) + at;
    return queue.get_nbi(thread_group{}, r, remote(mine), here, sizeof(mine)) == status::ok;
  }

  const symmetric<std::byte>& memory_;
  const symmetric<worklist_words>& words_;
  const worklist_shape& shape_;
  const world& world_;
  int worker_;
  int next_ = 0;  // the rank that was asked last
};

}  // namespace crosswarp::device
