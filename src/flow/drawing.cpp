#include "flow/drawing.hpp"

#include <algorithm>
#include <map>
#include <sstream>

namespace crosswarp::flow::impl {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + '"';
}

const char* dot_shape(shape s) {
  switch (s) {
    case shape::host:
      return "house";
    case shape::device:
      return "box";
    case shape::router:
      break;
  }
  return "diamond";
}

// ---- SVG

constexpr int column_width = 190;
constexpr int row_height = 80;
constexpr int box_width = 110;
constexpr int box_height = 44;

constexpr const char* arrow_tip =
    R"(<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#4a5568"/></marker></defs>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\n':
        out += ' ';
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// What leads to the host leads to one that only receives.
picture with_two_hosts(const picture& p) {
  picture q = p;
  for (std::size_t host = 0; host < p.nodes.size(); ++host) {
    if (p.nodes[host].what != shape::host) continue;
    q.nodes.push_back(p.nodes[host]);
    for (auto& a : q.arrows) {
      if (a.to == host) a.to = q.nodes.size() - 1;
    }
  }
  return q;
}

/// By node: arrows from the beginning; -1 where none leads. A circle that nothing leads into begins
/// at its first node.
std::vector<int> columns_of(const picture& p) {
  std::vector<int> column(p.nodes.size(), -1);
  std::vector<bool> led_to(p.nodes.size(), false);
  std::vector<bool> touched(p.nodes.size(), false);
  for (const auto& a : p.arrows) {
    led_to[a.to] = true;
    touched[a.from] = touched[a.to] = true;
  }
  std::vector<std::size_t> now;
  const auto begin_at = [&](std::size_t n) {
    column[n] = 0;
    now.push_back(n);
  };
  for (std::size_t n = 0; n < p.nodes.size(); ++n) {
    if (touched[n] && !led_to[n]) begin_at(n);
  }
  for (;;) {
    for (std::size_t k = 0; k < now.size(); ++k) {
      for (const auto& a : p.arrows) {
        if (a.from != now[k] || column[a.to] >= 0) continue;
        column[a.to] = column[a.from] + 1;
        now.push_back(a.to);
      }
    }
    const auto rest = std::find_if(p.arrows.begin(), p.arrows.end(),
                                   [&](const auto& a) { return column[a.from] < 0; });
    if (rest == p.arrows.end()) return column;
    begin_at(rest->from);
  }
}

struct point {
  int x = 0;
  int y = 0;
};

std::string box(const picture::node& n, point at) {
  std::ostringstream out;
  const char* fill = n.what == shape::router ? "#fefcbf"
                     : n.what == shape::host ? "#c6f6d5"
                                             : "#bee3f8";
  out << "<rect x=\"" << at.x << "\" y=\"" << at.y << "\" width=\"" << box_width << "\" height=\""
      << box_height << "\" rx=\"" << (n.what == shape::router ? box_height / 2 : 4) << "\" fill=\""
      << fill << "\" stroke=\"#4a5568\"/><text x=\"" << at.x + box_width / 2 << "\" y=\""
      << at.y + box_height / 2 + 4 << "\" text-anchor=\"middle\">" << escaped(n.label)
      << "</text>\n";
  return out.str();
}

std::string line(const picture::arrow& a, point from, point to) {
  std::ostringstream out;
  const point begin{from.x + box_width, from.y + box_height / 2};
  const point end{to.x, to.y + box_height / 2};
  out << "<line x1=\"" << begin.x << "\" y1=\"" << begin.y << "\" x2=\"" << end.x << "\" y2=\""
      << end.y << "\" stroke=\"#4a5568\" marker-end=\"url(#tip)\"/><text x=\""
      << (begin.x + end.x) / 2 << "\" y=\"" << (begin.y + end.y) / 2 - 5
      << "\" text-anchor=\"middle\" fill=\"#2b6cb0\">" << escaped(a.label) << "</text>\n";
  return out.str();
}

}  // namespace

std::string to_dot(const picture& p) {
  std::ostringstream out;
  out << "digraph flow {\n  rankdir=LR;\n";
  for (std::size_t n = 0; n < p.nodes.size(); ++n) {
    out << "  n" << n << " [shape=" << dot_shape(p.nodes[n].what)
        << ", label=" << quoted(p.nodes[n].label) << "];\n";
  }
  for (const auto& a : p.arrows) {
    out << "  n" << a.from << " -> n" << a.to << " [label=" << quoted(a.label) << "];\n";
  }
  out << "}\n";
  return out.str();
}

std::string to_svg(const picture& whole) {
  const picture p = with_two_hosts(whole);
  const std::vector<int> column = columns_of(p);
  std::map<int, int> rows;  // taken, by column
  std::vector<point> at(p.nodes.size());
  point end;
  for (std::size_t n = 0; n < p.nodes.size(); ++n) {
    if (column[n] < 0) continue;
    at[n] = {10 + column[n] * column_width, 10 + rows[column[n]]++ * row_height};
    end = {std::max(end.x, at[n].x + box_width), std::max(end.y, at[n].y + box_height)};
  }
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << end.x + 10 << "\" height=\""
      << end.y + 10 << "\" font-family=\"sans-serif\" font-size=\"11\">\n"
      << arrow_tip;
  for (const auto& a : p.arrows) out << line(a, at[a.from], at[a.to]);
  for (std::size_t n = 0; n < p.nodes.size(); ++n) {
    if (column[n] >= 0) out << box(p.nodes[n], at[n]);
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace crosswarp::flow::impl
