// crosswarp bench flow: packets over a link, from one device to another of the same kind; between
// ranks, see flow_ranks.cpp; and a filter over several devices, see flow_filter.cpp.
#include "crosswarp/flow.hpp"

#include <chrono>

#include "bench.hpp"
#include "crosswarp/buffer.hpp"

namespace crosswarp::bench {
namespace {

using std::chrono::steady_clock;

double micros_since(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
}

row base_row(const setup& s, const flow::link& by, const std::string& what) {
  row r;
  r.bench = "flow";
  r.what = what;
  r.ranks = 2;
  r.device = s.device.name();
  r.path = by.explain();
  return r;
}

/// A packet to the other device and back, waited for by the host each time.
row round_trip(const setup& s) {
  constexpr std::size_t bytes = 64;
  const buffer<std::byte> data(s.device, bytes);
  flow::context ctx({s.device, s.device});
  flow::link there = ctx.link(ctx.devices()[0], ctx.devices()[1], bytes, 1);
  flow::link back = ctx.link(ctx.devices()[1], ctx.devices()[0], bytes, 1);
  samples took;
  for (int i = 0; i < (s.quick ? 60 : 500); ++i) {
    const auto begin = steady_clock::now();
    (void)there.send({data.data(), bytes});
    const auto got = there.receive().get();
    got.sync();
    const auto sent = back.send({got.data(), bytes}).get();
    there.release(got, sent);
    const auto again = back.receive().get();
    again.sync();
    back.release(again);
    if (i >= 10) took.add(micros_since(begin) / 2);
  }
  row r = base_row(s, there, "send to receive, one way, 64 bytes");
  r.unit = "us";
  took.fill(r);
  return r;
}

/// A long segment in packets, through two buffers; the limit: the same copies on one stream.
row stream_of_packets(const setup& s, std::size_t packet) {
  const std::size_t bytes = packet * (s.quick ? 16 : 64);
  const buffer<std::byte> data(s.device, bytes);
  flow::context ctx({s.device, s.device});
  flow::link l = ctx.link(ctx.devices()[0], ctx.devices()[1], packet, 2);
  samples rate;
  samples bound;
  stream plain(s.device);
  const buffer<std::byte> target(s.device, 2 * packet);
  for (int i = 0; i < (s.quick ? 4 : 12); ++i) {
    auto begin = steady_clock::now();
    const auto sent = l.send({data.data(), bytes});
    for (std::size_t at = 0; at < bytes; at += packet) {
      const auto got = l.receive().get();
      l.release(got, got.arrived());
    }
    sent.get().sync();
    const double took = micros_since(begin);
    begin = steady_clock::now();
    for (std::size_t at = 0; at < bytes; at += packet) {
      plain.copy(target.data() + at % (2 * packet), data.data() + at, packet);
    }
    plain.sync();
    if (i == 0) continue;  // warm
    rate.add(static_cast<double>(bytes) / took * 1e-3);
    bound.add(static_cast<double>(bytes) / micros_since(begin) * 1e-3);
  }
  row r = base_row(s, l, "packets through two buffers (limit: copies on a stream)");
  r.unit = "GB/s";
  r.bytes = packet;
  rate.fill(r);
  r.limit = bound.median();
  return r;
}

}  // namespace

std::vector<row> bench_flow(const setup& s, const rank_runner& run_ranks) {
  std::vector<row> rows{round_trip(s)};
  for (const std::size_t packet : {4U << 10U, 64U << 10U, 1U << 20U, 4U << 20U}) {
    rows.push_back(stream_of_packets(s, packet));
  }
  setup two = s;
  two.ranks = 2;
  for (const char* between_ranks : {"flow-link", "flow-context"}) {
    const auto more = run_ranks(between_ranks, two);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  const auto filters = bench_flow_filter(s);
  rows.insert(rows.end(), filters.begin(), filters.end());
  return rows;
}

}  // namespace crosswarp::bench
