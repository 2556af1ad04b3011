#include "members.hpp"

#include <map>

#include "core/machine.hpp"
#include "socket.hpp"

namespace crosswarp::world_impl {
members find_members(bootstrap& boot, int pretended_nodes, nanoseconds timeout) {
  if (pretended_nodes < 1 || pretended_nodes > boot.size()) {
    throw error(
        errc::invalid_argument, "world",
        std::to_string(pretended_nodes) + " nodes for " + std::to_string(boot.size()) + " ranks");
  }
  const auto pretended = [&](int rank) { return rank * pretended_nodes / boot.size(); };
  const auto names = boot.allgather(packer().text(machine_name()).take(), timeout);
  members m;
  std::map<std::pair<std::string, int>, int> numbers;
  for (int r = 0; r < boot.size(); ++r) {
    const auto key = std::pair(unpacker(names[static_cast<std::size_t>(r)]).text(), pretended(r));
    const auto [it, isnew] = numbers.try_emplace(key, static_cast<int>(numbers.size()));
    m.node.push_back(it->second);
  }
  m.nodes = static_cast<int>(numbers.size());
  for (int r = 0; r < boot.size(); ++r) {
    if (m.node[static_cast<std::size_t>(r)] == m.node[static_cast<std::size_t>(boot.rank())]) {
      m.locals.push_back(r);
    }
  }
  return m;
}

}  // namespace crosswarp::world_impl
