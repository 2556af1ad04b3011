#include "crosswarp/worklist.hpp"

#include <algorithm>

namespace crosswarp::worklist_impl {

void check(const world& w, const worklist_options& o) {
  const auto refuse = [](const std::string& why) {
    return error(errc::invalid_argument, "worklist", why);
  };
  if (o.workers < 1) throw refuse("workers: there is at least one");
  if (o.queue == 0 || o.queue > most_items || (o.queue & (o.queue - 1)) != 0) {
    throw refuse("queue: " + std::to_string(o.queue) + " is no power of two up to 2^30");
  }
  if (o.spill > most_items || o.park > most_items)
    throw refuse("spill and park: at most 2^30 each");
  for (int r = 0; r < w.size(); ++r) {
    if (w.is_mapped(r) || r == w.rank() || w.has_proxy()) continue;
    throw error(errc::not_supported, "worklist",
                "no path leads to rank " + std::to_string(r) + "; `crosswarp info` shows them", r);
  }
}

std::string out_of_room(const worklist_options& o, std::uint64_t workers) {
  return std::to_string(workers) + " of " + std::to_string(o.workers) +
         " workers found no room for their items before the deadline, neither in queues of " +
         std::to_string(o.queue) + " places nor among the " + std::to_string(o.spill) +
         " that each may spill: more live at a time, so enlarge `spill`, or `queue`";
}

bool has_far_ranks(world& w) {
  int mine = 0;
  for (int r = 0; r < w.size(); ++r) mine |= !w.is_mapped(r) && r != w.rank() ? 1 : 0;
  const auto all = w.allgather(mine);
  return std::find(all.begin(), all.end(), 1) != all.end();
}

}  // namespace crosswarp::worklist_impl

namespace crosswarp {
namespace {

int first_of_node(const std::vector<int>& nodes, int node) {
  return static_cast<int>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
}

int next_by_node(const std::vector<int>& nodes, int at, int to) {
  const int here = nodes[static_cast<std::size_t>(at)];
  const int there = nodes[static_cast<std::size_t>(to)];
  if (here == there) return to;
  const int gatherer = first_of_node(nodes, here);
  return at == gatherer ? first_of_node(nodes, there) : gatherer;
}

int next_hop(routing how, const std::vector<int>& nodes, int at, int to) {
  if (how == routing::direct || to == at) return to;
  if (how == routing::nodes) return next_by_node(nodes, at, to);
  return device::ring_route::next(at, to, static_cast<int>(nodes.size()));
}

std::vector<int> nodes_of(const world& w) {
  std::vector<int> nodes;
  nodes.reserve(static_cast<std::size_t>(w.size()));
  for (int r = 0; r < w.size(); ++r) nodes.push_back(w.node_of(r));
  return nodes;
}

}  // namespace

std::vector<int> hops_of(routing how, const std::vector<int>& nodes, int at) {
  std::vector<int> hops;
  hops.reserve(nodes.size());
  for (int to = 0; to < static_cast<int>(nodes.size()); ++to) {
    hops.push_back(next_hop(how, nodes, at, to));
  }
  return hops;
}

worklist_route::worklist_route(const world& w, routing how)
    : worklist_route(w, hops_of(how, nodes_of(w), w.rank())) {}

worklist_route::worklist_route(const world& w, const std::vector<int>& hops)
    : hops_(w.options().device, static_cast<std::size_t>(w.size())) {
  const auto is_rank = [&](int r) { return r >= 0 && r < w.size(); };
  if (hops.size() != hops_.size() || !std::all_of(hops.begin(), hops.end(), is_rank)) {
    throw error(errc::invalid_argument, "worklist_route",
                "a rank for each of " + std::to_string(w.size()) + " owners");
  }
  hops_.write(hops);
}

}  // namespace crosswarp
