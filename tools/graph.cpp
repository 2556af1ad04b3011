// crosswarp graph: graph programs on ranks, timed and verified.
#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <future>
#include <mutex>
#include <optional>

#include "commands.hpp"
#include "crosswarp/graph_programs.hpp"
#include "graph/file.hpp"
#include "progress.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {
namespace {

graph::csr generated(const graph_options& o) {
  const graph::generate_options how{
      .scale = o.scale, .degree = o.degree, .seed = o.seed, .threads = o.threads};
  if (o.generate == "kron") return graph::kronecker(how);
  if (o.generate == "uniform") return graph::uniform(how);
  return graph::grid(how);
}

/// What the program needs of the graph.
graph::csr fitting(const graph_options& o, graph::csr g) {
  if (o.program == "cc") g = graph::symmetrised(g);
  if (o.program == "sssp" && !g.weighted()) g = graph::with_lengths(g, o.seed);
  return g;
}

graph::csr input(const graph_options& o) {
  if (o.file.empty() == o.generate.empty()) {
    throw error(errc::invalid_argument, "graph",
                std::string("needs a file, or --generate kron|uniform|grid") +
                    (o.file.empty() ? "" : ", and not both"));
  }
  if (!o.generate.empty()) {
    const progress p("generating the graph");
    return fitting(o, generated(o));
  }
  const progress p("reading " + o.file);
  graph::read_options how{.build = {.symmetrise = o.symmetrise, .threads = o.threads}};
  // Others do not look at lengths; what is saved keeps them.
  how.lengths = o.program == "sssp" || !o.save.empty();
  return fitting(o, graph::read(o.file, how));
}

struct trial {
  graph::vertex source = graph::no_vertex;  ///< of programs that have one
  graph::run_report report;
  std::string wrong;  ///< what verification says
};

using verdict = std::function<std::string()>;

/// One program: how a trial is run, what is wrong with it, and its result as lines of text.
struct program {
  std::function<graph::run_report(graph::divided&, graph::vertex)> run;
  /// Called by all ranks, for it collects the result; what it returns compares that, by itself.
  std::function<verdict(graph::divided&, const graph::csr&, graph::vertex)> verify;
  std::function<std::string(graph::divided&)> print;
  bool has_source;
};

template <class T>
std::string differs(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  for (std::size_t v = 0; v < want.size(); ++v) {
    if (got[v] != want[v]) {
      return fmt::format("vertex {} has {} {} and should have {}", v, what, got[v], want[v]);
    }
  }
  return "";
}

std::string far_apart(const std::vector<double>& got, const std::vector<double>& want) {
  double apart = 0;
  for (std::size_t v = 0; v < want.size(); ++v) apart += std::abs(got[v] - want[v]);
  // Both stop when a round moves them by less than their tolerance; what is still to come then is
  // more than that by the sum of damping's powers.
  constexpr double most = (1e-4 + 1e-6) / (1 - 0.85);
  if (apart < most) return "";
  return fmt::format("ranks are {} away from the reference, all together", apart);
}

template <class T>
std::string lines(const std::vector<T>& values) {
  std::string text;
  for (std::size_t v = 0; v < values.size(); ++v) text += fmt::format("{} {}\n", v, values[v]);
  return text;
}

program named(const std::string& name) {
  using graph::csr;
  using graph::divided;
  using graph::vertex;
  if (name == "bfs") {
    return {[](divided& d, vertex s) { return d.bfs(s); },
            [](divided& d, const csr& g, vertex s) -> verdict {
              return [parents = d.parents(), g, s] { return graph::check_parents(g, s, parents); };
            },
            [](divided& d) { return lines(d.parents()); }, true};
  }
  if (name == "sssp") {
    return {[](divided& d, vertex s) { return d.sssp(s); },
            [](divided& d, const csr& g, vertex s) -> verdict {
              return [found = d.distances(), g, s] {
                return differs(found, graph::shortest_paths(g, s), "distance");
              };
            },
            [](divided& d) { return lines(d.distances()); }, true};
  }
  if (name == "cc") {
    return {[](divided& d, vertex) { return d.cc(); },
            [](divided& d, const csr& g, vertex) -> verdict {
              return
                  [found = d.labels(), g] { return differs(found, graph::components(g), "label"); };
            },
            [](divided& d) { return lines(d.labels()); }, false};
  }
  return {[](divided& d, vertex) { return d.pr(); },
          [](divided& d, const csr& g, vertex) -> verdict {
            return [found = d.ranks(), g] {
              return far_apart(found, graph::pagerank(g, {.tolerance = 1e-6}));
            };
          },
          [](divided& d) { return lines(d.ranks()); }, false};
}

routing route_named(const std::string& name) {
  if (name == "ring") return routing::ring;
  return name == "nodes" ? routing::nodes : routing::direct;
}

/// How items go is asked for of worklists: then it is one.
graph::method method_of(const graph_options& o) {
  const bool about_items = !o.route.empty() || o.queue != 0 || o.spill != 0;
  if (o.method == "rounds" && about_items) {
    throw error(errc::invalid_argument, "--method",
                "rounds have no items, which --route, --queue and --spill are about");
  }
  if (o.method == "rounds") return graph::method::rounds;
  return o.method == "worklist" || about_items ? graph::method::worklist : graph::method::automatic;
}

/// What METIS says, for all ranks of this process: it takes long, and works for one at a time, so
/// that the first ones would wait for the last beyond their deadline.
class metis_once {
 public:
  const graph::renumbered& of(const graph::csr& g, int ranks) {
    std::call_once(once_, [&] {
      const progress p("dividing the graph by METIS");
      divided_.emplace(graph::metis(g, ranks));
    });
    return *divided_;
  }

