// Sends back what comes. Each block serves connections of its own, as many as it has places, and
// waits for all of them at once.
#pragma once

#include "server.hpp"

namespace servers {

struct echo {
  static constexpr int places = 256;  ///< of a block; the first is the listener's

  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& net,
                        sock::handle listener, sock::poll_item* all) const {
    const auto g = ctx.block();
    sock::poll_item* const items = all + ctx.block_index() * places;
    int count = 1;
    for (;;) {
      if (g.rank() == 0) {
        items[0].socket = listener;
        items[0].wanted = count < places ? sock::event::readable : std::uint16_t{0};
      }
      g.sync();
      if (net.poll(g, items, count) < 0) return;
      const bool knocks = items[0].ready != 0;
      for (int i = count - 1; i > 0; --i) {
        if (items[i].ready != 0 && !pass_on(g, net, items[i])) count = remove(g, items, i, count);
      }
      if (knocks) {
        const sock::handle s = net.accept(g, listener, sock::at_once);
        if (s.error() == -ESHUTDOWN) return;
        if (s) {
          if (g.rank() == 0) items[count] = {s, sock::event::readable, 0};
          ++count;
        }
      }
    }
  }

  /// From the one ring into the other, as much as is there and fits; false when it has ended.
  template <class G>
  static CW_FN bool pass_on(const G& g, const sock::service& net, sock::poll_item& item) {
    const auto in = net.recv_view(g, item, sock::at_once);
    if (in.result == -EAGAIN) return true;
    if (in.result <= 0) return end(g, net, item.socket);
    const auto out = net.send_reserve(g, item, 1, sock::at_once);
    // While there is no room to answer, nothing is read: the client has to read first.
    if (g.rank() == 0) {
      item.wanted = out.result == -EAGAIN ? sock::event::writable : sock::event::readable;
    }
    if (out.result == -EAGAIN) return true;
    if (out.result <= 0) return end(g, net, item.socket);
    const std::uint64_t n = in.first_bytes < out.first_bytes ? in.first_bytes : out.first_bytes;
    dev::copy(g, out.first, in.first, n);
    net.commit(g, item.socket, n);
    net.consume(g, item.socket, n);
    return true;
  }

  template <class G>
  static CW_FN bool end(const G& g, const sock::service& net, sock::handle s) {
    net.close(g, s);
    return false;
  }

  /// The last one takes its place.
  template <class G>
  static CW_FN int remove(const G& g, sock::poll_item* items, int i, int count) {
    g.sync();
    if (g.rank() == 0) items[i] = items[count - 1];
    g.sync();
    return count - 1;
  }
};

}  // namespace servers
