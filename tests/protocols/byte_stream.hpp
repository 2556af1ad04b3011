// A byte stream with an end (socket): each rank sends to its right neighbour through a ring of
// bytes, in pieces of changing length, and closes; each reads what comes from the left, in pieces
// of other lengths, until the end, which is a position in the stream.
#pragma once

#include "common.hpp"

namespace protocols {

struct byte_stream_memory {
  static constexpr std::uint64_t capacity = 32;
  dev::ring_inbox inbox;    // from the left
  dev::ring_outbox outbox;  // to the right
  unsigned char bytes[capacity];
};

template <class Who>
struct byte_stream {
  using memory = byte_stream_memory;
  static constexpr std::uint32_t reason = 9;

  CW_FN static unsigned char byte_at(int sender, std::uint64_t position) {
    return static_cast<unsigned char>(position * 31 + static_cast<std::uint64_t>(sender) * 7 + 3);
  }

  /// Opened anew for every piece, as a socket call would.
  template <class G>
  CW_FN static status send(const G& g, memory& mine, memory& to, int rank, std::uint64_t at,
                           std::uint64_t n, const dev::wait_limits& limits) {
    auto ring = dev::ring_producer::open(g, mine.outbox, to.inbox, memory::capacity);
    const status s = ring.reserve(g, n, limits);
    if (s != status::ok) return s;
    for (std::uint64_t i = static_cast<std::uint64_t>(g.rank()); i < n;
         i += static_cast<std::uint64_t>(g.size())) {
      to.bytes[ring.index(ring.position() + i)] = byte_at(rank, at + i);
    }
    ring.publish(g, n);
    return s;
  }

  template <class G>
  CW_FN static status receive(const G& g, memory& mine, memory& from, int sender, std::uint64_t at,
                              std::uint64_t want, std::uint64_t& got, std::uint32_t& why,
                              int& wrong, const dev::wait_limits& limits) {
    auto ring = dev::ring_consumer::open(g, mine.inbox, from.outbox, memory::capacity);
    const status s = ring.acquire(g, want, limits);
    got = s == status::ok ? want : s == status::closed ? ring.available() : 0;
    why = ring.why_closed();
    for (std::uint64_t i = 0; i < got; ++i) {
      wrong += mine.bytes[ring.index(ring.position() + i)] != byte_at(sender, at + i);
    }
    if (got > 0) ring.release(g, got);
    return s;
  }

  /// Sending and receiving alternate, so that a ring of ranks cannot wait for itself: a rank that
  /// cannot send yet goes on reading.
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::symmetric<memory> mem,
                        std::uint64_t total, outcome* out) const {
    const auto g = Who{}(ctx);
    const int right = (w.rank + 1) % w.size;
    const int left = (w.rank + w.size - 1) % w.size;
    memory& mine = *mem.local();
    std::uint64_t sent = 0;
    std::uint64_t read = 0;
    std::uint32_t why = 0;
    int wrong = 0;
    bool closed = false;  // our end
    bool ended = false;   // theirs
    status s = status::ok;
    while (!closed || !ended) {
      const dev::wait_limits once = w.limits.within(0);
      if (sent < total) {
        const std::uint64_t n = 1 + sent % 7;
        const std::uint64_t piece = n < total - sent ? n : total - sent;
        s = send(g, mine, *mem.at(right), w.rank, sent, piece,
                 ended ? w.limits.for_peer(right) : once);
        if (s == status::ok) sent += piece;
        if (s != status::ok && (s != status::timeout || ended)) break;
      } else if (!closed) {
        dev::ring_producer::open(g, mine.outbox, mem.at(right)->inbox, memory::capacity)
            .close(g, reason);
        closed = true;
      }
      if (ended) continue;
      // Only a rank that has nothing more to send may wait.
      const std::uint64_t want = 1 + read % 5;
      std::uint64_t got = 0;
      s = receive(g, mine, *mem.at(left), left, read, want, got, why, wrong,
                  closed ? w.limits.for_peer(left) : once);
      read += got;
      ended = s == status::closed;
      if (!ended && s != status::ok && (s != status::timeout || closed)) break;
    }
    wrong += closed && ended && (read != total || sent != total || why != reason);
    report(g, out, closed && ended ? status::ok : s, wrong);
  }
};

/// The other direction: a consumer that reads no more ends a producer that waits for room.
struct refused_stream {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<byte_stream_memory> mem, outcome* out) const {
    const auto g = ctx.thread();
    constexpr std::uint64_t capacity = byte_stream_memory::capacity;
    status s = status::ok;
    int wrong = 0;
    if (w.rank == 0) {
      auto ring = dev::ring_producer::open(g, mem.local()->outbox, mem.at(1)->inbox, capacity);
      wrong += ring.reserve(g, capacity + 1, w.limits) != status::invalid;
      s = ring.reserve(g, capacity, w.limits);
      ring.publish(g, capacity);
      wrong += ring.reserve(g, 1, w.limits) != status::closed;
      wrong += ring.why_closed() != 42;
    } else if (w.rank == 1) {
      auto ring = dev::ring_consumer::open(g, mem.local()->inbox, mem.at(0)->outbox, capacity);
      s = ring.acquire(g, 1, w.limits);
      ring.close(g, 42);
    }
    report(g, out, s, wrong);
  }
};

}  // namespace protocols
