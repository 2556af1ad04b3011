// The kernel behind socket_caller.hpp: compiled once for all tests that make calls by it.
#include "support/socket_caller.hpp"

namespace calls {

namespace {

template <class By>
struct perform {
  CW_FN void operator()(const context& ctx, const sock::service& net, const order* o,
                        std::byte* bytes, sock::poll_item* items, outcome* out) const {
    const auto g = By{}(ctx);
    std::int64_t result = 0;
    switch (o->what) {
      case op::listen:
        result = net.listen(g, o->where, static_cast<int>(o->n)).value();
        break;
      case op::accept:
        result = net.accept(g, o->s, o->wait).value();
        break;
      case op::connect:
        result = net.connect(g, o->where, o->wait).value();
        break;
      case op::start_connect:
        result = net.start_connect(g, o->where).value();
        break;
      case op::send:
        result = net.send(g, o->s, bytes, o->n, o->wait);
        break;
      case op::recv:
        result = net.recv(g, o->s, bytes, o->n, o->wait);
        break;
      case op::recv_all:
        result = net.recv_all(g, o->s, bytes, o->n, o->wait);
        break;
      case op::view:
        result = look(g, net, *o, bytes, out);
        break;
      case op::consume:
        result = net.consume(g, o->s, o->n);
        break;
      case op::reserve:
        result = fill(g, net, *o, bytes, out);
        break;
      case op::commit:
        result = net.commit(g, o->s, o->n);
        break;
      case op::shutdown:
        result = net.shutdown(g, o->s, o->half);
        break;
      case op::close:
        result = net.close(g, o->s);
        break;
      case op::abort:
        result = net.abort(g, o->s);
        break;
      case op::poll:
        result = net.poll(g, items, static_cast<int>(o->n), o->wait);
        break;
      case op::set_option:
        result = net.set_option(g, o->s, o->which, o->value);
        break;
      case op::get_option:
        result = net.get_option(g, o->s, o->which);
        break;
      case op::peer_name:
        result = net.peer_name(g, o->s, &out->name);
        break;
      case op::peek_ring:
        result = peek(g, net, *o, bytes);
        break;
      case op::own_name:
        result = net.own_name(g, o->s, &out->name);
        break;
    }
    const std::int64_t leaders = g.broadcast(result);
    const bool differs = g.any(leaders != result);
    if (g.rank() == 0) {
      out->result = result;
      out->disagree = differs ? 1 : 0;
    }
  }

  /// Copies what it sees, and leaves it there.
  template <class G>
  static CW_FN std::int64_t look(const G& g, const sock::service& net, const order& o,
                                 std::byte* bytes, outcome* out) {
    const auto v = net.recv_view(g, o.s, o.wait);
    if (v.result <= 0) return v.result;
    dev::copy(g, bytes, v.first, v.first_bytes);
    dev::copy(g, bytes + v.first_bytes, v.second, v.second_bytes);
    if (g.rank() == 0) {
      out->first = v.first_bytes;
      out->second = v.second_bytes;
    }
    return v.result;
  }

  /// What the send ring holds before anything was written there.
  template <class G>
  static CW_FN std::int64_t peek(const G& g, const sock::service& net, const order& o,
                                 std::byte* bytes) {
    const auto v = net.send_reserve(g, o.s, 1, o.wait);
    if (v.result <= 0) return v.result;
    dev::copy(g, bytes, v.first, v.first_bytes);
    dev::copy(g, bytes + v.first_bytes, v.second, v.second_bytes);
    return v.result;
  }

  /// Fills as much as there is to send, and sends nothing.
  template <class G>
  static CW_FN std::int64_t fill(const G& g, const sock::service& net, const order& o,
                                 const std::byte* bytes, outcome* out) {
    const auto v = net.send_reserve(g, o.s, o.n, o.wait);
    if (v.result <= 0) return v.result;
    const std::uint64_t first = o.n < v.first_bytes ? o.n : v.first_bytes;
    dev::copy(g, v.first, bytes, first);
    dev::copy(g, v.second, bytes + first, o.n - first);
    if (g.rank() == 0) {
      out->first = v.first_bytes;
      out->second = v.second_bytes;
    }
    return v.result;
  }
};

}  // namespace

template <class By>
std::int64_t caller<By>::operator()(const order& o) {
  order_.write(std::span(&o, 1));
  cw::launch(stream_, {.threads = threads_of<By>()}, perform<By>{}, net_, order_.data(),
             bytes_.data(), items_.data(), out_.data());
  stream_.sync();
  last = out_.read()[0];
  EXPECT_EQ(last.disagree, 0);
  return last.result;
}

template std::int64_t caller<by_thread>::operator()(const order& o);
template std::int64_t caller<by_warp>::operator()(const order& o);
template std::int64_t caller<by_block>::operator()(const order& o);

}  // namespace calls
