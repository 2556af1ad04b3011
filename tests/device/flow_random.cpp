// Random dataflow graphs with random delays, against a model that does the same one after the
// other.
//
// A graph has layers of workers. Between two layers stands a router with a random policy; a worker
// receives, adds its layer's number to each value, and sends on. What arrives at the host is a set
// of values that does not depend on who was how fast.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>

#include "crosswarp/launch.hpp"
#include "crosswarp/world.hpp"
#include "support/flow_graphs.hpp"
#include "support/worlds.hpp"

namespace {

using namespace flow_test;
namespace dev = crosswarp::device;

struct layer {
  int workers;
  int policy;  // of the router before it
};
struct plan {
  std::vector<layer> layers;
  std::vector<std::vector<int>> sources;  // what the host sends, in this order
  unsigned seed;
};

constexpr int policies = 4;
flow::policy policy_of(int kind) {
  switch (kind) {
    case 0:
      return flow::any_available();
    case 1:
      return flow::priority();
    case 2:
      return flow::broadcast();
    default:
      return flow::scatter(sizeof(int));
  }
}

plan random_plan(unsigned seed) {
  std::mt19937 chance(seed);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(chance);
  };
  plan p{{}, {}, seed};
  for (int i = pick(1, 3); i > 0; --i) p.layers.push_back({pick(1, 3), pick(0, policies - 1)});
  for (int i = pick(0, 4); i > 0; --i) {
    p.sources.push_back(range(1000 * i, 1000 * i + pick(0, 40)));
  }
  return p;
}

/// One after the other: only broadcast makes more of what there is.
std::vector<int> expected(const plan& p) {
  std::vector<int> now;
  for (const auto& s : p.sources) now.insert(now.end(), s.begin(), s.end());
  for (std::size_t k = 0; k < p.layers.size(); ++k) {
    std::vector<int> next;
    const int copies = p.layers[k].policy == 2 ? p.layers[k].workers : 1;
    for (const int x : now) {
      next.insert(next.end(), static_cast<std::size_t>(copies), x + static_cast<int>(k) + 1);
    }
    now = std::move(next);
  }
  std::sort(now.begin(), now.end());
  return now;
}

struct add {
  CW_FN void operator()(const dev::kernel_context&, const int* in, int* out, std::size_t n,
                        int what) const {
    for (std::size_t i = 0; i < n; ++i) out[i] = in[i] + what;
  }
};

