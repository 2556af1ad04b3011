// The scenes of the tour.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/bench.hpp"

namespace crosswarp::tool {

/// What a scene shows: that it is right, and how fast it is.
struct scene {
  std::string name;
  std::string story;  ///< what happened, for a person
  int ranks = 1;
  std::string device;
  std::string path = {};
  bool verified = false;
  std::vector<bench::row> rows = {};
  std::string drawing = {};  ///< SVG, beside what was measured
};

/// A sum by blocks that wait for each other.
scene exec_scene(device_ref d);
/// A message that goes around the ranks.
scene memory_scene(device_ref d);
/// The same message, by commands to the host.
scene proxy_scene(device_ref d);
/// Everybody talks to everybody, by the names of SHMEM.
scene shmem_scene(device_ref d);
/// The same sum by every algorithm.
scene coll_scene(device_ref d);
/// Entries that kernels write, and a NIC in software.
scene rdma_scene(device_ref d);
/// A filter of several devices, and its drawing.
scene flow_scene(device_ref d);
/// A kernel that serves a TCP client.
scene socket_scene(device_ref d);

/// Adds what the module's benchmark measures.
scene measured(scene s, device_ref d, bool by_processes);

}  // namespace crosswarp::tool
