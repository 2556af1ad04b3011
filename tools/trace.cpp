// `crosswarp trace`: what a trace says, as text.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::tool {
namespace {

using nlohmann::json;

struct call {
  std::string category, name, status;
  int rank = 0;
  int pe = -1;
  double start_us = 0;
  double us = 0;
  double slot_wait_us = 0;
  std::uint64_t bytes = 0;
};

struct trace_file {
  std::vector<call> calls;
  std::uint64_t dropped = 0;
};

call read_call(const json& e) {
  call c;
  c.category = e.at("cat");
  c.name = e.at("name");
  c.rank = e.at("pid");
  c.start_us = e.at("ts");
  c.us = e.at("dur");
  const json& args = e.at("args");
  c.status = args.value("status", "ok");
  c.pe = args.value("pe", -1);
  c.bytes = args.value("bytes", std::uint64_t{0});
  c.slot_wait_us = args.value("slot_wait_us", 0.0);
  return c;
}

void read_into(trace_file& all, const std::string& path) {
  std::ifstream in(path);
  if (!in) {
    const int why = errno;
    const std::size_t dot = path.rfind(".json");
    const std::string part = path.substr(0, dot) + ".rank0.json";
    if (dot != std::string::npos && std::ifstream(part)) {
      throw error(errc::invalid_argument, "trace",
                  path + " is not there: its job broke, and left " + part + " and others like it");
    }
    throw error::from_errno(why, "trace", path);
  }
  try {
    const json trace = json::parse(in);
    for (const json& e : trace.at("traceEvents")) {
      if (e.at("ph") == "X") all.calls.push_back(read_call(e));
    }
    if (trace.contains("otherData")) {
      all.dropped += trace["otherData"].value("dropped", std::uint64_t{0});
    }
  } catch (const json::parse_error& e) {
    throw error(errc::invalid_argument, "trace",
                fmt::format("{} is not a trace: it stops being JSON at byte {}", path, e.byte));
  } catch (const json::exception&) {
    throw error(errc::invalid_argument, "trace",
                path + " is not a trace: it is JSON, but not as CROSSWARP_TRACE writes it");
  }
}

struct sum {
  std::vector<double> us;
  double total_us = 0;
  std::uint64_t bytes = 0;
  std::size_t failures = 0;

