// Another family of adapters: a provider of a few lines, whose adapter carries out entries when its
// doorbell is rung. The kernel below calls it and mlx5's alike.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/rdma.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace rdma = crosswarp::rdma;
using cw::status;
using dev::rdma::completion;
using dev::rdma::operation;
using dev::rdma::request;
using dev::rdma::syndrome;

// ---- the toy

/// Entries are requests as they are, each of one place; ends are told in the order of entries.
struct toy_provider {
  struct entry {
    request what;
    bool signalled;
  };
  struct end {
    std::uint64_t index;
    syndrome why;
  };
  struct completion_queue {
    end* entries = nullptr;
    std::uint64_t* written = nullptr;
    std::uint64_t* read = nullptr;
    std::uint32_t depth = 0;
    bool collapsed = false;
  };
  struct queues {
    entry* send = nullptr;
    std::uint64_t* record = nullptr;
    std::uint64_t* done = nullptr;  ///< the adapter's own
    completion_queue sent;
    completion_queue received;
    std::uint32_t qpn = 0;
    std::uint32_t depth = 0;
  };
  using found = end;

  CW_FN static constexpr bool is_piece(std::uint32_t bytes) noexcept { return bytes < 100; }
  CW_FN static std::uint32_t units(const request& r) noexcept {
    return r.op == operation::write && is_piece(r.bytes) && r.list.count == 0 ? 1 : 0;
  }
  CW_FN static constexpr std::uint32_t blocks_of(std::uint32_t units) noexcept { return units; }
  CW_FN static void write_entry(const queues& q, std::uint32_t depth, std::uint64_t index,
                                const request& r, bool signalled) noexcept {
    q.send[index % depth] = {r, signalled};
  }
  CW_FN static void write_receive(const queues& /*q*/, std::uint32_t /*depth*/,
                                  std::uint64_t /*index*/,
                                  const dev::rdma::segment_list& /*to*/) noexcept {}
  CW_FN static void write_send_record(const queues& q, std::uint64_t index) noexcept {
    *q.record = index;
  }
  CW_FN static void write_receive_record(const queues& /*q*/, std::uint64_t /*index*/) noexcept {}
  /// And that is the adapter: key 13 is none.
  CW_FN static void ring(const queues& q, std::uint64_t index) noexcept {
    for (; *q.done != index && *q.done != *q.record; ++*q.done) {
      const entry& e = q.send[*q.done % q.depth];
      const bool sound = e.what.remote.rkey != 13;
      if (sound) {
        std::memcpy(reinterpret_cast<void*>(e.what.remote.address),
                    reinterpret_cast<const void*>(e.what.local.address), e.what.bytes);
      }
      if (!sound || e.signalled) {
        q.sent.entries[(*q.sent.written)++ % q.sent.depth] = {
            *q.done, sound ? syndrome::none : syndrome::remote_access};
      }
    }
  }
  CW_FN static bool look(const completion_queue& q, std::uint64_t index, std::uint64_t /*done*/,
                         found& f) noexcept {
    if (q.written == nullptr || index >= *q.written) return false;
    f = q.entries[index % q.depth];
    return true;
  }
  CW_FN static completion decode(const found& f, std::uint64_t /*done*/) noexcept {
    completion c;
    c.index = f.index;
    c.why = f.why;
    c.outcome = dev::rdma::status_of(f.why);
    return c;
  }
  CW_FN static void write_cq_record(const completion_queue& q, std::uint64_t index) noexcept {
    *q.read = index;
  }
  CW_FN static std::uint64_t fetched(std::uint64_t raw) noexcept { return raw; }
  CW_FN static std::uint32_t fetched(std::uint32_t raw) noexcept { return raw; }
};
static_assert(dev::rdma::queue_provider<toy_provider>);

using toy_endpoint = dev::rdma::basic_endpoint<toy_provider>;

/// What an endpoint over it is made of.
struct toy_memory {
  static constexpr std::uint32_t depth = 8;

