// Bodies of world_launch.hpp.
#pragma once

#include <cstring>
#include <functional>
#include <span>

#include "crosswarp/world_launch.hpp"

namespace crosswarp::world_impl {

/// A kernel with its arguments, as one value that can be copied to a device byte by byte.
template <class Kernel, class... Args>
struct bound_kernel;

template <class Kernel>
struct bound_kernel<Kernel> {
  using kernel_type = Kernel;
  Kernel kernel;
  template <class... Before>
  CW_FN void operator()(const device::kernel_context& ctx, const Before&... args) const {
    kernel(ctx, args...);
  }
};

template <class Kernel, class First, class... Rest>
struct bound_kernel<Kernel, First, Rest...> {
  using kernel_type = Kernel;
  First first;
  bound_kernel<Kernel, Rest...> rest;
  template <class... Before>
  CW_FN void operator()(const device::kernel_context& ctx, const Before&... before) const {
    rest(ctx, before..., first);
  }
};

template <class Kernel>
bound_kernel<Kernel> bind_arguments(Kernel kernel) {
  return {kernel};
}
template <class Kernel, class First, class... Rest>
bound_kernel<Kernel, First, Rest...> bind_arguments(Kernel kernel, First first, Rest... rest) {
  return {first, bind_arguments(kernel, rest...)};
}

/// One rank's part of a collective launch.
struct launch_part {
  launch_shape shape;
  const void* kind;   ///< equal for equal kernels
  const void* bound;  ///< the rank's bound_kernel
  crosswarp::stream* stream;
};

/// Waits for the ranks of this process that share the device; the last to come calls
/// `start(parts)`, by rank, for all. Throws what `start` threw, on all of them.
void gather_launch(state& s, const launch_part& mine,
                   const std::function<void(std::span<const launch_part>)>& start);
/// While it lives, a launch of the world is under way; noted when the world is traced.
class launch_note {
 public:
  explicit launch_note(state& s) noexcept;
  ~launch_note();
  launch_note(const launch_note&) = delete;
  launch_note& operator=(const launch_note&) = delete;

 private:
  state& of_;
  std::uint64_t began_;
};

/// How many ranks gather_launch() waits for.
[[nodiscard]] int gathered_ranks(const state& s) noexcept;
/// Runs the parts under the device's schedule, to their ends, on the calling thread.
void run_scheduled(
    state& s, std::span<const launch_part> parts,
    const std::function<std::function<void(const device::kernel_context&)>(const void*)>& body);

#if defined(__CUDACC__)

/// Kernel parameters are limited to 4 KiB by old drivers and to 32 KiB by new ones; the larger
/// table is for many ranks with many arguments.
template <std::size_t Bytes>
struct bound_table {
  alignas(16) unsigned char bytes[Bytes];
};
inline constexpr std::size_t small_table = 3072;
inline constexpr std::size_t large_table = 30720;

template <class Bound>
struct gathered_part {
  device::wait_limits limits;
  Bound bound;
};

/// All ranks' grids in one: block b of the whole is block b % blocks of rank b / blocks.
template <class Bound, std::size_t Bytes>
__global__ void __launch_bounds__(exec::cuda::max_threads_of<typename Bound::kernel_type>())
    gathered_entry(device::grid_words* grids, int blocks,
                   const __grid_constant__ bound_table<Bytes> table) {
  const int whole = static_cast<int>(blockIdx.x);
  const int slot = whole / blocks;
  const auto& part = reinterpret_cast<const gathered_part<Bound>*>(table.bytes)[slot];
  const device::kernel_context ctx({.block_index = whole - slot * blocks,
                                    .block_count = blocks,
                                    .grid = grids + slot,
                                    .limits = part.limits});
  part.bound(ctx);
}

template <class Bound, std::size_t Bytes>
void start_gathered_with(std::span<const launch_part> parts) {
  const launch_part& first = parts.front();
  const auto* function = reinterpret_cast<const void*>(&gathered_entry<Bound, Bytes>);
  const int ranks = static_cast<int>(parts.size());
  exec::cuda::check_resident(first.stream->device().ordinal(), function, first.shape, ranks);
  bound_table<Bytes> table;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const gathered_part<Bound> part{parts[i].shape.limits,
                                    *static_cast<const Bound*>(parts[i].bound)};
    std::memcpy(table.bytes + i * sizeof(part), &part, sizeof(part));
  }
  device::grid_words* grids = first.stream->backend().grid_barrier(ranks);
  int blocks = first.shape.blocks;
  void* args[] = {&grids, &blocks, &table};
  for (const launch_part& p : parts) p.stream->begin_launch(*first.stream);
  exec::cuda::start(*first.stream, function, first.shape, ranks, args);
  for (const launch_part& p : parts) p.stream->end_launch(*first.stream);
}

/// The grid runs on the first rank's stream, after what the others have queued; their streams go
/// on after it.
template <class Bound>
void start_gathered(std::span<const launch_part> parts) {
  static_assert(std::is_trivially_copyable_v<gathered_part<Bound>>);
  crosswarp::stream& first = *parts.front().stream;
  event point(first.device());
  for (const launch_part& p : parts.subspan(1)) {
    p.stream->record(point);
    first.wait(point);
  }
  const std::size_t need = parts.size() * sizeof(gathered_part<Bound>);
  if (need <= small_table) {
    start_gathered_with<Bound, small_table>(parts);
  } else if (need <= large_table) {
    start_gathered_with<Bound, large_table>(parts);
  } else {
    throw error(errc::does_not_fit, "launch",
                std::to_string(parts.size()) + " ranks with " +
                    std::to_string(sizeof(gathered_part<Bound>)) + " bytes of arguments each");
  }
  first.record(point);
  for (const launch_part& p : parts.subspan(1)) p.stream->wait(point);
}

#endif

}  // namespace crosswarp::world_impl

namespace crosswarp {

template <class Kernel, class... Args>
requires std::invocable<const Kernel&, const device::kernel_context&, const Args&...>
void launch(world& w, launch_shape shape, Kernel kernel, Args... args) {
  shape.resident = true;
  shape.limits = w.device().limits;
  world_impl::state& s = w.state();
  const world_impl::launch_note note(s);
  const device_ref d = w.stream().device();
  using bound_type = decltype(world_impl::bind_arguments(kernel, args...));
  if (d.scheduler() == nullptr &&
      (d.kind() == device_kind::cpu || world_impl::gathered_ranks(s) == 1)) {
    return launch(w.stream(), shape, kernel, args...);
  }
  exec::check_shape(shape);
  static const char kind = 0;  // one address for each kernel type
  const bound_type bound = world_impl::bind_arguments(kernel, args...);
  const world_impl::launch_part mine{shape, &kind, &bound, &w.stream()};
  world_impl::gather_launch(s, mine, [&](std::span<const world_impl::launch_part> parts) {
    if (d.kind() == device_kind::cpu) {
      return world_impl::run_scheduled(s, parts, [](const void* p) {
        const auto* b = static_cast<const bound_type*>(p);
        return [b](const device::kernel_context& ctx) { (*b)(ctx); };
      });
    }
#if defined(__CUDACC__)
    world_impl::start_gathered<bound_type>(parts);
#else
    exec::throw_not_compiled_for_cuda("launch");
#endif
  });
}

}  // namespace crosswarp
