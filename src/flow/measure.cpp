// How fast the ways between endpoints are.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/flow.hpp"
#include "crosswarp/world.hpp"
#include "exec/backends.hpp"

namespace crosswarp::flow {
namespace {

void check_bytes(std::size_t bytes) {
  if (bytes == 0) throw error(errc::invalid_argument, "topology", "0 bytes measure nothing");
}

/// GB/s from each rank to this one; one pair of ranks at a time. Collective.
std::vector<double> measure_ways_here(world& w, std::size_t bytes) {
  using std::chrono::steady_clock;
  const auto n = static_cast<std::size_t>(w.size());
  const auto me = static_cast<std::size_t>(w.rank());
  std::vector<double> rates(n, 0);
  const buffer<std::byte> data(w.options().device, bytes);
  context ctx(w);
  const auto straight =
      ctx.router(w.size(), w.size(), direct(bandwidth_table(n, std::vector<double>(n, 1))));
  std::vector<link> in;
  std::vector<link> out;
  for (const auto d : ctx.devices()) in.push_back(ctx.link(d, straight, bytes, 1));
  for (const auto d : ctx.devices()) out.push_back(ctx.link(straight, d, bytes, 1));
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      if (from == to) continue;
      for (const bool counts : {false, true}) {  // the first one warms
        w.barrier();
        const auto begin = steady_clock::now();
        if (me == from) in[me].send({data.data(), bytes, to}).get().sync();
        if (me != to) continue;
        const auto got = out[me].receive().get();
        got.sync();
        const std::chrono::duration<double, std::nano> took = steady_clock::now() - begin;
        if (counts) rates[from] = static_cast<double>(bytes) / std::max(1.0, took.count());
        out[me].release(got);
      }
    }
  }
  return rates;
}

}  // namespace

bandwidth_table measure_bandwidth(const std::vector<device_ref>& devices, std::size_t bytes) {
  check_bytes(bytes);
  std::vector<buffer<std::byte>> memory;
  memory.reserve(devices.size());
  for (const device_ref d : devices) memory.emplace_back(d, bytes);
  bandwidth_table t(devices.size(), std::vector<double>(devices.size(), 0));
  for (std::size_t to = 0; to < devices.size(); ++to) {
    stream s(devices[to]);
    buffer<std::byte> into(devices[to], bytes);
    for (std::size_t from = 0; from < devices.size(); ++from) {
      if (from == to || !exec::reaches(devices[to], devices[from])) continue;
      event begun(devices[to]);
      event ended(devices[to]);
      s.copy(into.data(), memory[from].data(), bytes);  // warm
      s.record(begun);
      s.copy(into.data(), memory[from].data(), bytes);
      s.record(ended);
      s.sync();
      const auto took = std::max<std::int64_t>(1, ended.since(begun).count());
      t[from][to] = static_cast<double>(bytes) / static_cast<double>(took);
    }
  }
  return t;
}

bandwidth_table measure_bandwidth(world& w, std::size_t bytes) {
  check_bytes(bytes);
  const auto mine = measure_ways_here(w, bytes);
  const auto all = w.allgather(std::as_bytes(std::span(mine)));
  bandwidth_table t(all.size(), std::vector<double>(all.size(), 0));
  for (std::size_t to = 0; to < all.size(); ++to) {
    std::vector<double> rates(all.size());
    std::memcpy(rates.data(), all[to].data(), rates.size() * sizeof(double));
    for (std::size_t from = 0; from < all.size(); ++from) t[from][to] = rates[from];
  }
  return t;
}

}  // namespace crosswarp::flow
