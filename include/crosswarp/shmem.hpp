// SHMEM on the host: symmetric memory by address, teams, contexts, and calls in order with a
// stream. What kernels do with it is in device/shmem.hpp; shmem.h is the same for C programs.
//
//   cw::run(4, [](cw::world& w) {
//     cw::shmem sh(w);
//     long* box = sh.allocate<long>(100);                  // on each PE
//     cw::launch(w, {.threads = 128}, exchange{}, sh.device(), box);
//     w.stream().sync();
//     sh.free(box);
//   });
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "crosswarp/device/shmem.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp {

struct shmem_options {
  /// Teams that a PE can be in at a time, the one of all included.
  int teams = 32;
  /// Per team, twice: what pieces of reductions rest in.
  std::size_t work_bytes = 16U << 10U;
};

/// SHMEM of a world. Making one and most of its members are collective. Throws error.
class shmem {
 public:
  explicit shmem(world& w, const shmem_options& options = {});
  ~shmem();
  shmem(shmem&&) noexcept;
  shmem& operator=(shmem&&) = delete;

  [[nodiscard]] int my_pe() const noexcept;
  [[nodiscard]] int n_pes() const noexcept;

  /// Some PEs, numbered anew. Destroying one is collective over its PEs.
  class team {
   public:
    ~team();
    team(team&&) noexcept;
    team& operator=(team&&) = delete;

    [[nodiscard]] int my_pe() const noexcept { return view().my_pe(); }
    [[nodiscard]] int n_pes() const noexcept { return view().n_pes(); }
    [[nodiscard]] const device::shmem_team& view() const noexcept;
    /// For kernels, and where the heap is a CPU's for the host too: the team's default context.
    [[nodiscard]] device::shmem device() const noexcept;
    /// The same with an order of its own; see device::shmem::fence.
    [[nodiscard]] device::shmem make_context() const noexcept;

   private:
    friend class shmem;
    struct state;
    explicit team(std::unique_ptr<state> s) noexcept;
    std::unique_ptr<state> state_;
  };

  /// Everybody.
  [[nodiscard]] const team& all() const noexcept;
  /// Those whose memory is mapped here.
  [[nodiscard]] const team& shared() const noexcept;
  /// PEs start, start + stride, ... of a team. Collective over `parent`; nothing for those who are
  /// not in it. Throws error(invalid_argument), error(out_of_memory) when there is no room for
  /// another team at one of them.
  [[nodiscard]] std::optional<team> split_strided(const team& parent, int start, int stride,
                                                  int size);
  /// The PEs of a team as a grid, row after row of `width`: this PE's row and column.
  struct axes;
  [[nodiscard]] axes split_2d(const team& parent, int width);
  /// Any PEs of a team, in this order; all of the parent's give the same list.
  [[nodiscard]] std::optional<team> make_team(const team& parent, std::span<const int> pes);

  /// PEs start, start + stride, ... of all, to meet without having made a team: for the active sets
  /// of older programs. Two PEs make their calls in the same order, over all sets they are both in.
  [[nodiscard]] device::shmem active_set(int start, int stride, int size) const;

  /// The default context of all PEs, for kernels by value.
  [[nodiscard]] device::shmem device() const noexcept { return all().device(); }

  // ---- symmetric memory: all PEs ask for the same in the same order

  /// Not initialised; nullptr for 0 bytes. Throws error(out_of_memory), error(asymmetric).
  [[nodiscard]] void* allocate_bytes(std::size_t bytes, std::size_t alignment = 64);
  template <class T>
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(allocate_bytes(count * sizeof(T), alignof(T) < 64 ? 64 : alignof(T)));
  }
  /// Waits for all PEs first.
  void free(void* p);
  /// Bytes that were asked for at `p`; 0 when nothing was.
  [[nodiscard]] std::size_t size_of(const void* p) const noexcept;
  /// Whether this lies in memory that was asked for and not freed, or not in the heap at all. Not
  /// collective, any thread.
  [[nodiscard]] bool is_allocated(const void* p) const noexcept;
  /// Memory that every PE already has, each at its own address, e.g. variables of the program.
  /// As for crosswarp::registration; it stays symmetric until the end.
  void add_segment(void* base, std::size_t bytes);

  [[nodiscard]] world& of() const noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

struct shmem::axes {
  team row;
  team column;
};

}  // namespace crosswarp
