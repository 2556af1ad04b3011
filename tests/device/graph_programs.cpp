// Graph programs on ranks, each against the serial reference.
#include "crosswarp/graph_programs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "crosswarp/device/graph_rounds.hpp"
#include "graph/divided_state.hpp"
#include "support/worlds.hpp"
#include "world/launch.hpp"

namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace gr = crosswarp::graph;
using testing::HasSubstr;

gr::csr text(const std::string& s, bool symmetric) {
  return gr::parse(s, "text",
                   {.as = gr::format::edges,
                    .build = {.symmetrise = symmetric, .simplify = false, .threads = 1}});
}

struct named_graph {
  std::string name;
  gr::csr graph;
  gr::vertex source;
};

/// Symmetric, with lengths.
std::vector<named_graph> graphs(int scale) {
  const auto with = [](const gr::csr& g) { return gr::with_lengths(g, 11); };
  return {
      {"one vertex", gr::csr({0, 0}, {}, {}, true), 0},
      {"self loops", text("0 0 3\n1 1 2\n0 1 1\n", true), 1},
      {"parallel edges", text("0 1 9\n0 1 2\n1 2 0\n1 2 7\n", true), 0},
      {"disconnected", text("0 1 1\n2 3 1\n3 4 1\n6 5 2\n", true), 3},
      {"more ranks than vertices", text("0 1 4\n", true), 1},
      {"grid", gr::grid({.scale = scale}), 33},
      {"kron", with(gr::kronecker({.scale = scale, .degree = 8})), 5},
      {"uniform", with(gr::uniform({.scale = scale, .degree = 4})), 50},
  };
}

std::string line(int from, int to, int length) {
  return std::to_string(from) + " " + std::to_string(to) + " " + std::to_string(length) + "\n";
}

/// Two vertices of more edges than are one warp's. A way to them is the shorter the more steps it
/// has: so they have news in each second round, and each time together with other vertices, of
/// which there are more than warps.
named_graph hubs() {
  constexpr int paths = 8;
  constexpr int steps = 12;
  constexpr int source = 2 + paths * steps;
  std::string edges = line(0, 1, 5000);
  for (int i = 0; i < paths * steps; ++i) {
    edges += line(i < paths ? source : 2 + i - paths, 2 + i, 1);
  }
  for (int step = 0; step < steps; step += 2) {
    for (const int hub : {0, 1}) edges += line(2 + step * paths, hub, 1000 - 50 * step);
  }
  for (int leaf = 0; leaf < 1700; ++leaf) edges += line(leaf < 1100 ? 0 : 1, source + 1 + leaf, 5);
  return {"hubs", text(edges, true), source};
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double most) {
  ASSERT_EQ(got.size(), want.size());
  double apart = 0;
  for (std::size_t i = 0; i < got.size(); ++i) apart += std::abs(got[i] - want[i]);
  EXPECT_LT(apart, most);
}

/// How far ranks may be from where they would end, when a round moved them by less than that.
double still_to_come(double moved) {
  return moved / (1 - gr::pagerank_options{}.damping);
}

void check_all(gr::divided d, const named_graph& n) {
  d.bfs(n.source);
  EXPECT_EQ(gr::check_parents(n.graph, n.source, d.parents()), "");
  EXPECT_EQ(d.levels(), gr::bfs_levels(n.graph, n.source));
  d.sssp(n.source);
  EXPECT_EQ(d.distances(), gr::shortest_paths(n.graph, n.source));
  d.cc();
  EXPECT_EQ(d.labels(), gr::components(n.graph));
  d.pr({.tolerance = 1e-4});
  expect_close(d.ranks(), gr::pagerank(n.graph, {.tolerance = 1e-9}), still_to_come(1e-4));
}

void check_all(cw::world& w, const named_graph& n, const gr::divided_options& o) {
  SCOPED_TRACE(n.name);
  check_all(gr::divided(w, n.graph, o), n);
}

