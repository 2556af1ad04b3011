// How collectives are called from C.
#pragma once

#include "runtime.hpp"

namespace crosswarp::shmem_c {

/// What a collective moves from or to each PE: elements, their size, how far apart they are, and
/// where they lie.
struct amount {
  static constexpr int no_root = call::no_pe;

  std::size_t n = 0;
  std::size_t size = 1;
  std::size_t stride = 1;
  const void* dest = nullptr;
  const void* source = nullptr;
  int root = no_root;

  /// That this can be.
  void check(const call& c) const {
    if (!fits(n, size, stride, c.on.n_pes())) [[unlikely]] {
      c.fail_by_length(n, size);
    }
  }
};

[[noreturn, gnu::cold]] void fail(const call& c, status s, amount much);

template <class F>
void do_collective(const call& c, const amount& much, F collective) {
  much.check(c);
  if (const status s = collective(c.on); s != status::ok) [[unlikely]] {
    fail(c, s, much);
  }
}

/// Has `collective(view)` done by a team; what a function of OpenSHMEM returns: 0.
template <class F>
int by_team(shmem_team_t team, const char* name, const amount& much, F collective) {
  const shmem_team_object* const t = team_of(team, name);
  if (t == nullptr) return -1;
  do_collective({t->view, name}, much, collective);
  return 0;
}

/// What all PEs meet for: one that ends must not be taken for one that comes to a barrier.
enum class purpose : std::uint8_t { barrier, allocate, free, end };
/// All PEs, in a call of this name.
void meet(const char* name, purpose what_for);

/// The view of PE_start, PE_start + 2^logPE_stride, ...
const device::shmem& active_set(const char* name, int start, int log_stride, int size);

template <class F>
void by_set(const char* name, int start, int log_stride, int size, const amount& much,
            F collective) {
  do_collective({active_set(name, start, log_stride, size), name}, much, collective);
}

}  // namespace crosswarp::shmem_c
