#include "runtime.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "settings.hpp"
#include "variables.hpp"
#include "world/state.hpp"

namespace crosswarp::shmem_c {

device::shmem everybody;
const device::shmem nobody;
runtime* job = nullptr;

runtime::runtime()
    : world(options_from_environment()),
      shmem(world),
      all{{}, &shmem.all(), {}, {}},
      shared{{}, &shmem.shared(), {}, {}} {
  for (const memory_range& r : program_variables()) shmem.add_segment(r.base, r.bytes);
  all.view = everybody = all.team->device();
  shared.view = shared.team->device();
  nowhere = shmem.allocate_bytes(1);
  world.barrier();
}

runtime::~runtime() {
  everybody = {};
}

runtime& job_for(const char* name) {
  if (job == nullptr) give_up(name, "shmem_init has not been called");
  return *job;
}

shmem_team_object* team_of(shmem_team_t team) {
  if (team == SHMEM_TEAM_INVALID) return nullptr;
  if (team == SHMEM_TEAM_WORLD) return &job_for("shmem_team").all;
  if (team == SHMEM_TEAM_SHARED) return &job_for("shmem_team").shared;
  return team;
}

void end_job(int code) noexcept {
  std::fflush(nullptr);
  if (job != nullptr) job->world.state().boot->end_job(code);
  _exit(code);
}

namespace {

/// What broke the world, in words.
std::string world_fault() {
  try {
    job->world.check();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "the deadline CROSSWARP_TIMEOUT passed";
}

std::string reason(status s, const call& c) {
  if (job == nullptr) return "shmem_init has not been called";
  if (&c.on == &nobody) return "the context or team is the invalid one";
  if (s != status::invalid) return world_fault();
  if (c.pe == call::no_pe) {
    return "memory that is not symmetric, no such root, or another PE called something else";
  }
  if (!c.on.is_accessible(c.pe)) return "no such PE; there are " + std::to_string(c.on.n_pes());
  return "memory that is not symmetric";
}

[[noreturn]] void tell_and_end(const std::string& what) {
  const std::string who = job == nullptr ? "" : "PE " + std::to_string(job->world.rank()) + ": ";
  const std::string line = "crosswarp: " + who + what + "\n";
  std::fputs(line.c_str(), stderr);
  end_job(1);
}

}  // namespace

namespace {
[[noreturn]] void fail_for(const call& c, status s, const std::string& why) {
  std::string what = c.name;
  if (c.pe != call::no_pe) what += " to PE " + std::to_string(c.pe);
  tell_and_end(what + ": " + to_string(s) + " (" + why + ")");
}
}  // namespace

void call::fail(status s) const {
  fail_for(*this, s, reason(s, *this));
}

void call::check_allocated(const void* at) const {
  if (job == nullptr || job->shmem.is_allocated(at)) return;
  fail_for(*this, status::invalid,
           "memory of the symmetric heap that was freed, or never asked for");
}

void call::fail_by_length(std::size_t n, std::size_t size) const {
  fail_for(*this, status::invalid,
           std::to_string(n) + " elements of " + std::to_string(size) +
               " bytes are more than there can be");
}

void give_up(const char* name, const char* why) {
  tell_and_end(std::string(name) + ": " + why);
}

}  // namespace crosswarp::shmem_c
