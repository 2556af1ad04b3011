// What `crosswarp doctor` sees on a machine. Plain values: whoever judges them need not be there.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crosswarp::tool::doctor_impl {

// ---- GPUs

struct gpu {
  std::string name;
  int capability = 0;  ///< 90 for 9.0
};

struct cuda_facts {
  bool built = false;
  std::string built_for;    ///< CMake's list of architectures, "80,90"
  std::string driver_file;  ///< first line of the driver's file in /proc; empty: none
  int driver = 0;           ///< newest CUDA that the driver knows, 13000 for 13.0; 0: no driver
  int runtime = 0;          ///< CUDA of this build
  std::string no_device_reason;  ///< of the runtime, when it shows no GPU
  std::vector<gpu> gpus;
  std::vector<std::pair<int, int>> without_peer_access;
};

struct mps_facts {
  std::string folder;  ///< where its control pipe is looked for
  bool folder_from_environment = false;
  bool answers = false;  ///< somebody reads that pipe
};

// ---- limits of the system

inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

struct limit {
  std::uint64_t soft = unlimited;
  std::uint64_t hard = unlimited;
};

struct memory_facts {
  limit locked;
  bool may_lock_all = false;  ///< CAP_IPC_LOCK: the limit does not bind
  bool shm_there = false;     ///< /dev/shm
  std::uint64_t shm_bytes = 0;
  std::uint64_t shm_free = 0;
  int memfd_error = 0;  ///< errno of making, sizing and mapping one; 0: works
  long max_map_count = 0;
  int overcommit = 0;             ///< vm.overcommit_memory
  std::uint64_t commit_left = 0;  ///< CommitLimit less Committed_AS
};

struct core_facts {
  int online = 1;
  int allowed = 1;              ///< by the affinity mask
  std::optional<double> quota;  ///< CPUs' worth of time that the cgroup has
};

struct peek_facts {
  int self_error = 0;     ///< errno of process_vm_readv() in this process; 0: works
  int sibling_error = 0;  ///< the same between two processes with one parent
  int ptrace_scope = -1;  ///< of Yama; -1: there is none
};

// ---- engines

struct engine_facts {
  std::string name;
  bool built = false;    ///< the build had what it needs
  bool there = false;    ///< found, and it loads
  bool crashed = false;  ///< while it was loaded
  std::string where_or_why;
  std::string library;     ///< what it brought in, where that is known
  bool gpu_memory = true;  ///< that library knows GPU memory
};

// ---- verbs

struct rdma_gid {
  int index = 0;
  std::string gid;   ///< "0000:0000:0000:0000:0000:ffff:0a00:0001"
  std::string type;  ///< "RoCE v2", "IB/RoCE v1"
  [[nodiscard]] bool is_ipv4() const { return gid.starts_with("0000:0000:0000:0000:0000:ffff:"); }
};

struct rdma_port {
  std::string device;
  int number = 0;
  std::string state;  ///< "ACTIVE", "DOWN", ...
  std::string link;   ///< "InfiniBand", "Ethernet"
  std::vector<rdma_gid> gids = {};
};

struct rdma_facts {
  std::vector<std::string> devices;
  std::vector<rdma_port> ports;
  std::vector<std::string> nodes;      ///< /dev/infiniband/uverbs*
  std::vector<std::string> forbidden;  ///< those of them that this user may not open
  bool rxe_module = false;
  std::string library_error;      ///< of loading libibverbs; empty: it loads
  std::vector<std::string> mlx5;  ///< those of the devices that kernels could drive
  bool peer_memory = false;       ///< nvidia_peermem is loaded
  bool may_map_doorbells = false;
};

// ---- the network

struct network_facts {
  std::string loopback_error;  ///< empty: a connection to this very process works
  std::string host_name;
  std::string resolve_error;  ///< empty: the name has an address
  std::string advertised;     ///< this machine's address as other ranks would be told
};

enum class passage { open, refused, timed_out, unreachable, unknown_host, failed, not_tried };

struct reach_facts {
  std::string where;
  passage there = passage::not_tried;
  std::string there_why;    ///< the system's words
  double microseconds = 0;  ///< round trip, or the time to connect when nobody answered
  bool answered = false;    ///< by another doctor
  passage back = passage::not_tried;
  std::string back_why;
};

// ---- the environment

struct environment_facts {
  std::map<std::string, std::string> set;  ///< variables that are looked at
  std::vector<std::string> unknown;        ///< CROSSWARP_ variables that nobody reads
  std::string refused;                     ///< what the library says of the others; empty: fine
  bool mpi_launcher = false;               ///< mpirun or srun started this process
  std::string mpirun;                      ///< where it is; empty: not on PATH
};

}  // namespace crosswarp::tool::doctor_impl
