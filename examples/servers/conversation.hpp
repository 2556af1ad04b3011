// Connections that an engine answers: from a socket's ring into a span, through the engine, and
// from a span into the other ring. Engines want spans without a gap in device memory; rings have a
// gap, and lie where the host reaches them.
#pragma once

#include <algorithm>

#include "bytes.hpp"
#include "server.hpp"

namespace servers {

/// One connection, as the block that serves it keeps it. `State` is what the engine keeps.
template <class State>
struct conversation {
  enum class stage : std::uint8_t {
    open,
    last_words,  ///< the engine has closed; answers are still to be sent
    leaving,     ///< all is sent; what the peer still sends is read, lest a reset destroy answers
  };
  State state;
  char* in;
  char* out;
  std::uint64_t begin;  ///< of what came and is not consumed
  std::uint64_t end;
  std::uint64_t sent;  ///< of what is in `out`
  std::uint64_t written;
  std::uint64_t dropped;  ///< bytes that came after the last words
  std::uint64_t since;    ///< of the last request or byte of an answer, by now_ns()
  stage where;
  bool waits;  ///< the engine is to be called again even if nothing comes
};

/// A block's places for connections, and the listener's, which is the first.
template <class State>
struct reception {
  static constexpr std::uint64_t word_bytes = 16;
  sock::poll_item* items = nullptr;
  conversation<State>* talks = nullptr;
  char* bytes = nullptr;
  int places = 0;
  std::uint64_t in_bytes = 0;
  std::uint64_t out_bytes = 0;
  std::uint64_t idle_ns = 0;   ///< so long a connection may do nothing; 0: for ever
  std::uint64_t leave_ns = 0;  ///< the same for one that the engine has closed
};

/// Serves connections until the service stops. `Engine` is called by a group:
/// step(g, state, in, out, room) gives the same to all of its threads.
template <class Engine, class State>
struct serve_connections {
  static constexpr std::uint64_t most_dropped = 1U << 20U;
  /// How often deadlines are looked at.
  static constexpr std::uint64_t tick_ns = 250'000'000;

  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& net,
                        sock::handle listener, const Engine& engine,
                        const reception<State>& all) const {
    const auto g = ctx.block();
    reception<State> mine = all;
    const std::int64_t first = std::int64_t{ctx.block_index()} * all.places;
    mine.items += first;
    mine.talks += first;
    for (int i = g.rank(); i < all.places; i += g.size()) {
      mine.talks[i] = {};
      mine.talks[i].in =
          all.bytes + static_cast<std::uint64_t>(first + i) * (all.in_bytes + all.out_bytes);
      mine.talks[i].out = mine.talks[i].in + all.in_bytes;
    }
    serve(g, net, listener, engine, mine);
  }

 private:
  using stage = typename conversation<State>::stage;

  template <class G>
  static CW_FN void serve(const G& g, const sock::service& net, sock::handle listener,
                          const Engine& engine, const reception<State>& mine) {
    int count = 1;
    std::uint64_t looked = now(g);
    for (;;) {
      if (g.rank() == 0) {
        mine.items[0].socket = listener;
        mine.items[0].wanted = count < mine.places ? sock::event::readable : std::uint16_t{0};
      }
      g.sync();
      if (net.poll(g, mine.items, count, sock::patience(tick_ns)) < 0) return;
      const bool knocks = mine.items[0].ready != 0;
      const std::uint64_t time = now(g);
      for (int i = count - 1; i > 0; --i) {
        if (mine.items[i].ready != 0 && !converse(g, net, engine, mine, i, time)) {
          count = remove(g, net, mine, i, count);
        }
      }
      if (time - looked >= tick_ns) {
        count = end_overdue(g, net, mine, count, time);
        looked = time;
      }
      if (!knocks) continue;
      const sock::handle s = net.accept(g, listener, sock::at_once);
      if (s.error() == -ESHUTDOWN) return;
      if (!s) continue;
      if (g.rank() == 0) {
        mine.items[count] = {s, sock::event::readable, 0};
        conversation<State>& c = mine.talks[count];
        c.state = {};
        c.begin = c.end = c.sent = c.written = c.dropped = 0;
        c.since = time;
        c.where = stage::open;
        c.waits = false;
      }
      ++count;
    }
  }

  template <class G>
  static CW_FN std::uint64_t now(const G& g) {
    return dev::leader_of(g, [] { return dev::now_ns(); });
  }

