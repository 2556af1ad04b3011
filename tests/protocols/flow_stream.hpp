// Packets of changing size through a chain of device-side links: rank 0 makes them, those between
// add one to each value and send on, the last checks. And from several ranks to one.
#pragma once

#include "common.hpp"
#include "crosswarp/device/flow.hpp"

namespace protocols {

namespace flow = crosswarp::device::flow;

template <class Who>
struct flow_chain {
  CW_FN static int size_of(int n) { return 1 + n % 5; }

  template <class G>
  CW_FN static status produce(const G& g, const flow::link& to, int rank, int packets) {
    auto out = flow::sender::open(g, to);
    for (int n = 0; n < packets; ++n) {
      if (const status s = out.reserve(g); s != status::ok) return s;
      auto* values = reinterpret_cast<int*>(out.buffer());
      for (int i = g.rank(); i < size_of(n); i += g.size()) {
        values[i] = stamp(rank, static_cast<std::uint64_t>(n), i);
      }
      const status s = out.send(g, static_cast<std::size_t>(size_of(n)) * sizeof(int),
                                static_cast<std::uint64_t>(n));
      if (s != status::ok) return s;
    }
    return out.shutdown(g);
  }

  /// Sends on what comes; the sender's own copy, so that the packet is released first.
  template <class G>
  CW_FN static status pass(const G& g, const flow::link& from, const flow::link& to) {
    auto in = flow::receiver::open(g, from);
    auto out = flow::sender::open(g, to);
    flow::packet p;
    status s = in.receive(g, p);
    for (; s == status::ok; s = in.receive(g, p)) {
      if (s = out.reserve(g); s != status::ok) return s;
      const auto* values = reinterpret_cast<const int*>(p.data);
      auto* next = reinterpret_cast<int*>(out.buffer());
      const int count = static_cast<int>(p.bytes / sizeof(int));
      for (int i = g.rank(); i < count; i += g.size()) next[i] = values[i] + 1;
      const std::size_t bytes = p.bytes;
      const std::uint64_t tag = p.tag;
      if (s = in.release(g); s != status::ok) return s;
      if (s = out.send(g, bytes, tag); s != status::ok) return s;
    }
    return s == status::closed ? out.shutdown(g) : s;
  }

  template <class G>
  CW_FN static status consume(const G& g, const flow::link& from, int hops, int packets,
                              int& wrong) {
    auto in = flow::receiver::open(g, from);
    flow::packet p;
    int n = 0;
    status s = in.receive(g, p);
    for (; s == status::ok; s = in.receive(g, p), ++n) {
      wrong += p.bytes != static_cast<std::size_t>(size_of(n)) * sizeof(int);
      wrong += p.tag != static_cast<std::uint64_t>(n);
      const auto* values = reinterpret_cast<const int*>(p.data);
      for (int i = g.rank(); i < size_of(n); i += g.size()) {
        wrong += values[i] != stamp(0, static_cast<std::uint64_t>(n), i) + hops;
      }
      if (s = in.release(g); s != status::ok) return s;
    }
    wrong += n != packets;
    if (s != status::closed) return s;
    return in.receive(g, p) == status::closed ? status::ok : status::invalid;  // and ever after
  }

  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const flow::link& from_left, const flow::link& to_right, int packets,
                        outcome* out) const {
    const auto g = Who{}(ctx);
    int wrong = 0;
    status s = status::ok;
    if (w.rank == 0) {
      s = produce(g, to_right, 0, packets);
    } else if (w.rank + 1 < w.size) {
      s = pass(g, from_left, to_right);
    } else {
      s = consume(g, from_left, w.size - 2, packets, wrong);
    }
    report(g, out, s, wrong);
  }
};

/// Everybody sends to rank 0, which takes from whoever has something: a look at each link in turn,
/// and a wait for one of them after a round in vain.
template <class Who>
struct flow_fan_in {
  static constexpr int max_ranks = 4;
  struct links {
    flow::link from[max_ranks];  // by sender
  };

  template <class G>
  CW_FN static status take_all(const G& g, const dev::world& w, const links& all, int packets,
                               int& wrong) {
    int taken[max_ranks] = {};
    bool ended[max_ranks] = {true};
    for (int left = w.size - 1, idle = 0; left > 0;) {
      bool moved = false;
      for (int pe = 1; pe < w.size; ++pe) {
        if (ended[pe]) continue;
        auto in = flow::receiver::open(g, all.from[pe]);
        flow::packet p;
        const auto& limits = all.from[pe].limits;
        status s = in.receive(g, p, idle != 0 ? limits : limits.within(0));
        if (s == status::timeout && idle == 0) continue;
        if (s == status::closed) {
          ended[pe] = true;
          --left;
          wrong += taken[pe] != packets;
        } else if (s == status::ok) {
          const auto* values = reinterpret_cast<const int*>(p.data);
          wrong += values[0] != stamp(pe, static_cast<std::uint64_t>(taken[pe]++), 0);
          s = in.release(g);
        }
        if (s != status::ok && s != status::closed) return s;
        moved = true;
      }
      idle = moved ? 0 : 1;
    }
    return status::ok;
  }

  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w, const links& all,
                        int packets, outcome* out) const {
    const auto g = Who{}(ctx);
    int wrong = 0;
    const status s = w.rank == 0 ? take_all(g, w, all, packets, wrong)
                                 : flow_chain<Who>::produce(g, all.from[w.rank], w.rank, packets);
    report(g, out, s, wrong);
  }
};

}  // namespace protocols
