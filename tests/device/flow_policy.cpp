// Where policies send, and what they say of themselves.
#include <gtest/gtest.h>

#include <set>

#include "flow/spots.hpp"
#include "support/flow_graphs.hpp"

namespace {

using namespace flow_test;
constexpr std::size_t two = 2 * sizeof(int);

/// A router of n inputs and m outputs on devices.
struct fan_of {
  fan_of(int n, int m, flow::policy p, int buffers = 1)
      : ctx(devices(std::max(n, m))), hub(ctx.router(n, m, std::move(p))) {
    for (int i = 0; i < n; ++i) {
      in.push_back(ctx.link(ctx.devices()[static_cast<std::size_t>(i)], hub, two, 1));
    }
    for (int o = 0; o < m; ++o) {
      out.push_back(ctx.link(hub, ctx.devices()[static_cast<std::size_t>(o)], two, buffers));
    }
  }
  void shutdown() {
    for (auto& l : in) l.shutdown();
  }
  flow::context ctx;
  flow::router hub;
  std::vector<flow::link> in;
  std::vector<flow::link> out;
};

TEST(FlowPolicy, AnyAvailableGivesMoreToWhoIsFaster) {
  const auto source = numbers(20);
  fan_of f(1, 2, flow::any_available());
  (void)f.in[0].send(all_of(source));
  f.shutdown();
  const auto slow = f.out[0].receive().get();  // not given back
  EXPECT_EQ(drain(f.out[1]).size(), 18U) << "all but the packet that the slow one holds";
  EXPECT_EQ(read(slow), range(0, 2));
}

TEST(FlowPolicy, AnyAvailableGivesEquallyMuchToEquals) {
  const auto source = numbers(8);
  fan_of f(1, 2, flow::any_available(), 3);
  (void)f.in[0].send(all_of(source));
  EXPECT_EQ(f.out[0].bytes_moved(), 2 * two);
  EXPECT_EQ(f.out[1].bytes_moved(), 2 * two);
}

TEST(FlowPolicy, PriorityTakesTheFirstThatHasABuffer) {
  const auto source = numbers(12);
  const auto few = numbers(2, 50);
  fan_of f(1, 2, flow::priority(), 2);
  (void)f.in[0].send(all_of(source));
  EXPECT_EQ(take(f.out[0]), range(0, 2)) << "and its buffer is filled again, before the other's";
  EXPECT_EQ(f.out[0].bytes_moved(), 3 * two);
  EXPECT_EQ(take(f.out[1]), range(4, 6));
  fan_of idle(1, 2, flow::priority());
  (void)idle.in[0].send(all_of(few));
  EXPECT_EQ(take(idle.out[0]), range(50, 52));
  EXPECT_EQ(idle.out[1].bytes_moved(), 0U);
}

TEST(FlowPolicy, BroadcastGivesAllToEveryOneAtHisOwnPace) {
  const auto source = numbers(5);
  fan_of f(1, 3, flow::broadcast());
  const auto sent = f.in[0].send(all_of(source));
  f.shutdown();
  EXPECT_EQ(drain(f.out[2]), range(0, 5));
  EXPECT_EQ(drain(f.out[0]), range(0, 5));
  EXPECT_FALSE(sent.ready()) << "one has not got it yet";
  EXPECT_EQ(drain(f.out[1]), range(0, 5));
  EXPECT_TRUE(sent.ready());
}

TEST(FlowPolicy, ScatterGivesEachAPartOfWholeElements) {
  const auto source = numbers(8);
  const auto tiny = numbers(1, 90);
  fan_of f(1, 3, flow::scatter(sizeof(int)), 4);
  (void)f.in[0].send(all_of(source));
  (void)f.in[0].send(all_of(tiny));
  f.shutdown();
  auto first = range(0, 3);
  first.push_back(90);
  EXPECT_EQ(drain(f.out[0]), first);
  EXPECT_EQ(drain(f.out[1]), range(3, 6));
  EXPECT_EQ(drain(f.out[2]), range(6, 8));
}

TEST(FlowPolicy, GatherBringsAllToOne) {
  fan_of f(3, 1, flow::gather());
  std::vector<cw::buffer<int>> sources;
  for (int i = 0; i < 3; ++i) sources.push_back(numbers(3, 10 * i));
  for (std::size_t i = 0; i < 3; ++i) (void)f.in[i].send(all_of(sources[i]));
  f.shutdown();
  EXPECT_EQ(drain(f.out[0]), (std::vector{0, 1, 2, 10, 11, 12, 20, 21, 22}));
}

TEST(FlowPolicy, ReductionsLeadToTheFirstAndFromThereToTheHost) {
  const auto to = [](const flow::policy& p, int i, int outputs) {
    return p.reachable(i, {4, outputs});
  };
  const auto chain = flow::one_way_reduction();
  EXPECT_EQ(to(chain, 3, 4), std::vector{2});
  EXPECT_EQ(to(chain, 1, 4), std::vector{0});
  EXPECT_EQ(to(chain, 0, 4), std::vector<int>{});
  EXPECT_EQ(to(chain, 0, 5), std::vector{4});
  const auto tree = flow::tree_reduction();
  EXPECT_EQ(to(tree, 3, 4), std::vector{2});
  EXPECT_EQ(to(tree, 2, 4), std::vector{0});
  EXPECT_EQ(to(tree, 1, 4), std::vector{0});
  EXPECT_EQ(to(tree, 0, 5), std::vector{4});
}

/// Each adds what comes to what it has, and hands the sum on: to the host in the end.
TEST(FlowPolicy, ReductionsReduce) {
  for (const auto& p : {flow::one_way_reduction(), flow::tree_reduction()}) {
    auto ctx = devices(4);
    auto r = ctx.router(4, 5, p);
    std::vector<flow::link> in;
    std::vector<flow::link> out;
    for (const auto d : ctx.devices()) in.push_back(ctx.link(d, r, two, 1));
    for (const auto d : ctx.devices()) out.push_back(ctx.link(r, d, two, 2));
    auto result = ctx.link(r, flow::host, two, 1);
    for (int i = 3; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      int sum = 1 << i;
      for (const int x : drain(out[at])) sum += x;
      const auto mine = numbers(1, sum);
      in[at].send(all_of(mine)).get().sync();
      in[at].shutdown();
    }
    EXPECT_EQ(drain(result), std::vector{15}) << p.name;
  }
}

TEST(FlowPolicy, AUsersFunctionChoosesBySegmentAndSource) {
  const auto source = numbers(2);
  fan_of f(
      2, 3,
      flow::user_defined([](const flow::segment& s, int from, const std::vector<int>& outputs) {
        return s.tag == 9 ? outputs
                          : std::vector{outputs.at((s.tag + static_cast<std::uint64_t>(from)) % 3)};
      }),
      8);
  (void)f.in[0].send(all_of(source, 1));
  (void)f.in[1].send(all_of(source, 1));
  EXPECT_EQ(f.out[1].bytes_moved(), two);
  EXPECT_EQ(f.out[2].bytes_moved(), two);
  EXPECT_EQ(f.out[0].bytes_moved(), 0U);
  (void)f.in[0].send(all_of(source, 9));
  EXPECT_EQ(f.out[0].bytes_moved(), two);
}

TEST(FlowPolicy, SaysWhatIsWrongWithIt) {
  const auto source = numbers(2);
  const auto bad = cw::errc::invalid_argument;
  const auto choose = [](std::vector<int> to) {
    return flow::user_defined(
        [to](const flow::segment&, int, const std::vector<int>&) { return to; });
  };
  const auto send_by = [&](const flow::policy& p) {
    fan_of f(1, 2, p);
    (void)f.in[0].send(all_of(source));
  };
  expect_error([&] { send_by(choose({})); }, bad, "has no output for input 0");
  expect_error([&] { send_by(choose({2})); }, bad, "chose output 2");
  expect_error([&] { send_by(choose({1, 1})); }, bad, "more than once");
  expect_error([&] { send_by(flow::scatter(0)); }, bad, "units of 0");
  auto ctx = devices(1);
  expect_error([&] { (void)ctx.router(3, 1, flow::one_way_reduction()); }, bad, "reaches output 1");
}

// ---- topology

/// Two groups of four, wide within, narrow between; as two sockets with four GPUs each.
flow::bandwidth_table two_sockets() {
  flow::bandwidth_table t(8, std::vector<double>(8, 2));
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = 0; b < 8; ++b) {
      if (a / 4 == b / 4) t[a][b] = 20;
    }
  }
  return t;
}