 private:
  std::once_flag once_;
  std::optional<graph::renumbered> divided_;
};

graph::divided divided_as(const graph_options& o, world& w, const graph::csr& g,
                          metis_once& by_metis) {
  const graph::divided_options how{.how = method_of(o),
                                   .blocks = o.blocks,
                                   .queue = o.queue,
                                   .spill = o.spill,
                                   .delta = o.delta,
                                   .route = route_named(o.route)};
  if (o.partition == "metis") return {w, by_metis.of(g, w.size()), how};
  const bool by_edges = o.partition == "edges";
  return {w, g,
          by_edges ? graph::edge_balanced(g, w.size()) : graph::contiguous(g.vertices(), w.size()),
          how};
}

double milliseconds(const trial& t) {
  return std::chrono::duration<double, std::milli>(t.report.took).count();
}

void tell(const trial& t, int number, const graph_options& o, const graph::csr& g) {
  std::string line = fmt::format("trial {:3}", number + 1);
  if (t.source != graph::no_vertex) line += fmt::format("  source {:8}", t.source);
  const double ms = milliseconds(t);
  const auto& items = t.report.items;
  line +=
      fmt::format("  {:10.3f} ms  {:8.1f} MTEPS", ms, static_cast<double>(g.edges()) / ms / 1e3);
  if (t.report.rounds > 0) {
    line += fmt::format("  rounds {}  edges {}", t.report.rounds, t.report.edges);
  }
  if (items.done > 0) {  // else it went in rounds
    line += fmt::format("  items {}  parked {}  spilled {}  stolen {}", items.done, items.parked,
                        items.spilled, items.stolen);
  }
  if (items.forwarded > 0) line += fmt::format("  forwarded {}", items.forwarded);
  if (items.epochs > 0) line += fmt::format("  epochs {}", items.epochs);
  if (o.verify) line += t.wrong.empty() ? "  verified" : "  WRONG: " + t.wrong;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// What rank 0 finds, which may take longer than a deadline: the others hear from it meanwhile.
/// Empty on them.
std::string found_by_rank_0(world& w, const verdict& f) {
  std::future<std::string> found;
  if (w.rank() == 0) found = std::async(std::launch::async, f);
  for (int ready = 0; ready == 0;) {
    using namespace std::chrono_literals;
    if (w.rank() == 0 && found.wait_for(200ms) == std::future_status::ready) ready = 1;
    ready = w.allgather(ready).front();
  }
  return w.rank() == 0 ? found.get() : "";
}

/// Says so on rank 0.
std::optional<progress> told_of(const world& w, const std::string& what) {
  return w.rank() == 0 ? std::optional<progress>(std::in_place, what) : std::nullopt;
}

trial run_trial(world& w, graph::divided& d, const program& p, const graph::csr& g,
                const graph_options& o, graph::vertex source) {
  trial t;
  t.source = source;
  {
    const auto running = told_of(w, o.program);
    t.report = p.run(d, source);
  }
  if (!o.verify) return t;
  const auto verifying = told_of(w, "verifying");
  t.wrong = found_by_rank_0(w, p.verify(d, g, source));
  return t;
}

/// All trials, on every rank; rank 0 tells of each as it ends.
std::vector<trial> run_trials(world& w, const graph::csr& g, const graph_options& o,
                              metis_once& by_metis) {
  const program p = named(o.program);
  graph::divided d = divided_as(o, w, g, by_metis);
  std::vector<graph::vertex> sources(static_cast<std::size_t>(o.trials), graph::no_vertex);
  if (p.has_source && !o.source) sources = graph::sources(g, o.trials, o.seed);
  std::vector<trial> all;
  for (int i = 0; i < o.trials; ++i) {
    graph::vertex source = sources[static_cast<std::size_t>(i)];
    if (p.has_source) source = o.source.value_or(source);
    const trial t = run_trial(w, d, p, g, o, source);
    if (w.rank() == 0) tell(t, i, o, g);
    all.push_back(t);
  }
  if (!o.out.empty()) {
    const std::string text = p.print(d);
    if (w.rank() == 0) {
      graph::new_file to(o.out);
      to.write(std::as_bytes(std::span(text)));
      to.publish();
    }
  }
  return all;
}

int summary(const std::vector<trial>& all, const graph::csr& g) {
  double sum = 0;
  bool right = true;
  for (const trial& t : all) {
    sum += milliseconds(t);
    right = right && t.wrong.empty();
  }
  const double mean = sum / static_cast<double>(all.size());
  fmt::print("mean {:.3f} ms, {:.1f} MTEPS\n", mean, static_cast<double>(g.edges()) / mean / 1e3);
  return right ? 0 : 1;
}

}  // namespace

int run_graph(const graph_options& o) {
  static_cast<void>(method_of(o));  // what cannot be is said before anything takes long
  const graph::csr g = input(o);
  if (!o.save.empty()) {
    const progress p("writing " + o.save);
    graph::write_binary(g, o.save);
  }
  world_options with = world_options::from_environment();
  if (!o.device.empty()) with.device = device_ref::parse(o.device);
  prepare_shared_gpu(with.device);
  int code = 0;
  metis_once by_metis;
  run(o.ranks, with, [&](world& w) {
    if (w.rank() == 0) {
      fmt::print("{} on {} ranks, {}: {} vertices, {} edges\n", o.program, w.size(),
                 with.device.name(), g.vertices(), g.edges());
    }
    const auto all = run_trials(w, g, o, by_metis);
    if (w.rank() == 0) code = summary(all, g);
  });
  return code;
}

}  // namespace crosswarp::tool
