// What makes a graph symmetric, and graphs that are told apart by it.
#pragma once

#include <cstdint>
#include <optional>

#include "crosswarp/graph.hpp"

namespace crosswarp::graph {

/// Graphs that share another's memory and differ in what is said of it.
struct same_rows {
  static csr symmetric(csr g) {
    g.symmetric_ = true;
    return g;
  }
  static csr without_lengths(csr g) {
    g.lengths_ = {};
    g.weighted_ = false;
    return g;
  }
};

/// Whether each row is sorted by target, then by length.
bool rows_in_order(const csr& g);
/// An edge that is not there in the other direction with the same length, by its number; none when
/// the graph is symmetric. Rows are in order. Takes memory for a number of each vertex.
std::optional<std::uint64_t> edge_without_return(const csr& g);
/// Whether there is none, whatever the order of rows.
bool is_symmetric(const csr& g);
/// Which vertex an edge begins at.
vertex source_of(const csr& g, std::uint64_t edge);
edge_list edges_of(const csr& g);

}  // namespace crosswarp::graph
