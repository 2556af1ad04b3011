// SHMEM inside kernels: one-sided puts, gets, atomics, signals, teams and collectives.
//
// Memory is symmetric: every PE (rank) has the same objects, and an object at another PE is named
// by its address here. Every call takes the group that makes it; all threads of the group call with
// the same arguments.
//
//   CW_FN void operator()(const kernel_context& k, const device::shmem& world, long* inbox,
//                         const long* values, std::uint64_t* flag) const
//   {
//     auto sh = world.on_block(k);                     // this block's own order of operations
//     const int right = (sh.my_pe() + 1) % sh.n_pes();
//     status s = sh.put_signal(k.block(), inbox, values, 100, flag, 1, signal_op::set, right);
//     s = sh.signal_wait_until(k.block(), flag, compare::ge, 1);
//   }
//
// Ways to a PE: loads and stores where its memory is mapped here, else commands to the proxy. The
// same calls do both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "crosswarp/device/memory.hpp"
#include "crosswarp/device/world.hpp"

namespace crosswarp::device {

enum class compare : std::uint8_t { eq, ne, gt, ge, lt, le };

template <class T>
[[nodiscard]] CW_FN constexpr bool holds(T seen, compare how, T value) noexcept;

/// What shmem puts and gets: anything that is its bytes.
template <class T>
concept shmem_value = std::is_trivially_copyable_v<T>;
/// What can be waited for.
template <class T>
concept shmem_word = atomic_word<T> && std::is_arithmetic_v<T>;
/// What atomic operations work on; and, or and xor on integers alone.
template <class T>
concept shmem_atomic = updatable_word<T> && std::is_arithmetic_v<T>;

/// Memory that all PEs have, by its address here.
struct shmem_segment {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  peer_table peers;  ///< by world rank
  std::uint16_t region = 0;
};

/// Which world ranks the PEs of a team are.
class shmem_team {
 public:
  shmem_team() = default;
  CW_FN shmem_team(int start, int stride, int size, int my_pe, const int* list = nullptr) noexcept
      : start_(start), stride_(stride), size_(size), my_pe_(my_pe), list_(list) {}

  [[nodiscard]] CW_FN int n_pes() const noexcept { return size_; }
  /// -1: not a member.
  [[nodiscard]] CW_FN int my_pe() const noexcept { return my_pe_; }
  [[nodiscard]] CW_FN bool has(int pe) const noexcept { return pe >= 0 && pe < size_; }
  [[nodiscard]] CW_FN int world_pe(int pe) const noexcept {
    return list_ != nullptr ? list_[pe] : start_ + pe * stride_;
  }
  /// The PE that a world rank is in this team; -1: none.
  [[nodiscard]] CW_FN int pe_of(int world_pe) const noexcept;
  /// The number that PE `pe` of this team has in another; -1: none.
  [[nodiscard]] CW_FN int translate(int pe, const shmem_team& to) const noexcept {
    return has(pe) ? to.pe_of(world_pe(pe)) : -1;
  }

 private:
  int start_ = 0;
  int stride_ = 1;
  int size_ = 0;
  int my_pe_ = -1;
  const int* list_ = nullptr;  // by PE; for teams that no stride describes
};

/// By which the PEs of a team meet: symmetric memory, the same bytes at each of them. Each pair
/// counts the signals that went between them, so that collectives of any shape may follow each
/// other.
struct shmem_sync {
  struct counts {
    std::uint64_t sent;  ///< the last signal's word: how many, and what all of them were for
    std::uint64_t received;
  };
  signal_line* in = nullptr;        ///< by PE: its signals to this one
  counts* with = nullptr;           ///< by PE
  std::uint64_t* values = nullptr;  ///< by PE: what collect() needs to know of it
  bool by_rank = false;             ///< all three by world rank instead, so that any PEs can meet
  std::byte* work = nullptr;        ///< two halves of `work_bytes`, for data that must rest
  std::size_t work_bytes = 0;
};

/// The view that a kernel has of a team and a context: PEs are numbered as in the team, and fence()
/// and quiet() are for operations of the context. Got from crosswarp::shmem, passed by value.
class shmem {
 public:
  struct parts {
    shmem_segment heap;
    const shmem_segment* others = nullptr;  ///< more symmetric memory, see crosswarp::shmem
    int other_count = 0;
    shmem_team team;
    shmem_sync sync;
    wait_limits limits;
    device::proxy proxy;
    mapped_profile* profile = nullptr;
    int queue = 0;
    bool all_mapped = true;       ///< nobody needs the proxy
    scope reach = scope::system;  ///< of all the memory
    /// The heaps of the team's PEs are all mapped, each so far from that of the PE before.
    bool even = false;
    std::ptrdiff_t distance = 0;
  };
  shmem() = default;
  CW_FN explicit shmem(const parts& p) noexcept : p_(p) {}

