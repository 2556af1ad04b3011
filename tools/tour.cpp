// crosswarp tour: one short scene for each module, each verified, with a table and a page at the
// end.
#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "benchmarks/bench.hpp"
#include "commands.hpp"
#include "crosswarp/device/memory.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/world_launch.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {
namespace {

namespace dev = crosswarp::device;

/// What a scene shows: that it is right, and how fast it is.
struct scene {
  std::string name;
  std::string story;  ///< what happened, for a person
  int ranks = 1;
  std::string device;
  std::string path;
  std::string figure;  ///< latency or bandwidth
  bool verified = false;
  std::vector<bench::row> rows;
};

// ---- exec: a sum by blocks that wait for each other

/// Each block sums its part in shared memory; after a grid barrier, block 0 adds up the parts.
struct sum_all {
  CW_FN void operator()(const dev::kernel_context& ctx, const long* values, int n, long* parts,
                        long* total) const {
    auto* mine = reinterpret_cast<long*>(ctx.shared_memory());
    const int t = ctx.thread_index();
    mine[t] = 0;
    for (int i = ctx.grid().rank(); i < n; i += ctx.grid().size()) mine[t] += values[i];
    ctx.block().sync();
    if (t == 0) {
      parts[ctx.block_index()] = 0;
      for (int k = 0; k < ctx.thread_count(); ++k) parts[ctx.block_index()] += mine[k];
    }
    if (ctx.grid().sync() != status::ok || ctx.grid().rank() != 0) return;
    *total = 0;
    for (int b = 0; b < ctx.block_count(); ++b) *total += parts[b];
  }
};

scene exec_scene(device_ref d) {
  scene s;
  s.name = "exec";
  s.device = d.name();
  s.story = "8 resident blocks of 64 threads sum a million numbers and meet in a grid barrier";
  constexpr int n = 1'000'000;
  constexpr int blocks = 8;
  constexpr int threads = 64;
  std::vector<long> values(n);
  std::iota(values.begin(), values.end(), 1L);
  stream on(d);
  buffer<long> in(d, std::span<const long>(values));
  buffer<long> parts(d, blocks);
  buffer<long> total(d, 1);
  launch(on,
         {.blocks = blocks,
          .threads = threads,
          .shared_bytes = threads * sizeof(long),
          .resident = true},
         sum_all{}, in.data(), n, parts.data(), total.data());
  on.sync();
  s.verified = total.read()[0] == static_cast<long>(n) * (n + 1) / 2;
  bench::setup how;
  how.device = d;
  how.quick = true;
  s.rows = run_benchmarks({"exec"}, how);
  s.figure = fmt::format("launch {:.3g} us", s.rows.front().median);
  return s;
}

// ---- memory: a message goes around the ranks

struct relay_memory {
  dev::signal_line arrived;
  int message[1024];
};

/// Takes the message from the left neighbour, adds one to every word, and puts it to the right.
struct relay {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<relay_memory> mem, int laps, status* out) const {
    const auto g = ctx.block();
    relay_memory& mine = *mem.local();
    const int right = (w.rank + 1) % w.size;
    status s = status::ok;
    for (int lap = 1; lap <= laps && s == status::ok; ++lap) {
      const auto now = static_cast<std::uint64_t>(lap);
      // Rank 0 begins each lap; its own message comes back at the lap's end.
      if (w.rank != 0) s = dev::wait(g, dev::signal(mine.arrived), now, w.limits);
      if (s != status::ok) break;
      for (int i = g.rank(); i < 1024; i += g.size()) mine.message[i] += 1;
      g.sync();
      dev::copy(g, mem.at(right)->message, mine.message, sizeof(mine.message));
      dev::notify(g, dev::signal(mem.at(right)->arrived), now);
      if (w.rank == 0) s = dev::wait(g, dev::signal(mine.arrived), now, w.limits);
    }
    if (g.rank() == 0) *out = s;
  }
};