class GraphPrograms : public testing::TestWithParam<gr::method> {};
INSTANTIATE_TEST_SUITE_P(All, GraphPrograms,
                         testing::Values(gr::method::rounds, gr::method::worklist),
                         [](const auto& m) {
                           return m.param == gr::method::rounds ? "Rounds" : "Worklist";
                         });

bool all_mapped(const cw::world& w) {
  for (int r = 0; r < w.size(); ++r) {
    if (r != w.rank() && !w.is_mapped(r)) return false;
  }
  return true;
}

/// On ranks that can; where ranks are not mapped, rounds are refused.
void on_ranks_by(gr::method how, int ranks, const std::function<void(cw::world&)>& rank_main) {
  on_ranks(ranks, [&](cw::world& w) {
    if (all_mapped(w) || how == gr::method::worklist) return rank_main(w);
    gr::divided d(w, text("0 1\n", true), {.how = how});
    try {
      d.cc();
      ADD_FAILURE() << "rounds over '" << w.path_to(w.rank() == 0 ? 1 : 0) << "'";
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::not_supported) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("use method::worklist"));
    }
  });
}

TEST_P(GraphPrograms, AgreeWithTheSerialReferences) {
  for (const int ranks : {1, 2, 3}) {
    on_ranks_by(GetParam(), ranks, [](cw::world& w) {
      for (const named_graph& n : graphs(9)) check_all(w, n, {.how = GetParam()});
    });
  }
}

TEST_P(GraphPrograms, AgreeWithSeveralWorkersAndTinyQueues) {
  on_ranks_by(GetParam(), 2, [](cw::world& w) {
    for (const named_graph& n : graphs(6)) {
      check_all(w, n, {.how = GetParam(), .blocks = 3, .queue = 2});
    }
    // More edges than are one warp's, which worklists do not know.
    if (GetParam() == gr::method::rounds) {
      const gr::divided_options far{
          .how = GetParam(), .blocks = 2, .threads = 3, .delta = 1U << 20U};
      check_all(w, hubs(), far);
    }
    // By blocks of two warps.
    check_all(w, {"kron", gr::with_lengths(gr::kronecker({.scale = 9, .degree = 4}), 1), 1},
              {.how = GetParam(), .blocks = 1, .threads = 64, .queue = 16});
    // By warps of three.
    check_all(w, {"kron", gr::with_lengths(gr::kronecker({.scale = 5, .degree = 4}), 1), 1},
              {.how = GetParam(), .blocks = 2, .threads = 3, .queue = 16});
  });
}

/// Notes each edge, with what its vertex stands for, as often as it is followed. In some rounds the
/// queue is so short that each vertex is one warp's.
struct follow_often {
  static constexpr int rounds = 8;
  static constexpr int short_rounds = 3;
  static constexpr gr::vertex short_queue = 2;
  CW_FN static bool is_short(int round) { return round % 3 == 0; }

  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const dev::symmetric<dev::graph::round_words>& words,
                        const dev::graph::part& p, const dev::graph::edge_pieces& many,
                        const gr::vertex* queue, std::uint32_t* noted, cw::status* out) const {
    const dev::graph::rounds all(ctx, w, words, false);
    const cw::status s = dev::with_warp(ctx, [&](const auto& g) {
      dev::graph::impl::edge_followers followers(all, g, p, many);
      const auto note = [&](bool have, std::uint64_t value, gr::vertex, std::uint64_t edge) {
        if (!have) return;
        dev::device_atomic<std::uint32_t>(noted[edge])
            .fetch_add(static_cast<std::uint32_t>(value), dev::order::relaxed);
      };
      const auto value = [](gr::vertex v) { return std::uint64_t{v} + 1; };
      const dev::graph::impl::edge_rules rules{[](gr::vertex) {}, value, note};
      cw::status of = cw::status::ok;
      for (int i = 0; i < rounds && of == cw::status::ok; ++i) {
        of = followers.follow(queue, is_short(i) ? short_queue : p.count, nullptr, rules);
        if (of == cw::status::ok) of = all.meet_own();
      }
      return of;
    });
    if (ctx.grid().rank() == 0) *out = s;
  }
};

