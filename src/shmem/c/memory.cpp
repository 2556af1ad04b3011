// Symmetric memory.
#include <algorithm>
#include <cstring>

#include "collectives.hpp"
#include "core/log.hpp"
#include "crosswarp/error.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;

namespace {

/// Null when there is no room, or none that is aligned so; anything else that goes wrong ends the
/// job. `alignment` is a power of two.
void* allocate(const char* name, size_t bytes, size_t alignment = 64) {
  meet(name, purpose::allocate);
  try {
    return job->shmem.allocate_bytes(bytes, alignment);
  } catch (const error& e) {
    const bool no_room = e.code() == errc::out_of_memory;
    if (!no_room && e.code() != errc::invalid_argument) give_up(name, e.what());
    if (everybody.my_pe() == 0) {  // all asked for the same
      log::info(0, name, " returns null: ", e.what(),
                no_room ? "; SHMEM_SYMMETRIC_SIZE comes before both" : "");
    }
    return nullptr;
  }
}

void release(const char* name, void* p) {
  if (p == nullptr) return;
  meet(name, purpose::free);
  try {
    job->shmem.free(p);
  } catch (const error& e) {
    give_up(name, e.what());
  }
}

}  // namespace

CW_SHMEM(void*, malloc, size_t size) {
  return allocate("shmem_malloc", size);
}
CW_SHMEM(void*, malloc_with_hints, size_t size, long /*hints*/) {
  return allocate("shmem_malloc_with_hints", size);
}
CW_SHMEM(void*, align, size_t alignment, size_t size) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    give_up("shmem_align", "the alignment is no power of two");
  }
  return allocate("shmem_align", size, std::max<size_t>(alignment, 64));
}
CW_SHMEM(void*, calloc, size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
  void* const p = allocate("shmem_calloc", bytes);
  if (p == nullptr) return nullptr;
  std::memset(p, 0, bytes);
  pshmem_sync_all();  // nobody puts there before it is zero
  return p;
}
CW_SHMEM(void*, realloc, void* ptr, size_t size) {
  if (ptr == nullptr) return allocate("shmem_realloc", size);
  if (size == 0) {
    release("shmem_realloc", ptr);
    return nullptr;
  }
  pshmem_quiet();
  pshmem_sync_all();  // what others put has come before it is copied
  void* const p = allocate("shmem_realloc", size);
  if (p == nullptr) return nullptr;
  std::memcpy(p, ptr, std::min(size, job->shmem.size_of(ptr)));
  release("shmem_realloc", ptr);
  return p;
}
CW_SHMEM(void, free, void* ptr) {
  release("shmem_free", ptr);
}

CW_SHMEM(void*, ptr, const void* dest, int pe) {
  return everybody.ptr(static_cast<const std::byte*>(dest), pe);
}
CW_SHMEM(int, pe_accessible, int pe) {
  return everybody.is_accessible(pe) ? 1 : 0;
}
CW_SHMEM(int, addr_accessible, const void* addr, int pe) {
  return everybody.is_accessible(pe) && everybody.is_symmetric(addr) ? 1 : 0;
}

CW_SHMEM_OLD(void*, shmalloc, size_t size) {
  return pshmem_malloc(size);
}
CW_SHMEM_OLD(void*, shmemalign, size_t alignment, size_t size) {
  return pshmem_align(alignment, size);
}
CW_SHMEM_OLD(void*, shrealloc, void* ptr, size_t size) {
  return pshmem_realloc(ptr, size);
}
CW_SHMEM_OLD(void, shfree, void* ptr) {
  pshmem_free(ptr);
}
