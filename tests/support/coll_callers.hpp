// Who makes collective calls in tests.
#pragma once

#include "coll_worlds.hpp"
#include "crosswarp/coll.hpp"
#include "crosswarp/launch.hpp"

enum class caller { host, thread, warp, block };

/// Runs `Body` as a thread, a warp or a block of each rank, and notes what the call returned.
template <class Body>
struct run_as {
  template <class... Args>
  CW_FN void operator()(const crosswarp::device::kernel_context& k, caller who,
                        crosswarp::status* out, const crosswarp::device::coll& with,
                        const Args&... args) const {
    crosswarp::status s = crosswarp::status::ok;
    if (who == caller::block) {
      s = Body{}(k.block(), with, args...);
    } else if (who == caller::warp) {
      const auto g = k.warp();
      if (g.index() != 0) return;
      s = Body{}(g, with, args...);
    } else {
      if (k.thread_index() != 0) return;
      s = Body{}(k.thread(), with, args...);
    }
    if (k.thread_index() == 0) *out = s;
  }
};

/// What a rank tests with. Nothing is allocated while kernels wait for each other.
struct rank_setup {
  crosswarp::world& w;
  crosswarp::coll all;
  crosswarp::buffer<crosswarp::status> outcome{w.options().device, 1};

  explicit rank_setup(crosswarp::world& world, const crosswarp::coll_options& o = {})
      : w(world), all(world, o) {}

  template <class Body, class... Args>
  crosswarp::status call(caller who, const Args&... args) {
    w.barrier();
    crosswarp::launch(w.stream(), {.threads = 40}, run_as<Body>{}, who, outcome.data(),
                      all.device(), args...);
    w.stream().sync();
    w.barrier();
    return outcome.read().front();
  }
};