void expect_each_edge_is_followed(cw::world& w, const cw::launch_shape& shape) {
  SCOPED_TRACE(std::to_string(shape.blocks) + " blocks of " + std::to_string(shape.threads));
  constexpr gr::vertex count = 300;
  const auto degree = [](gr::vertex v) -> std::uint64_t {
    // Rows that are cut side by side, one that is just not cut, and one into whole pieces.
    if (v >= 150 && v <= 152) return 512 + (v - 150) * 50;
    return v == 1 ? 1100 : v == count - 1 ? 1024 : v % 5;
  };
  gr::part p;
  p.count = count;
  p.first = 0;
  p.offsets = {0};
  std::vector<gr::vertex> queue;
  std::vector<std::uint32_t> expected;
  for (gr::vertex v = 0; v < count; ++v) {
    const int times =
        follow_often::rounds - (v < follow_often::short_queue ? 0 : follow_often::short_rounds);
    expected.insert(expected.end(), degree(v), (v + 1) * static_cast<std::uint32_t>(times));
    p.offsets.push_back(expected.size());
    queue.push_back(v);
  }
  p.targets.assign(expected.size(), 0);
  const auto device = w.options().device;
  const gr::rows rows(device, p);
  const auto first = gr::on_device<gr::vertex>(device, {0, count});
  const auto vertices = gr::on_device(device, queue);
  // More than it takes: pieces of an old round would be followed, and not lie in others' memory.
  const cw::buffer<dev::graph::edge_pieces::piece> pieces(device, 1000);
  const auto noted = gr::on_device(device, std::vector<std::uint32_t>(expected.size()));
  const auto out = gr::on_device(device, std::vector{cw::status::timeout});
  cw::symmetric_buffer<dev::graph::round_words> words(w, 1);
  words.write(std::vector<dev::graph::round_words>(1));
  cw::launch(w, shape, follow_often{}, w.device(), words.device(), rows.view(first, 0, 1),
             dev::graph::edge_pieces{pieces.data(), 1100}, vertices.data(), noted.data(),
             out.data());
  w.stream().sync();
  EXPECT_EQ(out.read()[0], cw::status::ok);
  EXPECT_EQ(noted.read(), expected);
}

TEST(GraphProgramsOfAnyKind, EachEdgeIsFollowedOnceInEachRound) {
  on_ranks(1, [](cw::world& w) {
    expect_each_edge_is_followed(w, {.blocks = 1, .threads = 1});
    expect_each_edge_is_followed(w, {.blocks = 2, .threads = 3});
    expect_each_edge_is_followed(w, {.blocks = 1, .threads = 64});
  });
}

// With the shape that a GPU's rank has by default warps have one vertex at a time of a small graph.
TEST(GraphProgramsOfAnyKind, AgreeWithMoreVerticesThanAGpuHasWarps) {
  const int scale = test_device().kind() == cw::device_kind::cuda ? 16 : 7;
  on_ranks_by(gr::method::rounds, 2, [&](cw::world& w) {
    for (const named_graph& n : graphs(scale)) {
      if (n.name == "kron" || n.name == "uniform") check_all(w, n, {.how = gr::method::rounds});
    }
  });
}

TEST_P(GraphPrograms, OneGraphServesManyRuns) {
  on_ranks_by(GetParam(), 2, [](cw::world& w) {
    const auto g = gr::with_lengths(gr::kronecker({.scale = 8, .degree = 8}), 3);
    gr::divided d(w, g, {.how = GetParam()});
    for (const gr::vertex source : gr::sources(g, 8, 1)) {
      d.bfs(source);
      EXPECT_EQ(gr::check_parents(g, source, d.parents()), "");
      d.cc();
      EXPECT_EQ(d.labels(), gr::components(g));
      const auto r = d.pr();
      expect_close(d.ranks(), gr::pagerank(g, {.tolerance = 1e-9}), still_to_come(1e-4));
      EXPECT_GT(r.in_kernels.count(), 0);
      EXPECT_GE(r.took, r.in_kernels) << "what users wait for is more than kernels";
    }
  });
}

