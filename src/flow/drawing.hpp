// A dataflow graph on paper.
#pragma once

#include <string>
#include <vector>

namespace crosswarp::flow::impl {

enum class shape { host, device, router };

struct picture {
  struct node {
    shape what;
    std::string label;
  };
  struct arrow {
    std::size_t from;  ///< in nodes
    std::size_t to;
    std::string label;
  };
  std::vector<node> nodes;
  std::vector<arrow> arrows;
};

/// In the language of Graphviz.
std::string to_dot(const picture& p);
/// In columns, by how many arrows a node is from where the graph begins. The host stands at the
/// beginning and, where something leads to it, at the end.
std::string to_svg(const picture& p);

}  // namespace crosswarp::flow::impl
