// How collectives are called from C.
#pragma once

#include "runtime.hpp"

namespace crosswarp::shmem_c {

/// What a collective moves from or to each PE: elements, their size, and how far apart they are.
struct amount {
  std::size_t n = 0;
  std::size_t size = 1;
  std::size_t stride = 1;

  /// That this can be.
  void check(const call& c) const {
    if (!fits(n, size, stride, c.on.n_pes())) [[unlikely]] {
      c.fail_by_length(n, size);
    }
  }
};

/// Has `collective(view)` done by a team; what a function of OpenSHMEM returns: 0.
template <class F>
int by_team(shmem_team_t team, const char* name, const amount& much, F collective) {
  const shmem_team_object* const t = team_of(team);
  if (t == nullptr) return -1;
  const call c{t->view, name};
  much.check(c);
  c.check(collective(c.on));
  return 0;
}

/// The view of PE_start, PE_start + 2^logPE_stride, ...
const device::shmem& active_set(const char* name, int start, int log_stride, int size);

template <class F>
void by_set(const char* name, int start, int log_stride, int size, const amount& much,
            F collective) {
  const call c{active_set(name, start, log_stride, size), name};
  much.check(c);
  c.check(collective(c.on));
}

}  // namespace crosswarp::shmem_c
