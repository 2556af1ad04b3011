// A world: ranks, what they share, and how they meet.
//
// A rank is a process, or a thread of one; it owns one device, one stream and one symmetric heap.
//
//   cw::run(4, [](cw::world& w) {     // the launcher's ranks, or without one four threads
//     cw::symmetric_buffer<int> box(w, 1);               // one int on each rank
//     cw::launch(w, {}, send_to_right{}, w.device(), box.device());
//     w.stream().sync();
//   });
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/world.hpp"
#include "crosswarp/device_ref.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/proxy.hpp"
#include "crosswarp/stats.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp {

struct world_options {
  /// Where this rank's kernels run.
  device_ref device = device_ref::cpu();
  /// Symmetric heap on each rank; in the device's memory, or in host memory that it can reach.
  std::size_t heap_bytes = 64U << 20U;
  memory_kind heap_kind = memory_kind::device;
  /// After this long a wait gives up, in kernels and on the host.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
  /// Pretend that the ranks are spread over so many machines: no mapped memory between them.
  int nodes = 1;
  /// Write and read a pattern through every mapped peer before it is trusted.
  bool self_test = true;
  /// The way to ranks whose memory is not mapped here.
  proxy_options proxy;

  /// As CROSSWARP_DEVICE, CROSSWARP_HEAP, ... say; see `crosswarp info --env`.
  static world_options from_environment();
};

namespace world_impl {
class state;
class launch_gather;
}  // namespace world_impl

/// This rank's membership. Everything the library does for a job hangs off it; a process may be in
/// several worlds. Members are called by one thread at a time, except abort().
class world {
 public:
  /// Joins the job that started this process (crosswarp run, mpirun, srun, torchrun), or makes a
  /// world of one. Collective. Throws error.
  explicit world(const world_options& options = world_options::from_environment());
  /// Collective: waits for the other ranks, at most as long as the timeout, unless the world is
  /// broken. While an exception is under way it aborts the world instead, so that nobody waits for
  /// this rank.
  ~world();
  world(world&&) noexcept;
  world& operator=(world&&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// Machines of the job, and the one that a rank is on.
  [[nodiscard]] int node_count() const noexcept;
  [[nodiscard]] int node_of(int rank) const;
  [[nodiscard]] const world_options& options() const noexcept;

  /// This rank's own stream, on its device.
  [[nodiscard]] crosswarp::stream& stream() noexcept;
  /// For kernels, by value; valid while the world lives.
  [[nodiscard]] device::world device() const noexcept;

  // ---- meeting on the host: each is collective and throws error(timeout, peer_lost or aborted)
  //      naming the rank to blame

  void barrier();
  /// Everybody's bytes, by rank.
  std::vector<std::vector<std::byte>> allgather(std::span<const std::byte> mine);
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> allgather(const T& mine);

  // ---- key-value exchange: not collective; a key is put once

  void put(const std::string& key, std::span<const std::byte> value);
  /// Waits until some rank has put it.
  std::vector<std::byte> get(const std::string& key);

  // ---- failure

  /// Breaks the world: all waits of all ranks end with `aborted`. Any thread.
  void abort(const std::string& why) noexcept;
  /// Throws what broke the world, if anything did.
  void check() const;

  // ---- the proxy, see device/proxy.hpp

  /// Whether kernels of this rank may use device::world::proxy.
  [[nodiscard]] bool has_proxy() const noexcept;
  /// Does some of the proxy's work on the calling thread; true when there was some. For worlds
  /// whose proxy has no thread of its own; any thread.
  bool progress() noexcept;
  /// What this rank's proxy did since the start or the last reset, by kind of operation; empty
  /// without a proxy.
  [[nodiscard]] std::vector<operation_stats> stats() const;
  void reset_stats();

  // ---- symmetric memory; see symmetric_buffer and registration

  /// How a rank's heap is reached, for people: "same process", "memfd", "proxy (ucx)", ...
  [[nodiscard]] std::string path_to(int rank) const;
  /// Whether kernels reach it by loads and stores; else by commands to the proxy, if at all.
  [[nodiscard]] bool is_mapped(int rank) const;

  [[nodiscard]] world_impl::state& state() const noexcept { return *state_; }

 private:
  friend void run_local(int, const world_options&, const std::function<void(world&)>&);
  explicit world(std::unique_ptr<world_impl::state> s) noexcept;
  std::unique_ptr<world_impl::state> state_;
};

/// True when a launcher started this process as a rank: crosswarp run, mpirun, srun or torchrun.
[[nodiscard]] bool launched();

/// The main function of most programs: this rank of the job when a launcher started the process,
/// else `ranks` ranks as threads of it, see run_local().
void run(int ranks, const world_options& options, const std::function<void(world&)>& rank_main);
inline void run(int ranks, const std::function<void(world&)>& rank_main) {
  run(ranks, world_options::from_environment(), rank_main);
}

/// Runs `rank_main(world)` for `ranks` ranks, each a thread of this process, and returns when all
/// have ended. When one throws, the world is aborted so that the others end too, and what was
/// thrown first is thrown here.
void run_local(int ranks, const world_options& options,
               const std::function<void(world&)>& rank_main);
inline void run_local(int ranks, const std::function<void(world&)>& rank_main) {
  run_local(ranks, world_options::from_environment(), rank_main);
}

namespace world_impl {
/// Symmetric bytes of a world's heap; the same offset on every rank.
class heap_block {
 public:
  /// Collective: all ranks ask for the same, in the same order.
  /// Throws error(out_of_memory), error(asymmetric) naming a rank that asked for something else.
  heap_block(world& w, std::size_t bytes, std::size_t alignment);
  ~heap_block();
  heap_block(heap_block&& o) noexcept;
  heap_block& operator=(heap_block&&) = delete;
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  [[nodiscard]] world_impl::state& owner() const noexcept { return *owner_; }

