// Benchmarks as pictures: SVG, no scripts, readable alone or inside a page.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "bench.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::bench {
namespace {

constexpr int width = 860;
constexpr int bars_width = 480;  // beside their labels
constexpr int bar_height = 26;
constexpr int curve_height = 340;
constexpr const char* colours[] = {"#2b6cb0", "#c05621", "#2f855a",
                                   "#6b46c1", "#b83280", "#975a16"};

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

std::string text(double x, double y, const std::string& s, const char* anchor = "start",
                 int size = 12) {
  return fmt::format(
      "<text x=\"{:.0f}\" y=\"{:.0f}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, size,
      anchor, escape(s));
}

/// Round values for a logarithmic axis: powers of ten, and 2 and 5 times them where those are few.
std::vector<double> ticks(double low, double high) {
  std::vector<double> at;
  for (double ten = std::pow(10, std::floor(std::log10(low))); ten <= high; ten *= 10) {
    for (const double v : {ten, 2 * ten, 5 * ten}) {
      if (v >= low && v <= high && (v == ten || high < 100 * low)) at.push_back(v);
    }
  }
  return at;
}

/// A value of the row's unit on its panel's axis: times share one.
double on_axis(const row& r, double v) {
  return r.unit == "ms" ? v * 1000 : v;
}

/// What a row is, told apart from all others.
std::string label(const row& r) {
  return fmt::format("{} [{} x {}{}{}]", r.what, r.ranks, r.device, r.path.empty() ? "" : ", ",
                     r.path);
}

std::string mark(double x, double y, const char* colour) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"3\" height=\"{}\" fill=\"{}\"/>\n",
                     x - 1.5, y + 1, bar_height - 4, colour);
}

/// What the marks across the bars are; only those that are there.
std::string marks_legend(const std::vector<row>& rows) {
  std::string out;
  const auto has_limit = [](const row& r) { return r.limit.has_value(); };
  const auto has_peer = [](const row& r) { return r.peer_median.has_value(); };
  if (std::any_of(rows.begin(), rows.end(), has_limit)) out += "; black mark: limit";
  if (const auto r = std::find_if(rows.begin(), rows.end(), has_peer); r != rows.end()) {
    out += "; orange mark: " + r->peer.value_or("peer");
  }
  return out;
}

/// Where values lie from left to right. A share may be zero, which a logarithm has no place for.
struct scale {
  double low, high, left;
  bool logarithmic;

  scale(const std::vector<row>& rows, double from)
      : low(1e300), high(0), left(from), logarithmic(rows.front().unit != "%") {
    for (const row& r : rows) {
      for (const double v :
           {r.median, r.limit.value_or(r.median), r.peer_median.value_or(r.median)}) {
        low = std::min(low, std::max(on_axis(r, v), 1e-6));
        high = std::max(high, on_axis(r, v));
      }
    }
    low = logarithmic ? low / 2 : 0;
    high = std::max(high * 1.5, 1e-5);
  }
  [[nodiscard]] double x(double v) const {
    const double part = logarithmic ? (std::log(std::max(v, low)) - std::log(low)) /
                                          (std::log(high) - std::log(low))
                                    : v / high;
    return left + (bars_width - 90) * part;
  }
  [[nodiscard]] std::vector<double> marks() const {
    if (logarithmic) return ticks(low, high);
    const double step = std::pow(10, std::floor(std::log10(high)));
    std::vector<double> at;
    for (double v = 0; v <= high; v += high < 3 * step ? step / 2 : step) at.push_back(v);
    return at;
  }
};

std::string axis_name(const std::string& unit) {
  if (unit == "us") return "time, us (logarithmic)";
  if (unit == "%") return "share, %";
  return "rate, " + unit + " (logarithmic)";
}

/// Rows of one unit, each with marks for its limit and its peer.
std::string bars(const std::vector<row>& rows, const std::string& unit, double left, double top,
                 double& bottom) {
  const scale at(rows, left);
  std::string out;
  double y = top;
  const double axis = top + bar_height * static_cast<double>(rows.size());
  for (const double v : at.marks()) {
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" stroke=\"#e2e8f0\"/>\n",
        at.x(v), top, axis + 4);
    out += text(at.x(v), axis + 16, fmt::format("{:g}", v), "middle", 11);
  }
  for (const row& r : rows) {
    out += text(left - 8, y + 16, label(r), "end");
    out += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", left,
        y + 4, at.x(on_axis(r, r.median)) - left, bar_height - 10, colours[0]);
    if (r.limit) out += mark(at.x(on_axis(r, *r.limit)), y, "#1a202c");
    if (r.peer_median) out += mark(at.x(on_axis(r, *r.peer_median)), y, colours[1]);
    out += text(left + bars_width - 8, y + 16, fmt::format("{:.3g} {}", r.median, r.unit), "end");
    y += bar_height;
  }
  out += text(left, axis + 32, axis_name(unit) + marks_legend(rows), "start", 11);
  bottom = axis + 46;
  return out;
}

