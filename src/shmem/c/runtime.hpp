// The process's part in the job, from shmem_init to shmem_finalize.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "call.hpp"

struct shmem_team_object {
  std::optional<crosswarp::shmem::team> own;  // the two that are always there belong to the runtime
  const crosswarp::shmem::team* team;
  crosswarp::device::shmem view;
  shmem_team_config_t config;
};

namespace crosswarp::shmem_c {

struct runtime {
  runtime();
  ~runtime();

  crosswarp::world world;
  crosswarp::shmem shmem;
  shmem_team_object all;
  shmem_team_object shared;
  /// Symmetric: the dest of a collect() to which nobody adds anything, where null is allowed. That
  /// nobody does is known only once all have been asked, so it cannot be a meeting instead.
  void* nowhere;

  std::mutex mutex;  // all below
  std::map<shmem_team_t, std::unique_ptr<shmem_team_object>> teams;
  std::map<shmem_ctx_t, std::unique_ptr<shmem_ctx_object>> contexts;
  /// Active sets that were used, by start, logarithm of the stride, and size.
  std::map<std::tuple<int, int, int>, device::shmem> sets;
};

/// Null outside of shmem_init and shmem_finalize.
extern runtime* job;
/// Ends the process when there is none.
runtime& job_for(const char* name);
/// Null for SHMEM_TEAM_INVALID. Ends the process when there is no job, in the name of the call.
shmem_team_object* team_of(shmem_team_t team, const char* name);
/// Says to the others that this PE is about to end: those whose calls then fail name it.
void announce_end(const char* call) noexcept;
/// Ends all PEs with this code. `failed`: an error did it, and others may have one to tell, too.
[[noreturn]] void end_job(int code, bool failed) noexcept;

}  // namespace crosswarp::shmem_c
