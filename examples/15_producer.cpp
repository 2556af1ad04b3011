// A kernel that produces and one that consumes, with a link of two packets between them: who is
// faster waits inside its kernel.
//
//   ./15_producer                                two ranks as threads
//   crosswarp run -n 2 ./15_producer             two processes
//   crosswarp run -n 2 --nodes 2 ./15_producer   by the proxy, as between two machines
#include <cstdio>

#include "crosswarp/flow_link.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

constexpr int packets = 1000;
constexpr int values = 64;  // of a packet

struct report {
  cw::status outcome;
  long sum;
};

struct produce_and_consume {
  template <class G>
  CW_FN static cw::status produce(const G& g, const dev::flow::link& link) {
    auto out = dev::flow::sender::open(g, link);
    for (int n = 0; n < packets; ++n) {
      // Waits while both packets are full.
      if (const cw::status s = out.reserve(g); s != cw::status::ok) return s;
      auto* packet = reinterpret_cast<int*>(out.buffer());
      for (int i = g.rank(); i < values; i += g.size()) packet[i] = n + i;
      if (const cw::status s = out.send(g, values * sizeof(int)); s != cw::status::ok) return s;
    }
    return out.shutdown(g);
  }

  template <class G>
  CW_FN static cw::status consume(const G& g, const dev::flow::link& link, long& sum) {
    auto in = dev::flow::receiver::open(g, link);
    dev::flow::packet p;
    cw::status s = in.receive(g, p);
    for (; s == cw::status::ok; s = in.receive(g, p)) {
      for (int i = 0; i < values; ++i) sum += reinterpret_cast<const int*>(p.data)[i];
      if (s = in.release(g); s != cw::status::ok) return s;
    }
    return s == cw::status::closed ? cw::status::ok : s;
  }

  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const dev::flow::link& link, report* out) const {
    const auto g = ctx.block();
    long sum = 0;
    cw::status s = cw::status::ok;
    if (w.rank == 0) s = produce(g, link);
    if (w.rank == 1) s = consume(g, link, sum);
    if (g.rank() == 0) *out = {s, sum};
  }
};

void rank_main(cw::world& w) {
  if (w.size() < 2) {
    throw cw::error(cw::errc::invalid_argument, "15_producer", "it takes two ranks: run -n 2");
  }
  const cw::flow::device_link link(w, 0, 1, values * sizeof(int), 2);
  const cw::buffer<report> out(w.options().device, 1);
  w.barrier();  // nobody allocates while another's kernel waits on the same GPU
  cw::launch(w, {.threads = 32}, produce_and_consume{}, w.device(), link.device(), out.data());
  w.stream().sync();
  const report r = out.read().front();
  if (r.outcome != cw::status::ok) {
    throw cw::error(cw::errc::device_fault, "15_producer", to_string(r.outcome));
  }
  constexpr long expected = static_cast<long>(values) * packets * (packets - 1) / 2 +
                            static_cast<long>(packets) * values * (values - 1) / 2;
  if (w.rank() == 1 && r.sum != expected) {
    throw cw::error(cw::errc::system, "15_producer", "the sum is wrong");
  }
  if (w.rank() == 1) std::printf("%d packets, sum %ld, through two buffers\n", packets, r.sum);
  w.barrier();
}

int main() {
  try {
    cw::run(2, rank_main);
  } catch (const cw::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