  /// All that can be done without waiting; false when the connection has ended.
  template <class G>
  static CW_FN bool converse(const G& g, const sock::service& net, const Engine& engine,
                             const reception<State>& mine, int i, std::uint64_t time) {
    const sock::poll_item& s = mine.items[i];
    conversation<State> c = mine.talks[i];
    g.sync();  // all have read it
    const bool goes_on = c.where == stage::leaving ? drop(g, net, s, mine, c)
                                                   : answer(g, net, s, engine, mine, c, time);
    if (g.rank() == 0) {
      mine.talks[i] = c;
      mine.items[i].wanted = wanted(c);
    }
    g.sync();
    return goes_on;
  }

  static CW_FN std::uint16_t wanted(const conversation<State>& c) {
    if (c.sent < c.written) return sock::event::writable;
    // There is room: so poll() returns at once.
    return c.waits ? sock::event::readable | sock::event::writable : sock::event::readable;
  }

  template <class G>
  static CW_FN bool answer(const G& g, const sock::service& net, const sock::poll_item& s,
                           const Engine& engine, const reception<State>& mine,
                           conversation<State>& c, std::uint64_t time) {
    // Once round, and no further: others wait for their turn.
    if (!send(g, net, s, c, time)) return false;
    if (c.sent < c.written) return true;
    std::int64_t came = 0;
    if (c.where == stage::open) {
      make_room(g, mine, c);
      // Without room nothing would come, which is not the end: the engine has to go on first.
      came = -EAGAIN;
      if (c.end < mine.in_bytes) came = receive(g, net, s, mine, c);
      if (came < 0 && came != -EAGAIN) return false;
    }
    do {
      const step_result r = engine.step(g, c.state, text(c.in + c.begin, c.end - c.begin), c.out,
                                        static_cast<std::size_t>(mine.out_bytes));
      c.begin += r.consumed;
      c.waits = r.waits && !r.close;
      c.sent = 0;
      c.written = r.produced;
      if (r.consumed != 0) c.since = time;
      if (r.close) c.where = stage::last_words;
      if (!send(g, net, s, c, time)) return false;
      if (r.produced == 0 && r.consumed == 0) break;
      // All is answered, and no answer goes on: it would have filled `out`.
      if (c.begin == c.end && r.produced < mine.out_bytes) break;
    } while (c.sent == c.written && c.where == stage::open);
    if (c.sent < c.written) return true;
    // 0: the peer has said all; perhaps not all of it could be answered yet.
    if (c.where == stage::open) return came != 0 || (c.waits && c.begin < c.end);
    c.where = stage::leaving;
    c.since = time;
    return net.shutdown(g, s.socket, sock::half::send) == 0;
  }

  /// Bytes lie in the span as they do in the ring, as far as whole words go: so they are copied in
  /// words, and a GPU that fetches them from its host's memory does so once.
  template <class G>
  static CW_FN std::int64_t receive(const G& g, const sock::service& net, const sock::poll_item& s,
                                    const reception<State>& mine, conversation<State>& c) {
    const auto came = net.recv_view(g, s, sock::at_once);
    if (came.result <= 0) return came.result;
    if (c.begin == c.end) {
      c.begin = c.end = reinterpret_cast<std::uintptr_t>(came.first) % reception<State>::word_bytes;
    }
    const std::uint64_t room = mine.in_bytes - c.end;
    const std::uint64_t first = room < came.first_bytes ? room : came.first_bytes;
    const std::uint64_t left = room - first;
    const std::uint64_t second = left < came.second_bytes ? left : came.second_bytes;
    dev::copy(g, c.in + c.end, came.first, first);
    dev::copy(g, c.in + c.end + first, came.second, second);
    c.end += first + second;
    return net.consume(g, s.socket, first + second);
  }

  template <class G>
  static CW_FN bool send(const G& g, const sock::service& net, const sock::poll_item& s,
                         conversation<State>& c, std::uint64_t time) {
    if (c.sent == c.written) return true;
    const std::int64_t n = net.send(g, s, c.out + c.sent, c.written - c.sent, sock::at_once);
    if (n < 0) return n == -EAGAIN;
    c.sent += static_cast<std::uint64_t>(n);
    c.since = time;
    return true;
  }

