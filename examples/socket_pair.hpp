// Two ranks that talk through a socket, as kernels and hosts: the first listens, the second
// connects. Shared by 17_sockets.cpp and the benchmark.
#pragma once

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/socket.hpp"
#include "crosswarp/world_launch.hpp"

namespace socket_pair {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace sock = crosswarp::device::socket;

struct listen {
  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& net,
                        sock::handle* listener, sock::address* name) const {
    const auto g = ctx.thread();
    *listener = net.listen(g, sock::address::loopback(0));
    if (*listener) net.own_name(g, *listener, name);
  }
};

/// Both ranks: one end each.
struct meet {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const sock::service& net, sock::handle listener, const sock::address* where,
                        sock::handle* end) const {
    const auto g = ctx.thread();
    *end = w.rank == 0 ? net.accept(g, listener) : net.connect(g, *where);
  }
};

/// Both ranks: `rounds` times `bytes` there and back, which the second begins. Rank r sends bytes
/// that begin with r. `result`: the rounds that were right, or -errno.
struct exchange {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const sock::service& net, const sock::handle* end, int rounds,
                        std::uint64_t bytes, char* mine, char* theirs, std::int64_t* result) const {
    const auto g = ctx.thread();
    for (*result = 0; *result < rounds; ++*result) {
      mine[0] = static_cast<char>(w.rank);
      theirs[0] = static_cast<char>(-1);
      const bool begins = w.rank != 0;
      std::int64_t n = begins ? net.send(g, *end, mine, bytes) : 1;
      if (n > 0) n = net.recv_all(g, *end, theirs, bytes);
      if (n > 0 && !begins) n = net.send(g, *end, mine, bytes);
      if (n >= 0 && theirs[0] != static_cast<char>(1 - w.rank)) n = -EBADMSG;
      if (n <= 0) {
        *result = n == 0 ? -ECONNRESET : n;
        return;
      }
    }
  }
};

/// A rank's end of the connection. Making, using and ending it is collective.
class talk {
 public:
  talk(cw::world& w, const cw::socket::service_options& o)
      : world_(w), net_(w, o), end_(w.options().device, 1) {
    const cw::device_ref d = w.options().device;
    const cw::buffer<sock::handle> listener(d, 1);
    const cw::buffer<sock::address> name(d, 1);
    if (w.rank() == 0) {
      cw::stream on(d);
      cw::launch(on, {}, listen{}, net_.device(), listener.data(), name.data());
      on.sync();
    }
    const auto names = w.allgather(name.read()[0]);
    const cw::buffer<sock::address> where(d, std::span(names.data(), 1));
    cw::launch(w, {}, meet{}, w.device(), net_.device(), listener.read()[0], where.data(),
               end_.data());
    w.stream().sync();
    if (const int e = end_.read()[0].error(); e != 0) {
      throw cw::error::from_errno(-e, "sockets", "the two ranks did not meet");
    }
  }

  /// `bytes` there and back, `rounds` times.
  void exchange_bytes(int rounds, std::size_t bytes) {
    const cw::device_ref d = world_.options().device;
    const cw::buffer<char> mine(d, bytes);
    const cw::buffer<char> theirs(d, bytes);
    const cw::buffer<std::int64_t> result(d, 1);
    cw::launch(world_, {}, exchange{}, world_.device(), net_.device(), end_.data(), rounds,
               std::uint64_t{bytes}, mine.data(), theirs.data(), result.data());
    world_.stream().sync();
    const std::int64_t got = result.read()[0];
    if (got < 0) throw cw::error::from_errno(static_cast<int>(-got), "sockets", "exchange");
  }

  /// Whether bytes go by memory that both ranks map, and not by TCP.
  [[nodiscard]] bool goes_around() const { return net_.stats().around > 0; }

 private:
  cw::world& world_;
  cw::socket::service net_;
  cw::buffer<sock::handle> end_;
};

}  // namespace socket_pair