class delays {
 public:
  explicit delays(unsigned seed) : chance_(seed) {}
  void now() {
    const int us = std::uniform_int_distribution<int>(-200, 200)(chance_);
    if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

 private:
  std::mt19937 chance_;
};

void work(cw::device_ref device, flow::link in, flow::link out, int what, unsigned seed) {
  cw::stream s(device);
  delays wait(seed);
  for (;;) {
    const auto got = in.receive().get();
    if (got.empty()) break;
    wait.now();
    // A part may be larger than a packet of the next link: what is sent is split there.
    const std::size_t most = out.packet_bytes();
    for (std::size_t at = 0; at < got.bytes(); at += most) {
      const std::size_t n = std::min(most, got.bytes() - at) / sizeof(int);
      const auto mine = out.send_buffer(s);
      if (at == 0) got.wait(s);
      cw::launch(s, {}, add{}, static_cast<const int*>(got.data()) + at / sizeof(int),
                 reinterpret_cast<int*>(mine.data()), n, what);
      (void)out.send({mine.data(), n * sizeof(int)}, s);
      wait.now();
    }
    in.release(got, s);
  }
  out.shutdown();
  s.sync();
}

/// Where a plan is run: whose its ends are, and which of these this rank serves.
struct site {
  flow::context ctx;
  std::vector<flow::endpoint> workers;
  flow::endpoint from;
  flow::endpoint to;
  std::function<bool(flow::endpoint)> is_mine;
  bool may_lend;
};

int workers_of(const plan& p) {
  int count = 0;
  for (const layer& l : p.layers) count += l.workers;
  return count;
}

site virtual_devices(const plan& p) {
  auto ctx = devices(workers_of(p));
  auto workers = ctx.devices();
  return {std::move(ctx),
          std::move(workers),
          flow::host,
          flow::host,
          [](flow::endpoint) { return true; },
          test_device().kind() == cw::device_kind::cpu};
}

/// Workers are dealt out to the ranks; the first rank sends, the last receives.
site ranks(const plan& p, cw::world& w) {
  flow::context ctx(w);
  std::vector<flow::endpoint> workers;
  workers.reserve(static_cast<std::size_t>(workers_of(p)));
  for (int i = 0; i < workers_of(p); ++i) {
    workers.push_back(ctx.devices()[static_cast<std::size_t>(i % w.size())]);
  }
  return {std::move(ctx),
          std::move(workers),
          flow::host,
          flow::host_of(w.size() - 1),
          [rank = w.rank()](flow::endpoint e) { return e.index() == rank; },
          false};
}

struct graph {
  flow::link in;
  flow::link out;
  std::vector<std::function<void()>> workers;  // that are this rank's
};

graph make_graph(const plan& p, site& at) {
  std::mt19937 chance(p.seed + 1);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(chance);
  };
  const auto packet = [&] { return static_cast<std::size_t>(pick(1, 7)) * sizeof(int); };
  const auto how = [&] {
    const bool lends = at.may_lend && pick(0, 1) == 1;
    return flow::link_options{.how = lends ? flow::transport::lent : flow::transport::automatic};
  };
  flow::context& ctx = at.ctx;
  std::vector<flow::router> routers;
  int before = 1;
  for (const layer& l : p.layers) {
    routers.push_back(ctx.router(before, l.workers, policy_of(l.policy)));
    before = l.workers;
  }
  routers.push_back(ctx.router(before, 1, flow::gather()));
  const std::size_t in_bytes = packet();
  const std::size_t out_bytes = packet();
  graph g{ctx.link(at.from, routers.front(), in_bytes, 1),
          ctx.link(routers.back(), at.to, out_bytes, pick(1, 3), how()),
          {}};
  std::size_t next = 0;
  for (std::size_t k = 0; k < p.layers.size(); ++k) {
    for (int i = 0; i < p.layers[k].workers; ++i, ++next) {
      const auto where = at.workers[next];
      const std::size_t from_bytes = packet();
      const std::size_t to_bytes = packet();
      auto from = ctx.link(routers[k], where, from_bytes, pick(1, 3), how());
      auto to = ctx.link(where, routers[k + 1], to_bytes, pick(1, 3));
      if (!at.is_mine(where)) continue;
      g.workers.emplace_back(
          [=, device = ctx.device(where), seed = p.seed * 31 + static_cast<unsigned>(next)] {
            work(device, from, to, static_cast<int>(k) + 1, seed);
          });
    }
  }
  return g;
}

/// What came to the receiver, sorted; nothing on other ranks.
std::vector<int> run(const plan& p, const std::function<site()>& make_site) {
  std::vector<cw::buffer<int>> sources;
  for (const auto& s : p.sources) sources.emplace_back(test_device(), s, cw::memory_kind::pinned);
  site at = make_site();
  graph g = make_graph(p, at);
  std::mutex mutex;
  std::exception_ptr failed;
  std::vector<std::thread> threads;
  for (const auto& w : g.workers) {
    threads.emplace_back([&, w] {
      try {
        w();
      } catch (const std::exception& e) {
        const std::scoped_lock lock(mutex);
        failed = std::current_exception();
        at.ctx.abort(e.what());
      }
    });
  }
  std::vector<int> all;
  try {
    std::vector<flow::future<flow::completion>> sent;
    if (at.is_mine(at.from)) {
      for (const auto& s : sources) sent.push_back(g.in.send(all_of(s)));
      g.in.shutdown();
    }
    if (at.is_mine(at.to)) all = drain(g.out);
    for (const auto& s : sent) s.get().sync();
  } catch (const cw::error& e) {
    ADD_FAILURE() << e.what();
    at.ctx.abort(e.what());
  }
  for (auto& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
  std::sort(all.begin(), all.end());
  return all;
}

TEST(FlowRandom, GraphsDeliverWhatAModelDelivers) {
  for (unsigned seed = 1; seed <= 25; ++seed) {
    const plan p = random_plan(seed);
    ASSERT_EQ(run(p, [&] { return virtual_devices(p); }), expected(p)) << "seed " << seed;
  }
}

TEST(FlowWorld, RandomGraphsDeliverWhatAModelDelivers) {
  on_ranks(3, [](cw::world& w) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      const plan p = random_plan(seed);
      const auto got = run(p, [&] { return ranks(p, w); });
      ASSERT_EQ(got, w.rank() == w.size() - 1 ? expected(p) : std::vector<int>())
          << "seed " << seed;
    }
  });
}

}  // namespace
