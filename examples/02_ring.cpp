// Ranks that write to each other from inside a kernel: put, then signal.
//
//   ./02_ring                              four ranks as threads of this process
//   crosswarp run -n 4 ./02_ring           four processes
//   CROSSWARP_DEVICE=cuda ./02_ring        four ranks that share a GPU
#include <cstdio>

#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

struct mailbox {
  dev::signal_line full;
  int letter;
};

/// Writes to the right neighbour, then waits for what comes from the left.
struct pass_right {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        dev::symmetric<mailbox> boxes, int* received, cw::status* outcome) const {
    const auto me = ctx.thread();
    mailbox& right = *boxes.at((w.rank + 1) % w.size);
    right.letter = 100 + w.rank;
    dev::notify(me, dev::signal(right.full), 1);  // the letter is visible to who sees the signal

    mailbox& mine = *boxes.local();
    const int left = (w.rank + w.size - 1) % w.size;
    *outcome = dev::wait(me, dev::signal(mine.full), 1, w.limits.for_peer(left));  // always ends
    if (*outcome == cw::status::ok) *received = mine.letter;
  }
};

void rank_main(cw::world& w) {
  const cw::device_ref device = w.options().device;
  const int right = (w.rank() + 1) % w.size();
  if (!w.is_mapped(right)) {
    throw cw::error(cw::errc::not_supported, "ring",
                    "stores do not reach it: it is on another machine (see 04_greet)", right);
  }
  cw::symmetric_buffer<mailbox> boxes(w, 1);
  cw::buffer<int> received(device, 1);
  cw::buffer<cw::status> outcome(device, 1);
  cw::launch(w, {}, pass_right{}, w.device(), boxes.device(), received.data(), outcome.data());
  w.stream().sync();  // throws when a wait in the kernel ended at its deadline, or a rank is lost
  const int expected = 100 + (w.rank() + w.size() - 1) % w.size();
  const int got = received.read()[0];
  if (outcome.read()[0] != cw::status::ok || got != expected) {
    throw cw::error(cw::errc::device_fault, "ring", "the wrong letter came", w.rank());
  }
  std::printf("rank %d of %d on %s got %d\n", w.rank(), w.size(), device.name().c_str(), got);
}

int main() {
  try {
    cw::run(4, rank_main);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
