// crosswarp tour: one short scene for each module, each verified, with a table and a page at the
// end.
#include <fmt/core.h>

#include <filesystem>
#include <fstream>

#include "commands.hpp"
#include "run_benchmarks.hpp"
#include "tour_scenes.hpp"

namespace crosswarp::tool {
namespace {

/// The first latency of the scene, and its best bandwidth if it has one; each with the ranks and
/// the path that it was measured with, which need not be the scene's.
std::string figure(const scene& s) {
  const bench::row* latency = nullptr;
  const bench::row* bandwidth = nullptr;
  for (const bench::row& r : s.rows) {
    if (r.unit == "us" && latency == nullptr) latency = &r;
    if (r.unit == "GB/s" && (bandwidth == nullptr || r.median > bandwidth->median)) bandwidth = &r;
  }
  std::string out;
  for (const bench::row* r : {latency, bandwidth}) {
    if (r == nullptr) continue;
    out += fmt::format("{}{:.3g} {} ({} rank{}{}{})", out.empty() ? "" : ", ", r->median, r->unit,
                       r->ranks, r->ranks == 1 ? "" : "s", r->path.empty() ? "" : ", ", r->path);
  }
  return out;
}

constexpr const char* figure_title = "latency, bandwidth (as measured)";

std::string closing_table(const std::vector<scene>& scenes) {
  std::vector<std::vector<std::string>> lines = {
      {"scene", "ranks", "device", "path", "verified", figure_title}};
  for (const scene& s : scenes) {
    lines.push_back({s.name, std::to_string(s.ranks), s.device, s.path.empty() ? "-" : s.path,
                     s.verified ? "yes" : "NO", figure(s)});
  }
  return bench::align(lines, "<><<<<");
}

constexpr const char* page_head = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Crosswarp tour</title><style>
body{font-family:system-ui,sans-serif;max-width:920px;margin:2em auto;padding:0 1em;color:#1a202c}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35em .6em;border-bottom:1px solid #cbd5e0}
td.yes{color:#276749}td.no{color:#c53030;font-weight:bold}figure{margin:1em 0}svg{max-width:100%;height:auto}
p.small{color:#4a5568;font-size:.9em}</style></head><body>
)";

std::string page(const std::vector<scene>& scenes) {
  std::string out = page_head;
  out += fmt::format("<h1>Crosswarp tour</h1>\n<p class=\"small\">Version {}, {}.</p>\n",
                     CROSSWARP_VERSION, bench::provenance());
  out += fmt::format(
      "<table><tr><th>scene</th><th>ranks</th><th>device</th><th>path</th>"
      "<th>{}</th><th>verified</th></tr>\n",
      figure_title);
  for (const scene& s : scenes) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td "
        "class=\"{}\">{}</td></tr>\n",
        s.name, s.ranks, s.device, s.path.empty() ? "-" : s.path, figure(s),
        s.verified ? "yes" : "no", s.verified ? "yes" : "NO");
  }
  out += "</table>\n";
  for (const scene& s : scenes) {
    out += fmt::format("<h2>{} on {}</h2>\n<p>{}.</p>\n<figure>{}</figure>\n", s.name, s.device,
                       s.story, s.drawing + (s.rows.empty() ? "" : bench::plot(s.rows)));
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
  std::ofstream report = create_file(o.report, "--report");
  if (places.size() == 1 && o.device == "auto") {
    fmt::print("No GPU here ({}): every scene runs on CPU threads, as the same kernels.\n\n",
               cuda_absence_reason());
  }
  std::vector<scene> scenes;
  bool all_right = true;
  const std::vector<std::pair<const char*, scene (*)(device_ref)>> programme = {
      {"exec", exec_scene},   {"memory", memory_scene}, {"proxy", proxy_scene},
      {"shmem", shmem_scene}, {"coll", coll_scene},     {"rdma", rdma_scene},
      {"flow", flow_scene},   {"socket", socket_scene}};
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
  report << page(scenes);
  if (!report.flush()) throw error::from_errno(errno, "--report", o.report);
  fmt::print("\nReport: {}\n", std::filesystem::absolute(o.report).string());
  return all_right ? 0 : 1;
}

}  // namespace crosswarp::tool
