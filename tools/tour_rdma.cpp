// The tour's scene of rdma: kernels write an adapter's entries themselves.
#include <algorithm>

#include "crosswarp/launch.hpp"
#include "crosswarp/rdma.hpp"
#include "tour_scenes.hpp"

namespace crosswarp::tool {

namespace dev = crosswarp::device;

namespace {

constexpr std::uint32_t letter_bytes = 1024;
constexpr int writers = 4;
constexpr int rounds = 50;

/// Block 0 writes the letter; then all blocks count up one word at the other end.
struct write_and_count {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::rdma::endpoint& ep,
                        dev::rdma::region mine, dev::rdma::region theirs, status* out) const {
    const auto me = ctx.thread();
    const int who = ctx.block_index();
    status s = status::ok;
    if (who == 0) s = ep.write(me, mine.local(), theirs.remote(), letter_bytes).outcome;
    const auto old = mine.local(letter_bytes + 8 * static_cast<std::uint64_t>(who));
    for (int i = 0; i < rounds && s == status::ok; ++i) {
      s = ep.fetch_add(me, old, theirs.remote(letter_bytes), 1).outcome;
    }
    out[who] = s;
  }
};

/// With a key that is none.
struct write_wrongly {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::rdma::endpoint& ep,
                        dev::rdma::region mine, dev::rdma::region theirs,
                        dev::rdma::completion* out) const {
    dev::rdma::remote_memory to = theirs.remote();
    to.rkey += 1;
    *out = ep.write(ctx.thread(), mine.local(), to, 8);
  }
};

}  // namespace

scene rdma_scene(device_ref d) {
  scene s{
      .name = "rdma",
      .story =
          "a kernel writes mlx5's work queue entries for a NIC in software: a letter arrives, 4 "
          "blocks count one word up on one queue, and a wrong key is refused by its name",
      .device = d.name()};
  const rdma::context all;
  const auto nic = all.devices().at(0).open(d);
  rdma::endpoint a = nic.make_endpoint();
  rdma::endpoint b = nic.make_endpoint();
  a.connect(b.address());
  b.connect(a.address());
  constexpr std::size_t bytes = letter_bytes + 8 * writers;
  const std::vector<std::uint8_t> letter(letter_bytes, 42);
  std::vector<std::uint8_t> source = letter;
  source.resize(bytes);
  const buffer<std::uint8_t> from(d, std::span<const std::uint8_t>(source));
  const buffer<std::uint8_t> to(d, bytes);
  const auto mine = nic.register_memory(from.data(), bytes, rdma::access::all);
  const auto theirs = nic.register_memory(to.data(), bytes, rdma::access::all);
  const buffer<status> outcome(d, writers);
  const buffer<dev::rdma::completion> refused(d, 1);
  stream on(d);
  launch(on, {.blocks = writers}, write_and_count{}, a.device(), mine.device(), theirs.device(),
         outcome.data());
  launch(on, {}, write_wrongly{}, a.device(), mine.device(), theirs.device(), refused.data());
  on.sync();
  const auto got = to.read();
  std::uint64_t counted = 0;
  std::copy_n(got.begin() + letter_bytes, sizeof(counted),
              reinterpret_cast<std::uint8_t*>(&counted));
  const auto outcomes = outcome.read();
  s.verified =
      std::all_of(outcomes.begin(), outcomes.end(), [](status o) { return o == status::ok; }) &&
      std::equal(letter.begin(), letter.end(), got.begin()) &&
      counted == static_cast<std::uint64_t>(writers) * rounds &&
      refused.read()[0].why == dev::rdma::syndrome::remote_access;
  return measured(std::move(s), d, false);
}

}  // namespace crosswarp::tool
