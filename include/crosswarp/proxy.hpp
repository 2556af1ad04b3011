// The proxy of a rank, as its user sees it: what can be chosen, and what it did.
#pragma once

#include <string>

#include "crosswarp/buffer.hpp"

namespace crosswarp {

/// Which way leads to other ranks.
enum class path_choice {
  automatic,  ///< mapped memory where there is some, else the proxy
  mapped,     ///< mapped memory only
  proxy,      ///< the proxy, also to ranks whose memory is mapped
  rdma,       ///< entries that kernels write for an adapter, also to ranks whose memory is mapped
};

struct proxy_options {
  path_choice path = path_choice::automatic;
  /// "ucx", "mpi", "local" (copies between ranks whose memory is mapped), or "auto".
  std::string engine = "auto";
  /// Queues of commands, one for each block that runs at once; 0: as many as multiprocessors.
  int queues = 0;
  /// Commands that a queue holds; a power of two.
  int depth = 64;
  /// Where the queues lie: host memory, or the device's own.
  memory_kind queue_kind = memory_kind::pinned;
  /// Whether all data goes through host memory at both ends: for a GPU's heap over an engine that
  /// cannot reach it. Not for the engine "local".
  bool staged = false;
  /// Whether a thread of the library works for kernels; else world::progress() does.
  bool thread = true;

  /// As CROSSWARP_PATH, CROSSWARP_ENGINE, ... say.
  static proxy_options from_environment();
};

}  // namespace crosswarp