/// Rates over sizes, both logarithmic; the limit dashed.
std::string curves(const std::vector<row>& rows, double top, double& bottom) {
  std::map<std::string, std::vector<const row*>> lines;
  double low = 1e300;
  double high = 0;
  double first = 1e300;
  double last = 0;
  for (const row& r : rows) {
    lines[label(r)].push_back(&r);
    low = std::min({low, r.median, r.limit.value_or(r.median)});
    high = std::max({high, r.median, r.limit.value_or(r.median)});
    first = std::min(first, static_cast<double>(*r.bytes));
    last = std::max(last, static_cast<double>(*r.bytes));
  }
  low /= 1.5;
  high *= 1.5;
  if (last <= first) last = first * 2;
  const double left = 90;
  const auto x_of = [&](double b) {
    return left + (width - left - 30) * (std::log(b) - std::log(first)) /
                      (std::log(last) - std::log(first));
  };
  const auto y_of = [&](double v) {
    return top + 20 +
           (curve_height - 80) * (std::log(high) - std::log(v)) / (std::log(high) - std::log(low));
  };
  std::string out = fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{}\" fill=\"none\" "
      "stroke=\"#a0aec0\"/>\n",
      left, top + 20, width - left - 30, curve_height - 80);
  for (const double v : ticks(low, high)) {
    out += text(left - 6, y_of(v) + 4, fmt::format("{:g}", v), "end", 11);
  }
  for (double b = first; b <= last; b *= 4) {
    out += text(x_of(b), top + curve_height - 44, options::print_bytes(static_cast<std::size_t>(b)),
                "middle", 11);
  }
  out += text(left + (width - left - 30) / 2, top + curve_height - 26, "size (logarithmic)",
              "middle", 11);
  out += fmt::format("<g transform=\"translate({:.0f} {:.0f}) rotate(-90)\">{}</g>\n", left - 50,
                     top + 20 + (curve_height - 80) / 2.0,
                     text(0, 0, "rate, " + rows.front().unit + " (logarithmic)", "middle", 11));
  std::size_t colour = 0;
  double legend = top + 36;
  for (auto& [name, points] : lines) {
    std::sort(points.begin(), points.end(),
              [](const row* a, const row* b) { return *a->bytes < *b->bytes; });
    std::string path;
    std::string bound;
    for (const row* r : points) {
      const double x = x_of(static_cast<double>(*r->bytes));
      path += fmt::format("{:.1f},{:.1f} ", x, y_of(r->median));
      if (r->limit) bound += fmt::format("{:.1f},{:.1f} ", x, y_of(*r->limit));
    }
    const char* c = colours[colour++ % std::size(colours)];
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                       path, c);
    if (!bound.empty()) {
      out += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"5 4\"/>\n", bound,
          c);
    }
    out += fmt::format("<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n",
                       left + 12, legend - 4, c);
    out += text(left + 32, legend, name + (bound.empty() ? "" : "; dashed: limit"));
    legend += 16;
  }
  bottom = top + curve_height;
  return out;
}

}  // namespace

std::string plot(const std::vector<row>& rows, const std::string& note) {
  std::map<std::string, std::vector<row>, std::greater<>> panels;  // by unit: us, M/s, %
  std::map<std::string, std::vector<row>> rates;
  std::size_t longest = 0;
  for (const row& r : rows) {
    if (r.bytes && r.unit == "GB/s") {
      rates[r.bench].push_back(r);
    } else {
      panels[r.unit == "ms" ? "us" : r.unit].push_back(r);
      longest = std::max(longest, label(r).size());
    }
  }
  constexpr double letter = 6;  // on average, at size 12
  const double left = letter * static_cast<double>(longest) + 16;
  std::string body;
  double y = 10;
  for (const auto& [unit, group] : panels) body += bars(group, unit, left, y, y);
  for (const auto& [name, group] : rates) body += curves(group, y, y);
  if (!note.empty()) body += text(8, y += 16, note, "start", 11);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 "
      "{0:.0f} {1:.0f}\" font-family=\"sans-serif\" fill=\"#1a202c\">\n{2}</svg>\n",
      std::max<double>(width, left + bars_width), y + 10, body);
}

}  // namespace crosswarp::bench