/// Follows a policy's hops; empty when they lead nowhere.
std::vector<int> walk(const flow::policy& p, int n, int from, int to) {
  std::vector<int> way;
  for (int at = from; at != to; way.push_back(at)) {
    at = p.choose({nullptr, 1, static_cast<std::uint64_t>(to)}, at, {n, n}).outputs.at(0);
    if (way.size() > 64) return {};
  }
  return way;
}

void expect_all_ways_end(const flow::policy& p, const flow::bandwidth_table& t) {
  const int n = static_cast<int>(t.size());
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from == to) continue;
      int at = from;
      const auto way = walk(p, n, from, to);
      ASSERT_FALSE(way.empty()) << p.explain() << ": " << from << " to " << to;
      for (const int hop : way) {
        EXPECT_GT(t[static_cast<std::size_t>(at)][static_cast<std::size_t>(hop)], 0)
            << p.explain() << ": no way from " << at << " to " << hop;
        at = hop;
      }
    }
  }
}

TEST(FlowTopology, EveryPolicyLeadsEverywhereByWaysThatAre) {
  const auto sockets = two_sockets();
  for (const auto& p : {flow::direct(sockets), flow::multi_ring(sockets), flow::tree(sockets)}) {
    expect_all_ways_end(p, sockets);
  }
  flow::bandwidth_table line(5, std::vector<double>(5, 0));
  for (std::size_t i = 0; i + 1 < 5; ++i) line[i][i + 1] = line[i + 1][i] = 10;
  expect_all_ways_end(flow::tree(line), line);
  expect_all_ways_end(flow::by_topology(line), line);
  flow::bandwidth_table many(11, std::vector<double>(11, 5));
  expect_all_ways_end(flow::multi_ring(many), many);
}

