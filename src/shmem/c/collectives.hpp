// How collectives are called from C.
#pragma once

#include "runtime.hpp"

namespace crosswarp::shmem_c {

/// Has `collective(view)` done by a team; what a function of OpenSHMEM returns: 0.
template <class F>
int by_team(shmem_team_t team, const char* name, F collective) {
  const shmem_team_object* const t = team_of(team);
  const call c{t == nullptr ? nobody : t->view, name};
  if (t == nullptr) return -1;
  c.check(collective(t->view));
  return 0;
}

/// The view of PE_start, PE_start + 2^logPE_stride, ...
const device::shmem& active_set(const char* name, int start, int log_stride, int size);

template <class F>
void by_set(const char* name, int start, int log_stride, int size, F collective) {
  const call c{active_set(name, start, log_stride, size), name};
  c.check(collective(c.on));
}

}  // namespace crosswarp::shmem_c
