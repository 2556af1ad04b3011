// What hangs off a world.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "bootstrap.hpp"
#include "crosswarp/world.hpp"
#include "launch_gather.hpp"
#include "members.hpp"
#include "memory/allocator.hpp"
#include "proxy/proxy.hpp"
#include "rdma_path.hpp"
#include "transports/mapped/mapped.hpp"
#include "world_trace.hpp"

namespace crosswarp::world_impl {

/// Where the news of a broken world goes; shared with the bootstrap, which may outlive the state.
class fault_sink {
 public:
  explicit fault_sink(device_ref d) : words(d, 2, memory_kind::pinned) {}
  void tell(const fault& f);
  /// Who is to be told, too, from now on; null: nobody.
  void set(crosswarp::proxy* p);

  // Pinned: kernels poll it. [0]: what broke the world; [1]: whom a kernel waited for in vain.
  buffer<fault_word> words;

 private:
  void pass_on();
  std::mutex mutex;
  fault heard;
  crosswarp::proxy* proxy = nullptr;
};

/// A mapping's peers as kernels see them, and the memory that they look them up in.
struct peers_here {
  buffer<device::peer> table;
  device::peer_table view;
};

class state {
 public:
  state(const world_options& o, std::shared_ptr<bootstrap> b,
        std::shared_ptr<launch_gather> together);
  ~state();
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  /// Commands of kernels that have ended are carried out and visible.
  void finish_commands();
  /// Writes the trace of all ranks, if there is one. Collective; no kernel runs.
  void finish_trace();
  [[nodiscard]] trace::recorder* recorder() const noexcept {
    return trace ? &trace->events() : nullptr;
  }
  /// The barrier at the end; not after a fault.
  void depart() noexcept;

  [[nodiscard]] mapped::request request() {
    return {*boot, who, options.device, options.heap_kind, options.timeout};
  }
  /// The peers of a mapping, in memory that the device can read.
  [[nodiscard]] peers_here table_of(const mapped::mapping& m) const;
  /// Makes a mapping's memory known to the proxy or to the path rdma, if there is one; returns its
  /// region.
  std::uint16_t add_region(const mapped::mapping& m, std::size_t bytes, bool on_host);
  void remove_region(std::uint16_t id);
  [[nodiscard]] std::vector<operation_stats> stats() const;
  void reset_stats();
  /// Notes a call that ends now, when the world is traced.
  void note_call(trace::host_call what, std::uint64_t began) noexcept;
  /// Throws what broke the world, or a deadline that passed in a kernel; the latter once.
  void check(const char* call) const;
  /// In the catch of what cannot throw: logs what is caught, unless it only follows from what
  /// people had been `told` of before.
  void tell_swallowed(const char* call, bool told) const noexcept;

  const world_options options;
  const std::shared_ptr<bootstrap> boot;
  const std::shared_ptr<fault_sink> faults;
  const members who;
  const std::uint32_t owner;  // this rank, among all that this process ever had
  crosswarp::stream stream;
  std::unique_ptr<mapped::mapping> heap;
  std::unique_ptr<peers_here> peers;
  std::unique_ptr<buffer<device::mapped_profile>> profile;  // null unless asked for
  std::unique_ptr<world_trace> trace;  // null unless asked for; outlives what notes in it
  std::vector<bool> by_proxy;          // by rank: reached by commands, or by entries
  std::unique_ptr<crosswarp::proxy> proxy;
  std::unique_ptr<rdma_path> rdma;  // instead of the proxy
  memory::allocator blocks;
  std::size_t touched = 0;  // the heap from here on is as zero as it came
  device::symmetric<device::signal_line> test_lines;
  device::world view;
  std::shared_ptr<launch_gather> together;
  std::uint64_t launches = 0;
  int announced = 0;
  std::uint64_t sync_began = 0;

 private:
  /// A deadline that passed in a kernel and that nobody was told of; once.
  [[nodiscard]] std::optional<error> late_kernel() const;
  void lay_out_heap();
  void start_proxy();
  void start_rdma();
  [[nodiscard]] static bool wants_stats();
  void show_stats();
  std::string agree_on_engine(const std::string& mine);
};

}  // namespace crosswarp::world_impl
