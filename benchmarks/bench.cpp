#include "bench.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace crosswarp::bench {

using nlohmann::json;

namespace {

template <class T>
json or_null(const std::optional<T>& v) {
  return v ? json(*v) : json(nullptr);
}

template <class T>
std::optional<T> get(const json& j, const char* key) {
  if (!j.contains(key) || j.at(key).is_null()) return std::nullopt;
  return j.at(key).get<T>();
}

/// Smaller is better for times, larger for rates; a ratio is always this row over the other.
std::optional<double> ratio(double mine, const std::optional<double>& other) {
  if (!other || *other == 0) return std::nullopt;
  return mine / *other;
}

}  // namespace

void to_json(json& j, const row& r) {
  j = {{"bench", r.bench},
       {"case", r.what},
       {"ranks", r.ranks},
       {"device", r.device},
       {"path", r.path.empty() ? json(nullptr) : json(r.path)},
       {"bytes", or_null(r.bytes)},
       {"median", r.median},
       {"p10", r.p10},
       {"p90", r.p90},
       {"unit", r.unit},
       {"limit", or_null(r.limit)},
       {"ratio_to_limit", or_null(ratio(r.median, r.limit))},
       {"peer", or_null(r.peer)},
       {"peer_median", or_null(r.peer_median)},
       {"ratio_to_peer", or_null(ratio(r.median, r.peer_median))}};
}

void from_json(const json& j, row& r) {
  r.bench = j.at("bench").get<std::string>();
  r.what = j.at("case").get<std::string>();
  r.ranks = j.at("ranks").get<int>();
  r.device = j.at("device").get<std::string>();
  r.path = get<std::string>(j, "path").value_or("");
  r.bytes = get<std::size_t>(j, "bytes");
  r.median = j.at("median").get<double>();
  r.p10 = j.at("p10").get<double>();
  r.p90 = j.at("p90").get<double>();
  r.unit = j.at("unit").get<std::string>();
  r.limit = get<double>(j, "limit");
  r.peer = get<std::string>(j, "peer");
  r.peer_median = get<double>(j, "peer_median");
}

double samples::quantile(double q) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(std::floor(at));
  const auto high = static_cast<std::size_t>(std::ceil(at));
  return sorted[low] + (sorted[high] - sorted[low]) * (at - std::floor(at));
}

void samples::fill(row& r) const {
  r.median = median();
  r.p10 = quantile(0.1);
  r.p90 = quantile(0.9);
}

namespace {

/// UTC.
std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

std::string provenance() {
  utsname u{};
  uname(&u);
  std::string out = fmt::format("{}, commit {}, {} {} {}", date(), CROSSWARP_COMMIT, u.sysname,
                                u.release, u.machine);
  for (const device_info& d : devices()) {
    const char* units = d.device.kind() == device_kind::cpu ? "cores" : "multiprocessors";
    out += fmt::format("; {}: {}, {} {}", d.device.name(), d.description, d.multiprocessors, units);
  }
  return out;
}

json report(const std::vector<row>& rows) {
  utsname u{};
  uname(&u);
  json found = json::array();
  for (const device_info& d : devices()) {
    found.push_back({{"name", d.device.name()},
                     {"description", d.description},
                     {"multiprocessors", d.multiprocessors},
                     {"memory_bytes", d.memory_bytes}});
  }
  return {{"date", date()},
          {"machine", {{"kernel", u.release}, {"architecture", u.machine}, {"devices", found}}},
          {"commit", CROSSWARP_COMMIT},
          {"rows", rows}};
}

namespace {

/// How to read the columns of the table that are not plain measurements.
std::string legend(const std::vector<row>& rows) {
  const auto any = [&](auto has) { return std::any_of(rows.begin(), rows.end(), has); };
  std::string out;
  if (any([](const row& r) { return r.limit.has_value(); })) {
    out +=
        "\nlimit: the same work in the barest way, which its case names, measured in the same run\n"
        "ratio: median / limit. 1x is at the limit; slower is more for a time, less for a rate\n";
  }
  if (any([](const row& r) { return r.peer.has_value(); })) {
    out += "peer:  what another library takes for the same, and median / peer\n";
  }
  return out;
}

}  // namespace

std::string align(const std::vector<std::vector<std::string>>& lines, std::string_view flush) {
  std::vector<std::size_t> widths(flush.size());
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string out;
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const std::string blanks(widths[c] - line[c].size(), ' ');
      const bool last = c + 1 == widths.size();
      out += flush[c] == '>' ? blanks + line[c] : line[c] + (last ? "" : blanks);
      out += last ? "\n" : "  ";
    }
  }
  return out;
}

std::string table(const std::vector<row>& rows) {
  const auto number = [](double v) { return fmt::format("{:.4g}", v); };
  std::vector<std::vector<std::string>> lines = {{"case", "ranks", "device", "path", "bytes",
                                                  "median", "p10", "p90", "unit", "limit", "ratio",
                                                  "peer"}};
  for (const row& r : rows) {
    const auto relation = ratio(r.median, r.limit);
    const auto beside = ratio(r.median, r.peer_median);
    lines.push_back({r.bench + ": " + r.what, std::to_string(r.ranks), r.device, r.path,
                     r.bytes ? std::to_string(*r.bytes) : "", number(r.median), number(r.p10),
                     number(r.p90), r.unit, r.limit ? number(*r.limit) : "",
                     relation ? fmt::format("{:.2f}x", *relation) : "",
                     r.peer ? fmt::format("{}: {} ({:.2f}x)", *r.peer,
                                          number(r.peer_median.value_or(0)), beside.value_or(0))
                            : ""});
  }
  return align(lines, "<><<>>>><>><") + legend(rows);
}

}  // namespace crosswarp::bench