TEST_P(GraphPrograms, FollowDirections) {
  on_ranks_by(GetParam(), 2, [](cw::world& w) {
    const auto g = text("0 1 5\n1 2 5\n0 2 11\n3 0 1\n2 4 1\n4 1 1\n", false);
    gr::divided d(w, g, {.how = GetParam()});
    d.bfs(0);
    EXPECT_EQ(d.levels(), gr::bfs_levels(g, 0));
    d.sssp(0);
    EXPECT_EQ(d.distances(), gr::shortest_paths(g, 0));
    d.pr({.tolerance = 1e-5});
    expect_close(d.ranks(), gr::pagerank(g, {.tolerance = 1e-9}), still_to_come(1e-5));
  });
}

TEST_P(GraphPrograms, AnEmptyGraphHasNothingToDo) {
  on_ranks_by(GetParam(), 2, [](cw::world& w) {
    gr::divided d(w, gr::csr(), {.how = GetParam()});
    d.cc();
    EXPECT_TRUE(d.labels().empty());
    d.pr();
    EXPECT_TRUE(d.ranks().empty());
    EXPECT_THROW(d.bfs(0), cw::error);
  });
}

// Few edges, as long as can be, among many vertices: no default step is too large, and distances
// go beyond 32 bits.
TEST_P(GraphPrograms, FollowLongEdges) {
  on_ranks_by(GetParam(), 2, [](cw::world& w) {
    constexpr std::uint64_t longest = 0xffffffff;
    const std::string l = " " + std::to_string(longest) + "\n";
    gr::divided d(w, text("0 1" + l + "1 4095" + l, true), {.how = GetParam()});
    d.sssp(0);
    const auto found = d.distances();
    EXPECT_EQ(found.at(1), longest);
    EXPECT_EQ(found.at(4095), 2 * longest);
    EXPECT_EQ(found.at(2), gr::unreached);
  });
}

TEST(GraphProgramsOfAnyKind, NearPathsComeFirst) {
  on_ranks(2, [](cw::world& w) {
    const auto g = gr::grid({.scale = 10});
    gr::divided d(w, g, {.how = gr::method::worklist, .delta = 20});
    const auto r = d.sssp(0);
    EXPECT_GT(r.items.parked, 0U);
    EXPECT_GT(r.items.epochs, 10U);
  });
}

TEST_P(GraphPrograms, ResultsHaveTheNumbersThatVerticesHadBefore) {
  on_ranks_by(GetParam(), 3, [](cw::world& w) {
    for (const named_graph& n : graphs(6)) {
      SCOPED_TRACE(n.name);
      std::vector<int> owners;
      for (gr::vertex v = 0; v < n.graph.vertices(); ++v) {
        owners.push_back(static_cast<int>(v * 5 % static_cast<gr::vertex>(w.size())));
      }
      check_all(gr::divided(w, gr::renumber(n.graph, owners, w.size()), {.how = GetParam()}), n);
    }
  });
}

TEST(GraphProgramsOfAnyKind, ItemsMayGoAnyWay) {
  on_ranks(3, [](cw::world& w) {
    const named_graph n{"kron", gr::with_lengths(gr::kronecker({.scale = 7, .degree = 8}), 2), 3};
    for (const cw::routing route : {cw::routing::ring, cw::routing::nodes}) {
      check_all(w, n, {.how = gr::method::worklist, .route = route});
    }
  });
}