 private:
  world_impl::state* owner_;
  std::size_t offset_;
};
[[nodiscard]] const device::peer_table& heap_peers(const state& s) noexcept;
[[nodiscard]] int rank_of(const state& s) noexcept;
[[nodiscard]] device_ref device_of(const state& s) noexcept;
}  // namespace world_impl

/// `size()` elements on each rank, zero at the start, at the same place in every heap.
/// Making one is collective. Destroying is not, but all ranks destroy theirs in the same order
/// with respect to other symmetric memory; nobody may use it once a rank has destroyed its part.
template <class T>
requires std::is_trivially_copyable_v<T>
class symmetric_buffer {
 public:
  symmetric_buffer(world& w, std::size_t count, std::size_t alignment = 256)
      : size_(count), block_(w, count * sizeof(T), alignment) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// For kernels, by value. The host must not follow it: its table lies with the device.
  [[nodiscard]] device::symmetric<T> device() const noexcept {
    return {world_impl::heap_peers(block_.owner()), world_impl::rank_of(block_.owner()),
            block_.offset(), size_};
  }
  /// The address of this rank's copy, for kernels; see buffer::data().
  [[nodiscard]] T* data() const noexcept;
  /// Where rank `pe`'s copy is mapped here; null when it is not.
  [[nodiscard]] T* data(int pe) const;
  /// This rank's copy, to and from the host; complete on return.
  void write(std::span<const T> values, std::size_t first = 0);
  [[nodiscard]] std::vector<T> read() const;

 private:
  std::size_t size_;
  world_impl::heap_block block_;
};

/// Memory that each rank already has, made reachable by the others: as symmetric as a
/// symmetric_buffer, but each rank may bring its own length and address.
/// Making and destroying are collective. While it is made, nobody writes the memory.
class registration {
 public:
  /// `p`: memory of crosswarp::buffer; on a GPU also cudaMalloc's; on the CPU, when ranks are
  /// processes, whole pages that nothing else lies on.
  /// Throws error(not_supported) for memory that cannot be shared after the fact.
  registration(world& w, void* p, std::size_t bytes);
  ~registration();
  registration(registration&&) noexcept;
  registration& operator=(registration&&) = delete;

  /// The memory as elements of T, for kernels, by value. The size is this rank's own.
  template <class T>
  [[nodiscard]] device::symmetric<T> device() const noexcept {
    return {peers(), rank(), 0, bytes() / sizeof(T), region()};
  }
  /// What device() is made of: everybody's memory, by rank, in a table that lies with the device.
  [[nodiscard]] const device::peer_table& peers() const noexcept;
  [[nodiscard]] std::uint16_t region() const noexcept;

 private:
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace crosswarp

#include "crosswarp/impl/world_impl.hpp"
