#include "flow/world_kernels.hpp"

#include "crosswarp/launch.hpp"

namespace crosswarp::flow::impl {
namespace {

namespace df = device::flow;

struct carry_mail {
  template <device::group G>
  CW_FN static int send(const G& g, const df::link& l, const mail_bag& bag) {
    auto to = df::sender::open(g, l);
    int sent = 0;
    while (sent < bag.count && to.reserve(g, l.limits.within(0)) == status::ok) {
      device::copy(g, to.buffer(), bag.letters + sent, sizeof(message));
      if (to.send(g, sizeof(message)) != status::ok) break;
      ++sent;
    }
    return sent;
  }

  template <device::group G>
  CW_FN static int receive(const G& g, const df::link& l, mail_bag& bag) {
    auto from = df::receiver::open(g, l);
    int got = 0;
    df::packet p;
    while (got < mail_bag::most && from.receive(g, p, l.limits.within(0)) == status::ok) {
      device::copy(g, bag.letters + got, p.data, sizeof(message));
      ++got;
      if (from.release(g) != status::ok) break;
    }
    return got;
  }

  template <device::group G>
  CW_FN static void carry(const G& g, const mail_tables& t) {
    for (int r = 0; r < t.ranks; ++r) {
      if (r == t.rank) continue;
      t.going[r].taken = send(g, t.out[r], t.going[r]);
      t.coming[r].count = receive(g, t.in[r], t.coming[r]);
    }
  }

  CW_FN void operator()(const device::kernel_context& ctx, const mail_tables& t) const {
    carry(ctx.thread(), t);
  }
};

struct be_quiet {
  CW_FN void operator()(const device::kernel_context& ctx, const device::proxy& p, int queue,
                        status* outcome) const {
    *outcome = p.queue(queue).quiet(ctx.thread());
  }
};

struct put_packet {
  CW_FN void operator()(const device::kernel_context& ctx, const device::proxy& p, int pe,
                        device::remote_address to, const std::byte* from, std::size_t bytes,
                        status* failed) const {
    const auto g = ctx.thread();
    auto q = p.queue(1);  // letters go by queue 0
    status s = q.put_nbi(g, pe, to, from, bytes);
    if (s == status::ok) s = q.quiet(g);
    if (s != status::ok) *failed = s;
  }
};

}  // namespace

void carry_mail_once(stream& s, const mail_tables& t) {
  if (s.device().kind() == device_kind::cpu) {
    carry_mail::carry(device::thread_group{}, t);
    return;
  }
  launch(s, {}, carry_mail{}, t);
  s.sync();
}

void queue_quiet(stream& s, const device::proxy& p, int queue, status* outcome) {
  launch(s, {}, be_quiet{}, p, queue, outcome);
}

void queue_put(stream& s, const device::proxy& p, int pe, device::remote_address to,
               const std::byte* from, std::size_t bytes, status* failed) {
  launch(s, {}, put_packet{}, p, pe, to, from, bytes, failed);
}

}  // namespace crosswarp::flow::impl
