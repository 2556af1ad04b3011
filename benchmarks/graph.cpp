// crosswarp bench graph: graph programs by the rules of GAPBS (64 sources for bfs and sssp, 16
// trials of pr and cc, the mean of the whole call), and GAPBS's own programs beside them.
#include "crosswarp/graph.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bench.hpp"
#include "crosswarp/graph_programs.hpp"

namespace crosswarp::bench {
namespace {

struct problem {
  std::string name;
  graph::csr graph;    ///< with lengths
  int delta_of_gapbs;  ///< what its own rules say, or what is best for it
};

std::vector<problem> problems(const setup& s) {
  const int scale = s.scale != 0 ? s.scale : s.quick ? 12 : 18;
  const graph::generate_options how{.scale = scale, .threads = 2};
  const auto lengths = [](const graph::csr& g) { return graph::with_lengths(g, 1); };
  std::vector<problem> all;
  all.push_back({"kron " + std::to_string(scale), lengths(graph::kronecker(how)), 2});
  all.push_back({"uniform " + std::to_string(scale), lengths(graph::uniform(how)), 2});
  // A grid has few edges, so it is larger: 2048 by 2048 from a scale of 18 on.
  const int grid = std::min(scale + 4, 22);
  all.push_back({"grid " + std::to_string(grid), graph::grid({.scale = grid, .threads = 2}), 128});
  return all;
}

struct program {
  std::string name;
  int trials;
  std::function<graph::run_report(graph::divided&, graph::vertex)> run;
};

std::vector<program> programs(const setup& s) {
  const int sources = s.quick ? 8 : 64;
  const int trials = s.quick ? 2 : 16;
  using graph::divided;
  using graph::vertex;
  std::vector<program> all = {{"bfs", sources, [](divided& d, vertex v) { return d.bfs(v); }},
                              {"sssp", sources, [](divided& d, vertex v) { return d.sssp(v); }},
                              {"pr", trials, [](divided& d, vertex) { return d.pr(); }},
                              {"cc", trials, [](divided& d, vertex) { return d.cc(); }}};
  std::erase_if(all, [&](const program& p) { return !s.op.empty() && p.name != s.op; });
  return all;
}

graph::method method_named(const std::string& name) {
  if (name == "rounds") return graph::method::rounds;
  return name == "worklist" ? graph::method::worklist : graph::method::automatic;
}

/// Of each trial.
std::vector<graph::run_report> measure(const setup& s, graph::method how, const problem& on,
                                       const program& p) {
  world_options o = world_options::from_environment();
  o.device = s.device;
  std::vector<graph::run_report> all;
  run_local(s.graph_ranks, o, [&](world& w) {
    graph::divided d(w, on.graph, {.how = how, .blocks = s.graph_blocks});
    for (const graph::vertex source : graph::sources(on.graph, p.trials, 1)) {
      const auto report = p.run(d, source);
      if (w.rank() == 0) all.push_back(report);
    }
  });
  return all;
}

double milliseconds(const graph::run_report& r) {
  return std::chrono::duration<double, std::milli>(r.took).count();
}

/// What is said of how it was measured, unless that is as usual.
std::string manner(const setup& s, bool by_worklist) {
  std::string text;
  if (by_worklist) text += ", by a worklist";
  if (s.graph_blocks > 1) text += ", " + std::to_string(s.graph_blocks) + " blocks a rank";
  return text;
}

row row_of(const setup& s, std::string what, const char* unit) {
  row r;
  r.bench = "graph";
  r.what = std::move(what);
  r.ranks = s.graph_ranks;
  r.device = s.device.name();
  r.path = "same process";
  r.unit = unit;
  return r;
}

/// What worklists do, which programs only go by where ranks are not mapped, or when they are asked:
/// items in a second, of all ranks together.
row items_of(const setup& s, const problem& on, program p) {
  p.trials = s.quick ? 2 : 8;
  samples all;
  for (const auto& r : measure(s, graph::method::worklist, on, p)) {
    all.add(static_cast<double>(r.items.done) / milliseconds(r) / 1e3);
  }
  row r = row_of(s, "items of " + p.name + ", " + on.name + manner(s, true), "M items/s");
  all.fill(r);
  return r;
}

/// A folder for graphs in GAPBS's own format, gone with this object.
class scratch_folder {
 public:
  scratch_folder() : path_((std::filesystem::temp_directory_path() / "cw-graph-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw error::from_errno(errno, "mkdtemp", path_);
  }
  ~scratch_folder() { std::filesystem::remove_all(path_); }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

template <class T>
void put(std::ofstream& to, const T* values, std::size_t count) {
  to.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

/// One byte: not directed; edges, vertices, offsets in 64 bits each; targets in 32, each with its
/// length when there are any.
void write_for_gapbs(const graph::csr& g, bool with_lengths, const std::string& path) {
  std::ofstream to(path, std::ios::binary);
  const char directed = 0;
  const std::uint64_t counts[] = {g.edges(), g.vertices()};
  put(to, &directed, 1);
  put(to, counts, 2);
  put(to, g.offsets().data(), g.offsets().size());
  if (!with_lengths) {
    put(to, g.targets().data(), g.targets().size());
  } else {
    std::vector<std::uint32_t> pairs;
    for (std::size_t i = 0; i < g.edges(); ++i) {
      pairs.insert(pairs.end(), {g.targets()[i], g.lengths()[i]});
    }
    put(to, pairs.data(), pairs.size());
  }
  if (!to.flush()) throw error::from_errno(errno, "write", path);
}

std::string quoted(const std::string& word) {
  std::string safe = "'";
  for (const char c : word) safe += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return safe + "'";
}

/// The mean that GAPBS's program prints, in milliseconds.
double time_of_gapbs(const setup& s, const problem& on, const program& p) {
  const scratch_folder folder;
  const bool far = p.name == "sssp";
  const std::string file = folder.file(far ? "g.wsg" : "g.sg");
  write_for_gapbs(on.graph, far, file);
  const int threads = s.graph_ranks * std::max(1, s.graph_blocks);
  std::string command = "OMP_NUM_THREADS=" + std::to_string(threads) + " " +
                        quoted(s.gapbs + "/" + p.name) + " -f " + quoted(file) + " -n " +
                        std::to_string(p.trials);
  if (far) command += " -d " + std::to_string(on.delta_of_gapbs);
  if (p.name == "pr") command += " -i 1000 -t 1e-4";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char line[256];
  while (pipe && std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    double seconds = 0;
    if (std::sscanf(line, "Average Time: %lf", &seconds) == 1) return seconds * 1e3;
  }
  throw error(errc::invalid_argument, "--gapbs",
              "'" + s.gapbs + "/" + p.name + "' printed no average time; give the folder where " +
                  "GAPBS was built");
}

}  // namespace

std::vector<row> bench_graph(const setup& s) {
  std::vector<row> rows;
  for (const problem& on : problems(s)) {
    for (const program& p : programs(s)) {
      const auto reports = measure(s, method_named(s.graph_method), on, p);
      samples all;
      double sum = 0;
      for (const auto& report : reports) {
        all.add(milliseconds(report));
        sum += milliseconds(report);
      }
      row r = row_of(s,
                     p.name + ", " + on.name + ", mean of " + std::to_string(p.trials) +
                         manner(s, s.graph_method == "worklist"),
                     "ms");
      all.fill(r);
      r.median = sum / static_cast<double>(reports.size());
      if (!s.gapbs.empty()) {
        r.peer = "gapbs";
        r.peer_median = time_of_gapbs(s, on, p);
      }
      rows.push_back(r);
    }
    for (const program& p : programs(s)) {
      if (s.graph_method != "rounds" && (p.name == "bfs" || p.name == "sssp")) {
        rows.push_back(items_of(s, on, p));
      }
    }
  }
  return rows;
}

}  // namespace crosswarp::bench
