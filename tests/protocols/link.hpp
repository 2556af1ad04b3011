// An N-buffered link with release and shutdown (flow): every rank sends packets of changing size to
// rank 0 over a link of its own, each link with `buffers` packet buffers at the receiver. Rank 0
// takes what is there from any of them, releases the buffer, and ends when all senders have shut
// down.
#pragma once

#include "common.hpp"

namespace protocols {

struct link_memory {
  static constexpr int max_ranks = 8;
  static constexpr std::uint64_t buffers = 2;
  static constexpr int packet_ints = 10;
  struct packet {
    int size;
    int values[packet_ints];
  };
  dev::ring_outbox outbox;             // at the sender
  dev::ring_inbox inbox[max_ranks];    // at the receiver, one for each sender
  packet packets[max_ranks][buffers];  // at the receiver
};

template <class Who>
struct buffered_link {
  using memory = link_memory;

  CW_FN static int size_of(int n) { return n % (memory::packet_ints + 1); }

  template <class G>
  CW_FN static status send_all(const G& g, memory& mine, memory& to, int rank, int packets,
                               const dev::wait_limits& limits) {
    auto ring = dev::ring_producer::open(g, mine.outbox, to.inbox[rank], memory::buffers);
    for (int n = 0; n < packets; ++n) {
      if (const status s = ring.reserve(g, 1, limits); s != status::ok) return s;
      memory::packet& p = to.packets[rank][ring.index(ring.position())];
      for (int i = g.rank(); i < size_of(n); i += g.size()) {
        p.values[i] = stamp(rank, static_cast<std::uint64_t>(n), i);
      }
      if (g.rank() == 0) p.size = size_of(n);
      ring.publish(g, 1);
    }
    ring.close(g);
    return status::ok;
  }

  /// One look at one link. Returns whether the sender has shut down and all is read.
  template <class G>
  CW_FN static status receive_one(const G& g, memory& mine, memory& from, int sender, int& count,
                                  int& wrong, const dev::wait_limits& limits) {
    auto ring = dev::ring_consumer::open(g, mine.inbox[sender], from.outbox, memory::buffers);
    const status s = ring.acquire(g, 1, limits);
    if (s != status::ok) return s;
    const memory::packet& p = mine.packets[sender][ring.index(ring.position())];
    wrong += p.size != size_of(count);
    for (int i = 0; i < size_of(count); ++i) {
      wrong += p.values[i] != stamp(sender, static_cast<std::uint64_t>(count), i);
    }
    ++count;
    ring.release(g, 1);
    return s;
  }

  template <class G>
  CW_FN static status receive_all(const G& g, dev::world w, dev::symmetric<memory> mem, int packets,
                                  int& wrong) {
    int count[memory::max_ranks] = {};
    bool open[memory::max_ranks] = {};
    for (int pe = 1; pe < w.size; ++pe) open[pe] = true;
    for (int left = w.size - 1, idle = 0; left > 0;) {
      bool moved = false;
      for (int pe = 1; pe < w.size; ++pe) {
        if (!open[pe]) continue;
        // After a fruitless round wait for one of them rather than spin over all.
        const auto limits = idle > 0 ? w.limits.for_peer(pe) : w.limits.within(0);
        const status s = receive_one(g, *mem.local(), *mem.at(pe), pe, count[pe], wrong, limits);
        if (s == status::closed) {
          open[pe] = false;
          --left;
          wrong += count[pe] != packets;
        } else if (s != status::ok && !(s == status::timeout && idle == 0)) {
          return s;
        }
        moved = moved || s != status::timeout;
      }
      idle = moved ? 0 : 1;
    }
    return status::ok;
  }

  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::symmetric<memory> mem,
                        int packets, outcome* out) const {
    const auto g = Who{}(ctx);
    int wrong = 0;
    const status s =
        w.rank == 0 ? receive_all(g, w, mem, packets, wrong)
                    : send_all(g, *mem.local(), *mem.at(0), w.rank, packets, w.limits.for_peer(0));
    report(g, out, s, wrong);
  }
};

}  // namespace protocols