TEST(FlowTopology, RingsShareNoWayAndAreAsWideAsCanBe) {
  // A cube's edges: narrow but for two rings of four that are joined.
  flow::bandwidth_table t(4, std::vector<double>(4, 1));
  t[0][2] = t[2][1] = t[1][3] = t[3][0] = 30;
  const auto p = flow::multi_ring(t, 1);
  EXPECT_NE(p.why.find("0 2 1 3 (30 GB/s)"), std::string::npos) << p.why;
  EXPECT_EQ(walk(p, 4, 0, 3), (std::vector{2, 1, 3}));
  const auto both = flow::multi_ring(t, 2);
  EXPECT_NE(both.why.find("2 rings"), std::string::npos) << both.why;
  EXPECT_LT(walk(both, 4, 0, 3).size(), 3U) << "the second ring is shorter there";
}

TEST(FlowTopology, TheTreeTakesTheWideWays) {
  const auto p = flow::tree(two_sockets());
  EXPECT_NE(p.why.find("narrowest way has 2 GB/s"), std::string::npos) << p.why;
  int between = 0;
  for (int v = 1; v < 8; ++v) between += walk(p, 8, v, 0).front() / 4 != v / 4;
  EXPECT_EQ(between, 1) << "one way between the sockets";
}

TEST(FlowTopology, ChoosesWhatIsDoneFirstAndSaysWhy) {
  const flow::bandwidth_table even(4, std::vector<double>(4, 10));
  const auto flat = flow::by_topology(even);
  EXPECT_EQ(flat.name, "direct") << flat.why;
  EXPECT_NE(flat.explain().find("direct 0.1 s"), std::string::npos) << flat.explain();
  flow::bandwidth_table slow_across = even;
  slow_across[0][2] = slow_across[2][0] = slow_across[1][3] = slow_across[3][1] = 0.1;
  const auto around = flow::by_topology(slow_across);
  EXPECT_NE(around.name, "direct") << around.why;
  EXPECT_NE(around.explain().find("direct 10 s"), std::string::npos) << around.explain();
}

TEST(FlowTopology, SaysWhatIsWrongWithATable) {
  const auto bad = cw::errc::invalid_argument;
  expect_error([] { (void)flow::direct({}); }, bad, "empty");
  expect_error([] { (void)flow::tree({{0, 1}}); }, bad, "not square");
  expect_error([] { (void)flow::tree({{0, -1}, {1, 0}}); }, bad, "negative");
  const flow::bandwidth_table apart{{0, 0}, {0, 0}};
  expect_error([&] { (void)flow::direct(apart); }, bad, "no way");
  expect_error([&] { (void)flow::multi_ring(apart); }, bad, "no ring");
  expect_error([&] { (void)flow::multi_ring({{0, 1}, {1, 0}}, 0); }, bad, "at least one ring");
  expect_error([&] { (void)flow::tree(apart); }, bad, "cut off");
  expect_error([&] { (void)flow::by_topology(apart); }, bad, "cut off");
  auto ctx = devices(2);
  expect_error(
      [&] {
        (void)ctx.router(3, 3, flow::direct({{0, 1}, {1, 0}}));
      },
      bad, "input i and output i");
}

