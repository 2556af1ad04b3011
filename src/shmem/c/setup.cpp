// From shmem_init to shmem_finalize.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "collectives.hpp"
#include "crosswarp/error.hpp"
#include "settings.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;

namespace {

int thread_level = SHMEM_THREAD_SINGLE;

void leave(const char* call) {
  announce_end(call);
  pshmem_quiet();
  meet(call, purpose::end);
  delete std::exchange(job, nullptr);
}

/// A program that forgot shmem_finalize. One that failed waits for nobody: the others learn that
/// it is gone.
void at_exit(int code, void* /*unused*/) {
  if (job != nullptr && code == 0) leave("the end of the program");
}

void join(int level) {
  if (job != nullptr) return;
  thread_level = level;
  try {
    job = new runtime;
  } catch (const std::exception& e) {
    give_up("shmem_init", e.what());
  }
  on_exit(at_exit, nullptr);
  if (everybody.my_pe() == 0) show_information();
}

}  // namespace

CW_SHMEM(void, init, void) {
  join(SHMEM_THREAD_SINGLE);
}
CW_SHMEM(int, init_thread, int requested, int* provided) {
  if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE) return -1;
  join(requested);
  *provided = thread_level;
  return 0;
}
CW_SHMEM(void, query_thread, int* provided) {
  *provided = thread_level;
}
CW_SHMEM(void, query_initialized, int* initialized) {
  *initialized = job != nullptr ? 1 : 0;
}
CW_SHMEM(void, finalize, void) {
  if (job != nullptr) leave("shmem_finalize");
}
CW_SHMEM(void, global_exit, int status) {
  end_job(status, false);
}

CW_SHMEM(int, my_pe, void) {
  return everybody.my_pe();
}
CW_SHMEM(int, n_pes, void) {
  return everybody.n_pes();
}
CW_SHMEM(void, info_get_version, int* major, int* minor) {
  *major = SHMEM_MAJOR_VERSION;
  *minor = SHMEM_MINOR_VERSION;
}
CW_SHMEM(void, info_get_name, char* name) {
  static_assert(sizeof(SHMEM_VENDOR_STRING) <= SHMEM_MAX_NAME_LEN);
  std::strcpy(name, SHMEM_VENDOR_STRING);
}
/// For tools that put themselves between.
CW_SHMEM(void, pcontrol, int /*level*/, ...) {}

CW_SHMEM_OLD(void, start_pes, int /*npes*/) {
  pshmem_init();
}
CW_SHMEM_OLD(int, _my_pe, void) {
  return pshmem_my_pe();
}
CW_SHMEM_OLD(int, _num_pes, void) {
  return pshmem_n_pes();
}
