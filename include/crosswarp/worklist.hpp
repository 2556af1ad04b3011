// A list of work that all ranks share, on the host: its memory, and what became of it. What kernels
// do with it is in device/worklist.hpp.
//
//   cw::worklist<item> list(w, {.workers = 8});
//   list.reset();                                          // before each run
//   cw::launch(w, {.blocks = 8}, flood_kernel{}, list.device(), ...);
//   w.stream().sync();
//   list.counts().done;
#pragma once

#include <vector>

#include "crosswarp/device/worklist.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp {

/// The same on all ranks.
using worklist_options = device::worklist_shape;

namespace worklist_impl {
/// Throws error(invalid_argument) for sizes that cannot be, error(not_supported) naming a rank
/// whose queues cannot be reached by loads and stores.
void check(const world& w, const worklist_options& o);
}  // namespace worklist_impl

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
        kept_(w.options().device, workers() * view::items_of(o, w.size())),
        ints_(w.options().device, workers() * view::ints_of(o, w.size())) {}

  /// For kernels, by value.
  [[nodiscard]] device::worklist<Item> device() const noexcept {
    return {{words_.device(), ends_.device(), slots_.device(), kept_.data(), ints_.data()},
            shape_,
            world_.device()};
  }

  /// As new. All ranks' kernels have ended; none begins before all have called it.
  void reset() {
    world_.barrier();
    // A run that failed may have left items.
    if (ended_badly()) {
      ends_.write(std::vector<device::work_queue_ends>(ends_.size()));
      slots_.write(std::vector<device::work_slot<Item>>(slots_.size()));
    }
    words_.write(std::vector<device::worklist_words>(1));
    world_.barrier();
  }

  /// Of this rank, since the last reset; when the kernel has ended.
  [[nodiscard]] device::worklist_counts counts() const { return words_.read().front().counts; }

 private:
  using view = device::worklist<Item>;
  [[nodiscard]] std::size_t workers() const noexcept {
    return static_cast<std::size_t>(shape_.workers);
  }
  [[nodiscard]] bool ended_badly() const {
    constexpr std::uint64_t well = 1 + static_cast<std::uint64_t>(status::ok);
    const std::uint64_t ended = words_.read().front().told.ended;
    return ended != 0 && ended != well;
  }

  world& world_;
  worklist_options shape_;
  symmetric_buffer<device::worklist_words> words_;
  symmetric_buffer<device::work_queue_ends> ends_;
  symmetric_buffer<device::work_slot<Item>> slots_;
  buffer<Item> kept_;
  buffer<int> ints_;
};

}  // namespace crosswarp
