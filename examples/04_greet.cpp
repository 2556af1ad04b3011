// Commands to the proxy: ranks that stores do not reach, on this machine or another.
//
//   CROSSWARP_PATH=proxy ./04_greet                 two ranks as threads, copies
//   crosswarp run -n 2 --nodes 2 ./04_greet         two processes that pretend to be on two
//   machines crosswarp run -n 2 --nodes 2 --trace greet.json ./04_greet; crosswarp trace greet.json
#include <cstdio>

#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

/// Puts a number at the right neighbour and waits until the left one's has come.
struct greet {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        dev::symmetric<int> box, dev::symmetric<std::uint64_t> full,
                        const int* letter, cw::status* out) const {
    const auto me = ctx.thread();
    const int right = (w.rank + 1) % w.size;
    const int left = (w.rank + w.size - 1) % w.size;
    auto q = w.proxy.queue(ctx.block_index());  // blocks take the queue of their index
    // One command; who sees the signal sees the letter.
    *out = q.put_signal(me, right, box.remote(), letter, sizeof(int), full.remote(), 1,
                        dev::signal_op::set);
    if (*out == cw::status::ok) *out = q.quiet(me);  // now it is there
    if (*out == cw::status::ok) {
      *out = dev::wait(me, dev::signal(*full.local()), 1, w.limits.for_peer(left));
    }
  }
};

void rank_main(cw::world& w) {
  if (!w.has_proxy()) {
    throw cw::error(cw::errc::not_supported, "greet",
                    "all ranks are mapped, and there is no proxy; CROSSWARP_PATH=proxy makes one");
  }
  const cw::device_ref device = w.options().device;
  cw::symmetric_buffer<int> box(w, 1);
  cw::symmetric_buffer<std::uint64_t> full(w, 1);
  const int number = 100 + w.rank();
  cw::buffer<int> letter(device, std::span(&number, 1));
  cw::buffer<cw::status> out(device, 1);
  cw::launch(w, {}, greet{}, w.device(), box.device(), full.device(), letter.data(), out.data());
  w.stream().sync();
  const cw::status outcome = out.read()[0];
  const int left = (w.rank() + w.size() - 1) % w.size();
  if (outcome != cw::status::ok || box.read()[0] != 100 + left) {
    throw cw::error(cw::errc::device_fault, "greet", cw::to_string(outcome), left);
  }
  std::printf("rank %d of %d got %d by %s\n", w.rank(), w.size(), box.read()[0],
              w.path_to(left).c_str());
}

int main() {
  try {
    cw::run(2, rank_main);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