// Of its own, of the border, and nothing of the size of the graph: with one array of that, this
// fails.
TEST_P(GraphPrograms, ARankHoldsItsOwnVerticesAndTheBorder) {
  on_ranks_by(GetParam(), 4, [](cw::world& w) {
    if (!all_mapped(w)) return;  // takes long, and no other memory of vertices
    const auto g = gr::grid({.scale = 12});
    const auto p = gr::edge_balanced(g, w.size());
    gr::divided d(w, g, p, {.how = GetParam(), .blocks = 1, .threads = 1, .delta = 1U << 20U});
    EXPECT_GT(d.graph_bytes(), g.edges() / static_cast<unsigned>(w.size()) * 7);
    EXPECT_EQ(d.vertex_bytes(), 0U) << "nothing has run";
    d.bfs(0);
    const std::size_t of_one = d.vertex_bytes();
    EXPECT_GT(of_one, 0U);
    d.sssp(0);
    d.cc();
    d.pr({.tolerance = 0.1});
    EXPECT_GT(d.vertex_bytes(), of_one);
    EXPECT_EQ(d.item_bytes() > 0, GetParam() == gr::method::worklist);
    const auto mine = gr::take_part(g, p, w.rank());
    std::size_t border = 0;
    for (const gr::vertex t : mine.targets) border += t >= mine.count ? 1 : 0;
    constexpr std::size_t fixed = 6144;
    EXPECT_LE(d.vertex_bytes(), 68 * (mine.count + mine.others.size()) + 20 * border + fixed);
  });
}

TEST_P(GraphPrograms, SayWhatTheyDid) {
  on_ranks_by(GetParam(), 2, [](cw::world& w) {
    const bool rounds = GetParam() == gr::method::rounds;
    const auto path = text("0 1 1\n1 2 1\n2 3 1\n", false);
    gr::divided d(w, path, {.how = GetParam()});
    const auto searched = d.bfs(0);
    EXPECT_EQ(searched.rounds, rounds ? 4U : 0U) << "the last one finds nothing";
    EXPECT_EQ(searched.edges, rounds ? 3U : 0U);
    EXPECT_EQ(searched.items.done > 0, !rounds);
    const auto paths = d.sssp(0);
    EXPECT_EQ(paths.edges, rounds ? 3U : 0U);
    EXPECT_EQ(paths.rounds > 0, rounds);

    const auto g = gr::kronecker({.scale = 8, .degree = 8});
    gr::divided k(w, g, {.how = GetParam(), .blocks = 2});
    const auto up = k.bfs(gr::sources(g, 1, 1)[0]);
    EXPECT_EQ(up.edges > 0, rounds);
    EXPECT_LE(up.edges, 2 * g.edges()) << "each is followed once at most in each direction";
    const auto ranked = k.pr();
    EXPECT_EQ(ranked.edges, ranked.rounds * g.edges());
    EXPECT_EQ(ranked.rounds > 0, rounds);
    const auto joined = k.cc();
    EXPECT_EQ(joined.edges > 0, rounds);
    EXPECT_LE(joined.rounds, 3U);
  });
}

// Nobody could tell it from a rank that is slow, and nothing said what to do.
TEST(GraphProgramsOfAnyKind, NoRoomForItemsIsSaidWithWhatToEnlarge) {
  auto o = test_options();
  o.timeout = std::chrono::milliseconds(500);
  on_ranks(
      2,
      [](cw::world& w) {
        if (w.size() != 2) return;
        // Each vertex of one rank leads to all of the other's.
        std::string crossing;
        for (int a = 0; a < 64; ++a) {
          for (int b = 64; b < 128; ++b) {
            crossing += std::to_string(a) + " " + std::to_string(b) + "\n";
          }
        }
        const auto g = text(crossing, true);
        gr::divided d(w, g, {.how = gr::method::worklist, .queue = 1, .spill = 1});
        std::string says;
        try {
          d.bfs(0);
        } catch (const cw::error& e) {
          EXPECT_EQ(e.code(), cw::errc::timeout) << e.what();
          says = e.what();
        }
        EXPECT_THAT(says, HasSubstr("workers found no room")) << "on each rank";
        EXPECT_THAT(says, HasSubstr("--spill"));
      },
      o);
}

