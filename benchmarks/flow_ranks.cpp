// Links between two ranks: those on which kernels send and receive, and those of a context.
#include <algorithm>
#include <chrono>
#include <memory>

#include "crosswarp/flow.hpp"
#include "crosswarp/flow_link.hpp"
#include "crosswarp/world_launch.hpp"
#include "rank_benchmarks.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;
using dev::flow::receiver;
using dev::flow::sender;
using std::chrono::steady_clock;

double micros_since(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
}

row flow_row(const world& w, const char* what) {
  row r = base_row(w, what);
  r.bench = "flow";
  return r;
}

// ---- links of kernels

/// A packet of 8 bytes to the other rank and back, `rounds` times.
struct link_ping_pong {
  CW_FN void operator()(const dev::kernel_context& ctx, int rank, const dev::flow::link& to,
                        const dev::flow::link& from, int rounds, measured* out) const {
    const auto g = ctx.thread();
    auto there = sender::open(g, to);
    auto back = receiver::open(g, from);
    dev::flow::packet p;
    status s = status::ok;
    const std::uint64_t begin = dev::now_ns();
    for (std::uint64_t i = 0; s == status::ok && i < static_cast<std::uint64_t>(rounds); ++i) {
      if (rank == 0) s = there.send(g, &i, sizeof(i));
      if (s == status::ok) s = back.receive(g, p);
      if (s == status::ok) s = back.release(g);
      if (rank != 0 && s == status::ok) s = there.send(g, &i, sizeof(i));
    }
    *out = {static_cast<double>(dev::now_ns() - begin) / rounds, s};
  }
};

/// Rank 0 fills packets, rank 1 gives them back; by a block.
struct link_stream {
  static constexpr int max_threads = 1024;
  CW_FN void operator()(const dev::kernel_context& ctx, int rank, const dev::flow::link& l,
                        const std::byte* from, std::size_t packets, measured* out) const {
    const auto g = ctx.block();
    status s = status::ok;
    const std::uint64_t begin = dev::now_ns();
    if (rank == 0) {
      auto to = sender::open(g, l);
      for (std::size_t i = 0; s == status::ok && i < packets; ++i) {
        s = to.send(g, from, l.packet_bytes);
      }
      if (s == status::ok) s = to.reserve(g);  // all but the last few have been released
    } else {
      auto in = receiver::open(g, l);
      dev::flow::packet p;
      for (std::size_t i = 0; s == status::ok && i < packets; ++i) {
        s = in.receive(g, p);
        if (s == status::ok) s = in.release(g);
      }
    }
    if (g.rank() == 0) *out = {static_cast<double>(dev::now_ns() - begin), s};
  }
};

row link_latency(world& w, const setup& s) {
  const flow::device_link there(w, 0, 1, sizeof(std::uint64_t), 2);
  const flow::device_link back(w, 1, 0, sizeof(std::uint64_t), 2);
  const int rounds = on_gpu(w) ? 500 : 2000;
  samples took;
  for (int i = 0; i < (s.quick ? 5 : 21); ++i) {
    const buffer<measured> out(w.options().device, 1);
    launch(w, {}, link_ping_pong{}, w.rank(), (w.rank() == 0 ? there : back).device(),
           (w.rank() == 0 ? back : there).device(), rounds, out.data());
    w.stream().sync();
    if (i > 0) took.add(ns_of(out) * 0.5e-3);  // the first is warm-up
  }
  row r = flow_row(w, "link of kernels, one way, 8 bytes");
  r.unit = "us";
  took.fill(r);
  return r;
}