  template <class G>
  static CW_FN bool drop(const G& g, const sock::service& net, const sock::poll_item& s,
                         const reception<State>& mine, conversation<State>& c) {
    const std::int64_t n = net.recv(g, s, c.in, mine.in_bytes, sock::at_once);
    if (n <= 0) return n == -EAGAIN;
    c.dropped += static_cast<std::uint64_t>(n);
    return c.dropped < most_dropped;
  }

  /// Ends the connections that keep a place for nothing: of clients that neither ask nor read any
  /// more, and of those that were told to go and stay.
  template <class G>
  static CW_FN int end_overdue(const G& g, const sock::service& net, const reception<State>& mine,
                               int count, std::uint64_t time) {
    for (int i = count - 1; i > 0; --i) {
      const conversation<State>& c = mine.talks[i];
      const std::uint64_t limit = c.where == stage::open ? mine.idle_ns : mine.leave_ns;
      if (limit == 0 || time - c.since < limit) continue;
      // What is not read is not waited for, as it would be by close().
      if (c.sent < c.written) net.abort(g, mine.items[i].socket);
      count = remove(g, net, mine, i, count);
    }
    return count;
  }

  /// Moves what is left to the start when there is no room behind it.
  template <class G>
  static CW_FN void make_room(const G& g, const reception<State>& mine, conversation<State>& c) {
    if (c.begin > 0 && (c.begin == c.end || c.end == mine.in_bytes)) {
      const std::uint64_t left = c.end - c.begin;
      // In pieces that do not overlap.
      for (std::uint64_t done = 0; done < left; done += c.begin) {
        const std::uint64_t n = left - done < c.begin ? left - done : c.begin;
        dev::copy(g, c.in + done, c.in + c.begin + done, static_cast<std::size_t>(n));
        g.sync();
      }
      c.begin = 0;
      c.end = left;
    }
  }

  /// The last one takes its place.
  template <class G>
  static CW_FN int remove(const G& g, const sock::service& net, const reception<State>& mine, int i,
                          int count) {
    net.close(g, mine.items[i].socket);
    g.sync();
    if (g.rank() == 0) {
      mine.items[i] = mine.items[count - 1];
      const conversation<State> gone = mine.talks[i];
      mine.talks[i] = mine.talks[count - 1];
      mine.talks[count - 1] = gone;
    }
    g.sync();
    return count - 1;
  }
};

/// An engine whose step is made by one thread, for a group.
template <class Engine>
struct by_leader {
  Engine engine;

  template <class G, class State, class... Limits>
  CW_FN step_result step(const G& g, State& state, text in, char* out, std::size_t room,
                         Limits... limits) const {
    struct both {
      step_result result;
      State state;
    };
    const both b = dev::leader_of(g, [&] {
      const step_result r = engine.step(state, in, out, room, limits...);
      return both{r, state};
    });
    state = b.state;
    return b.result;
  }
};

/// Serves with `engine` until SIGINT or SIGTERM. `in` and `out`: the spans that it wants, of whole
/// words.
template <class State, class Engine>
int serve_with(const settings& s, const Engine& engine, std::uint64_t in, std::uint64_t out) {
  reception<State> r;
  in += reception<State>::word_bytes;  // of which a part is left out at the start
  constexpr std::uint64_t most_bytes = 64U << 20U;
  const std::uint64_t fit = most_bytes / (in + out) / static_cast<std::uint64_t>(s.blocks);
  r.places = static_cast<int>(std::clamp<std::uint64_t>(fit, 8, 512));
  r.in_bytes = in;
  r.out_bytes = out;
  constexpr std::uint64_t second = 1'000'000'000;
  constexpr std::uint64_t leave = 15;
  const auto idle = static_cast<std::uint64_t>(s.idle);
  r.idle_ns = idle * second;
  r.leave_ns = (idle == 0 ? leave : std::min(idle, leave)) * second;
  const std::size_t all = static_cast<std::size_t>(s.blocks) * static_cast<std::size_t>(r.places);
  cw::buffer<sock::poll_item> items(s.device, all);
  cw::buffer<conversation<State>> talks(s.device, all);
  cw::buffer<char> bytes(s.device, all * static_cast<std::size_t>(in + out));
  r.items = items.data();
  r.talks = talks.data();
  r.bytes = bytes.data();
  return run(s, {.sockets = static_cast<int>(all) + 1},
             [&](cw::stream& stream, const cw::launch_shape& shape, const sock::service& net,
                 sock::handle listener) {
               cw::launch(stream, shape, serve_connections<Engine, State>{}, net, listener, engine,
                          r);
             });
}

}  // namespace servers
