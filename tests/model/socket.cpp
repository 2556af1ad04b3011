// Sockets' words and rings under chosen interleavings, without Linux. The worker is a kernel thread
// over the slots of src/socket, so that it and kernels may look at any moment, and ThreadSanitizer
// sees what their words order and nothing else.
#include "crosswarp/device/socket.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "crosswarp/buffer.hpp"
#include "crosswarp/schedule.hpp"
#include "crosswarp/world_launch.hpp"
#include "socket/slot.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace sock = crosswarp::device::socket;
using cw::status;
using cw::socket_impl::ring_pool;
using cw::socket_impl::slot;
using sock::handle;
using sock::mark;
using context = dev::kernel_context;

constexpr std::uint64_t page = 4096;
constexpr std::uint32_t places = 8;
constexpr int most_groups = 4;

CW_FN std::byte byte_at(std::uint64_t position, std::uint64_t seed) {
  return static_cast<std::byte>(position * 31 + seed * 7 + 3);
}

/// What is to be done, and what came of it.
struct plan {
  int servers = 1;
  int clients = 1;
  int connections = 1;        ///< of each client
  std::uint64_t bytes = 3;    ///< that go each way
  bool resets = false;        ///< clients end by abort()
  bool slow_answers = false;  ///< until a call has been given up
  std::size_t pages = 32;     ///< of memory for rings
  unsigned most_log2 = 14;    ///< of a ring; they begin with 12 and grow by 2
  bool lanes = false;         ///< connections go around the worker after some bytes
};

struct report {
  status worker;
  int wrong[most_groups + 1];  ///< by group: the first thing that was, by number
  int served;
  int left;                ///< servers that take no more
  std::uint64_t listener;  ///< a handle; 0: none yet
  int finished;            ///< groups
};

/// A service's memory, made anew for each execution.
struct service_memory {
  service_memory(cw::device_ref d, const plan& p)
      : rings(d, p.pages * page),
        lanes(d, places * (sizeof(sock::lane) + page)),
        me(d, 1),
        news(d, places),
        names(d, places),
        replies(d, 1),
        requests(d, 1),
        words(d, 3 * places + 2),
        own(d, places),
        calls(d, 1),
        pool(rings.data(), rings.size()) {
    m.sockets = places;
    m.calls = 1;
    m.state = news.data();
    m.called = names.data();
    m.replies = replies.data();
    m.requests = requests.data();
    m.bells = words.data();
    m.drained = m.bells + places;
    m.moved = m.drained + places;
    m.activity = m.moved + places;
    m.call_bells = m.activity + 1;
    m.rings = rings.data();
    m.own = own.data();
    m.places = calls.data();
    if (!p.lanes) return;
    me.write(std::vector<dev::peer>{{lanes.data(), dev::path::self}});
    dev::peer_table one;
    one.all = me.data();
    one.even = lanes.data();
    one.count = 1;
    m.lanes = {one, 0, 0, places};
    m.lane_rings = {one, 0, places * sizeof(sock::lane), places * page};
    m.lane_bytes = page;
  }
  cw::buffer<std::byte> rings;
  cw::buffer<std::byte> lanes;
  cw::buffer<dev::peer> me;
  cw::buffer<sock::news> news;
  cw::buffer<sock::names> names;
  cw::buffer<sock::call_reply> replies;
  cw::buffer<sock::call_request> requests;
  cw::buffer<std::uint64_t> words;
  cw::buffer<sock::own_state> own;
  cw::buffer<sock::call_place> calls;
  sock::memory m;
  ring_pool pool;
};

/// What a worker does, as far as kernels can see it. Its connections lead from a client's socket to
/// one that the listener gets.
class model_worker {
 public:
  model_worker(service_memory& s, const plan& p, report* r) : m_(s.m), plan_(p), r_(r) {
    for (std::uint32_t i = 0; i < places; ++i) {
      all_.emplace_back(m_, s.pool, cw::socket_impl::ring_limits{12, plan_.most_log2}, i);
    }
  }

