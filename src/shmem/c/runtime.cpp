#include "runtime.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "crosswarp/error.hpp"
#include "settings.hpp"
#include "variables.hpp"
#include "world/socket.hpp"
#include "world/state.hpp"

namespace crosswarp::shmem_c {

device::shmem everybody;
const device::shmem nobody;
runtime* job = nullptr;

namespace {

/// Which PE this process was, once shmem_finalize has been called.
int former_pe = -1;

const char* why_no_job() {
  return former_pe < 0 ? "shmem_init has not been called" : "shmem_finalize has been called";
}

}  // namespace

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
  former_pe = world.rank();
  everybody = {};
}

runtime& job_for(const char* name) {
  if (job == nullptr) give_up(name, why_no_job());
  return *job;
}

shmem_team_object* team_of(shmem_team_t team, const char* name) {
  if (team == SHMEM_TEAM_INVALID) return nullptr;
  runtime& r = job_for(name);
  if (team == SHMEM_TEAM_WORLD) return &r.all;
  if (team == SHMEM_TEAM_SHARED) return &r.shared;
  return team;
}

void end_job(int code, bool failed) noexcept {
  std::fflush(nullptr);
  if (job != nullptr) job->world.state().boot->end_job(code, failed);
  _exit(code);
}

namespace {

/// What broke the world, in words.
std::string world_fault() {
  std::string who = "what this PE waits for";
  try {
    job->world.check();
  } catch (const error& e) {
    if (e.code() != errc::timeout) return e.what();
    if (e.peer() >= 0) who = "PE " + std::to_string(e.peer());
  }
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(job->world.options().timeout);
  return who + " did not come within " + std::to_string(limit.count()) +
         " seconds, the limit by CROSSWARP_TIMEOUT";
}

constexpr const char* end_key = "shmem.end";

/// Of a PE that is about to end while this one still calls.
std::string early_end() {
  try {
    constexpr auto moment = std::chrono::milliseconds(200);
    const auto said = job->world.state().boot->get(end_key, moment);
    world_impl::unpacker u(said);
    const int pe = static_cast<int>(u.u32());
    if (pe != job->world.rank()) return "; PE " + std::to_string(pe) + " has come to " + u.text();
  } catch (const error&) {
    // Nobody is.
  }
  return "";
}

std::string why_invalid(const call& c) {
  if (c.pe != call::no_pe && !c.on.is_accessible(c.pe)) {
    return "no such PE; there are " + std::to_string(c.on.n_pes());
  }
  return "memory that is not symmetric";
}

[[noreturn]] void tell_and_end(const std::string& what) {
  const int pe = job == nullptr ? former_pe : job->world.rank();
  const std::string who = pe < 0 ? "" : "PE " + std::to_string(pe) + ": ";
  const std::string line = "crosswarp: " + who + what + "\n";
  std::fputs(line.c_str(), stderr);
  end_job(1, true);
}

}  // namespace

void announce_end(const char* call) noexcept {
  try {
    job->world.state().boot->put(
        end_key,
        world_impl::packer().u32(static_cast<std::uint32_t>(job->world.rank())).text(call).take());
  } catch (const error&) {
    // The world is broken, as the next call says.
  }
}

void call::fail(status s) const {
  fail(s, "", why_invalid(*this));
}

void call::fail(status s, const std::string& of, const std::string& why_invalid) const {
  std::string what = name + of;
  if (pe != no_pe) what += " to PE " + std::to_string(pe);
  std::string why;
  if (job == nullptr) {
    why = why_no_job();
  } else if (&on == &nobody) {
    why = "the context or team is the invalid one";
  } else {
    why = s == status::invalid ? why_invalid : world_fault();
    if (pe == no_pe && (s == status::invalid || s == status::timeout)) why += early_end();
  }
  tell_and_end(what + ": " + to_string(s) + " (" + why + ")");
}

void call::check_allocated(const void* at) const {
  if (job == nullptr || job->shmem.is_allocated(at)) return;
  fail(status::invalid, "", "memory of the symmetric heap that was freed, or never asked for");
}

void call::fail_by_length(std::size_t n, std::size_t size) const {
  fail(status::invalid, "",
       std::to_string(n) + " elements of " + std::to_string(size) +
           " bytes are more than there can be");
}

void give_up(const char* name, const char* why) {
  tell_and_end(std::string(name) + ": " + why);
}

}  // namespace crosswarp::shmem_c