// With 2^28 vertices a rank asked for more than a list takes, and was refused.
TEST(GraphProgramsOfAnyKind, NoGraphAsksForMoreThanAListTakes) {
  EXPECT_EQ(gr::spill_for(1000, 2), 2000U + 65536U);
  EXPECT_EQ(gr::spill_for(std::uint64_t{1} << 28U, 1), std::uint64_t{1} << 30U);
  EXPECT_EQ(gr::spill_for(~gr::vertex{0}, 1), cw::worklist_impl::most_items);
}

// Processes counted themselves alone: on one GPU their blocks then waited for each other for ever.
TEST(GraphProgramsOfAnyKind, RanksThatShareADeviceAreCountedAlsoAsProcesses) {
  using cw::world_impl::gpu_name;
  on_ranks(3, [](cw::world& w) { EXPECT_EQ(cw::world_impl::ranks_of_one_device(w), w.size()); });
  EXPECT_EQ(gpu_name(2, {}), "2");
  EXPECT_EQ(gpu_name(0, "3"), "3") << "each process sees one";
  EXPECT_EQ(gpu_name(1, "3,GPU-1f,5"), "GPU-1f");
  EXPECT_EQ(gpu_name(2, "3,GPU-1f,5"), "5");
}

// With twice as many blocks as multiprocessors, none fitted.
TEST(GraphProgramsOfAnyKind, AllBlocksOfAGpuAreThereAtOnce) {
  EXPECT_EQ(gr::threads_of_rounds(true, 132, 132), 1024);
  EXPECT_EQ(gr::threads_of_rounds(false, 132, 132), 512);
  EXPECT_EQ(gr::threads_of_rounds(true, 265, 132), 256);
  EXPECT_EQ(gr::threads_of_rounds(false, 264, 132), 512);
  EXPECT_EQ(gr::threads_of_rounds(true, 132, 44), 256);
  EXPECT_EQ(gr::threads_of_rounds(true, 1'000'000, 132), dev::warp_group::width);
}

TEST(GraphProgramsOfAnyKind, WhatCannotBeIsRefused) {
  on_ranks(2, [](cw::world& w) {
    const auto complaint = [](const auto& f) -> std::string {
      try {
        f();
      } catch (const cw::error& e) {
        return e.what();
      }
      return "nothing";
    };
    gr::divided d(w, text("0 1\n", false));
    EXPECT_THAT(complaint([&] { d.bfs(2); }), HasSubstr("2 in a graph of 2 vertices"));
    EXPECT_THAT(complaint([&] { d.sssp(0); }), HasSubstr("has no lengths"));
    EXPECT_THAT(complaint([&] { d.cc(); }), HasSubstr("not symmetric"));
    EXPECT_THAT(complaint([&] { static_cast<void>(d.labels()); }), HasSubstr("has not been run"));
    EXPECT_THAT(complaint([&] { static_cast<void>(d.ranks()); }), HasSubstr("has not been run"));
    EXPECT_THAT(complaint([&] { gr::divided(w, gr::csr(), gr::contiguous(7, w.size())); }),
                HasSubstr("not one of 0 vertices among "));
    EXPECT_THAT(complaint([&] { gr::divided(w, gr::csr(), {.threads = 33}); }),
                HasSubstr("33 threads: at most 32, or a multiple of it"));
    const gr::partition own{w.rank() == 0 ? std::vector<gr::vertex>{0, 0, 2}
                                          : std::vector<gr::vertex>{0, 1, 2}};
    if (w.size() == 2) {
      EXPECT_THAT(complaint([&] { gr::divided(w, text("0 1\n", false), own); }),
                  HasSubstr("another partition, than rank 0"));
    }
  });
}

}  // namespace
