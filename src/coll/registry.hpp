// Which memory of the caller all ranks can reach: the symmetric heap, buffers that were registered,
// and those of recorded calls that were registered afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "coll/kernels.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::coll_impl {

/// Members whose comment says so are collective: all ranks return, or all throw and nothing has
/// changed.
class registry {
 public:
  /// `recorded_calls`: for so many there is room.
  registry(world& w, std::size_t recorded_calls);

  /// Memory of `bytes` on each rank. Nothing is kept of what lies in the heap. Collective.
  void add(void* data, std::size_t bytes);
  /// `data`: what was added. Collective.
  void remove(void* data);

  /// Memory that all ranks can reach, and what they have to agree on: `number` is 0 for the heap,
  /// else of the registration; and the offset in it.
  struct place {
    device::symmetric<std::byte> memory;
    std::uint64_t number;
  };
  /// Empty when some of it is not such memory.
  [[nodiscard]] std::optional<place> find(const void* p, std::size_t bytes) const;

  /// Where a recorded call finds its memory once that is registered, and what ranks have to agree
  /// on.
  struct row {
    const late_memory* at;  ///< null when there is no more room
    std::uint64_t number;
  };
  /// A call that is being recorded, on memory of which some was not found.
  row note_recorded(const void* out, const void* in, std::size_t bytes);
  /// Fills in what was noted since the last time; returns how many calls. Collective.
  std::size_t register_recorded();
  /// Forgets all that was noted. Collective.
  void forget_recorded();

 private:
  struct entry {
    std::uint64_t number;
    std::size_t bytes;
    registration shared;
  };
  struct operand {
    const void* address;
    std::optional<place> found;
  };
  struct noted {
    operand out;
    operand in;
    std::size_t bytes;
  };
  struct offer;
  class recorded_batch;

  [[nodiscard]] std::string complaint_about(const void* data, std::size_t bytes) const;
  [[nodiscard]] std::optional<std::size_t> in_heap(const void* p, std::size_t bytes) const;
  [[nodiscard]] bool overlaps(const void* data, std::size_t bytes) const;

  world& world_;
  std::uint64_t last_number_ = 0;
  std::map<std::uintptr_t, entry> buffers_;  // by where they begin
  buffer<late_memory> late_;                 // there before a recording, which may not allocate
  std::size_t used_ = 0;                     // of late_: filled, or given up
  std::vector<noted> pending_;               // those that follow
  std::uint64_t batch_ = 1;                  // of pending_
  std::vector<registration> recorded_;
};

}  // namespace crosswarp::coll_impl