  /// Until all groups have ended, and everything is closed.
  status run() {
    const int groups = plan_.servers + plan_.clients;
    return dev::poll_until(
        [&] {
          for (;;) {
            const bool last =
                dev::device_atomic<int>(r_->finished).load(dev::order::acquire) == groups;
            if (!turn()) return last;
          }
        },
        dev::wait_limits{}.within(1'000'000'000'000'000));
  }

  [[nodiscard]] bool all_closed() const {
    for (const place& p : all_) {
      if (p.lives) return false;
    }
    return true;
  }

 private:
  static constexpr std::uint32_t none = ~0U;
  struct place {
    place(const sock::memory& m, ring_pool& pool, cw::socket_impl::ring_limits l, std::uint32_t i)
        : words(m, pool, l, i) {}
    slot words;
    std::uint64_t seen = 0;  ///< its bell
    bool lives = false;
    bool connecting = false;
    std::uint32_t peer = none;
    // The lane of a place has its number.
    std::uint32_t met = none;  ///< whose lane its kernels are to write
    bool told = false;         ///< of it
    bool lane_in_use = false;  ///< by the kernels of the other end
  };

  bool turn() {
    ++turns_;
    bool any = hear_call();
    for (std::uint32_t i = 0; i < places; ++i) any = hear_bell(i) || any;
    for (std::uint32_t i = 0; i < places; ++i) any = (all_[i].lives && serve(i)) || any;
    return any;
  }

  bool hear_bell(std::uint32_t i) {
    place& p = all_[i];
    // pairs with service::ring_bell()
    const std::uint64_t bell =
        dev::system_atomic<std::uint64_t>(m_.bells[i]).load(dev::order::acquire);
    if (bell == p.seen) return false;
    p.seen = bell;
    if (p.lives && (!p.words.hear(mark::of(bell)) || !p.words.look_at_drained())) note(1);
    return true;
  }

  bool hear_call() {
    // pairs with service::ask()
    const std::uint64_t number =
        dev::system_atomic<std::uint64_t>(*m_.call_bells).load(dev::order::acquire);
    if (number == calls_) return false;
    if (plan_.slow_answers && number == 2 && dev::now_ns() < 11'000'000'000) return false;
    calls_ = number;
    m_.replies->result = carry_out(*m_.requests);
    // pairs with service::ask() and reclaim()
    dev::system_atomic<std::uint64_t>(m_.replies->number).store(number, dev::order::release);
    return true;
  }

  std::int64_t carry_out(const sock::call_request& r) {
    if (r.what == sock::call::listen && listener_ != none) return -EADDRINUSE;
    const std::uint32_t i = begin(r.what == sock::call::listen);
    if (i == none) return -EMFILE;
    if (r.what == sock::call::listen) {
      listener_ = i;
    } else {
      all_[i].connecting = true;
    }
    return all_[i].words.who().value();
  }

  std::uint32_t begin(bool listener) {
    for (std::uint32_t k = 0; k < places; ++k) {
      const std::uint32_t i = (next_ + k) % places;
      if (all_[i].lives || all_[i].lane_in_use || !all_[i].words.begin(listener)) continue;
      next_ = i + 1;
      all_[i].lives = true;
      all_[i].peer = all_[i].met = none;
      all_[i].told = false;
      return i;
    }
    return none;
  }

  bool serve(std::uint32_t i) {
    place& p = all_[i];
    if (i == listener_) {
      if (!p.words.is_closed()) return false;
      p.words.end();
      p.lives = false;
      listener_ = none;
      return true;
    }
    if (p.connecting && !p.words.is_closed()) return connect(i);
    const bool moved = send(p) || tell_lane(p, false);
    if (!p.words.is_closed()) return moved;
    const bool reset = p.words.is_reset() || p.words.has_unread();
    if (!reset && p.peer != none && p.words.has_to_send()) return moved;
    end_peer(p, reset);
    if (p.met != none) all_[p.met].lane_in_use = false;
    p.words.end();
    p.lives = p.connecting = false;
    return true;
  }

  /// The two ends meet when some bytes have gone through here; each is told by itself, in a turn of
  /// its own, and at last before it is told of an end.
  bool tell_lane(place& p, bool now) {
    if (p.met == none || p.told || (!now && turns_ % 3 != p.words.who().index() % 3)) return false;
    p.told = true;
    p.words.offer_lane(sock::lane_link(p.words.who().index(), 0, p.met));
    return true;
  }
  void meet(place& p) {
    place& o = all_[p.peer];
    for (place* const x : {&p, &o}) {
      const std::uint32_t i = x->words.who().index();
      sock::lane& l = m_.lanes.local()[i];
      for (std::uint64_t* const w : {&l.in.head, &l.in.from, &l.out.tail}) {
        dev::system_atomic<std::uint64_t>(*w).store(0, dev::order::relaxed);
      }
      std::memset(m_.lane_rings.local() + i * page, 0, page);
      x->lane_in_use = true;
      x->met = all_[x->peer].words.who().index();
    }
  }
  void end_received(place& p) {
    (void)tell_lane(p, true);
    if (!p.words.has_ended()) p.words.end_received();
  }

  /// The other end waits for accept() first: a kernel may have it before this one is told.
  bool connect(std::uint32_t i) {
    const std::uint32_t other = listener_ == none ? none : begin(false);
    if (other == none) return false;
    place& p = all_[i];
    place& o = all_[other];
    p.connecting = false;
    p.peer = other;
    o.peer = i;
    for (place* const x : {&o, &p}) {
      x->words.called().own.port = static_cast<std::uint16_t>(1000 + x->words.who().index());
      x->words.called().peer.port =
          static_cast<std::uint16_t>(1000 + all_[x->peer].words.who().index());
      x->words.note_connected();
    }
    all_[listener_].words.push(o.words.who());
    return true;
  }

  /// As much as there is room for, at most what a system call might take.
  bool send(place& p) {
    bool moved = false;
    if (p.words.has_to_send()) {
      place* const to = p.peer == none ? nullptr : &all_[p.peer];
      if (to == nullptr || to->words.has_ended()) {
        p.words.break_send(EPIPE);
        return true;
      }
      const auto out = p.words.to_send(3000);
      if (!to->words.look_at_drained()) note(2);
      const auto in = to->words.receive_space(out.front().iov_len);
      if (in.empty()) return false;
      const std::uint64_t n = std::min(out.front().iov_len, in.front().iov_len);
      std::memcpy(in.front().iov_base, out.front().iov_base, n);
      to->words.note_received(n);
      p.words.note_sent(n);
      if (plan_.lanes && p.met == none) meet(p);
      moved = true;
    }
    if (p.words.is_finished() && !p.words.has_to_send() && p.peer != none &&
        !all_[p.peer].words.has_ended()) {
      end_received(all_[p.peer]);
      moved = true;
    }
    return moved;
  }

  void end_peer(place& p, bool reset) {
    if (p.peer == none) return;
    place& o = all_[p.peer];
    o.peer = none;
    if (reset) o.words.set_error(ECONNRESET);
    end_received(o);
    if (reset) o.words.break_send(ECONNRESET);
  }

  void note(int what) {
    if (r_->wrong[0] == 0) r_->wrong[0] = what;
  }

  const sock::memory& m_;
  const plan plan_;
  report* r_;
  std::deque<place> all_;
  std::uint64_t calls_ = 0;
  unsigned turns_ = 0;
  std::uint32_t listener_ = none;
  std::uint32_t next_ = 0;
};

/// One group: a thread.
class party {
 public:
  party(const context& ctx, const sock::service& net, const plan& p, report* r)
      : me_(ctx.thread()), net_(net), plan_(p), r_(r) {}

  int serve(int who) {
    const handle l = who == 0 ? open() : wait_for_listener();
    if (!l) return 10;
    // Each connection is taken by one of the servers; who finds all taken has no more to do.
    const int all = plan_.clients * plan_.connections;
    const dev::device_atomic<int> served(r_->served);
    while (served.load(dev::order::relaxed) < all) {
      const handle s = net_.accept(me_, l, sock::patience(1'000'000'000));
      if (!s && s.error() != -ETIMEDOUT) return 11;
      if (!s) continue;
      const int wrong = talk(s, true);
      if (wrong == abandoned && plan_.slow_answers) {
        if (net_.close(me_, s) != 0) return 13;
        continue;
      }
      if (wrong != 0) return wrong;
      served.fetch_add(1, dev::order::relaxed);
    }
    // Not before all have left accept(): ThreadSanitizer would see them look into a ring that is
    // given away, though they take nothing from it.
    const bool last =
        dev::device_atomic<int>(r_->left).fetch_add(1, dev::order::relaxed) + 1 == plan_.servers;
    return last && net_.close(me_, l) != 0 ? 12 : 0;
  }

  int ask(int who) {
    if (!wait_for_listener()) return 20;
    for (int i = 0; i < plan_.connections;) {
      const handle s = net_.start_connect(me_, sock::address::loopback(1));
      if (s.error() == -EMFILE || s.error() == -ETIMEDOUT) continue;
      if (!s) return 21;
      // Either name may be the first thing that is asked for.
      sock::address own;
      sock::address peer;
      const bool peer_first = (who + i) % 2 == 0;
      const status named = dev::poll_until(
          [&] {
            return (peer_first ? net_.peer_name(me_, s, &peer) : net_.own_name(me_, s, &own)) == 0;
          },
          dev::wait_limits{});
      if (named != status::ok) return 22;
      if ((peer_first ? peer.port : own.port) < 1000) return 23;
      if (const int wrong = talk(s, false); wrong != 0) return wrong;
      ++i;
    }
    return 0;
  }

 private:
  /// A connection whose maker gave up before it was told.
  static constexpr int abandoned = -1;

  handle open() {
    const handle l = net_.listen(me_, sock::address::loopback(1));
    dev::device_atomic<std::uint64_t>(r_->listener)
        .store(static_cast<std::uint64_t>(l.value()) + 1, dev::order::release);
    return l;
  }
  handle wait_for_listener() {
    std::uint64_t l = 0;
    const dev::device_atomic<std::uint64_t> told(r_->listener);
    (void)dev::poll_until([&] { return (l = told.load(dev::order::acquire)) != 0; },
                          dev::wait_limits{});
    return handle(static_cast<std::int64_t>(l) - 1);
  }

  /// The client sends and ends; the server reads to the end, answers and ends.
  int talk(handle s, bool is_server) {
    const bool sends = !is_server;
    if (sends) {
      if (const int wrong = send_all(s); wrong != 0) return wrong;
    } else if (const int wrong = read_to_end(s); wrong != 0) {
      return wrong;
    }
    if (plan_.resets) {
      if ((sends ? net_.abort(me_, s) : net_.close(me_, s)) != 0) return 30;
    } else {
      if (sends && net_.shutdown(me_, s, sock::half::send) != 0) return 31;
      if (const int wrong = sends ? read_to_end(s) : send_all(s); wrong != 0) return wrong;
      if (net_.close(me_, s) != 0) return 32;
    }
    // The place may be another's by now; the handle is nobody's.
    return net_.close(me_, s) == -EBADF ? 0 : 33;
  }

  int send_all(handle s) {
    std::byte some[1700];
    for (std::uint64_t at = 0; at < plan_.bytes;) {
      const std::uint64_t n = std::min<std::uint64_t>(sizeof(some), plan_.bytes - at);
      for (std::uint64_t k = 0; k < n; ++k) some[k] = byte_at(at + k, plan_.bytes);
      // In turn with what poll() saw, and without.
      sock::poll_item item{s, sock::event::writable, 0};
      const bool looks = at / sizeof(some) % 2 == 1;
      if (looks && net_.poll(me_, &item, 1) != 1) return 41;
      const std::int64_t sent = looks ? net_.send(me_, item, some, n) : net_.send(me_, s, some, n);
      if (sent != static_cast<std::int64_t>(n)) return 40;
      at += n;
    }
    return 0;
  }

  int read_to_end(handle s) {
    std::byte some[1100];
    std::uint64_t at = 0;
    for (;;) {
      sock::poll_item item{s, sock::event::readable, 0};
      if (net_.poll(me_, &item, 1) != 1) return 50;
      const std::int64_t n = at % 2 == 0 ? net_.recv(me_, item, some, sizeof(some), sock::at_once)
                                         : net_.recv(me_, s, some, sizeof(some), sock::at_once);
      // A reset drops what had not left; it is told once, after what had.
      if (n == -ECONNRESET) {
        if (net_.recv(me_, s, some, 1) != 0) return 51;
        return plan_.resets ? 0 : abandoned;
      }
      if (n <= 0) return n == 0 && at == plan_.bytes && !plan_.resets ? 0 : 52;
      for (std::int64_t k = 0; k < n; ++k) {
        if (some[k] != byte_at(at + static_cast<std::uint64_t>(k), plan_.bytes)) return 53;
      }
      at += static_cast<std::uint64_t>(n);
    }
  }

  dev::thread_group me_;
  sock::service net_;
  plan plan_;
  report* r_;
};

/// Block 0 is the worker, then servers, then clients.
struct beside_the_worker {
  void operator()(const context& ctx, model_worker* worker, sock::service net, plan p,
                  report* out) const {
    const int group = ctx.block_index() - 1;
    if (group < 0) {
      out->worker = worker->run();
      return;
    }
    party me(ctx, net, p, out);
    out->wrong[group + 1] = group < p.servers ? me.serve(group) : me.ask(group - p.servers);
    dev::device_atomic<int>(out->finished).fetch_add(1, dev::order::release);
  }
};

class SocketModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!cw::schedule::available()) GTEST_SKIP() << "needs a checked build with Boost.Context";
  }
  static void explore(cw::schedule s, const plan& p) {
    cw::explore(s, [&](cw::device_ref device) {
      cw::world_options o;
      o.device = device;
      o.heap_bytes = 1U << 16U;
      o.self_test = false;
      cw::run_local(1, o, [&](cw::world& w) {
        service_memory memory(device, p);
        cw::buffer<report> out(device, 1);
        model_worker worker(memory, p, out.data());
        cw::launch(w, {.blocks = 1 + p.servers + p.clients}, beside_the_worker{}, &worker,
                   sock::service(memory.m, {}), p, out.data());
        w.stream().sync();
        const report r = out.read()[0];
        ASSERT_EQ(r.worker, status::ok) << s.describe();
        for (const int wrong : r.wrong) ASSERT_EQ(wrong, 0) << s.describe();
        ASSERT_EQ(r.served, p.clients * p.connections) << s.describe();
        ASSERT_TRUE(worker.all_closed()) << s.describe();
        ASSERT_EQ(memory.pool.bytes_in_use(), 0U) << s.describe();
      });
      if (HasFatalFailure()) FAIL() << s.describe();
    });
    RecordProperty("executions", static_cast<int>(s.executions()));
    EXPECT_GT(s.executions(), 1U);
  }
};

TEST_F(SocketModel, AnEndIsAPosition) {
  explore(cw::schedule::exhaustive(1, 500), {});
  explore(cw::schedule::exhaustive(1, 500), {.resets = true});
}

TEST_F(SocketModel, RingsGoRoundAndGrow) {
  explore(cw::schedule::random(20261116, 60), {.bytes = 14'000});
  explore(cw::schedule::random(20261117, 40), {.bytes = 9000, .resets = true});
}

/// A receiver that was slow finds two rings more than it knew, and the place of the one that it
/// knew taken by the second.
TEST_F(SocketModel, RingsGrowTwice) {
  explore(cw::schedule::random(20261124, 30), {.bytes = 60'000, .pages = 80, .most_log2 = 16});
}

/// What one gives back another gets, while both are at work: besides the first rings of all places
/// there is memory for one that is larger.
TEST_F(SocketModel, RingsGrowIntoWhatOthersHad) {
  explore(cw::schedule::random(20261120, 60),
          {.servers = 2, .clients = 2, .connections = 2, .bytes = 9000, .pages = 19});
}

TEST_F(SocketModel, LanesTakeOverAtAPosition) {
  explore(cw::schedule::exhaustive(1, 300), {.bytes = 9, .lanes = true});
  explore(cw::schedule::random(20261121, 60), {.bytes = 9000, .lanes = true});
  explore(cw::schedule::random(20261122, 40), {.bytes = 9000, .resets = true, .lanes = true});
  explore(cw::schedule::random(20261123, 40),
          {.servers = 2, .clients = 2, .connections = 3, .bytes = 4500, .lanes = true});
}

TEST_F(SocketModel, PlacesAreUsedAgainBySeveral) {
  explore(cw::schedule::random(20261118, 60), {.servers = 2, .clients = 2, .connections = 4});
}

TEST_F(SocketModel, CallsThatWereGivenUpAreClearedByOthers) {
  explore(cw::schedule::random(20261119, 60),
          {.servers = 1, .clients = 3, .connections = 2, .slow_answers = true});
}

}  // namespace