  [[nodiscard]] toy_endpoint device() {
    toy_endpoint::parts p;
    p.queues.send = entries.data();
    p.queues.record = words.data();
    p.queues.done = words.data() + 1;
    p.queues.sent = {ends.data(), words.data() + 2, words.data() + 3, 2 * depth, false};
    p.queues.qpn = 5;
    p.queues.depth = depth;
    p.send = {states.data(), places.data(), depth};
    p.receive = {states.data() + 1, places.data() + depth, depth};
    p.sent = readers.data();
    p.received = readers.data() + 1;
    p.events = events.data();
    return toy_endpoint(p);
  }

  std::vector<toy_provider::entry> entries{depth};
  std::vector<toy_provider::end> ends{2 * depth};
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(4);
  std::vector<std::uint64_t> places = std::vector<std::uint64_t>(2 * depth);
  std::vector<dev::rdma::queue_state> states{2};
  std::vector<dev::rdma::cq_state> readers{2};
  std::vector<dev::rdma::endpoint_events> events{1};
};

// ---- the caller, who knows nothing of providers

struct calls {
  template <class Endpoint>
  CW_FN void operator()(const dev::kernel_context& ctx, const Endpoint& ep, dev::rdma::region mine,
                        dev::rdma::region theirs, completion* out) const {
    const auto me = ctx.thread();
    out[0] = ep.write(me, mine.local(), theirs.remote(), 8);
    for (int lap = 0; lap < 5; ++lap) {  // several times round the queue
      const auto p = ep.post_batch(me, 4, [&](std::uint32_t i) {
        return request{.op = operation::write,
                       .signalled = false,
                       .bytes = 2,
                       .local = mine.local(8 + 2 * i),
                       .remote = theirs.remote(8 + 2 * i)};
      });
      out[1].outcome = p.outcome;
      if (p.outcome == status::ok) out[1].outcome = ep.submit(me, p.end);
    }
    const auto last = ep.post_write(me, mine.local(16), theirs.remote(16), 8);
    out[2].outcome = ep.update_send_dbr_record(me);
    if (out[2].outcome == status::ok) out[2].outcome = ep.ring_doorbell(me);
    if (out[2].outcome == status::ok) out[2] = ep.wait(me, last);
    out[3] = ep.wait(me, ep.post_write(me, mine.local(), theirs.remote(), 0xfffffff0U));
    out[4] = ep.write(me, mine.local(), {theirs.address, 13}, 8);
    out[5] = ep.write(me, mine.local(), theirs.remote(), 8);
  }
};

template <class Endpoint>
void check(const Endpoint& ep, dev::rdma::region mine, dev::rdma::region theirs) {
  cw::buffer<completion> out(cw::device_ref::cpu(), 6);
  cw::stream s(cw::device_ref::cpu());
  cw::launch(s, {}, calls{}, ep, mine, theirs, out.data());
  s.sync();
  const auto all = out.read();
  for (const std::size_t i : {0U, 1U, 2U}) EXPECT_EQ(all[i].outcome, status::ok) << i;
  EXPECT_EQ(all[3].outcome, status::invalid) << "longer than the provider can say";
  EXPECT_EQ(all[4].why, syndrome::remote_access);
  EXPECT_EQ(all[5].outcome, status::aborted);
}

TEST(RdmaProvider, OneKernelPostsToAdaptersOfAnyFamily) {
  std::vector<std::uint8_t> from(32);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i + 1);
  std::vector<std::uint8_t> expected = from;
  std::fill(expected.begin() + 24, expected.end(), 0);
  const auto as_region = [](std::vector<std::uint8_t>& v) {
    return dev::rdma::region{reinterpret_cast<std::uintptr_t>(v.data()), v.size(), 1, 1};
  };
  {
    std::vector<std::uint8_t> to(32);
    toy_memory toy;
    check(toy.device(), as_region(from), as_region(to));
    EXPECT_EQ(to, expected);
  }
  std::vector<std::uint8_t> to(32);
  const rdma::context soft;
  const auto d = soft.devices().at(0).open();
  rdma::endpoint a = d.make_endpoint({.send_depth = toy_memory::depth});
  rdma::endpoint b = d.make_endpoint();
  a.connect(b.address());
  b.connect(a.address());
  const auto mine = d.register_memory(from.data(), from.size(), rdma::access::none);
  const auto theirs = d.register_memory(to.data(), to.size(), rdma::access::all);
  check(a.device(), mine.device(), theirs.device());
  EXPECT_EQ(to, expected);
}

}  // namespace