  /// The same with the block's own order: fence() and quiet() are for what it issued alone.
  [[nodiscard]] CW_FN shmem on_block(const kernel_context& k) const noexcept {
    shmem own = *this;
    own.p_.queue = p_.queue + k.block_index();
    return own;
  }
  /// The same with a deadline of one's own.
  [[nodiscard]] CW_FN shmem within(std::uint64_t ns) const noexcept {
    shmem own = *this;
    own.p_.limits = p_.limits.within(ns);
    return own;
  }

  [[nodiscard]] CW_FN int my_pe() const noexcept { return p_.team.my_pe(); }
  [[nodiscard]] CW_FN int n_pes() const noexcept { return p_.team.n_pes(); }
  [[nodiscard]] CW_FN const shmem_team& team() const noexcept { return p_.team; }
  /// PE `pe`'s copy of `*object`, for loads and stores; null when it is not mapped here, or not
  /// symmetric.
  template <class T>
  [[nodiscard]] CW_FN T* ptr(const T* object, int pe) const noexcept;
  [[nodiscard]] CW_FN bool is_symmetric(const void* object) const noexcept;
  [[nodiscard]] CW_FN bool is_accessible(int pe) const noexcept { return p_.team.has(pe); }

  // Common to all below.
  // Callers: all threads of `g`, same arguments; they sync first. What is returned, all get.
  // Fails:   invalid (no such PE, memory that is not symmetric: nothing was touched); peer_lost,
  //          aborted, timeout, unreachable. What does not wait for the proxy reports its failure
  //          at the next quiet().