/// Two machines of two packages with two NUMA nodes each, an endpoint in each node and one more in
/// the first.
std::vector<flow::machine_spot> nine_spots() {
  std::vector<flow::machine_spot> all{{0, 0, 0}};
  for (int i = 0; i < 8; ++i) all.push_back({i / 4, i % 4 / 2, i % 4});
  return all;
}

TEST(FlowTopology, WaysOfOneKindCountAsTheirMedian) {
  const auto spots = nine_spots();
  flow::bandwidth_table t(9, std::vector<double>(9, 0));
  for (std::size_t a = 0; a < 9; ++a) {
    for (std::size_t b = 0; b < 9; ++b) {
      const bool network = spots[a].machine != spots[b].machine;
      const bool package = !network && spots[a].package == spots[b].package;
      t[a][b] = network ? 1 : package ? (spots[a].numa == spots[b].numa ? 30 : 20) : 10;
    }
  }
  const auto undisturbed = flow::by_topology(t, spots);
  t[1][2] = 0.01;  // a copy that was disturbed
  t[5][6] = 500;
  const auto p = flow::by_topology(t, spots);
  expect_all_ways_end(p, t);
  EXPECT_EQ(p.why, undisturbed.why);
  for (const char* part : {"within a NUMA node 30 GB/s (2)", "within a package 20 GB/s (10)",
                           "within a machine 10 GB/s (20)", "between machines 1 GB/s (40)"}) {
    EXPECT_NE(p.explain().find(part), std::string::npos) << p.explain();
  }
  expect_error(
      [&] {
        (void)flow::by_topology(t, {{}, {}});
      },
      cw::errc::invalid_argument, "2 spots for 9 endpoints");
}

TEST(FlowTopology, HostsAreWhereTheirCoresAre) {
  using flow::impl::spot_of;
  const std::string knower = flow::impl::knower_of_spots();
  if (knower.empty()) GTEST_SKIP() << "built without hwloc";
  const std::string machine = "package:2 numa:2 core:2 pu:1";
  const auto is = [&](const std::vector<int>& cores, int package, int numa) {
    const auto s = spot_of(cores, machine);
    return s.package == package && s.numa == numa;
  };
  EXPECT_TRUE(is({0, 1}, 0, 0));
  EXPECT_TRUE(is({3}, 0, 1));
  EXPECT_TRUE(is({1, 2}, 0, -1)) << "in two nodes of a package";
  EXPECT_TRUE(is({6, 7}, 1, 3));
  EXPECT_TRUE(is({0, 7}, -1, -1)) << "in two packages";
  EXPECT_TRUE(is({99}, -1, -1)) << "nowhere";
  expect_error([] { (void)spot_of({0}, "nonsense:0"); }, cw::errc::invalid_argument, "nonsense");
  EXPECT_EQ(devices(2).host_spots().size(), 1U);
  const flow::bandwidth_table pair{{0, 1}, {1, 0}};
  EXPECT_NE(flow::by_topology(pair, {{}, {}}).explain().find("Ways by " + knower),
            std::string::npos);
}

TEST(FlowTopology, SegmentsGoFromHopToHopToTheEndpointOfTheirTag) {
  const auto source = numbers(2);
  flow::bandwidth_table line(3, std::vector<double>(3, 0));
  line[0][1] = line[1][0] = line[1][2] = line[2][1] = 10;
  fan_of f(3, 3, flow::by_topology(line));
  (void)f.in[0].send(all_of(source, 2));
  const auto s = f.out[1].receive().get();
  EXPECT_EQ(s.tag(), 2U);
  const auto sent = f.in[1].send({s.data(), s.bytes(), s.tag()}, s.arrived());
  f.out[1].release(s, sent.get());
  EXPECT_EQ(take(f.out[2]), range(0, 2));
  expect_error([&] { (void)f.in[0].send(all_of(source, 3)); }, cw::errc::invalid_argument,
               "3 is none of 3");
}

TEST(FlowTopology, IsMeasured) {
  const auto t = flow::measure_bandwidth({test_device(), test_device()}, 1U << 16U);
  ASSERT_EQ(t.size(), 2U);
  EXPECT_GT(t[0][1], 0);
  EXPECT_GT(t[1][0], 0);
  EXPECT_EQ(t[0][0], 0);
}

}  // namespace