  void add(const call& c) {
    us.push_back(c.us);
    total_us += c.us;
    bytes += c.bytes;
    failures += c.status == "ok" ? 0 : 1;
  }
  /// Of sorted times.
  [[nodiscard]] double quantile(double q) const {
    const double rank = std::ceil(q * static_cast<double>(us.size()));
    return us[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  }
};

/// The largest first.
template <class Key>
std::vector<std::pair<Key, sum>> ranked(std::map<Key, sum> sums) {
  std::vector<std::pair<Key, sum>> all(sums.begin(), sums.end());
  for (auto& [key, s] : all) std::sort(s.us.begin(), s.us.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second.total_us > b.second.total_us;
  });
  return all;
}

template <class All>
std::size_t shown(const All& all, int top) {
  return std::min(all.size(), static_cast<std::size_t>(top));
}

void say_rest(std::size_t all, std::size_t shown) {
  if (all > shown) fmt::print("  and {} more; see --top\n", all - shown);
}

void print_costs(const trace_file& t, int top) {
  std::map<std::pair<std::string, std::string>, sum> sums;
  for (const call& c : t.calls) sums[{c.category, c.name}].add(c);
  const auto all = ranked(std::move(sums));
  fmt::print("\nWhere time went, all ranks together (calls overlap and contain one another)\n");
  fmt::print("  {:<8} {:<19} {:>9} {:>12} {:>10} {:>10} {:>10} {:>14} {:>8}\n", "who", "what",
             "calls", "total, ms", "median, us", "p99, us", "max, us", "bytes", "failed");
  for (std::size_t i = 0; i < shown(all, top); ++i) {
    const auto& [key, s] = all[i];
    fmt::print("  {:<8} {:<19} {:>9} {:>12.3f} {:>10.2f} {:>10.2f} {:>10.2f} {:>14} {:>8}\n",
               key.first, key.second, s.us.size(), s.total_us * 1e-3, s.quantile(0.5),
               s.quantile(0.99), s.us.back(), s.bytes, s.failures);
  }
  say_rest(all.size(), shown(all, top));
}

std::string who_waits(int rank, const std::string& for_what) {
  return fmt::format("rank {} for {}", rank, for_what);
}

void print_waits(const trace_file& t, int top) {
  std::map<std::string, sum> sums;
  for (const call& c : t.calls) {
    if (c.category == "wait") {
      sums[who_waits(c.rank, c.pe < 0 ? "others" : "rank " + std::to_string(c.pe))].add(c);
    }
    if (c.slot_wait_us > 0) {
      call waited = c;
      waited.us = c.slot_wait_us;
      sums[who_waits(c.rank, "a slot of its proxy's queue")].add(waited);
    }
    if (c.category == "host" && (c.name == "barrier" || c.name == "allgather")) {
      sums[who_waits(c.rank, "others, on its host")].add(c);
    }
  }
  if (sums.empty()) return;
  const auto all = ranked(std::move(sums));
  fmt::print("\nWho waited for whom\n");
  fmt::print("  {:<38} {:>9} {:>12} {:>10} {:>10}\n", "rank", "waits", "total, ms", "median, us",
             "max, us");
  for (std::size_t i = 0; i < shown(all, top); ++i) {
    const auto& [key, s] = all[i];
    fmt::print("  {:<38} {:>9} {:>12.3f} {:>10.2f} {:>10.2f}\n", key, s.us.size(),
               s.total_us * 1e-3, s.quantile(0.5), s.us.back());
  }
  say_rest(all.size(), shown(all, top));
}

void print_longest(const trace_file& t, double begin_us) {
  constexpr int longest = 5;
  std::vector<call> all;
  std::copy_if(t.calls.begin(), t.calls.end(), std::back_inserter(all),
               [](const call& c) { return c.category != "host" && c.category != "kernel"; });
  std::sort(all.begin(), all.end(), [](const call& a, const call& b) { return a.us > b.us; });
  if (all.empty()) return;
  fmt::print("\nLongest calls of kernels, proxies and engines\n");
  for (std::size_t i = 0; i < shown(all, longest); ++i) {
    const call& c = all[i];
    fmt::print("  {:>12.2f} us at {:.3f} ms: rank {}, {}{}{}\n", c.us,
               (c.start_us - begin_us) * 1e-3, c.rank,
               c.category == "wait" ? c.name : c.category + " " + c.name,
               c.pe >= 0 ? fmt::format(", with rank {}", c.pe) : "",
               c.status == "ok" ? "" : ", " + c.status);
  }
}

}  // namespace

int trace(const trace_options& o) {
  trace_file t;
  for (const std::string& path : o.files) read_into(t, path);
  if (t.calls.empty()) throw error(errc::invalid_argument, "trace", "no event is in it");
  double begin = t.calls.front().start_us;
  double end = 0;
  std::map<int, bool> ranks;
  for (const call& c : t.calls) {
    begin = std::min(begin, c.start_us);
    end = std::max(end, c.start_us + c.us);
    ranks[c.rank] = true;
  }
  fmt::print("{} events of {} {}, {:.3f} ms\n", t.calls.size(), ranks.size(),
             ranks.size() == 1 ? "rank" : "ranks", (end - begin) * 1e-3);
  if (t.dropped > 0) {
    fmt::print("There was no room for {} more: CROSSWARP_TRACE_EVENTS makes some.\n", t.dropped);
  }
  print_costs(t, o.top);
  print_waits(t, o.top);
  print_longest(t, begin);
  return 0;
}

}  // namespace crosswarp::tool