  // ---- put and get
  //
  // put: complete locally on return; visible remotely after quiet(), or by a signal or a store
  // after fence() that the other PE has seen. One element, aligned, is stored whole.
  // _nbi: complete locally, or arrived, after quiet().

  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status put(const G& g, T* dest, const T* source, std::size_t n,
                                 int pe) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status put_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                     int pe) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status get(const G& g, T* dest, const T* source, std::size_t n,
                                 int pe) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status get_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                     int pe) const noexcept;
  /// One element, by value.
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status p(const G& g, T* dest, T value, int pe) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status g(const G& g, T& value, const T* source, int pe) const noexcept;

  /// Blocks of `block` elements, their starts so many elements apart.
  struct strides {
    std::ptrdiff_t dest = 1;
    std::ptrdiff_t source = 1;
    std::size_t block = 1;
  };
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status iput(const G& g, T* dest, const T* source, const strides& s,
                                  std::size_t blocks, int pe) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status iget(const G& g, T* dest, const T* source, const strides& s,
                                  std::size_t blocks, int pe) const noexcept;

  // ---- signals: who sees the signal sees the data

  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status put_signal(const G& g, T* dest, const T* source, std::size_t n,
                                        std::uint64_t* signal, std::uint64_t value, signal_op how,
                                        int pe) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status put_signal_nbi(const G& g, T* dest, const T* source, std::size_t n,
                                            std::uint64_t* signal, std::uint64_t value,
                                            signal_op how, int pe) const noexcept;
  /// Orders nothing, as a store; after fence() it says that what came before has come.
  template <group G>
  [[nodiscard]] CW_FN status signal_set(const G& g, std::uint64_t* signal, std::uint64_t value,
                                        int pe) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN status signal_add(const G& g, std::uint64_t* signal, std::uint64_t value,
                                        int pe) const noexcept;
  /// This PE's own.
  [[nodiscard]] CW_FN std::uint64_t signal_fetch(const std::uint64_t* signal) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN status signal_wait_until(const G& g, std::uint64_t* signal, compare how,
                                               std::uint64_t value) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN status signal_wait_until(const G& g, std::uint64_t* signal, compare how,
                                               std::uint64_t value,
                                               std::uint64_t& seen) const noexcept;

  // ---- atomics: one update for the group

  /// Does `op`; returns at once.
  template <group G, shmem_atomic T>
  [[nodiscard]] CW_FN status atomic(const G& g, amo op, T* dest, T value, int pe) const noexcept;
  /// Does `op` and gives back the value before it. `comparand`: for compare_swap alone.
  template <group G, shmem_atomic T>
  [[nodiscard]] CW_FN status atomic_fetch(const G& g, amo op, T* dest, T value, T comparand, int pe,
                                          T& old) const noexcept;
  /// The value before it is in `*old` after quiet().
  template <group G, shmem_atomic T>
  [[nodiscard]] CW_FN status atomic_fetch_nbi(const G& g, amo op, T* old, T* dest, T value,
                                              T comparand, int pe) const noexcept;

  // ---- waiting for this PE's own words
  //
  // Visibility: what was stored before what satisfied the wait, with a fence between, is visible.

  template <group G, shmem_word T>
  [[nodiscard]] CW_FN status wait_until(const G& g, T* word, compare how, T value) const noexcept;
  template <shmem_word T>
  [[nodiscard]] CW_FN bool test(T* word, compare how, T value) const noexcept;

  /// Words of which those with a `skip` that is not zero do not count; `skip` may be null.
  /// `values`: one for each word, or one for all when `one` is true.
  template <shmem_word T>
  struct words {
    T* at = nullptr;
    std::size_t count = 0;
    const int* skip = nullptr;
    compare how = compare::eq;
    const T* values = nullptr;
    bool one = false;

    [[nodiscard]] CW_FN bool counts(std::size_t i) const noexcept {
      return skip == nullptr || skip[i] == 0;
    }
    [[nodiscard]] CW_FN T value(std::size_t i) const noexcept { return values[one ? 0 : i]; }
  };
  static constexpr std::size_t none = ~std::size_t{0};

  template <group G, shmem_word T>
  [[nodiscard]] CW_FN status wait_until_all(const G& g, const words<T>& w) const noexcept;
  /// `index`: one that holds; none when no word counts.
  template <group G, shmem_word T>
  [[nodiscard]] CW_FN status wait_until_any(const G& g, const words<T>& w,
                                            std::size_t& index) const noexcept;
  /// `indices` gets those that hold, at least one; `found`: how many; 0 when no word counts.
  template <group G, shmem_word T>
  [[nodiscard]] CW_FN status wait_until_some(const G& g, const words<T>& w, std::size_t* indices,
                                             std::size_t& found) const noexcept;
  template <shmem_word T>
  [[nodiscard]] CW_FN bool test_all(const words<T>& w) const noexcept;
  template <shmem_word T>
  [[nodiscard]] CW_FN std::size_t test_any(const words<T>& w) const noexcept;
  template <shmem_word T>
  [[nodiscard]] CW_FN std::size_t test_some(const words<T>& w, std::size_t* indices) const noexcept;

  // ---- order

  /// What this context did at a PE before comes there before what it does there after.
  template <group G>
  [[nodiscard]] CW_FN status fence(const G& g) const noexcept;
  /// What this context did before is done: visible remotely, arrived here.
  template <group G>
  [[nodiscard]] CW_FN status quiet(const G& g) const noexcept;
  /// The same for one PE; waits for no more than quiet() does.
  template <group G>
  [[nodiscard]] CW_FN status pe_quiet(const G& g, int pe) const noexcept;

  // ---- collectives of the team
  //
  // Callers: one group on each PE, the same kind and size of group not required. All PEs call the
  //          same collectives of a team in the same order; two at a time need two teams.
  // Fails:   invalid, too, when another PE called something else. A team whose collective failed
  //          for another reason than a bad argument is of no more use, nor is a lock.
  // dest and source are symmetric, and apart, or equal where it says so.

  /// Meets; what each did before in its own memory is visible to all after. Those who come for
  /// another `purpose` do not meet: it is as if they had called something else.
  template <group G>
  [[nodiscard]] CW_FN status sync(const G& g, std::uint8_t purpose = 0) const noexcept;
  /// The same after quiet().
  template <group G>
  [[nodiscard]] CW_FN status barrier(const G& g) const noexcept;
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status broadcast(const G& g, T* dest, const T* source, std::size_t n,
                                       int root) const noexcept;
  /// Everybody's `n` elements, by PE.
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status fcollect(const G& g, T* dest, const T* source,
                                      std::size_t n) const noexcept;
  /// The same; `n` may differ between PEs.
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status collect(const G& g, T* dest, const T* source,
                                     std::size_t n) const noexcept;
  /// Block i of source to PE i; from PE i to block i of dest.
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status alltoall(const G& g, T* dest, const T* source,
                                      std::size_t n) const noexcept;
  /// The same with elements so far apart.
  template <group G, shmem_value T>
  [[nodiscard]] CW_FN status alltoalls(const G& g, T* dest, const T* source, std::ptrdiff_t dst,
                                       std::ptrdiff_t sst, std::size_t n) const noexcept;
  /// Element by element, in the order of PEs, so the result is the same at all of them.
  /// dest may be source.
  template <group G, shmem_value T, class Op>
  [[nodiscard]] CW_FN status reduce(const G& g, Op op, T* dest, const T* source,
                                    std::size_t n) const noexcept;
  /// PE i gets the reduction of PEs 0 to i; exclusive: to i - 1, and `first` at PE 0.
  template <group G, shmem_value T, class Op>
  [[nodiscard]] CW_FN status inclusive_scan(const G& g, Op op, T* dest, const T* source,
                                            std::size_t n) const noexcept;
  template <group G, shmem_value T, class Op>
  [[nodiscard]] CW_FN status exclusive_scan(const G& g, Op op, T first, T* dest, const T* source,
                                            std::size_t n) const noexcept;

  // ---- locks of the team: a symmetric word, zero at the start
  //
  // First come, first served; who waits polls its own memory. What the last holder did before
  // clear_lock() is visible to the next.

  template <group G>
  [[nodiscard]] CW_FN status set_lock(const G& g, std::uint64_t* lock) const noexcept;
  template <group G>
  [[nodiscard]] CW_FN status clear_lock(const G& g, std::uint64_t* lock) const noexcept;
  /// `taken`: it was free and is now the caller's.
  template <group G>
  [[nodiscard]] CW_FN status test_lock(const G& g, std::uint64_t* lock, bool& taken) const noexcept;

 private:
  /// An object at a PE.
  struct place {
    std::byte* mapped = nullptr;  ///< null: by the proxy
    remote_address remote;
    int rank = -1;  ///< -1: there is no such place
  };
  [[nodiscard]] CW_FN place find(const void* object, std::size_t bytes, int pe) const noexcept;
  [[nodiscard]] CW_FN static place find_in(const shmem_segment& s, const void* object,
                                           std::size_t bytes, int rank) noexcept;
  [[nodiscard]] CW_FN static place find_anywhere(shmem_segment heap, const shmem_segment* others,
                                                 int count, const void* object, std::size_t bytes,
                                                 int rank) noexcept;

  /// Between `here` and `object` at a PE.
  enum class toward : std::uint8_t { pe, here };
  template <toward D, group G>
  CW_FN status transfer(const G& g, const void* object, const void* here, std::size_t bytes, int pe,
                        bool blocking) const noexcept;
  template <toward D, group G, class T>
  CW_FN status transfer_strided(const G& g, T* dest, const T* source, const strides& s,
                                std::size_t blocks, int pe) const noexcept;
  template <group G>
  CW_FN status put_signal_bytes(const G& g, void* dest, const void* source, std::size_t bytes,
                                std::uint64_t* signal, std::uint64_t value, signal_op how, int pe,
                                bool blocking) const noexcept;
  /// Notes what the group does from here to the end of the scope, when that is asked for. What is
  /// not `mapped` the proxy counts.
  template <group G>
  [[nodiscard]] CW_FN profiled note(const G& g, proxy_call what, std::size_t bytes, int pe,
                                    bool mapped = true) const noexcept {
    const bool wanted = p_.profile != nullptr && p_.team.has(pe);
    return {mapped ? p_.profile : nullptr, g.rank() == 0, what, bytes,
            wanted ? p_.team.world_pe(pe) : -1};
  }
  template <shmem_word T>
  CW_FN std::size_t scan_words(const words<T>& w, std::size_t from, std::size_t& counted,
                               std::size_t* indices) const noexcept;

  // Collectives: one signal from a PE to another, with the mark of the collective it is for.
  [[nodiscard]] CW_FN int slot_of(int pe) const noexcept {
    return p_.sync.by_rank ? p_.team.world_pe(pe) : pe;
  }
  CW_FN status tell(int pe, std::uint16_t mark) const noexcept;
  CW_FN status hear(int pe, std::uint16_t mark) const noexcept;
  template <group G>
  CW_FN status meet_directly(const G& g, std::uint16_t mark) const noexcept;
  template <group G>
  CW_FN status meet(const G& g, std::uint16_t mark) const noexcept;
  template <group G>
  CW_FN status leave(const G& g, status s) const noexcept;
  template <group G, class T, class Work>
  CW_FN status by_slices(const G& g, std::uint16_t mark, T* dest, const T* source, std::size_t n,
                         const Work& f) const noexcept;
  template <group G, class T, class Op>
  CW_FN status scan(const G& g, Op op, const T* first, T* dest, const T* source,
                    std::size_t n) const noexcept;

  parts p_;
};