row link_rate(world& w, const setup& s, std::size_t packet) {
  const flow::device_link l(w, 0, 1, packet, 4);
  const buffer<std::byte> source(w.options().device, packet);
  const buffer<std::byte> target(w.options().device, packet);
  const std::size_t packets = std::clamp<std::size_t>((32U << 20U) / packet, 16, 1000);
  samples rate;
  samples bound;
  for (int i = 0; i < (s.quick ? 4 : 12); ++i) {
    const buffer<measured> out(w.options().device, 1);
    const std::byte* const from = source.data();
    launch(w, {.threads = on_gpu(w) ? 1024 : 1}, link_stream{}, w.rank(), l.device(), from, packets,
           out.data());
    w.stream().sync();
    const double ns = ns_of(out);
    const double plain = copy_rate(w, packet, static_cast<int>(packets),
                                   [&] { w.stream().copy(target.data(), source.data(), packet); });
    if (i == 0) continue;  // warm
    rate.add(static_cast<double>(packet * packets) / ns);
    bound.add(plain);
  }
  row r = flow_row(w, "link of kernels, by a block, four packets (limit: copies on a stream)");
  r.unit = "GB/s";
  r.bytes = packet;
  rate.fill(r);
  r.limit = bound.median();
  return r;
}

std::vector<row> device_links(world& w, const setup& s) {
  std::vector<row> rows = {link_latency(w, s)};
  for (const std::size_t packet : {4U << 10U, 64U << 10U, 1U << 20U}) {
    rows.push_back(link_rate(w, s, packet));
  }
  return rows;
}

// ---- links of a context

/// From the send at rank 0 until rank 1 has it, and back.
row context_latency(world& w, const setup& s) {
  constexpr std::size_t bytes = 64;
  const buffer<std::byte> data(w.options().device, bytes);
  flow::context ctx(w);
  flow::link there = ctx.link(ctx.devices()[0], ctx.devices()[1], bytes, 1);
  flow::link back = ctx.link(ctx.devices()[1], ctx.devices()[0], bytes, 1);
  samples took;
  for (int i = 0; i < (s.quick ? 30 : 200); ++i) {
    const auto begin = steady_clock::now();
    std::optional<flow::future<flow::completion>> sent;
    if (w.rank() == 0) sent = there.send({data.data(), bytes});
    flow::link& in = w.rank() == 0 ? back : there;
    const auto got = in.receive().get();
    got.sync();
    in.release(got);
    if (w.rank() == 1) sent = back.send({data.data(), bytes});
    const double us = micros_since(begin);
    sent->get().sync();
    if (i >= 5) took.add(us / 2);
  }
  row r = flow_row(w, "context between ranks: send to receive, one way, 64 bytes");
  r.unit = "us";
  took.fill(r);
  return r;
}

row context_rate(world& w, const setup& s, std::size_t packet) {
  const std::size_t bytes = packet * (s.quick ? 8 : 32);
  const buffer<std::byte> data(w.options().device, bytes);
  flow::context ctx(w);
  flow::link l = ctx.link(ctx.devices()[0], ctx.devices()[1], packet, 2);
  samples rate;
  for (int i = 0; i < (s.quick ? 4 : 12); ++i) {
    w.barrier();
    const auto begin = steady_clock::now();
    if (w.rank() == 0) l.send({data.data(), bytes}).get().sync();
    for (std::size_t at = 0; w.rank() == 1 && at < bytes; at += packet) {
      const auto got = l.receive().get();
      l.release(got, got.arrived());
    }
    w.barrier();
    if (i > 0) rate.add(static_cast<double>(bytes) / micros_since(begin) * 1e-3);
  }
  row r = flow_row(w, "context between ranks: packets through two buffers");
  r.unit = "GB/s";
  r.bytes = packet;
  rate.fill(r);
  return r;
}

std::vector<row> context_links(world& w, const setup& s) {
  std::vector<row> rows = {context_latency(w, s)};
  for (const std::size_t packet : {64U << 10U, 1U << 20U}) {
    rows.push_back(context_rate(w, s, packet));
  }
  return rows;
}

}  // namespace

rank_benchmark find_flow_benchmark(const std::string& name) {
  if (name == "flow-link") return device_links;
  if (name == "flow-context") return context_links;
  return nullptr;
}

}  // namespace crosswarp::bench