scene memory_scene(device_ref d) {
  scene s;
  s.name = "memory";
  s.device = d.name();
  s.ranks = 4;
  s.story = "a 4 KiB message goes 25 times around 4 ranks by put and signal, each adding one to it";
  constexpr int laps = 25;
  world_options o = world_options::from_environment();
  o.device = d;
  o.heap_bytes = 1U << 20U;
  bool right = true;
  run_local(s.ranks, o, [&](world& w) {
    symmetric_buffer<relay_memory> mem(w, 1);
    buffer<status> out(d, 1);
    launch(w, {.threads = 32}, relay{}, w.device(), mem.device(), laps, out.data());
    w.stream().sync();
    const bool ended_well = out.read()[0] == status::ok;
    if (w.rank() != 0) return;
    right = ended_well;
    for (const int word : mem.read()[0].message) right = right && word == laps * w.size();
    s.path = w.path_to(1);
  });
  s.verified = right;
  bench::setup how;
  how.device = d;
  how.quick = true;
  how.processes = d.kind() == device_kind::cpu;
  s.rows = run_benchmarks({"memory"}, how);
  double best = 0;
  for (const bench::row& r : s.rows) best = r.unit == "GB/s" ? std::max(best, r.median) : best;
  s.figure = fmt::format("signal {:.3g} us, put {:.3g} GB/s", s.rows.front().median, best);
  return s;
}

// ---- showing

std::string closing_table(const std::vector<scene>& scenes) {
  std::string out = fmt::format("{:<8} {:>5}  {:<8} {:<14} {:<32} {}\n", "scene", "ranks", "device",
                                "path", "latency or bandwidth", "verified");
  for (const scene& s : scenes) {
    out += fmt::format("{:<8} {:>5}  {:<8} {:<14} {:<32} {}\n", s.name, s.ranks, s.device,
                       s.path.empty() ? "-" : s.path, s.figure, s.verified ? "yes" : "NO");
  }
  return out;
}

constexpr const char* page_head = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Crosswarp tour</title><style>
body{font-family:system-ui,sans-serif;max-width:920px;margin:2em auto;padding:0 1em;color:#1a202c}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35em .6em;border-bottom:1px solid #cbd5e0}
td.yes{color:#276749}td.no{color:#c53030;font-weight:bold}figure{margin:1em 0;overflow-x:auto}
p.small{color:#4a5568;font-size:.9em}</style></head><body>
)";

std::string page(const std::vector<scene>& scenes) {
  std::string out = page_head;
  out += "<h1>Crosswarp tour</h1>\n<p class=\"small\">";
  for (const device_info& d : devices())
    out += fmt::format("{}: {}. ", d.device.name(), d.description);
  out += fmt::format("Version {}, commit {}.</p>\n", CROSSWARP_VERSION, CROSSWARP_COMMIT);
  out +=
      "<table><tr><th>scene</th><th>ranks</th><th>device</th><th>path</th>"
      "<th>latency or bandwidth</th><th>verified</th></tr>\n";
  for (const scene& s : scenes) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td "
        "class=\"{}\">{}</td></tr>\n",
        s.name, s.ranks, s.device, s.path.empty() ? "-" : s.path, s.figure,
        s.verified ? "yes" : "no", s.verified ? "yes" : "NO");
  }
  out += "</table>\n";
  for (const scene& s : scenes) {
    out += fmt::format("<h2>{} on {}</h2>\n<p>{}.</p>\n<figure>{}</figure>\n", s.name, s.device,
                       s.story, bench::plot(s.rows));
  }
  return out + "</body></html>\n";
}

/// Where the tour runs: the CPU always; a GPU too when there is one and it was not ruled out.
std::vector<device_ref> tour_devices(const std::string& asked) {
  if (asked != "auto") return {device_ref::parse(asked)};
  std::vector<device_ref> all = {device_ref::cpu()};
  if (cuda_device_count() > 0) all.push_back(device_ref::cuda(0));
  return all;
}

}  // namespace

int tour(const tour_options& o) {
  const auto places = tour_devices(o.device);
  if (places.size() == 1 && o.device == "auto") {
    fmt::print("No GPU here ({}): every scene runs on CPU threads, as the same kernels.\n\n",
               cuda_absence_reason());
  }
  std::vector<scene> scenes;
  bool all_right = true;
  const std::vector<std::pair<const char*, scene (*)(device_ref)>> programme = {
      {"exec", exec_scene}, {"memory", memory_scene}};
  for (const auto& [name, play] : programme) {
    for (const device_ref d : places) {
      fmt::print("scene {} on {} ...", name, d.name());
      std::fflush(stdout);
      scenes.push_back(play(d));
      all_right = all_right && scenes.back().verified;
      fmt::print(" {}\n  {}\n", scenes.back().verified ? "verified" : "WRONG", scenes.back().story);
    }
  }
  fmt::print("\n{}", closing_table(scenes));
  std::ofstream file(o.report);
  file << page(scenes);
  if (!file.flush()) throw error(errc::system, "tour", "cannot write " + o.report);
  fmt::print("\nReport: {}\n", std::filesystem::absolute(o.report).string());
  return all_right ? 0 : 1;
}

}  // namespace crosswarp::tool