/// Operations for reduce() and the scans. Integers wrap.
namespace shmem_op {
struct sum {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    if constexpr (std::is_integral_v<T>) {
      const std::uint64_t wrapped = static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b);
      return static_cast<T>(wrapped);
    } else {
      return a + b;
    }
  }
};
struct prod {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    if constexpr (std::is_integral_v<T>) {
      const std::uint64_t wrapped = static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
      return static_cast<T>(wrapped);
    } else {
      return a * b;
    }
  }
};
struct min {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    return b < a ? b : a;
  }
};
struct max {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    return a < b ? b : a;
  }
};
struct bit_and {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    return static_cast<T>(a & b);
  }
};
struct bit_or {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    return static_cast<T>(a | b);
  }
};
struct bit_xor {
  template <class T>
  CW_FN constexpr T operator()(T a, T b) const noexcept {
    return static_cast<T>(a ^ b);
  }
};
}  // namespace shmem_op

}  // namespace crosswarp::device

#include "crosswarp/device/impl/shmem_atomic_impl.hpp"
#include "crosswarp/device/impl/shmem_coll_impl.hpp"
#include "crosswarp/device/impl/shmem_impl.hpp"
#include "crosswarp/device/impl/shmem_order_impl.hpp"
#include "crosswarp/device/impl/shmem_rma_impl.hpp"
#include "crosswarp/device/impl/shmem_wait_impl.hpp"
