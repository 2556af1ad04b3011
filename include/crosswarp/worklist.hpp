// A list of work that all ranks share, on the host: its memory, and what became of it. What kernels
// do with it is in device/worklist.hpp.
//
//   cw::worklist<item> list(w, {.workers = 8});
//   list.reset();                                          // before each run
//   cw::launch(w, {.blocks = 8}, flood_kernel{}, list.device(), ...);
//   w.stream().sync();
//   list.counts().done;
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "crosswarp/device/worklist.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp {

/// The same on all ranks.
using worklist_options = device::worklist_shape;

namespace worklist_impl {
/// Items that a worker's queue, and what it spills and parks, may have at most.
inline constexpr std::uint64_t most_items = std::uint64_t{1} << 30U;
/// "1 of 2 workers found no room": which sizes were too small, and what they are.
std::string out_of_room(const worklist_options& o, std::uint64_t workers);
/// Throws error(invalid_argument) for sizes that cannot be, error(not_supported) naming a rank
/// that no path leads to.
void check(const world& w, const worklist_options& o);
/// Whether there are ranks that are not mapped, for any rank. Collective.
bool has_far_ranks(world& w);
}  // namespace worklist_impl

/// How items go to the ranks that own them.
enum class routing {
  direct,  ///< at once
  ring,    ///< from neighbour to neighbour
  nodes,   ///< to another machine by the first rank of this one, which gathers, and of that one
};
/// Where rank `at` sends what each rank owns, by owner. `nodes`: the machine of each rank.
[[nodiscard]] std::vector<int> hops_of(routing how, const std::vector<int>& nodes, int at);

/// A way that is chosen while the program runs: list.run(ctx, program, route.device()) in kernels.
class worklist_route {
 public:
  worklist_route(const world& w, routing how);
  /// Any other way: `hops` as from hops_of(), this rank's.
  worklist_route(const world& w, const std::vector<int>& hops);
  /// For kernels, by value; valid while this lives.
  [[nodiscard]] device::table_route device() const noexcept { return {hops_.data()}; }

 private:
  buffer<int> hops_;
};

/// Memory of a worklist. Making one and reset() are collective; destroying is as for
/// symmetric_buffer. The queues lie in the symmetric heap.
template <class Item>
class worklist {
 public:
  explicit worklist(world& w, const worklist_options& o = {})
      : world_(w),
        shape_((worklist_impl::check(w, o), o)),
        words_(w, 1),
        ends_(w, workers()),
        slots_(w, workers() * o.queue),
        far_(made_far(w, o)),
        kept_(w.options().device, workers() * view::items_of(o, w.size())),
        ints_(w.options().device, workers() * view::ints_of(o, w.size())) {}

  /// For kernels, by value.
  [[nodiscard]] device::worklist<Item> device() const noexcept {
    return {{words_.device(), ends_.device(), slots_.device(),
             far_ ? far_->device() : device::symmetric<std::byte>(), kept_.data(), ints_.data()},
            shape_,
            world_.device()};
  }

  /// As new. All ranks' kernels have ended; none begins before all have called it.
  void reset() {
    world_.barrier();
    // A run that failed may have left items. Both ends of a link begin anew, or none.
    const auto badly = world_.allgather(ended_badly() ? 1 : 0);
    if (std::find(badly.begin(), badly.end(), 1) != badly.end()) {
      ends_.write(std::vector<device::work_queue_ends>(ends_.size()));
      slots_.write(std::vector<device::work_slot<Item>>(slots_.size()));
      if (far_) far_->write(std::vector<std::byte>(far_->size()));
    }
    words_.write(std::vector<device::worklist_words>(1));
    world_.barrier();
  }

  /// Of this rank, since the last reset; when the kernel has ended.
  [[nodiscard]] device::worklist_counts counts() const {
    // These words alone: others may still tell this rank of an end.
    device::worklist_counts own;
    exec::copy_now(world_.options().device, &own, &words_.data()->counts, sizeof(own));
    return own;
  }

  /// What this rank's workers lacked in a run that ended with `timeout`, and what to enlarge, for
  /// people; empty when they had room: then nothing was done anywhere, or other ranks' had none.
  [[nodiscard]] std::string complaint() const {
    const std::uint64_t workers = counts().no_room;
    return workers == 0 ? "" : worklist_impl::out_of_room(shape_, workers);
  }

  /// Of this rank's memory, on its device.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return words_.size() * sizeof(device::worklist_words) +
           ends_.size() * sizeof(device::work_queue_ends) +
           slots_.size() * sizeof(device::work_slot<Item>) + (far_ ? far_->size() : 0) +
           kept_.size() * sizeof(Item) + ints_.size() * sizeof(int);
  }

 private:
  using view = device::worklist<Item>;
  [[nodiscard]] std::size_t workers() const noexcept {
    return static_cast<std::size_t>(shape_.workers);
  }
  static std::optional<symmetric_buffer<std::byte>> made_far(world& w, const worklist_options& o) {
    if (!worklist_impl::has_far_ranks(w)) return std::nullopt;
    return symmetric_buffer<std::byte>(w, device::far_ranks<Item>::bytes_of(o, w.size()));
  }
  [[nodiscard]] bool ended_badly() const {
    constexpr std::uint64_t well = 1 + make_fault(status::ok, -1);
    const std::uint64_t ended = words_.read().front().told.ended;
    return ended != 0 && ended != well;
  }

  world& world_;
  worklist_options shape_;
  symmetric_buffer<device::worklist_words> words_;
  symmetric_buffer<device::work_queue_ends> ends_;
  symmetric_buffer<device::work_slot<Item>> slots_;
  std::optional<symmetric_buffer<std::byte>> far_;  ///< where some ranks are not mapped
  buffer<Item> kept_;
  buffer<int> ints_;
};

}  // namespace crosswarp
